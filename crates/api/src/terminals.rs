//! Terminals: create, list, delete.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{OptionalJson, Path, Query},
    input::TerminalSize,
    page::{self, List, PageQuery},
    params::{TerminalPath, ThreadPath},
    removal::RemovalQuery,
    secrets::{RevealQuery, Secrets},
    signal,
    target::{Deletable, TargetTerminal},
};
use engine::terminal::{NewTerminal, TerminalFacts};
use model::{Env, ShellKind, Terminal, TerminalStatus, ThreadId};
use store::{Page, PageRequest};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(list_terminals))
        .routes(routes!(show, delete))
}

/// A terminal to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cols": 120, "rows": 40, "cwd": "/workspace"}))]
pub(super) struct CreateTerminal {
    /// Program and arguments; the shell by default.
    cmd: Option<Vec<String>>,
    /// Number of columns; 80 by default.
    cols: Option<u16>,
    /// Number of rows; 24 by default.
    rows: Option<u16>,
    /// Initial working directory; the thread's directory by default.
    cwd: Option<String>,
    /// Additional environment variables.
    env: Option<Env>,
    /// `bash` (default), `zsh` or `sh`.
    #[schema(value_type = Option<String>)]
    shell: Option<ShellKind>,
}

/// A terminal and its live state.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TerminalView {
    /// Id of the terminal.
    terminal_id: String,
    /// The same id, for clients of the older protocol.
    #[serde(rename = "ptyID")]
    pty_id: String,
    /// Id of its thread.
    thread_id: String,
    /// Id of its lease.
    lease_id: String,
    /// Whether this is the default terminal of the thread.
    is_default: bool,
    /// `live`, `exited` or `restorable`; the next use of a restorable terminal starts a shell from its state.
    status: &'static str,
    /// Program and arguments; empty for the shell.
    cmd: Vec<String>,
    /// `bash`, `zsh` or `sh`.
    #[schema(value_type = String)]
    shell: ShellKind,
    /// Number of columns.
    cols: u16,
    /// Number of rows.
    rows: u16,
    /// Window title.
    title: String,
    /// Working directory of the shell.
    cwd: String,
    /// Changes of the environment since the start; null for a removed variable.
    env_delta: BTreeMap<String, Option<String>>,
    /// Version of its state.
    version: u64,
    /// Number of attached clients.
    clients: usize,
    /// Name of the client that has control.
    driver: Option<String>,
    /// Offset after the last byte of output.
    offset: u64,
    /// Exit code of its program.
    exit_code: Option<i32>,
    /// Name of the signal that ended its program.
    signal: Option<String>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
    /// Time of the last input or output.
    #[schema(value_type = String)]
    last_activity_at: Timestamp,
}

impl TerminalView {
    pub(super) fn new(terminal: Terminal, facts: TerminalFacts, secrets: Secrets) -> TerminalView {
        let status = match (&facts, &terminal.status) {
            (TerminalFacts { live: true, .. }, _) => TerminalStatus::Live.word(),
            (TerminalFacts { exit: Some(_), .. }, _) => "exited",
            (_, TerminalStatus::Live) => TerminalStatus::Restorable.word(),
            (_, status) => status.word(),
        };
        let (exit_code, ended_by) = facts.exit.unwrap_or_default();
        TerminalView {
            pty_id: terminal.terminal_id.to_string(),
            terminal_id: terminal.terminal_id.to_string(),
            thread_id: terminal.thread_id.to_string(),
            lease_id: terminal.lease_id.to_string(),
            is_default: terminal.is_default,
            status,
            cmd: terminal.argv,
            shell: terminal.shell,
            cols: facts.cols,
            rows: facts.rows,
            title: facts.title,
            cwd: terminal.cwd,
            env_delta: secrets.delta(terminal.env_delta),
            version: terminal.version,
            clients: facts.clients,
            driver: facts.driver,
            offset: facts.offset,
            exit_code,
            signal: ended_by.map(signal::name),
            created_at: terminal.created_at,
            updated_at: terminal.updated_at,
            last_activity_at: facts.last_activity_at,
        }
    }
}

/// Refuses invalid names and values of environment variables.
pub fn check_env(env: Option<&Env>, pointer: &str) -> Result<(), Problem> {
    for (name, value) in env.into_iter().flatten() {
        check_name(name, &format!("{pointer}/{name}"))?;
        if value.contains('\0') {
            return Err(Problem::body(format!("{pointer}/{name}"), "must not contain NUL"));
        }
    }
    Ok(())
}

pub(super) fn check_name(name: &str, pointer: &str) -> Result<(), Problem> {
    let mut letters = name.bytes();
    let first = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !first || !letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Problem::body(pointer, "not a valid variable name"));
    }
    Ok(())
}

pub(super) async fn list_page(
    app: &App,
    thread: &ThreadId,
    page: PageRequest,
) -> Result<List<TerminalView>, Problem> {
    let page = app.store.thread_terminals_page(thread, page).await?;
    Ok(with_facts(app, page).await.into())
}

async fn with_facts(app: &App, page: Page<Terminal>) -> Page<TerminalView> {
    let Page { items, next } = page;
    let mut views = Vec::new();
    for terminal in items {
        let facts = app.terminals.facts(&terminal).await;
        views.push(TerminalView::new(terminal, facts, Secrets::Masked));
    }
    Page { items: views, next }
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TerminalsQuery {
    /// Only terminals of this thread.
    thread_id: Option<String>,
    /// Only terminals with this status: `live`, `exited` or `restorable`.
    status: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the terminals of all threads, oldest first.
///
/// With `status` a page may hold fewer items than `limit`; the list ends where `next_cursor` is null.
#[utoipa::path(get, path = "/api/terminals", tag = "terminals",
    operation_id = "terminals.list", params(TerminalsQuery),
    responses((status = 200, description = "A page of terminals", body = List<TerminalView>)))]
async fn list_terminals(
    State(app): State<App>,
    Query(query): Query<TerminalsQuery>,
) -> Result<axum::Json<List<TerminalView>>, Problem> {
    let status = query.status.as_deref();
    if !matches!(status, None | Some("live" | "exited" | "restorable")) {
        return Err(Problem::query("status", "must be live, exited or restorable"));
    }
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = match &query.thread_id {
        Some(thread) => {
            let thread: ThreadId =
                thread.parse().map_err(|_| Problem::query("thread_id", "not a valid thread id"))?;
            app.store.thread_terminals_page(&thread, request).await?
        }
        None => app.store.terminals(request).await?,
    };
    let mut page = with_facts(&app, page).await;
    page.items.retain(|terminal| status.is_none_or(|status| terminal.status == status));
    Ok(axum::Json(page.into()))
}

pub(super) async fn open(
    app: &App,
    thread: &ThreadId,
    new: CreateTerminal,
) -> Result<(StatusCode, axum::Json<TerminalView>), Problem> {
    let cols = new.cols.unwrap_or(80);
    let rows = new.rows.unwrap_or(24);
    let size = TerminalSize { cols, rows }.check()?;
    check_env(new.env.as_ref(), "/env")?;
    if new.cmd.as_ref().is_some_and(|cmd| cmd.first().is_none_or(String::is_empty)) {
        return Err(Problem::body("/cmd", "must name a program"));
    }
    if new.cmd.iter().flatten().any(|word| word.contains('\0')) {
        return Err(Problem::body("/cmd", "must not contain NUL"));
    }
    if new.cwd.as_deref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(Problem::body("/cwd", "must not contain NUL"));
    }
    let chain = app.open_chain(thread).await?;
    let terminal = app
        .terminals
        .open(NewTerminal {
            thread_id: thread.clone(),
            lease_id: chain.lease.lease_id,
            argv: new.cmd.unwrap_or_default(),
            shell: new.shell,
            size,
            cwd: new.cwd.unwrap_or_default(),
            env: new.env.unwrap_or_default(),
        })
        .await?;
    let facts = app.terminals.facts(&terminal).await;
    Ok((StatusCode::CREATED, axum::Json(TerminalView::new(terminal, facts, Secrets::Masked))))
}

/// List the terminals of a thread, oldest first.
#[utoipa::path(get, path = "/api/threads/{tid}/terminals", tag = "terminals",
    operation_id = "threads.list_terminals", params(ThreadPath, PageQuery),
    responses((status = 200, description = "A page of terminals", body = List<TerminalView>)))]
async fn list(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<TerminalView>>, Problem> {
    if app.store.thread(&thread).await?.is_none() {
        return Err(Problem::missing("thread", &thread));
    }
    Ok(axum::Json(list_page(&app, &thread, query.request()?).await?))
}

/// Create a terminal in a thread.
///
/// Creates the thread if it does not exist.
#[utoipa::path(post, path = "/api/threads/{tid}/terminals", tag = "terminals",
    operation_id = "threads.create_terminal", params(ThreadPath), request_body = CreateTerminal,
    responses((status = 201, description = "The terminal", body = TerminalView)))]
async fn create(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    OptionalJson(new): OptionalJson<CreateTerminal>,
) -> Result<(StatusCode, axum::Json<TerminalView>), Problem> {
    open(&app, &thread, new).await
}

/// Get a terminal.
#[utoipa::path(get, path = "/api/terminals/{id}", tag = "terminals",
    operation_id = "terminals.get", params(TerminalPath, RevealQuery),
    responses((status = 200, description = "The terminal", body = TerminalView)))]
pub(super) async fn show(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<RevealQuery>,
) -> axum::Json<TerminalView> {
    let facts = app.terminals.facts(&terminal).await;
    axum::Json(TerminalView::new(terminal, facts, query.secrets()))
}

/// Delete a terminal and end all its processes.
#[utoipa::path(delete, path = "/api/terminals/{id}", tag = "terminals",
    operation_id = "terminals.delete", params(TerminalPath, RemovalQuery),
    responses((status = 204, description = "The terminal is deleted"),
        (status = 202, description = "The deletion was recorded (`wait=false`)")))]
pub(super) async fn delete(
    State(app): State<App>,
    target: Deletable,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let removal = match target {
        Deletable::Present(terminal) => app.delete_terminal(&terminal).await?,
        Deletable::InProgress(removal) => removal,
    };
    Ok(query.answer(removal).await)
}
