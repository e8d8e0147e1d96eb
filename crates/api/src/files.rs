//! The files a thread sees: its project's workspace and memories, and its instance's own.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Path, Query},
    page::{self, List},
    params::OfThread,
    sse,
    transfer::{self, FileStat, Part, Text, Written},
};
use engine::project::InstanceFiles;
use files::{
    Above, Below, Happened, SearchLimits, Tree, TreePath, TreeWatch, Watched, memory::Expect,
};
use model::{InstanceState, LeaseId, ThreadId};

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
        .routes(routes!(watch))
}

/// Most levels of a list.
const MAX_DEPTH: u32 = 64;

/// The tree of a thread that exists; looking at its files is use of its project.
async fn tree(app: &App, id: &ThreadId) -> Result<Tree, Problem> {
    let thread = app.store.thread(id).await?.ok_or_else(|| Problem::missing("thread", id))?;
    let project = app.projects.project(&thread.project_id).await?;
    let instance = instance_files(app, &thread.lease_id).await?;
    app.projects.touch(&project.project_id).await;
    Ok(app.projects.tree(&project, instance).await?)
}

/// Where the files of a thread's instance are. What is not running is not started for a look.
async fn instance_files(app: &App, lease: &LeaseId) -> Result<InstanceFiles, Problem> {
    let nowhere = InstanceFiles::Nowhere;
    let Some(lease) = app.store.lease(lease).await? else {
        return Ok(nowhere("there is no instance yet"));
    };
    let Ok(provider) = app.leases.providers().named(&lease.provider) else {
        return Ok(nowhere("its provider is not known here"));
    };
    if lease.provider == "local" {
        return Ok(InstanceFiles::At("/".into()));
    }
    let Some((instance, InstanceState::Running | InstanceState::Paused)) = lease.instance() else {
        return Ok(nowhere("no instance is running; the next exec starts one"));
    };
    let no_files = nowhere("this provider's own files are reached by exec only");
    let Some(mounts) = provider.mounts() else { return Ok(no_files) };
    Ok(match mounts.root(instance).await {
        Ok(Some(root)) => InstanceFiles::At(root),
        Ok(None) => no_files,
        Err(_) => nowhere("no instance is running; the next exec starts one"),
    })
}

fn parse(path: &str) -> Result<TreePath, Problem> {
    Ok(TreePath::parse(path)?)
}

/// Which part of a file, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// The file.
    path: String,
    /// Where to begin; 0 if not given.
    offset: Option<u64>,
    /// Bytes at most.
    limit: Option<u64>,
    /// `raw` (default) or `json`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: Format,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Raw,
    Json,
}

/// A file's content, or a part of it: raw bytes, or JSON with `format=json`. `Range` is understood.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/read", tag = "files",
    params(OfThread, ReadQuery),
    responses((status = 200, description = "The bytes; `X-Size` and `ETag` are the whole file's",
        content((Vec<u8> = "application/octet-stream"), (Text = "application/json"))),
        (status = 206, description = "The range asked for")))]
async fn read(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    let part = Part { offset: query.offset, limit: query.limit };
    match query.format {
        Format::Raw => transfer::send(&tree, &path, part, &headers).await,
        Format::Json => Ok(axum::Json(transfer::text(&tree, &path, part).await?).into_response()),
    }
}

/// Where to write.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// The file.
    path: String,
    /// Make the directories above it.
    #[serde(default)]
    create_dirs: bool,
}

/// Write a whole file, atomically. `If-None-Match: *` writes only what is not there; `If-Match`
/// only what was not changed.
#[utoipa::path(put, path = "/api/threads/{tid}/fs/write", tag = "files",
    params(OfThread, WriteQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It was replaced", body = Written),
        (status = 201, description = "It was made", body = Written)))]
async fn write(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<Written>), Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    let above = if query.create_dirs { Above::Make } else { Above::MustExist };
    transfer::receive(&app, &tree, &path, above, &headers, body).await
}

/// Which directory, how deep, and which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The directory.
    path: String,
    /// Levels below it; 1 if not given.
    depth: Option<u32>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// What is in a directory, each directory right before what is in it.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/list", tag = "files",
    params(OfThread, ListQuery),
    responses((status = 200, description = "A page of files", body = List<FileStat>)))]
async fn list(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<FileStat>>, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    let page = listed(&tree, &path, query.depth, query.limit, query.cursor.as_deref()).await?;
    Ok(axum::Json(page))
}

/// A page of what is in a directory.
pub(super) async fn listed(
    tree: &Tree,
    path: &TreePath,
    depth: Option<u32>,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<List<FileStat>, Problem> {
    let depth = depth.unwrap_or(1);
    if depth == 0 || depth > MAX_DEPTH {
        return Err(Problem::query("depth", format!("must be 1 to {MAX_DEPTH}")));
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
        .ok_or_else(|| Problem::query("cursor", "is not a cursor of this list"))
}

/// Which file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PathQuery {
    /// The file or directory.
    path: String,
}

/// What is known of a file; a link is not followed.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/stat", tag = "files",
    params(OfThread, PathQuery),
    responses((status = 200, description = "It", body = FileStat)))]
async fn stat(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<PathQuery>,
) -> Result<axum::Json<FileStat>, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    Ok(axum::Json(tree.stat(&path).await?.into()))
}

/// A directory to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Mkdir {
    /// The directory.
    path: String,
    /// Make those above it, and take one that is there for made.
    #[serde(default)]
    create_dirs: bool,
}

/// Make a directory.
#[utoipa::path(post, path = "/api/threads/{tid}/fs/mkdir", tag = "files",
    params(OfThread), request_body = Mkdir,
    responses((status = 201, description = "It was made", body = FileStat)))]
async fn mkdir(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(mkdir): Json<Mkdir>,
) -> Result<(StatusCode, axum::Json<FileStat>), Problem> {
    let path = parse(&mkdir.path)?;
    let tree = tree(&app, &id).await?;
    let above = if mkdir.create_dirs { Above::Make } else { Above::MustExist };
    tree.make_directory(&path, above).await?;
    Ok((StatusCode::CREATED, axum::Json(tree.stat(&path).await?.into())))
}

/// Something to move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    /// What.
    from: String,
    /// Its other path.
    to: String,
    /// Replace a file that is there.
    #[serde(default)]
    overwrite: bool,
}

/// Give a file or a directory another path.
#[utoipa::path(post, path = "/api/threads/{tid}/fs/move", tag = "files",
    params(OfThread), request_body = Move,
    responses((status = 200, description = "It is there", body = FileStat)))]
async fn rename(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(asked): Json<Move>,
) -> Result<axum::Json<FileStat>, Problem> {
    let (from, to) = (parse(&asked.from)?, parse(&asked.to)?);
    let tree = tree(&app, &id).await?;
    let expect = if asked.overwrite { Expect::Anything } else { Expect::Absent };
    tree.rename(&from, &to, expect).await?;
    Ok(axum::Json(tree.stat(&to).await?.into()))
}

/// What to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveQuery {
    /// The file or directory.
    path: String,
    /// Remove all below it, too.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, or a directory with all below it; links are removed, not followed.
#[utoipa::path(delete, path = "/api/threads/{tid}/fs/remove", tag = "files",
    params(OfThread, RemoveQuery),
    responses((status = 204, description = "It is gone")))]
async fn remove(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RemoveQuery>,
) -> Result<StatusCode, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    match query.recursive {
        true => tree.remove_tree(&path).await?,
        false => tree.remove(&path).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What to search for, and where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// The file or directory.
    path: String,
    /// A regular expression, matched line by line.
    pattern: String,
    /// Matches at most; 100 if not given.
    limit: Option<u32>,
}

/// A line that the pattern is in.
#[derive(Debug, Serialize, ToSchema)]
struct Line {
    /// The file.
    path: String,
    /// Which line, from 1.
    line: u64,
    /// Where in the line, in bytes, from 1.
    column: u64,
    /// The line, cut if it is long.
    text: String,
}

/// What a search found.
#[derive(Debug, Serialize, ToSchema)]
struct Lines {
    /// The lines.
    items: Vec<Line>,
    /// Files looked into.
    files: u64,
    /// Whether there may be more.
    truncated: bool,
    /// Why, if so.
    reason: Option<&'static str>,
}

/// Search the content of files; linear in their size, and limited in matches, bytes and time.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/search", tag = "files",
    params(OfThread, SearchQuery),
    responses((status = 200, description = "The lines", body = Lines)))]
async fn search(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<SearchQuery>,
) -> Result<axum::Json<Lines>, Problem> {
    let path = parse(&query.path)?;
    let limit = page::items(query.limit)?;
    let tree = tree(&app, &id).await?;
    let limits = SearchLimits { matches: limit as usize, ..SearchLimits::default() };
    let found = tree.search(&path, &query.pattern, limits).await?;
    let line = |found: files::Match| Line {
        path: found.path,
        line: found.line,
        column: found.column,
        text: found.text,
    };
    Ok(axum::Json(Lines {
        items: found.matches.into_iter().map(line).collect(),
        files: found.files,
        truncated: found.stopped.is_some(),
        reason: found.stopped,
    }))
}

/// What to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    /// The file or directory.
    path: String,
    /// Watch all below it, not only what is in it.
    #[serde(default)]
    recursive: bool,
}

/// Changes of files as they happen: `ready` first, then `created`, `modified`, `removed` with
/// `{path}`; `lost` when some were left out, `partial` when there are too many directories, and
/// `gone` at the end.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/watch", tag = "files",
    params(OfThread, WatchQuery),
    responses((status = 200, description = "Events", body = String,
        content_type = "text/event-stream")))]
async fn watch(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<WatchQuery>,
) -> Result<Response, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    let below = if query.recursive { Below::All } else { Below::Children };
    let watch = tree.watch(&path, below).await?;
    let ready = sse::event("ready", &json!({"path": path.to_string()}));
    let events = stream::unfold((Some(ready), Some(watch)), async |(ready, watch)| {
        if let Some(ready) = ready {
            return Some((ready, (None, watch)));
        }
        let mut watch = watch?;
        let (event, goes_on) = next(&mut watch).await;
        Some((event, (None, goes_on.then_some(watch))))
    });
    Ok(sse::stream(&app, events))
}

/// The next event, and whether others follow.
async fn next(watch: &mut TreeWatch) -> (sse::Event, bool) {
    match watch.next().await {
        Ok(Watched::Event(event)) => {
            let name = match event.what {
                Happened::Created | Happened::Appeared => "created",
                Happened::Modified | Happened::Permitted => "modified",
                Happened::Removed | Happened::MovedAway => "removed",
            };
            (sse::event(name, &json!({"path": event.path})), true)
        }
        Ok(Watched::Lost) => {
            (sse::event("lost", &json!({"detail": "some events were left out; list again"})), true)
        }
        Ok(Watched::Partly) => {
            (sse::event("partial", &json!({"detail": "not all directories are watched"})), true)
        }
        Ok(Watched::Gone) => (sse::event("gone", &json!({"detail": "it is gone"})), false),
        Err(error) => {
            tracing::warn!(%error, "cannot go on watching");
            (sse::event("gone", &json!({"detail": "it cannot be watched any more"})), false)
        }
    }
}
