//! The sessions of a project: open one, list the records of all.

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{OptionalJson, Path, Query},
    page::{List, PageQuery},
    params::ProjectPath,
};
use base::event::EventKind;
use model::{ProjectId, SessionRecord, SessionState, ThreadId};
use store::ThreadChoices;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, open))
}

/// The record of a session.
#[derive(Debug, Serialize, ToSchema)]
struct SessionRecordView {
    /// Id of the session.
    session_id: String,
    /// Id of its thread.
    thread_id: String,
    /// `active`, `idle`, `expired` or `closed`.
    status: &'static str,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last activity.
    #[schema(value_type = String)]
    last_active_at: Timestamp,
    /// Time of its end; null while it is open.
    #[schema(value_type = Option<String>)]
    ended_at: Option<Timestamp>,
}

impl From<SessionRecord> for SessionRecordView {
    fn from(record: SessionRecord) -> SessionRecordView {
        let (status, ended_at) = match record.state {
            SessionState::Active => ("active", None),
            SessionState::Idle => ("idle", None),
            SessionState::Expired { at, .. } => ("expired", Some(at)),
            SessionState::Closed { at } => ("closed", Some(at)),
        };
        SessionRecordView {
            session_id: record.session_id.to_string(),
            thread_id: record.thread_id.to_string(),
            status,
            created_at: record.created_at,
            last_active_at: record.last_active_at,
            ended_at,
        }
    }
}

/// List the sessions of a project, newest first.
///
/// Includes ended sessions and those of deleted threads.
#[utoipa::path(get, path = "/api/projects/{id}/sessions", tag = "projects",
    operation_id = "projects.list_sessions", params(ProjectPath, PageQuery),
    responses((status = 200, description = "A page of session records", body = List<SessionRecordView>)))]
async fn list(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<SessionRecordView>>, Problem> {
    app.projects.project(&id).await?;
    let request = query.request()?;
    let page = app.store.session_records(&id, request).await?;
    Ok(axum::Json(page.map(SessionRecordView::from).into()))
}

/// A session to open.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"thread_id": "agent-1"}))]
struct NewProjectSession {
    /// Id of the thread; a new thread by default.
    #[schema(value_type = Option<String>)]
    thread_id: Option<ThreadId>,
}

/// A thread with an open session.
#[derive(Debug, Serialize, ToSchema)]
struct ProjectSession {
    /// Id of the project.
    project_id: String,
    /// Id of the thread.
    thread_id: String,
    /// Id of the session.
    session_id: String,
    /// Id of the default terminal.
    terminal_id: String,
    /// Id of the lease.
    lease_id: String,
    /// Time at which the session expires without activity.
    #[schema(value_type = String)]
    expires_at: Timestamp,
}

/// Open a session in a project.
///
/// Creates a thread with its session, terminal and lease, or opens a session of an existing thread.
#[utoipa::path(post, path = "/api/projects/{id}/sessions", tag = "projects",
    operation_id = "projects.open_session", params(ProjectPath), request_body = NewProjectSession,
    responses((status = 201, description = "The thread with its open session", body = ProjectSession)))]
async fn open(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    OptionalJson(request): OptionalJson<NewProjectSession>,
) -> Result<(StatusCode, axum::Json<ProjectSession>), Problem> {
    app.projects.project(&id).await?;
    let thread_id = match request.thread_id {
        Some(thread_id) => thread_id,
        None => format!("{id}-{}", uuid::Uuid::now_v7().simple())
            .parse()
            .map_err(|error| Problem::internal("cannot generate a thread id", &error))?,
    };
    if let Some(thread) = app.store.thread(&thread_id).await?
        && thread.project_id != id
    {
        let detail = format!("thread {thread_id} belongs to project {}", thread.project_id);
        return Err(Problem::new(Code::Conflict, detail));
    }
    let choices = ThreadChoices { project_id: Some(id.clone()), ..ThreadChoices::default() };
    let (_, created) = app.store.put_thread(app.first_use(&thread_id, choices)).await?;
    if created {
        app.events.publish(EventKind::ThreadCreated { thread_id: thread_id.clone() });
    }
    let chain = app.open_chain(&thread_id).await?;
    let opened = ProjectSession {
        project_id: id.to_string(),
        thread_id: thread_id.to_string(),
        session_id: chain.session.session_id.to_string(),
        terminal_id: chain.terminal.terminal_id.to_string(),
        lease_id: chain.lease.lease_id.to_string(),
        expires_at: chain.session.expires_at(),
    };
    Ok((StatusCode::CREATED, axum::Json(opened)))
}
