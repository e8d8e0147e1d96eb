//! Sessions: of one thread, and of all.

use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    page::{self, List},
    params::ThreadPath,
    shapes::SessionPolicySchema,
};
use model::{ChatSession, EndReason, SessionPolicy, SessionState, SessionStatus, ThreadId};
use store::Page;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(touch))
        .routes(routes!(close))
}

/// A session of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct SessionView {
    /// Id of the thread.
    thread_id: String,
    /// Id of the session.
    session_id: String,
    /// Id of the thread's default terminal.
    terminal_id: String,
    /// `active`, `idle`, `expired` or `closed`.
    #[schema(value_type = String)]
    status: SessionStatus,
    /// The limit that expired the session: `idle_timeout`, `max_duration`, `max_running` or `max_cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    ended: Option<EndReason>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last activity.
    #[schema(value_type = String)]
    last_active_at: Timestamp,
    /// Time at which the session expires without further activity, or at which it ended.
    #[schema(value_type = String)]
    expires_at: Timestamp,
    /// Limits of the session.
    #[schema(value_type = SessionPolicySchema)]
    policy: SessionPolicy,
}

impl From<ChatSession> for SessionView {
    fn from(session: ChatSession) -> SessionView {
        SessionView {
            thread_id: session.thread_id.to_string(),
            session_id: session.session_id.to_string(),
            terminal_id: session.terminal_id.to_string(),
            status: session.status(),
            ended: match session.state {
                SessionState::Expired { ended, .. } => Some(ended),
                SessionState::Active | SessionState::Idle | SessionState::Closed { .. } => None,
            },
            created_at: session.created.at,
            last_active_at: session.last_active.at,
            expires_at: session.expires_at(),
            policy: session.policy,
        }
    }
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionsQuery {
    /// Only sessions with this status: `active`, `idle`, `expired` or `closed`.
    status: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the sessions of all threads, newest first.
///
/// Includes ended sessions. With `status` a page may hold fewer items than `limit`; the list ends where
/// `next_cursor` is null.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions",
    operation_id = "sessions.list", params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = List<SessionView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<SessionsQuery>,
) -> Result<axum::Json<List<SessionView>>, Problem> {
    let status = match query.status.as_deref() {
        None => None,
        Some("active") => Some(SessionStatus::Active),
        Some("idle") => Some(SessionStatus::Idle),
        Some("expired") => Some(SessionStatus::Expired),
        Some("closed") => Some(SessionStatus::Closed),
        Some(_) => {
            return Err(Problem::query("status", "must be active, idle, expired or closed"));
        }
    };
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let Page { items, next } = app.sessions.list(status, request).await?;
    let items = items.into_iter().map(SessionView::from).collect();
    Ok(axum::Json(Page { items, next }.into()))
}

async fn require_thread(app: &App, id: &ThreadId) -> Result<(), Problem> {
    let found = app.store.thread(id).await?;
    found.map(drop).ok_or_else(|| Problem::missing("thread", id))
}

/// Get the session of a thread.
///
/// Returns the open session or, if there is none, the last one.
#[utoipa::path(get, path = "/api/threads/{tid}/session", tag = "threads",
    operation_id = "sessions.get", params(ThreadPath),
    responses((status = 200, description = "The session", body = SessionView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SessionView>, Problem> {
    require_thread(&app, &id).await?;
    let session = app.sessions.current(&id).await?;
    let session = session.ok_or_else(|| Problem::missing("session of thread", &id))?;
    Ok(axum::Json(session.into()))
}

/// Keep the session of a thread alive.
///
/// Resets its idle timeout; opens a session if none is open.
#[utoipa::path(post, path = "/api/threads/{tid}/session/touch", tag = "threads",
    operation_id = "sessions.touch", params(ThreadPath),
    responses((status = 200, description = "The session", body = SessionView)))]
async fn touch(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SessionView>, Problem> {
    require_thread(&app, &id).await?;
    app.open_chain(&id).await?;
    Ok(axum::Json(app.sessions.touch_durably(&id).await?.into()))
}

/// Close the session of a thread.
///
/// The next use of the thread opens a new session.
#[utoipa::path(post, path = "/api/threads/{tid}/session/close", tag = "threads",
    operation_id = "sessions.close", params(ThreadPath),
    responses((status = 200, description = "The closed session", body = SessionView)))]
async fn close(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SessionView>, Problem> {
    require_thread(&app, &id).await?;
    Ok(axum::Json(app.sessions.close(&id).await?.into()))
}
