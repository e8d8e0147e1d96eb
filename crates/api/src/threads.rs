//! Threads with their default terminal and lease.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    command_summary::{CommandSummary, summaries},
    error::Problem,
    extract::{Path, Query},
    leases::{LeaseView, instance_state, lease_view},
    messages::MessageView,
    page::{self, List},
    params::ThreadPath,
    removal::RemovalQuery,
    secrets::{RevealQuery, Secrets},
};
use engine::terminal::CurrentCommand;
use model::{ProjectId, Terminal, Thread, ThreadId};
use store::{Page, PageRequest, ThreadFilter};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, delete))
        .routes(routes!(terminal))
        .routes(routes!(lease))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// Messages in a thread's view; `/messages` has the rest.
const MAX_VIEW_MESSAGES: u32 = 100;

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ThreadsQuery {
    /// Only threads of this project.
    #[param(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A thread in a list.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadRow {
    /// Id of the thread.
    thread_id: String,
    /// Id of its project.
    project_id: String,
    /// Id of its default terminal.
    terminal_id: String,
    /// Id of its lease.
    lease_id: String,
    /// The requested provider; null for the default.
    provider: Option<String>,
    /// Compute of the thread.
    sandbox: ThreadRowSandbox,
    /// The first of its current commands, or else the latest command of its terminals.
    last_command: Option<CommandSummary>,
    /// The command that each of its terminals runs or has queued; first those that wait for input.
    current_commands: Vec<CommandSummary>,
    /// Number of open hand-offs on its terminals.
    open_handoffs: u64,
    /// Number of clients attached to its terminals.
    clients: usize,
    /// Name of the client that has control of one of its terminals.
    driver: Option<String>,
    /// Labels set by clients.
    labels: BTreeMap<String, String>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change or use.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// The compute of a thread in a list.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadRowSandbox {
    /// Name of the provider.
    #[serde(rename = "type")]
    kind: String,
    /// State of the instance: `running`, `paused`, `dead` or `none`.
    status: &'static str,
}

/// Returns the time of the last change or use. A command that runs is use from its start.
fn last_use(thread: &Thread, last_command: Option<&CommandSummary>) -> Timestamp {
    let started_at = last_command.and_then(|last| last.started_at);
    thread.updated_at.max(started_at.unwrap_or(thread.updated_at))
}

/// What only the running server knows about a thread.
struct ThreadActivity {
    /// The number of clients, and the name of the one in control.
    attended: (usize, Option<String>),
    open_handoffs: u64,
    current: Vec<CurrentCommand>,
}

async fn row(app: &App, thread: Thread, activity: ThreadActivity) -> Result<ThreadRow, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let (last_command, current_commands) = summaries(app, &thread, activity.current).await?;
    let updated_at = last_use(&thread, last_command.as_ref());
    let (clients, driver) = activity.attended;
    Ok(ThreadRow {
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        terminal_id: thread.terminal_id.to_string(),
        lease_id: thread.lease_id.to_string(),
        provider: thread.provider,
        sandbox: ThreadRowSandbox {
            status: instance_state(lease.as_ref()).unwrap_or("none"),
            kind: lease.map_or_else(String::new, |lease| lease.provider),
        },
        updated_at,
        last_command,
        current_commands,
        open_handoffs: activity.open_handoffs,
        clients,
        driver,
        labels: thread.labels,
        created_at: thread.created_at,
    })
}

/// List all threads in the order of their creation.
#[utoipa::path(get, path = "/api/threads", tag = "threads",
    operation_id = "threads.list", params(ThreadsQuery),
    responses((status = 200, description = "A page of threads", body = List<ThreadRow>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ThreadsQuery>,
) -> Result<axum::Json<List<ThreadRow>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = ThreadFilter { project_id: query.project_id };
    let page = app.store.threads(filter, request).await?;
    let mut attended = app.terminals.attended();
    let mut current = app.terminals.current_commands();
    let handoffs = app.handoffs.open_counts().await?;
    let mut items = Vec::with_capacity(page.items.len());
    for thread in page.items {
        let id = &thread.thread_id;
        let activity = ThreadActivity {
            attended: attended.remove(id).unwrap_or_default(),
            open_handoffs: handoffs.get(id).copied().unwrap_or(0),
            current: current.remove(id).unwrap_or_default(),
        };
        items.push(row(&app, thread, activity).await?);
    }
    Ok(axum::Json(Page { items, next: page.next }.into()))
}

/// A thread with its messages and compute.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ThreadView {
    /// Id of the thread.
    thread_id: String,
    /// Id of its project.
    project_id: String,
    /// The latest messages, oldest first.
    messages: Vec<MessageView>,
    /// Compute of the thread.
    sandbox: ThreadSandbox,
    /// The first of its current commands, or else the latest command of its terminals.
    last_command: Option<CommandSummary>,
    /// The command that each of its terminals runs or has queued; first those that wait for input.
    current_commands: Vec<CommandSummary>,
    /// Number of open hand-offs on its terminals.
    open_handoffs: u64,
    /// Labels set by clients.
    labels: BTreeMap<String, String>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change or use.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// The compute of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadSandbox {
    /// Name of the provider.
    #[serde(rename = "type")]
    kind: String,
    /// State of the instance: `running`, `paused`, `dead` or `none`.
    status: &'static str,
    /// Id of the open session or, if there is none, the last one.
    session_id: Option<String>,
    /// Id of the default terminal.
    terminal_id: String,
    /// Id of the lease.
    lease_id: String,
}

pub(super) async fn find(app: &App, id: &ThreadId) -> Result<Thread, Problem> {
    app.store.thread(id).await?.ok_or_else(|| Problem::missing("thread", id))
}

pub(super) async fn thread_view(app: &App, thread: Thread) -> Result<ThreadView, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let session = app.sessions.current(&thread.thread_id).await?;
    let current = app.terminals.current_commands().remove(&thread.thread_id).unwrap_or_default();
    let (last_command, current_commands) = summaries(app, &thread, current).await?;
    let updated_at = last_use(&thread, last_command.as_ref());
    let page = app.store.messages(&thread.thread_id, PageRequest::first(MAX_VIEW_MESSAGES)).await?;
    let handoffs = app.handoffs.open_counts().await?;
    Ok(ThreadView {
        open_handoffs: handoffs.get(&thread.thread_id).copied().unwrap_or(0),
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        messages: page.items.into_iter().map(MessageView::from).collect(),
        sandbox: ThreadSandbox {
            kind: lease.as_ref().map_or_else(String::new, |lease| lease.provider.clone()),
            status: instance_state(lease.as_ref()).unwrap_or("none"),
            session_id: session.map(|session| session.session_id.to_string()),
            terminal_id: thread.terminal_id.to_string(),
            lease_id: thread.lease_id.to_string(),
        },
        updated_at,
        last_command,
        current_commands,
        labels: thread.labels,
        created_at: thread.created_at,
    })
}

/// Get a thread.
#[utoipa::path(get, path = "/api/threads/{tid}", tag = "threads",
    operation_id = "threads.get", params(ThreadPath),
    responses((status = 200, description = "The thread", body = ThreadView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<ThreadView>, Problem> {
    let thread = find(&app, &id).await?;
    Ok(axum::Json(thread_view(&app, thread).await?))
}

/// Delete a thread with its session and terminals.
///
/// The lease of the thread is destroyed unless another thread shares it.
#[utoipa::path(delete, path = "/api/threads/{tid}", tag = "threads",
    operation_id = "threads.delete", params(ThreadPath, RemovalQuery),
    responses((status = 204, description = "The thread is deleted"),
        (status = 202, description = "The deletion was recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let removal = match app.store.thread(&id).await? {
        Some(_) => app.delete_thread(&id).await?,
        None => app.removals.of("thread", &id).ok_or_else(|| Problem::missing("thread", &id))?,
    };
    Ok(query.answer(removal).await)
}

/// The default terminal of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct DefaultTerminal {
    /// Id of the thread.
    thread_id: String,
    /// Id of the terminal.
    terminal_id: String,
    /// Id of its lease.
    lease_id: String,
    /// Working directory of the shell.
    cwd: String,
    /// Changes of the environment since the start; null for a removed variable.
    env_delta: BTreeMap<String, Option<String>>,
    /// Version of its state.
    version: u64,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

impl DefaultTerminal {
    fn new(terminal: Terminal, secrets: Secrets) -> DefaultTerminal {
        DefaultTerminal {
            thread_id: terminal.thread_id.to_string(),
            terminal_id: terminal.terminal_id.to_string(),
            lease_id: terminal.lease_id.to_string(),
            cwd: terminal.cwd,
            env_delta: secrets.delta(terminal.env_delta),
            version: terminal.version,
            created_at: terminal.created_at,
            updated_at: terminal.updated_at,
        }
    }
}

/// Get the state of the default terminal of a thread.
#[utoipa::path(get, path = "/api/threads/{tid}/terminal", tag = "threads",
    operation_id = "threads.get_terminal", params(ThreadPath, RevealQuery),
    responses((status = 200, description = "The default terminal", body = DefaultTerminal)))]
async fn terminal(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RevealQuery>,
) -> Result<axum::Json<DefaultTerminal>, Problem> {
    let thread = find(&app, &id).await?;
    let terminal = app.store.terminal(&thread.terminal_id).await?;
    let terminal = terminal.ok_or_else(|| Problem::missing("terminal of thread", &id))?;
    Ok(axum::Json(DefaultTerminal::new(terminal, query.secrets())))
}

/// Get the lease of a thread.
#[utoipa::path(get, path = "/api/threads/{tid}/lease", tag = "threads",
    operation_id = "threads.get_lease", params(ThreadPath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn lease(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(lease_view(&app, lease, Some(&id)).await?))
}

/// Pause the instance of a thread.
#[utoipa::path(post, path = "/api/threads/{tid}/pause", tag = "threads",
    operation_id = "threads.pause", params(ThreadPath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.leases.pause(&thread.lease_id).await?;
    Ok(axum::Json(lease_view(&app, lease, Some(&id)).await?))
}

/// Resume the instance of a thread.
#[utoipa::path(post, path = "/api/threads/{tid}/resume", tag = "threads",
    operation_id = "threads.resume", params(ThreadPath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let thread = find(&app, &id).await?;
    app.leases.resume(&thread.lease_id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(lease_view(&app, lease, Some(&id)).await?))
}
