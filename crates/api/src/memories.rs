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
    error::{Code, Problem},
    extract::{Path, Query},
    files::{self, FileFormat},
    page::List,
    params::ProjectPath,
    shapes::BinarySchema,
    transfer::{self, FilePart, FileStat, FileText, WrittenFile},
};
use ::files::{Above, FileError, Tree, TreePath};
use model::{BackendKind, Project, ProjectId};
use project::InstanceFiles;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, write, remove))
        .routes(routes!(snapshot))
}

/// The store of a memory.
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
        // The relative part is parsed separately, so that it cannot leave its store.
        let below = ::files::Relative::parse(below)?;
        Ok(TreePath::parse(&format!("{}/{below}", self.prefix()))?)
    }
}

/// The path of a memory store.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MemoriesPath {
    /// Id of the project
    #[param(value_type = String)]
    id: ProjectId,
    /// `hot` or `persistent`
    #[param(value_type = String)]
    store: MemoryStore,
}

/// The path of a memory, or of a directory.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MemoryPath {
    /// Id of the project
    #[param(value_type = String)]
    id: ProjectId,
    /// `hot` or `persistent`
    #[param(value_type = String)]
    store: MemoryStore,
    /// Path of the memory
    path: String,
}

async fn project(app: &App, id: &ProjectId) -> Result<Project, Problem> {
    let project = app.projects.project(id).await?;
    app.projects.touch(id).await;
    Ok(project)
}

async fn tree(app: &App, project: &Project) -> Result<Tree, Problem> {
    let nowhere = InstanceFiles::Nowhere("a project has no instance of its own");
    Ok(app.projects.tree(project, nowhere).await?)
}

/// Selects the depth and the page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MemoriesQuery {
    /// Number of levels; 1 by default.
    depth: Option<u32>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the memories of a project.
#[utoipa::path(get, path = "/api/projects/{id}/memories/{store}", tag = "projects",
    operation_id = "memories.list", params(MemoriesPath, MemoriesQuery),
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

/// Selects a range of a memory, or a page of a directory.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MemoryQuery {
    /// Offset of the first byte; 0 by default.
    offset: Option<u64>,
    /// Maximum number of bytes or, for a directory, items.
    limit: Option<u64>,
    /// `raw` (default) or `json`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: FileFormat,
    /// For a directory: number of levels; 1 by default.
    depth: Option<u32>,
    /// For a directory: the `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Read a memory, or list a directory of memories.
#[utoipa::path(get, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    operation_id = "memories.read", params(MemoryPath, MemoryQuery),
    responses((status = 200, description = "The content; for a directory, a page of its entries",
        content((BinarySchema = "application/octet-stream"), (FileText = "application/json")))))]
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
    let in_memory = app.projects.backend(&project, path.relative()) == Some(BackendKind::State);
    if is_plain && in_memory {
        // The common case: from memory into the response, without a copy.
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
        Err(problem) if problem.code() == Code::IsADirectory => {
            let limit = query.limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            let cursor = query.cursor.as_deref();
            let page = files::listed(&tree, &path, query.depth, limit, cursor).await?;
            Ok(axum::Json(page).into_response())
        }
        answer => answer,
    }
}

/// Write a memory atomically.
///
/// Creates missing parent directories. `If-None-Match: *` and `If-Match` are supported.
#[utoipa::path(put, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    operation_id = "memories.write", params(MemoryPath),
    request_body(content = BinarySchema, content_type = "application/octet-stream"),
    responses((status = 200, description = "The memory was replaced", body = WrittenFile),
        (status = 201, description = "The memory was created", body = WrittenFile)))]
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

/// Options of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveMemoryQuery {
    /// Delete a directory with its content.
    #[serde(default)]
    recursive: bool,
}

/// Delete a memory.
#[utoipa::path(delete, path = "/api/projects/{id}/memories/{store}/{*path}", tag = "projects",
    operation_id = "memories.delete", params(MemoryPath, RemoveMemoryQuery),
    responses((status = 204, description = "The memory was deleted")))]
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

/// The result of a snapshot.
#[derive(Debug, Serialize, ToSchema)]
struct MemorySnapshot {
    /// Whether a snapshot was written; false if the previous one was up to date.
    written: bool,
    /// Number of hot memories.
    entries: u64,
    /// Total size in bytes.
    bytes: u64,
    /// Kind of storage.
    #[schema(value_type = String)]
    backend: BackendKind,
}

/// Write a snapshot of the hot memories of a project.
///
/// Hot memories are durable without it; a recent snapshot makes the next start faster.
#[utoipa::path(post, path = "/api/projects/{id}/snapshot", tag = "projects",
    operation_id = "memories.snapshot", params(ProjectPath),
    responses((status = 200, description = "The snapshot is on disk", body = MemorySnapshot)))]
async fn snapshot(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<MemorySnapshot>, Problem> {
    let memory = app.projects.memory(&id).await?;
    let written = memory.snapshot().await?;
    let (entries, bytes) = memory.usage();
    Ok(axum::Json(MemorySnapshot { written, entries, bytes, backend: BackendKind::State }))
}
