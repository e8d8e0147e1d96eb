//! The memories of a project: `hot` in RAM, `persistent` on disk.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    files::{self, FileFormat},
    page::List,
    params::ProjectPath,
    transfer::{self, FilePart, FileStat, FileText, WrittenFile},
};
use ::files::{Above, FileError, Tree, TreePath};
use engine::project::InstanceFiles;
use model::{BackendKind, Project, ProjectId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, write, remove))
        .routes(routes!(snapshot))
}

/// Which memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MemoryStore {
    Hot,
    Persistent,
}

impl MemoryStore {
    fn prefix(self) -> &'static str {
        match self {
            MemoryStore::Hot => "/memories/hot",
            MemoryStore::Persistent => "/memories/persistent",
        }
    }

    fn path(self, below: &str) -> Result<TreePath, Problem> {
        // The part below must be a path by itself: it may not change the part above.
        let below = ::files::Relative::parse(below)?;
        Ok(TreePath::parse(&format!("{}/{below}", self.prefix()))?)
    }
}

/// All memories of one kind.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MemoriesPath {
    /// The project
    #[param(value_type = String)]
    id: ProjectId,
    /// `hot` or `persistent`
    #[param(value_type = String)]
    store: MemoryStore,
}

/// One of them, or a directory.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MemoryPath {
    /// The project
    #[param(value_type = String)]
    id: ProjectId,
    /// `hot` or `persistent`
    #[param(value_type = String)]
    store: MemoryStore,
    /// The memory
    path: String,
}

async fn project(app: &App, id: &ProjectId) -> Result<Project, Problem> {
    let project = app.projects.project(id).await?;
    app.projects.touch(id).await;
    Ok(project)
}

async fn tree(app: &App, project: &Project) -> Result<Tree, Problem> {
    let nowhere = InstanceFiles::Nowhere("a project alone has no instance");
    Ok(app.projects.tree(project, nowhere).await?)
}

/// Which page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MemoriesQuery {
    /// Levels; 1 if not given.
    depth: Option<u32>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// The memories of a project.
#[utoipa::path(get, path = "/api/projects/{id}/memories/{store}", tag = "projects",
    params(MemoriesPath, MemoriesQuery),
    responses((status = 200, description = "A page of memories", body = List<FileStat>)))]
async fn list(
    State(app): State<App>,
    Path(MemoriesPath { id, store }): Path<MemoriesPath>,
    Query(query): Query<MemoriesQuery>,
) -> Result<axum::Json<List<FileStat>>, Problem> {
    let tree = tree(&app, &project(&app, &id).await?).await?;
    let (path, cursor) = (store.path("")?, query.cursor.as_deref());
    Ok(axum::Json(files::listed(&tree, &path, query.depth, query.limit, cursor).await?))
}

/// Which part of a memory; or which page, if it is a directory.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MemoryQuery {
    /// Where to begin.
    offset: Option<u64>,
    /// Bytes, or items, at most.
    limit: Option<u64>,
    /// `raw` (default) or `json`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: FileFormat,
    /// Of a directory: levels; 1 if not given.
    depth: Option<u32>,
    /// Of a directory: where the page begins.
    cursor: Option<String>,
}

/// A memory's content; or the list of what is in it, if it is a directory.
#[utoipa::path(get, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    params(MemoryPath, MemoryQuery),
    responses((status = 200, description = "The bytes",
        content((Vec<u8> = "application/octet-stream"), (FileText = "application/json")))))]
async fn read(
    State(app): State<App>,
    Path(MemoryPath { id, store, path }): Path<MemoryPath>,
    Query(query): Query<MemoryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = store.path(&path)?;
    let project = project(&app, &id).await?;
    let is_plain = matches!(query.format, FileFormat::Raw)
        && query.offset.is_none()
        && query.limit.is_none()
        && !headers.contains_key("range");
    let is_hot = match project.config.routes.is_empty() {
        true => store == MemoryStore::Hot,
        false => false,
    };
    if is_plain && is_hot {
        // The way of most reads: from RAM into the answer.
        let memory = app.projects.memory(&id).await?;
        match memory.get(path.relative()) {
            Ok(entry) => {
                let stat = entry.stat(path.relative().as_str());
                return Ok(transfer::send_bytes(&stat, entry.bytes));
            }
            Err(FileError::IsDirectory { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let tree = tree(&app, &project).await?;
    let part = FilePart { offset: query.offset, limit: query.limit };
    let answer = match query.format {
        FileFormat::Raw => transfer::send(&tree, &path, part, &headers).await,
        FileFormat::Json => {
            transfer::text(&tree, &path, part).await.map(|text| axum::Json(text).into_response())
        }
    };
    match answer {
        Err(problem) if problem.code() == super::error::Code::IsADirectory => {
            let limit = query.limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            let cursor = query.cursor.as_deref();
            let page = files::listed(&tree, &path, query.depth, limit, cursor).await?;
            Ok(axum::Json(page).into_response())
        }
        answer => answer,
    }
}

/// Write a memory, atomically; directories above it come into being. `If-None-Match: *` and
/// `If-Match` are understood.
#[utoipa::path(put, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    params(MemoryPath),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It was replaced", body = WrittenFile),
        (status = 201, description = "It was made", body = WrittenFile)))]
async fn write(
    State(app): State<App>,
    Path(MemoryPath { id, store, path }): Path<MemoryPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<WrittenFile>), Problem> {
    let path = store.path(&path)?;
    let tree = tree(&app, &project(&app, &id).await?).await?;
    transfer::receive(&app, &tree, &path, Above::Make, &headers, body).await
}

/// How to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveMemoryQuery {
    /// Remove all below it, too.
    #[serde(default)]
    recursive: bool,
}

/// Remove a memory.
#[utoipa::path(delete, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    params(MemoryPath, RemoveMemoryQuery),
    responses((status = 204, description = "It is gone")))]
async fn remove(
    State(app): State<App>,
    Path(MemoryPath { id, store, path }): Path<MemoryPath>,
    Query(query): Query<RemoveMemoryQuery>,
) -> Result<StatusCode, Problem> {
    let path = store.path(&path)?;
    let tree = tree(&app, &project(&app, &id).await?).await?;
    match query.recursive {
        true => tree.remove_tree(&path).await?,
        false => tree.remove(&path).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What a snapshot came to.
#[derive(Debug, Serialize, ToSchema)]
struct MemorySnapshot {
    /// Whether there was anything that no snapshot had.
    written: bool,
    /// Hot memories there are.
    entries: u64,
    /// Their bytes.
    bytes: u64,
    /// How they are kept.
    #[schema(value_type = String)]
    backend: BackendKind,
}

/// Write a snapshot of the hot memories. They are safe without: this makes the next start faster.
#[utoipa::path(post, path = "/api/projects/{id}/snapshot", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "It is on disk", body = MemorySnapshot)))]
async fn snapshot(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<MemorySnapshot>, Problem> {
    let memory = app.projects.memory(&id).await?;
    let written = memory.snapshot().await?;
    let (entries, bytes) = memory.usage();
    Ok(axum::Json(MemorySnapshot { written, entries, bytes, backend: BackendKind::State }))
}
