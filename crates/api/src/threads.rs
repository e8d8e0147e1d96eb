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
    extract::{Json, OptionalJson, Path, Query},
    leases::{Leased, leased},
    page::{self, List, PageQuery},
    params::OfThread,
    removal::RemovalQuery,
};
use model::{
    ChatSession, EndReason, Env, Hours, LeaseId, Message, MessageId, Money, OnExpiry, ProjectId,
    Role, SessionPolicy, SessionState, Terminal, Thread, ThreadId,
};
use provider::ProviderError;
use store::{CommandQuery, Page, PageRequest, ThreadChoices, ThreadFilter};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, put, delete))
        .routes(routes!(messages, say))
        .routes(routes!(session))
        .routes(routes!(touch))
        .routes(routes!(close))
        .routes(routes!(terminal))
        .routes(routes!(lease))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// Messages shown with a thread; the rest is at `/messages`.
const SHOWN_MESSAGES: u32 = 100;
/// The longest message.
const MAX_CONTENT: usize = 1 << 20;

/// Which threads.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
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
struct Row {
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
    sandbox: RowSandbox,
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
struct RowSandbox {
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
) -> Result<Row, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let query = CommandQuery::default();
    let page = app.store.commands(&thread.terminal_id, query, PageRequest::first(1)).await?;
    let (clients, driver) = attended.unwrap_or_default();
    Ok(Row {
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        terminal_id: thread.terminal_id.to_string(),
        lease_id: thread.lease_id.to_string(),
        provider: thread.provider,
        sandbox: RowSandbox {
            status: super::leases::instance_word(lease.as_ref()).unwrap_or("none"),
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
#[utoipa::path(get, path = "/api/threads", tag = "threads", params(ListQuery),
    responses((status = 200, description = "A page of threads", body = List<Row>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<Row>>, Problem> {
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

/// A policy, or the parts of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Policy {
    /// Seconds without activity after which a session expires.
    idle_timeout_s: Option<u64>,
    /// Seconds after which it expires in any case.
    max_duration_s: Option<u64>,
    /// What its end does to the compute: `keep`, `pause` or `stop`.
    #[schema(value_type = Option<String>)]
    on_expiry: Option<OnExpiry>,
    /// Hours that the compute beneath may run during a session; 0 is as many as it likes.
    max_running_hours: Option<f64>,
    /// What the compute beneath may cost during a session, by the price that its provider has in the
    /// settings; 0 is as much as it likes.
    max_cost: Option<f64>,
}

/// Choices for a thread; all optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Choices {
    /// The project it belongs to.
    #[schema(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// The provider its lease is a claim on; cannot be changed later.
    provider: Option<String>,
    /// Limits and egress of its sandbox, `{memory, cpus, processes, disk, egress, image}`; cannot be
    /// changed later.
    #[schema(value_type = Option<Object>)]
    sandbox: Option<serde_json::Value>,
    /// A lease to share; cannot be changed later.
    #[schema(value_type = Option<String>)]
    lease_id: Option<LeaseId>,
    /// The policy of its sessions.
    policy: Option<Policy>,
    /// What its shells have in their environment from the start.
    #[schema(value_type = Option<Object>)]
    env: Option<Env>,
    /// Where its shells start.
    cwd: Option<String>,
    /// A client's own notes.
    labels: Option<BTreeMap<String, String>>,
}

/// Make a thread with choices, or change one.
#[utoipa::path(put, path = "/api/threads/{tid}", tag = "threads",
    params(("tid" = String, Path, description = "The thread; its id is the client's choice")),
    request_body = Choices,
    responses((status = 200, description = "It was changed", body = Shown),
        (status = 201, description = "It was made", body = Shown)))]
async fn put(
    State(app): State<App>,
    Path(thread_id): Path<ThreadId>,
    OptionalJson(mut choices): OptionalJson<Choices>,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    super::terminals::check_env(choices.env.as_ref(), "/env")?;
    if choices.cwd.as_deref().is_some_and(|cwd| !cwd.starts_with('/') || cwd.contains('\0')) {
        return Err(Problem::body("/cwd", "must be an absolute path"));
    }
    if let Some(provider) = &choices.provider
        && app.leases.providers().named(provider).is_err()
    {
        let known: Vec<&str> = app.leases.providers().all().map(|p| p.name()).collect();
        let detail = format!("must be one of {}", known.join(", "));
        return Err(Problem::body("/provider", detail));
    }
    let nothing = |spec: &serde_json::Value| spec.as_object().is_some_and(|spec| spec.is_empty());
    choices.sandbox = choices.sandbox.filter(|spec| !nothing(spec));
    if let Some(spec) = &choices.sandbox {
        if choices.lease_id.is_some() {
            return Err(Problem::body("/sandbox", "is that of the lease to be shared"));
        }
        let known = app.store.thread(&thread_id).await?.and_then(|thread| thread.provider);
        let name = choices.provider.as_ref().or(known.as_ref()).unwrap_or(&app.provider);
        let provider = app.leases.providers().named(name);
        if let Some(refused) = provider.ok().and_then(|provider| provider.accepts(spec).err()) {
            let detail = match refused {
                ProviderError::Refused { reason, .. } => reason,
                other => other.to_string(),
            };
            return Err(Problem::body("/sandbox", detail));
        }
    }
    if let Some(policy) = &choices.policy {
        for (pointer, amount) in [
            ("/policy/max_running_hours", policy.max_running_hours),
            ("/policy/max_cost", policy.max_cost),
        ] {
            if amount.is_some_and(|amount| !(0.0..=1e9).contains(&amount)) {
                return Err(Problem::body(pointer, "must be 0 to 1000000000"));
            }
        }
    }
    let policy = choices.policy.map(|policy| {
        let base = app.policy();
        SessionPolicy {
            idle_timeout_s: policy.idle_timeout_s.unwrap_or(base.idle_timeout_s),
            max_duration_s: policy.max_duration_s.unwrap_or(base.max_duration_s),
            on_expiry: policy.on_expiry.unwrap_or(base.on_expiry),
            max_running: policy.max_running_hours.filter(|hours| *hours != 0.0).map(Hours::from),
            max_cost: policy.max_cost.filter(|cost| *cost != 0.0).map(Money::from),
        }
    });
    if let Some(policy) = policy {
        for (pointer, seconds) in [
            ("/policy/idle_timeout_s", policy.idle_timeout_s),
            ("/policy/max_duration_s", policy.max_duration_s),
        ] {
            if seconds == 0 || seconds > 10 * 365 * 86_400 {
                return Err(Problem::body(pointer, "must be 1 to 315360000"));
            }
        }
    }
    let choices = ThreadChoices {
        project_id: choices.project_id,
        provider: choices.provider,
        spec: choices.sandbox,
        lease_id: choices.lease_id,
        fork: None,
        policy,
        env: choices.env,
        cwd: choices.cwd,
        labels: choices.labels,
    };
    let changes_policy = choices.policy.is_some();
    let (thread, made) = app.store.put_thread(app.first_use(&thread_id, choices)).await?;
    if changes_policy {
        app.sessions.policy_changed(&thread_id).await?;
    }
    if made {
        app.events.publish(base::event::EventKind::ThreadCreated { thread_id });
    }
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(shown(&app, thread).await?)))
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
struct Shown {
    /// Its id.
    thread_id: String,
    /// The project it belongs to.
    project_id: String,
    /// What was said in it last, oldest first.
    messages: Vec<Said>,
    /// What it stands on.
    sandbox: Sandbox,
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
struct Sandbox {
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

/// One thing said.
#[derive(Debug, Serialize, ToSchema)]
struct Said {
    /// Its id.
    message_id: String,
    /// `system`, `user`, `assistant` or `tool`.
    #[schema(value_type = String)]
    role: Role,
    /// What was said.
    content: String,
    /// When.
    #[schema(value_type = String)]
    at: Timestamp,
}

impl From<Message> for Said {
    fn from(message: Message) -> Said {
        let Message { message_id, role, content, at } = message;
        Said { message_id: message_id.to_string(), role, content, at }
    }
}

async fn find(app: &App, id: &ThreadId) -> Result<Thread, Problem> {
    app.store.thread(id).await?.ok_or_else(|| Problem::missing("thread", id))
}

async fn shown(app: &App, thread: Thread) -> Result<Shown, Problem> {
    let lease = app.store.lease(&thread.lease_id).await?;
    let session = app.sessions.current(&thread.thread_id).await?;
    let page = app.store.messages(&thread.thread_id, PageRequest::first(SHOWN_MESSAGES)).await?;
    Ok(Shown {
        thread_id: thread.thread_id.to_string(),
        project_id: thread.project_id.to_string(),
        messages: page.items.into_iter().map(Said::from).collect(),
        sandbox: Sandbox {
            kind: lease.as_ref().map_or_else(String::new, |lease| lease.provider.clone()),
            status: super::leases::instance_word(lease.as_ref()).unwrap_or("none"),
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
    params(OfThread),
    responses((status = 200, description = "It", body = Shown)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Shown>, Problem> {
    let thread = find(&app, &id).await?;
    Ok(axum::Json(shown(&app, thread).await?))
}

/// Destroy a thread with its session and terminals and, if no other thread shares it, its lease.
#[utoipa::path(delete, path = "/api/threads/{tid}", tag = "threads",
    params(OfThread, RemovalQuery),
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

/// What was said in a thread, oldest first.
#[utoipa::path(get, path = "/api/threads/{tid}/messages", tag = "threads",
    params(OfThread, PageQuery),
    responses((status = 200, description = "A page of messages", body = List<Said>)))]
async fn messages(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<Said>>, Problem> {
    find(&app, &id).await?;
    let request = query.request()?;
    let page = app.store.messages(&id, request).await?;
    Ok(axum::Json(page.map(Said::from).into()))
}

/// Something to say.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Say {
    /// `system`, `user`, `assistant` or `tool`.
    #[schema(value_type = String)]
    role: Role,
    /// What.
    content: String,
}

/// Add to the conversation. The thread comes into being if it is not there.
#[utoipa::path(post, path = "/api/threads/{tid}/messages", tag = "threads",
    params(OfThread), request_body = Say,
    responses((status = 201, description = "It was said", body = Said)))]
async fn say(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(say): Json<Say>,
) -> Result<(StatusCode, axum::Json<Said>), Problem> {
    if say.content.len() > MAX_CONTENT {
        return Err(Problem::body("/content", format!("may have {MAX_CONTENT} bytes")));
    }
    app.store.put_thread(app.first_use(&id, ThreadChoices::default())).await?;
    let message = Message {
        message_id: MessageId::fresh(),
        role: say.role,
        content: say.content,
        at: app.now().at,
    };
    app.store.add_message(&id, message.clone()).await?;
    let message_id = message.message_id.clone();
    app.events.publish(base::event::EventKind::MessageAdded { thread_id: id, message_id });
    Ok((StatusCode::CREATED, axum::Json(message.into())))
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Window {
    /// The thread.
    thread_id: String,
    /// Its id.
    session_id: String,
    /// The thread's default terminal.
    terminal_id: String,
    /// `active`, `idle`, `expired` or `closed`.
    #[schema(value_type = String)]
    status: model::SessionStatus,
    /// Which limit of its policy ended one that has expired: `idle_timeout`, `max_duration`, `max_running` or
    /// `max_cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    ended: Option<EndReason>,
    /// When it was opened.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_active_at: Timestamp,
    /// When it ends if nothing more is done, or ended.
    #[schema(value_type = String)]
    expires_at: Timestamp,
    /// Its policy.
    #[schema(value_type = Object)]
    policy: SessionPolicy,
}

impl From<ChatSession> for Window {
    fn from(session: ChatSession) -> Window {
        Window {
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

/// The session of a thread: the open one, or the last.
#[utoipa::path(get, path = "/api/threads/{tid}/session", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "It", body = Window)))]
async fn session(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Window>, Problem> {
    find(&app, &id).await?;
    let session = app.sessions.current(&id).await?;
    let session = session.ok_or_else(|| Problem::missing("session of thread", &id))?;
    Ok(axum::Json(session.into()))
}

/// Say that the thread is in use; a session opens if none is open.
#[utoipa::path(post, path = "/api/threads/{tid}/session/touch", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "The session", body = Window)))]
async fn touch(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Window>, Problem> {
    find(&app, &id).await?;
    app.open_chain(&id).await?;
    Ok(axum::Json(app.sessions.touch_durably(&id).await?.into()))
}

/// Close the session; the next use opens another.
#[utoipa::path(post, path = "/api/threads/{tid}/session/close", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "The session", body = Window)))]
async fn close(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Window>, Problem> {
    find(&app, &id).await?;
    Ok(axum::Json(app.sessions.close(&id).await?.into()))
}

/// The default terminal of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct Default_ {
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

impl From<Terminal> for Default_ {
    fn from(terminal: Terminal) -> Default_ {
        Default_ {
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
    params(OfThread),
    responses((status = 200, description = "It", body = Default_)))]
async fn terminal(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Default_>, Problem> {
    let thread = find(&app, &id).await?;
    let terminal = app.store.terminal(&thread.terminal_id).await?;
    let terminal = terminal.ok_or_else(|| Problem::missing("terminal of thread", &id))?;
    Ok(axum::Json(terminal.into()))
}

/// The lease of a thread.
#[utoipa::path(get, path = "/api/threads/{tid}/lease", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "It", body = Leased)))]
async fn lease(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Leased>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}

/// Make the instance beneath a thread hold still.
#[utoipa::path(post, path = "/api/threads/{tid}/pause", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "The lease", body = Leased)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Leased>, Problem> {
    let thread = find(&app, &id).await?;
    let lease = app.leases.pause(&thread.lease_id).await?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}

/// Make the instance beneath a thread go on.
#[utoipa::path(post, path = "/api/threads/{tid}/resume", tag = "threads",
    params(OfThread),
    responses((status = 200, description = "The lease", body = Leased)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<Leased>, Problem> {
    let thread = find(&app, &id).await?;
    app.leases.resume(&thread.lease_id).await?;
    let lease = app.store.lease(&thread.lease_id).await?;
    let lease = lease.ok_or_else(|| Problem::missing("lease of thread", &id))?;
    Ok(axum::Json(leased(&app, lease, Some(&id)).await?))
}
