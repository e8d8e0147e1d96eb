//! Projects: make, find, change, keep, delete, restore, move.

use std::collections::BTreeSet;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, OptionalJson, Path, Query},
    page::{self, List, PageQuery},
    params::OfProject,
    removal::RemovalQuery,
    transfer::{BodyReader, BodyWriter, Chunks},
};
use base::event::EventKind;
use engine::project::{
    CleanupItem, CleanupMode, ImportLimits, ProjectChoices,
    cleanup::{self, Decision},
};
use model::{Project, ProjectConfig, ProjectId, SessionRecord, SessionState, ThreadId, Trashed};
use store::{PageRequest, ProjectFilter, ThreadChoices};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(cleanup_plan, cleanup_run))
        .routes(routes!(trash))
        .routes(routes!(import))
        .routes(routes!(show, change, delete))
        .routes(routes!(sessions, open_session))
        .routes(routes!(extend))
        .routes(routes!(pin))
        .routes(routes!(unpin))
        .routes(routes!(restore))
        .routes(routes!(export))
}

/// A project.
#[derive(Debug, Serialize, ToSchema)]
struct Shown {
    /// Its id.
    project_id: String,
    /// The part of it that was chosen.
    prefix: String,
    /// What it is.
    description: String,
    /// A client's own words for it.
    tags: BTreeSet<String>,
    /// What it does otherwise than others.
    #[schema(value_type = Object)]
    config: ProjectConfig,
    /// Whether clean-up leaves it alone for good.
    pinned: bool,
    /// When it is deleted if nothing more is done in it; null is never.
    #[schema(value_type = Option<String>)]
    deletes_at: Option<Timestamp>,
    /// When it was first warned of that.
    #[schema(value_type = Option<String>)]
    warned_at: Option<Timestamp>,
    /// What was done in it.
    statistics: Counts,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// What was done in a project.
#[derive(Debug, Serialize, ToSchema)]
struct Counts {
    /// Sessions opened.
    sessions: u64,
    /// Commands run.
    commands: u64,
    /// Bytes of their output.
    bytes: u64,
    /// Bytes of its files on disk; only where one project is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_access: Timestamp,
}

fn shown(app: &App, project: Project) -> Shown {
    let policy = &app.projects.settings().cleanup;
    Shown {
        deletes_at: cleanup::deletes_at(&project, policy),
        prefix: project.project_id.prefix().to_owned(),
        project_id: project.project_id.to_string(),
        description: project.description,
        tags: project.tags,
        config: project.config,
        pinned: project.pinned,
        warned_at: project.warned_at,
        statistics: Counts {
            sessions: project.statistics.sessions,
            commands: project.statistics.commands,
            bytes: project.statistics.output_bytes,
            disk_bytes: None,
            last_access: project.last_used_at,
        },
        created_at: project.created_at,
        updated_at: project.updated_at,
    }
}

/// Which projects.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those whose id begins with this.
    prefix: Option<String>,
    /// Only those with this tag.
    tag: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// All projects, in the order they were made.
#[utoipa::path(get, path = "/api/projects", tag = "projects", params(ListQuery),
    responses((status = 200, description = "A page of projects", body = List<Shown>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<Shown>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = ProjectFilter { prefix: query.prefix, tag: query.tag };
    let page = app.projects.list(filter, request).await?;
    Ok(axum::Json(page.map(|project| shown(&app, project)).into()))
}

/// A project to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// What its id begins with: `^[a-z][a-z0-9-]{0,31}$`.
    prefix: String,
    /// What it is.
    description: Option<String>,
    /// A client's own words for it.
    tags: Option<BTreeSet<String>>,
    /// What it does otherwise than others.
    #[schema(value_type = Option<Object>)]
    config: Option<ProjectConfig>,
}

/// Make a project. Its id is the prefix, a dash and eight hexadecimal digits.
#[utoipa::path(post, path = "/api/projects", tag = "projects", request_body = Create,
    responses((status = 201, description = "It was made", body = Shown)))]
async fn create(
    State(app): State<App>,
    Json(create): Json<Create>,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    let Create { prefix, description, tags, config } = create;
    let choices = ProjectChoices { description, tags, config };
    let project = app.projects.create(&prefix, choices).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&app, project))))
}

/// A project.
#[utoipa::path(get, path = "/api/projects/{id}", tag = "projects",
    params(OfProject),
    responses((status = 200, description = "It", body = Shown)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<Shown>, Problem> {
    let mut shown = shown(&app, app.projects.project(&id).await?);
    shown.statistics.disk_bytes = Some(app.projects.disk_bytes(&id).await?);
    Ok(axum::Json(shown))
}

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    /// What it is.
    description: Option<String>,
    /// A client's own words for it.
    tags: Option<BTreeSet<String>>,
    /// What it does otherwise than others.
    #[schema(value_type = Option<Object>)]
    config: Option<ProjectConfig>,
}

/// Change a project.
#[utoipa::path(patch, path = "/api/projects/{id}", tag = "projects",
    params(OfProject), request_body = Change,
    responses((status = 200, description = "It was changed", body = Shown)))]
async fn change(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(change): Json<Change>,
) -> Result<axum::Json<Shown>, Problem> {
    let Change { description, tags, config } = change;
    let choices = ProjectChoices { description, tags, config };
    Ok(axum::Json(shown(&app, app.projects.change(&id, choices).await?)))
}

/// Delete a project with its threads. It can be restored for some days.
#[utoipa::path(delete, path = "/api/projects/{id}", tag = "projects",
    params(OfProject, RemovalQuery),
    responses((status = 204, description = "The project is in the trash"),
        (status = 202, description = "The deletion is recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    if let Err(error) = app.projects.project(&id).await {
        let under_way = app.removals.of("project", &id).ok_or(error)?;
        return Ok(under_way.answer(query).await);
    }
    let removing = app.removals.begin("project", &id);
    let gone = app.projects.delete(&id, "deleted by a client").await?;
    Ok(app.end_gone(removing, gone).answer(query).await)
}

/// The record of a session.
#[derive(Debug, Serialize, ToSchema)]
struct Record {
    /// Its id.
    session_id: String,
    /// The thread it is, or was, a window on.
    thread_id: String,
    /// `active`, `idle`, `expired` or `closed`.
    status: &'static str,
    /// When it was opened.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_active_at: Timestamp,
    /// When it ended, if it has.
    #[schema(value_type = Option<String>)]
    ended_at: Option<Timestamp>,
}

impl From<SessionRecord> for Record {
    fn from(record: SessionRecord) -> Record {
        let (status, ended_at) = match record.state {
            SessionState::Active => ("active", None),
            SessionState::Idle => ("idle", None),
            SessionState::Expired { at, .. } => ("expired", Some(at)),
            SessionState::Closed { at } => ("closed", Some(at)),
        };
        Record {
            session_id: record.session_id.to_string(),
            thread_id: record.thread_id.to_string(),
            status,
            created_at: record.created_at,
            last_active_at: record.last_active_at,
            ended_at,
        }
    }
}

/// The sessions of a project, newest first; ended ones, and those of deleted threads, too.
#[utoipa::path(get, path = "/api/projects/{id}/sessions", tag = "projects",
    params(OfProject, PageQuery),
    responses((status = 200, description = "A page of records", body = List<Record>)))]
async fn sessions(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<Record>>, Problem> {
    app.projects.project(&id).await?;
    let request = query.request()?;
    let page = app.store.session_records(&id, request).await?;
    Ok(axum::Json(page.map(Record::from).into()))
}

/// A session to open.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Open {
    /// The thread; a new one if not given.
    #[schema(value_type = Option<String>)]
    thread_id: Option<ThreadId>,
}

/// A thread with an open session.
#[derive(Debug, Serialize, ToSchema)]
struct Opened {
    /// The project.
    project_id: String,
    /// The thread.
    thread_id: String,
    /// Its session.
    session_id: String,
    /// Its default terminal.
    terminal_id: String,
    /// Its lease.
    lease_id: String,
    /// When the session ends if nothing is done in it.
    #[schema(value_type = String)]
    expires_at: Timestamp,
}

/// Open a session: a thread of this project, with its session, terminal and lease.
#[utoipa::path(post, path = "/api/projects/{id}/sessions", tag = "projects",
    params(OfProject), request_body = Open,
    responses((status = 201, description = "It is open", body = Opened)))]
async fn open_session(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    OptionalJson(open): OptionalJson<Open>,
) -> Result<(StatusCode, axum::Json<Opened>), Problem> {
    app.projects.project(&id).await?;
    let thread_id = match open.thread_id {
        Some(thread_id) => thread_id,
        None => format!("{id}-{}", uuid::Uuid::now_v7().simple())
            .parse()
            .map_err(|error| Problem::internal("cannot name a thread", &error))?,
    };
    if let Some(thread) = app.store.thread(&thread_id).await?
        && thread.project_id != id
    {
        let detail = format!("thread {thread_id} belongs to project {}", thread.project_id);
        return Err(Problem::new(Code::Conflict, detail));
    }
    let choices = ThreadChoices { project_id: Some(id.clone()), ..ThreadChoices::default() };
    let (_, made) = app.store.put_thread(app.first_use(&thread_id, choices)).await?;
    if made {
        app.events.publish(EventKind::ThreadCreated { thread_id: thread_id.clone() });
    }
    let chain = app.open_chain(&thread_id).await?;
    let opened = Opened {
        project_id: id.to_string(),
        thread_id: thread_id.to_string(),
        session_id: chain.session.session_id.to_string(),
        terminal_id: chain.terminal.terminal_id.to_string(),
        lease_id: chain.lease.lease_id.to_string(),
        expires_at: chain.session.expires_at(),
    };
    Ok((StatusCode::CREATED, axum::Json(opened)))
}

/// How much longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Extend {
    /// Days, 1 to 3650.
    days: u32,
}

/// Move the clean-up of a project away.
#[utoipa::path(post, path = "/api/projects/{id}/extend", tag = "projects",
    params(OfProject), request_body = Extend,
    responses((status = 200, description = "It is kept longer", body = Shown)))]
async fn extend(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(extend): Json<Extend>,
) -> Result<axum::Json<Shown>, Problem> {
    if extend.days == 0 || extend.days > 3650 {
        return Err(Problem::body("/days", "must be 1 to 3650"));
    }
    Ok(axum::Json(shown(&app, app.projects.extend(&id, extend.days).await?)))
}

/// Keep a project for good.
#[utoipa::path(post, path = "/api/projects/{id}/pin", tag = "projects",
    params(OfProject),
    responses((status = 200, description = "Clean-up leaves it alone", body = Shown)))]
async fn pin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<Shown>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.pin(&id).await?)))
}

/// Keep a project no longer than others.
#[utoipa::path(post, path = "/api/projects/{id}/unpin", tag = "projects",
    params(OfProject),
    responses((status = 200, description = "Clean-up takes it as any other", body = Shown)))]
async fn unpin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<Shown>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.unpin(&id).await?)))
}

/// What clean-up does, or would do, with one project.
#[derive(Debug, Serialize, ToSchema)]
struct Item {
    /// The project.
    project_id: String,
    /// `warn` or `delete`.
    action: &'static str,
    /// When it is deleted.
    #[schema(value_type = String)]
    at: Timestamp,
    /// On which day from now, counted from 1; 0 is at once.
    days_left: u32,
    /// Why.
    reason: String,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_access: Timestamp,
}

fn item(now: Timestamp, item: CleanupItem) -> Item {
    let (action, at, days_left) = match item.decision {
        Decision::Warn { days_left, deletes_at } => ("warn", deletes_at, days_left),
        Decision::Delete | Decision::Keep => ("delete", now, 0),
    };
    let (project_id, reason) = (item.project_id.to_string(), item.reason);
    Item { project_id, action, at, days_left, reason, last_access: item.last_used_at }
}

/// Whether to act.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DryRun {
    /// Only say what would be done.
    dry_run: Option<bool>,
}

/// What clean-up would do at this instant, and why.
#[utoipa::path(get, path = "/api/projects/cleanup", tag = "projects", params(DryRun),
    responses((status = 200, description = "What would be done", body = List<Item>)))]
async fn cleanup_plan(
    State(app): State<App>,
    Query(query): Query<DryRun>,
) -> Result<axum::Json<List<Item>>, Problem> {
    if query.dry_run == Some(false) {
        return Err(Problem::query("dry_run", "a GET changes nothing; POST cleans up"));
    }
    let (items, _) = app.projects.clean_up(CleanupMode::DryRun).await?;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// Look at all projects at once, as is done every day.
#[utoipa::path(post, path = "/api/projects/cleanup", tag = "projects", params(DryRun),
    responses((status = 200, description = "What was done", body = List<Item>)))]
async fn cleanup_run(
    State(app): State<App>,
    Query(query): Query<DryRun>,
) -> Result<axum::Json<List<Item>>, Problem> {
    let mode = if query.dry_run == Some(true) { CleanupMode::DryRun } else { CleanupMode::Act };
    let (items, gone) = app.projects.clean_up(mode).await?;
    let removing = app.removals.begin("projects", &"unused");
    app.end_gone(removing, gone).wait().await;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// A deleted project.
#[derive(Debug, Serialize, ToSchema)]
struct Deleted {
    /// Its id.
    project_id: String,
    /// What it was.
    description: String,
    /// When it was deleted.
    #[schema(value_type = String)]
    deleted_at: Timestamp,
    /// Until when it can be restored.
    #[schema(value_type = String)]
    restorable_until: Timestamp,
    /// Why it was deleted.
    reason: String,
}

/// Deleted projects that can be restored.
#[utoipa::path(get, path = "/api/projects/trash", tag = "projects",
    responses((status = 200, description = "All of them", body = List<Deleted>)))]
async fn trash(State(app): State<App>) -> Result<axum::Json<List<Deleted>>, Problem> {
    let keep = app.projects.settings().trash;
    let deleted = |trashed: Trashed| Deleted {
        project_id: trashed.project_id.to_string(),
        description: trashed.description,
        deleted_at: trashed.deleted_at,
        restorable_until: trashed.deleted_at.saturating_add(keep).unwrap_or(Timestamp::MAX),
        reason: trashed.reason,
    };
    let all = app.projects.trashed().await?;
    Ok(axum::Json(List::whole(all.into_iter().map(deleted).collect())))
}

/// Bring a deleted project back, with its threads, terminals' states, memories and files.
#[utoipa::path(post, path = "/api/projects/{id}/restore", tag = "projects",
    params(OfProject),
    responses((status = 200, description = "It is back", body = Shown)))]
async fn restore(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<Shown>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.restore(&id).await?)))
}

/// The whole project in one file: a tar compressed with zstd.
#[utoipa::path(get, path = "/api/projects/{id}/export", tag = "projects",
    params(OfProject),
    responses((status = 200, description = "The archive", body = Vec<u8>,
        content_type = "application/zstd")))]
async fn export(State(app): State<App>, Path(id): Path<ProjectId>) -> Result<Response, Problem> {
    app.projects.project(&id).await?;
    let estimate = app.projects.disk_bytes(&id).await?;
    let (writer, failure, body) = BodyWriter::new();
    let (projects, project) = (app.projects.clone(), id.clone());
    app.tasks.spawn(async move {
        if let Err(error) = projects.export(&project, writer).await {
            tracing::warn!(%project, %error, "an export was not finished");
            // The client sees a broken body, not one that merely ends.
            let _ = failure.send(Err(std::io::Error::other("the export failed"))).await;
        }
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    let name = format!("attachment; filename=\"{id}.tar.zst\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    headers.insert("x-disk-bytes", estimate.into());
    Ok(response)
}

/// What an archive came to.
#[derive(Debug, Serialize, ToSchema)]
struct Arrived {
    /// The project as it is here.
    project: Shown,
    /// Its threads here.
    threads: Vec<String>,
    /// Files, directories and links that came in.
    entries: u64,
    /// Their bytes.
    bytes: u64,
    /// What the exporting machine could not take along.
    left_out: Vec<String>,
}

/// Take in a project that was exported. It keeps its id where that is free.
#[utoipa::path(post, path = "/api/projects/import", tag = "projects",
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 201, description = "It is here", body = Arrived)))]
async fn import(
    State(app): State<App>,
    body: Body,
) -> Result<(StatusCode, axum::Json<Arrived>), Problem> {
    let limits =
        ImportLimits { bytes: app.settings.project.import_bytes, ..ImportLimits::default() };
    let (reader, pieces) = BodyReader::new();
    let projects = app.projects.clone();
    let importing = tokio::spawn(async move { projects.import(reader, limits).await });
    let mut chunks = Chunks::new(&app, body);
    loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                // It needs no more, or has refused: its answer says which.
                if pieces.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(problem) => {
                let _ = pieces.send(Err(std::io::Error::other("the upload broke off"))).await;
                drop(pieces);
                let _ = importing.await;
                return Err(problem);
            }
        }
    }
    drop(pieces);
    let imported =
        importing.await.map_err(|error| Problem::internal("an import did not end", &error))??;
    let filter = store::ThreadFilter { project_id: Some(imported.project.project_id.clone()) };
    let threads = app.store.threads(filter, PageRequest::first(1000)).await?;
    let arrived = Arrived {
        threads: threads.items.into_iter().map(|thread| thread.thread_id.to_string()).collect(),
        project: shown(&app, imported.project),
        entries: imported.entries,
        bytes: imported.bytes,
        left_out: imported.left_out,
    };
    Ok((StatusCode::CREATED, axum::Json(arrived)))
}
