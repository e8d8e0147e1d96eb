//! Threads, their conversation, and what hangs on them: session, default terminal, lease.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    leases::{LeaseView, instance_word, leased},
    messages::MessageView,
    page::{self, List},
    params::ThreadPath,
    removal::RemovalQuery,
};
use model::{ProjectId, Terminal, Thread, ThreadId};
use store::{CommandQuery, Page, PageRequest, ThreadFilter};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, delete))
        .routes(routes!(terminal))
        .routes(routes!(lease))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// Messages shown with a thread; the rest is at `/messages`.
const SHOWN_MESSAGES: u32 = 100;

/// Which threads.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ThreadsQuery {
    /// Only those of this project.
    #[param(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// A thread in a list.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadRow {
    /// Its id.
    thread_id: String,
    /// The project it belongs to.
    project_id: String,
    /// Its default terminal.
    terminal_id: String,
    /// The lease it stands on.
    lease_id: String,
    /// The provider that was asked for.
    provider: Option<String>,
    /// What it stands on.
    sandbox: ThreadRowSandbox,
    /// What was last run in its default terminal.
    last_command: Option<LastCommand>,
    /// Clients that look at its terminals.
    clients: usize,
    /// Who has the keyboard of one of its terminals.
    driver: Option<String>,
    /// A client's own notes.
    labels: BTreeMap<String, String>,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed or used.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// What a thread of a list stands on.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadRowSandbox {
    /// The provider's name.
    #[serde(rename = "type")]
    kind: String,
    /// Of the instance: `running`, `paused`, `dead` or `none`.
    status: &'static str,
}

/// What was run last.
#[derive(Debug, Serialize, ToSchema)]
struct LastCommand {
    /// Its id.
    command_id: String,
    /// Its text, or the beginning of a long one.
    command: String,
    /// Where it is in its life.
    status: &'static str,
    /// Exit code.
    exit_code: Option<i32>,
}

/// Characters of a command that a list shows.
const SHOWN_COMMAND: usize = 200;

/// A row; `attended` is how many look, and who drives.
async fn row(
    app: &App,
    thread: Thread,
    attended: Option<(usize, Option<String>)>,
) -> Result<ThreadRow, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let query = CommandQuery::default();
    let page = app.store.commands(&thread.terminal_id, query, PageRequest::first(1)).await?;
    let (clients, driver) = attended.unwrap_or_default();
    Ok(ThreadRow {
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        terminal_id: thread.terminal_id.to_string(),
        lease_id: thread.lease_id.to_string(),
        provider: thread.provider,
        sandbox: ThreadRowSandbox {
            status: instance_word(lease.as_ref()).unwrap_or("none"),
            kind: lease.map_or_else(String::new, |lease| lease.provider),
        },
        last_command: page.items.into_iter().next().map(|command| LastCommand {
            command_id: command.command_id.to_string(),
            command: command.text.chars().take(SHOWN_COMMAND).collect(),
            status: command.status.word(),
            exit_code: command.exit_code,
        }),
        clients,
        driver,
        labels: thread.labels,
        created_at: thread.created_at,
        updated_at: thread.updated_at,
    })
}

/// All threads, in the order they were made.
#[utoipa::path(get, path = "/api/threads", tag = "threads", params(ThreadsQuery),
    responses((status = 200, description = "A page of threads", body = List<ThreadRow>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ThreadsQuery>,
) -> Result<axum::Json<List<ThreadRow>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = ThreadFilter { project_id: query.project_id };
    let page = app.store.threads(filter, request).await?;
    let mut attended = app.terminals.attended();
    let mut items = Vec::with_capacity(page.items.len());
    for thread in page.items {
        let attended = attended.remove(&thread.thread_id);
        items.push(row(&app, thread, attended).await?);
    }
    Ok(axum::Json(Page { items, next: page.next }.into()))
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ThreadView {
    /// Its id.
    thread_id: String,
    /// The project it belongs to.
    project_id: String,
    /// What was said in it last, oldest first.
    messages: Vec<MessageView>,
    /// What it stands on.
    sandbox: ThreadSandbox,
    /// A client's own notes.
    labels: BTreeMap<String, String>,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed or used.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// What a thread stands on.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadSandbox {
    /// The provider's name.
    #[serde(rename = "type")]
    kind: String,
    /// Of the instance: `running`, `paused`, `dead` or `none`.
    status: &'static str,
    /// The session that is open, or was last.
    session_id: Option<String>,
    /// The default terminal.
    terminal_id: String,
    /// The lease.
    lease_id: String,
}

pub(super) async fn find(app: &App, id: &ThreadId) -> Result<Thread, Problem> {
    app.store.thread(id).await?.ok_or_else(|| Problem::missing("thread", id))
}

pub(super) async fn shown(app: &App, thread: Thread) -> Result<ThreadView, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let session = app.sessions.current(&thread.thread_id).await?;
    let page = app.store.messages(&thread.thread_id, PageRequest::first(SHOWN_MESSAGES)).await?;
    Ok(ThreadView {
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        messages: page.items.into_iter().map(MessageView::from).collect(),
        sandbox: ThreadSandbox {
            kind: lease.as_ref().map_or_else(String::new, |lease| lease.provider.clone()),
            status: instance_word(lease.as_ref()).unwrap_or("none"),
            session_id: session.map(|session| session.session_id.to_string()),
            terminal_id: thread.terminal_id.to_string(),
            lease_id: thread.lease_id.to_string(),
        },
        labels: thread.labels,
        created_at: thread.created_at,
        updated_at: thread.updated_at,
    })
}

/// A thread.
#[utoipa::path(get, path = "/api/threads/{tid}", tag = "threads",
    params(ThreadPath),
    responses((status = 200, description = "It", body = ThreadView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<ThreadView>, Problem> {
    let thread = find(&app, &id).await?;
    Ok(axum::Json(shown(&app, thread).await?))
}

/// Destroy a thread with its session and terminals and, if no other thread shares it, its lease.
#[utoipa::path(delete, path = "/api/threads/{tid}", tag = "threads",
    params(ThreadPath, RemovalQuery),
    responses((status = 204, description = "The thread is deleted"),
        (status = 202, description = "The deletion is recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let removal = match app.store.thread(&id).await? {
        Some(_) => app.delete_thread(&id).await?,
        None => app.removals.of("thread", &id).ok_or_else(|| Problem::missing("thread", &id))?,
    };
    Ok(removal.answer(query).await)
}

/// The default terminal of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct DefaultTerminal {
    /// The thread.
    thread_id: String,
    /// Its id.
    terminal_id: String,
    /// The lease it stands on.
    lease_id: String,
    /// The shell's directory.
    cwd: String,
    /// What its environment has beyond what it started with; null for what was removed.
    #[schema(value_type = Object)]
    env_delta: BTreeMap<String, Option<String>>,
    /// The version of its state.
    version: u64,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

impl From<Terminal> for DefaultTerminal {
    fn from(terminal: Terminal) -> DefaultTerminal {
        DefaultTerminal {
            thread_id: terminal.thread_id.to_string(),
            terminal_id: terminal.terminal_id.to_string(),
            lease_id: terminal.lease_id.to_string(),
            cwd: terminal.cwd,
            env_delta: terminal.env_delta,
            version: terminal.version,
            created_at: terminal.created_at,
            updated_at: terminal.updated_at,
        }
    }
}

/// The state of a thread's default terminal.
#[utoipa::path(get, path = "/api/threads/{tid}/terminal", tag = "threads",
    params(ThreadPath),
    responses((status = 200, description = "It", body = DefaultTerminal)))]
async fn terminal(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<DefaultTerminal>, Problem> {
    let thread = find(&app, &id).await?;
    let terminal = app.store.terminal(&thread.terminal_id).await?;
    let terminal = terminal.ok_or_else(|| Problem::missing("terminal of thread", &id))?;
    Ok(axum::Json(terminal.into()))
}

/// The lease of a thread.
#[utoipa::path(get, path = "/api/threads/{tid}/lease", tag = "threads",
    params(ThreadPath),
    responses((status = 200, description = "It", body = LeaseView)))]
async fn lease(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}

/// Make the instance beneath a thread hold still.
#[utoipa::path(post, path = "/api/threads/{tid}/pause", tag = "threads",
    params(ThreadPath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.leases.pause(&thread.lease_id).await?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}

/// Make the instance beneath a thread go on.
#[utoipa::path(post, path = "/api/threads/{tid}/resume", tag = "threads",
    params(ThreadPath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    app.leases.resume(&thread.lease_id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}
