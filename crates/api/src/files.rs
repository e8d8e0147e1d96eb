//! The files of a thread: the workspace and memories of its project, and the files of its instance.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Path, Query},
    page::{self, List},
    params::ThreadPath,
    shapes::BinarySchema,
    transfer::{self, FilePart, FileStat, FileText, WrittenFile},
};
use files::{Above, RemoteDirectory, SearchLimits, Tree, TreePath, memory::Expect};
use machine::with_identity_of;
use model::{InstanceState, LeaseId, Thread, ThreadId};
use project::{InstanceFiles, NOT_RUNNING};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(write))
        .routes(routes!(list))
        .routes(routes!(stat))
        .routes(routes!(mkdir))
        .routes(routes!(rename))
        .routes(routes!(remove))
        .routes(routes!(search))
}

/// The provider whose instances have the files of this machine.
const LOCAL: &str = "local";

/// Maximum depth of a listing.
const MAX_DEPTH_LEVELS: u32 = 64;

/// Returns the files of an existing thread for a use of these paths. Access counts as activity of its project, and
/// starts or resumes the instance if one of the paths is outside of the project's own files.
pub(super) async fn tree(app: &App, id: &ThreadId, paths: &[&TreePath]) -> Result<Tree, Problem> {
    let thread = app.store.thread(id).await?.ok_or_else(|| Problem::missing("thread", id))?;
    let project = app.projects.project(&thread.project_id).await?;
    let is_inside = |path: &&TreePath| app.projects.backend(&project, path.relative()).is_none();
    if paths.iter().any(is_inside) && needs_instance(app, &thread).await? {
        app.wake(&thread).await?;
    }
    let instance = instance_files(app, &thread.lease_id).await?;
    app.projects.touch(&project.project_id).await;
    Ok(app.projects.tree(&project, instance).await?)
}

/// Whether the files outside of the project are accessible only while an instance runs. Those of this machine always
/// are, but the use of a sandbox resumes it there, too.
async fn needs_instance(app: &App, thread: &Thread) -> Result<bool, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    Ok(lease.is_none_or(|lease| lease.provider != LOCAL)
        || app.sandboxes.get(&thread.thread_id).await?.is_some())
}

/// Returns the root of the files of a thread's instance. Does not start an instance.
async fn instance_files(app: &App, lease: &LeaseId) -> Result<InstanceFiles, Problem> {
    let nowhere = InstanceFiles::Nowhere;
    let Some(lease) = app.store.lease(lease).await? else {
        return Ok(nowhere("there is no instance yet"));
    };
    let Ok(provider) = app.leases.providers().named(&lease.provider) else {
        return Ok(nowhere("the provider of the lease is not configured"));
    };
    if lease.provider == LOCAL {
        return Ok(InstanceFiles::At("/".into()));
    }
    if provider.scripts().is_some() {
        let files = match lease.instance() {
            Some((instance, InstanceState::Running)) => {
                let files = RemoteDirectory::new(provider.clone(), instance.clone());
                files.ok_or("the provider has no access to files")
            }
            Some((_, InstanceState::Paused)) => Err("the instance is paused; resume it first"),
            Some(_) | None => Err(NOT_RUNNING),
        };
        return Ok(InstanceFiles::Remote(files));
    }
    let Some((instance, InstanceState::Running | InstanceState::Paused)) = lease.instance() else {
        return Ok(nowhere(NOT_RUNNING));
    };
    let no_files = nowhere("files of this provider can only be accessed by exec");
    let Some(mounts) = provider.mounts() else { return Ok(no_files) };
    Ok(match mounts.root(instance).await {
        Ok(Some(root)) => InstanceFiles::InSandbox { root, identity: with_identity_of },
        Ok(None) => no_files,
        Err(_) => nowhere(NOT_RUNNING),
    })
}

pub(super) fn parse(path: &str) -> Result<TreePath, Problem> {
    Ok(TreePath::parse(path)?)
}

/// Selects a file, a range and a format.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadFileQuery {
    /// Path of the file.
    path: String,
    /// Offset of the first byte; 0 by default.
    offset: Option<u64>,
    /// Maximum number of bytes.
    limit: Option<u64>,
    /// `raw` (default) or `json`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: FileFormat,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileFormat {
    #[default]
    Raw,
    Json,
}

/// Read a file, whole or in part.
///
/// Returns raw bytes, or JSON with `format=json`. The `Range` header is supported.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/read", tag = "files",
    operation_id = "files.read", params(ThreadPath, ReadFileQuery),
    responses((status = 200, description = "The content. `X-Size` and `ETag` describe the whole file",
        content((BinarySchema = "application/octet-stream"), (FileText = "application/json"))),
        (status = 206, description = "The requested range")))]
async fn read(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<ReadFileQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let part = FilePart { offset: query.offset, limit: query.limit };
    match query.format {
        FileFormat::Raw => transfer::send(&tree, &path, part, &headers).await,
        FileFormat::Json => {
            Ok(axum::Json(transfer::text(&tree, &path, part).await?).into_response())
        }
    }
}

/// Selects the file to write.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteFileQuery {
    /// Path of the file.
    path: String,
    /// Create missing parent directories.
    #[serde(default)]
    create_dirs: bool,
}

/// Write a whole file atomically.
///
/// With `If-None-Match: *` the file must not exist; with `If-Match` it must not have changed.
#[utoipa::path(put, path = "/api/threads/{tid}/fs/write", tag = "files",
    operation_id = "files.write", params(ThreadPath, WriteFileQuery),
    request_body(content = BinarySchema, content_type = "application/octet-stream"),
    responses((status = 200, description = "The file was replaced", body = WrittenFile),
        (status = 201, description = "The file was created", body = WrittenFile)))]
async fn write(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<WriteFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<WrittenFile>), Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let above = if query.create_dirs { Above::Make } else { Above::MustExist };
    transfer::receive(&app, &tree, &path, above, &headers, body).await
}

/// Selects a directory, a depth and a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListFilesQuery {
    /// Path of the directory.
    path: String,
    /// Number of levels; 1 by default, 64 at most.
    depth: Option<u32>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List a directory.
///
/// Each directory is followed by its own entries.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/list", tag = "files",
    operation_id = "files.list", params(ThreadPath, ListFilesQuery),
    responses((status = 200, description = "A page of files", body = List<FileStat>)))]
async fn list(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<ListFilesQuery>,
) -> Result<axum::Json<List<FileStat>>, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let page = listed(&tree, &path, query.depth, query.limit, query.cursor.as_deref()).await?;
    Ok(axum::Json(page))
}

/// Returns a page of the entries of a directory.
pub(super) async fn listed(
    tree: &Tree,
    path: &TreePath,
    depth: Option<u32>,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<List<FileStat>, Problem> {
    let depth = depth.unwrap_or(1);
    if depth == 0 || depth > MAX_DEPTH_LEVELS {
        return Err(Problem::query("depth", format!("must be 1 to {MAX_DEPTH_LEVELS}")));
    }
    let limit = page::items(limit)? as usize;
    let after = cursor.map(after).transpose()?;
    let mut found = tree.list(path, depth, after.as_ref(), limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor =
        found.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(last.path.as_bytes()));
    Ok(List { items: found.into_iter().map(FileStat::from).collect(), next_cursor })
}

fn after(cursor: &str) -> Result<TreePath, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|path| TreePath::parse(&path).ok())
        .ok_or_else(|| Problem::query("cursor", "not a cursor of this list"))
}

/// Selects a file or directory.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FilePathQuery {
    /// Path of the file or directory.
    path: String,
}

/// Get the metadata of a file or directory.
///
/// Symbolic links are not followed.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/stat", tag = "files",
    operation_id = "files.stat", params(ThreadPath, FilePathQuery),
    responses((status = 200, description = "The metadata", body = FileStat)))]
async fn stat(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<FilePathQuery>,
) -> Result<axum::Json<FileStat>, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    Ok(axum::Json(tree.stat(&path).await?.into()))
}

/// A directory to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"path": "/workspace/src", "create_dirs": true}))]
struct NewDirectory {
    /// Path of the directory.
    path: String,
    /// Create missing parent directories, and accept an existing directory.
    #[serde(default)]
    create_dirs: bool,
}

/// Create a directory.
#[utoipa::path(post, path = "/api/threads/{tid}/fs/mkdir", tag = "files",
    operation_id = "files.mkdir", params(ThreadPath), request_body = NewDirectory,
    responses((status = 201, description = "The directory was created", body = FileStat)))]
async fn mkdir(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(mkdir): Json<NewDirectory>,
) -> Result<(StatusCode, axum::Json<FileStat>), Problem> {
    let path = parse(&mkdir.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let above = if mkdir.create_dirs { Above::Make } else { Above::MustExist };
    tree.make_directory(&path, above).await?;
    Ok((StatusCode::CREATED, axum::Json(tree.stat(&path).await?.into())))
}

/// A file or directory to move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "/workspace/a.txt", "to": "/workspace/b.txt"}))]
struct MoveFile {
    /// Current path.
    from: String,
    /// New path.
    to: String,
    /// Replace an existing file.
    #[serde(default)]
    overwrite: bool,
}

/// Move or rename a file or directory.
#[utoipa::path(post, path = "/api/threads/{tid}/fs/move", tag = "files",
    operation_id = "files.move", params(ThreadPath), request_body = MoveFile,
    responses((status = 200, description = "The metadata at the new path", body = FileStat)))]
async fn rename(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(request): Json<MoveFile>,
) -> Result<axum::Json<FileStat>, Problem> {
    let (from, to) = (parse(&request.from)?, parse(&request.to)?);
    let tree = tree(&app, &id, &[&from, &to]).await?;
    let expect = if request.overwrite { Expect::Anything } else { Expect::Absent };
    tree.rename(&from, &to, expect).await?;
    Ok(axum::Json(tree.stat(&to).await?.into()))
}

/// Selects the file or directory to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveFileQuery {
    /// Path of the file or directory.
    path: String,
    /// Delete a directory with its content.
    #[serde(default)]
    recursive: bool,
}

/// Delete a file or directory.
///
/// Symbolic links are deleted, not followed.
#[utoipa::path(delete, path = "/api/threads/{tid}/fs/remove", tag = "files",
    operation_id = "files.delete", params(ThreadPath, RemoveFileQuery),
    responses((status = 204, description = "The file was deleted")))]
async fn remove(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RemoveFileQuery>,
) -> Result<StatusCode, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    match query.recursive {
        true => tree.remove_tree(&path).await?,
        false => tree.remove(&path).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Selects the files and the pattern.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FileSearchQuery {
    /// Path of the file or directory.
    path: String,
    /// A regular expression, matched line by line.
    pattern: String,
    /// Maximum number of matches; 100 by default, 1000 at most.
    limit: Option<u32>,
}

/// A line that matches the pattern.
#[derive(Debug, Serialize, ToSchema)]
struct SearchMatch {
    /// Path of the file.
    path: String,
    /// Line number, from 1.
    line: u64,
    /// Position of the match in the line in bytes, from 1.
    column: u64,
    /// Text of the line; long lines are truncated.
    text: String,
}

/// The result of a search.
#[derive(Debug, Serialize, ToSchema)]
struct SearchMatches {
    /// The matching lines.
    items: Vec<SearchMatch>,
    /// Number of files searched.
    files: u64,
    /// Whether there may be more matches.
    truncated: bool,
    /// The limit that ended the search early.
    reason: Option<&'static str>,
}

/// Search the content of files with a regular expression.
///
/// Matching is linear in the size of the files; matches, bytes and time are limited.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/search", tag = "files",
    operation_id = "files.search", params(ThreadPath, FileSearchQuery),
    responses((status = 200, description = "The matching lines", body = SearchMatches)))]
async fn search(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<FileSearchQuery>,
) -> Result<axum::Json<SearchMatches>, Problem> {
    let path = parse(&query.path)?;
    let limit = page::items(query.limit)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let limits = SearchLimits { matches: limit as usize, ..SearchLimits::default() };
    let found = tree.search(&path, &query.pattern, limits).await?;
    let line = |found: files::Match| SearchMatch {
        path: found.path,
        line: found.line,
        column: found.column,
        text: found.text,
    };
    Ok(axum::Json(SearchMatches {
        items: found.matches.into_iter().map(line).collect(),
        files: found.files,
        truncated: found.stopped.is_some(),
        reason: found.stopped,
    }))
}
