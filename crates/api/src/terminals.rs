//! Terminals as things: made, listed, deleted, and their state over time.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, OptionalJson, Path, Query},
    interactive::Size,
    page::{self, List, PageQuery},
    params::{OfTerminal, OfThread},
    removal::RemovalQuery,
    signal,
    target::{Deletable, Target},
};
use engine::terminal::{NewTerminal, TerminalFacts, state};
use model::{Cause, Env, ShellKind, StateVersion, Terminal, TerminalId, TerminalStatus, ThreadId};
use store::{Page, PageRequest};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(list_terminals))
        .routes(routes!(show, delete))
        .routes(routes!(patch_env))
        .routes(routes!(versions))
        .routes(routes!(version))
        .routes(routes!(rollback))
        .routes(routes!(fork))
        .routes(routes!(list_older, create_older))
        .routes(routes!(show_older, delete_older))
}

/// A terminal to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    /// The program and its arguments; the shell by default.
    cmd: Option<Vec<String>>,
    /// Columns; 80 by default.
    cols: Option<u16>,
    /// Rows; 24 by default.
    rows: Option<u16>,
    /// Where it starts; the thread's directory by default.
    cwd: Option<String>,
    /// Variables of its environment.
    env: Option<Env>,
    /// `bash` (default), `zsh` or `sh`.
    #[schema(value_type = Option<String>)]
    shell: Option<ShellKind>,
}

/// A terminal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Shown {
    /// Its id.
    terminal_id: String,
    /// The same, as the older protocol calls it.
    #[serde(rename = "ptyID")]
    pty_id: String,
    /// The thread it belongs to.
    thread_id: String,
    /// The compute it stands on.
    lease_id: String,
    /// Whether it is the thread's default one.
    is_default: bool,
    /// `live`, `exited` or `restorable`: no process, but the next use starts one from its state.
    status: &'static str,
    /// What runs in it; empty means the shell.
    cmd: Vec<String>,
    /// Which kind of shell.
    #[schema(value_type = String)]
    shell: ShellKind,
    /// Columns.
    cols: u16,
    /// Rows.
    rows: u16,
    /// The window title.
    title: String,
    /// The shell's directory.
    cwd: String,
    /// What its environment has beyond what it started with; null for what was removed.
    #[schema(value_type = Object)]
    env_delta: BTreeMap<String, Option<String>>,
    /// The version of its state.
    version: u64,
    /// Connected clients.
    clients: usize,
    /// Who has the keyboard.
    driver: Option<String>,
    /// The offset after its last byte of output.
    offset: u64,
    /// How its program ended.
    exit_code: Option<i32>,
    /// The signal that ended its program.
    signal: Option<String>,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    updated_at: Timestamp,
    /// When there was last input or output.
    #[schema(value_type = String)]
    last_activity_at: Timestamp,
}

impl Shown {
    fn new(terminal: Terminal, facts: TerminalFacts) -> Shown {
        let status = match (&facts, &terminal.status) {
            (TerminalFacts { live: true, .. }, _) => TerminalStatus::Live.word(),
            (TerminalFacts { exit: Some(_), .. }, _) => "exited",
            (_, TerminalStatus::Live) => TerminalStatus::Restorable.word(),
            (_, status) => status.word(),
        };
        let (exit_code, ended_by) = facts.exit.unwrap_or_default();
        Shown {
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
            env_delta: terminal.env_delta,
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

/// Refuses names and values no environment can hold.
pub fn check_env(env: Option<&Env>, pointer: &str) -> Result<(), Problem> {
    for (name, value) in env.into_iter().flatten() {
        check_name(name, &format!("{pointer}/{name}"))?;
        if value.contains('\0') {
            return Err(Problem::body(format!("{pointer}/{name}"), "may not contain NUL"));
        }
    }
    Ok(())
}

fn check_name(name: &str, pointer: &str) -> Result<(), Problem> {
    let mut letters = name.bytes();
    let first = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !first || !letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Problem::body(pointer, "is not a name a variable can have"));
    }
    Ok(())
}

async fn some_of(app: &App, thread: &ThreadId, page: PageRequest) -> Result<List<Shown>, Problem> {
    let page = app.store.thread_terminals_page(thread, page).await?;
    Ok(with_facts(app, page).await.into())
}

async fn with_facts(app: &App, page: Page<Terminal>) -> Page<Shown> {
    let Page { items, next } = page;
    let mut shown = Vec::new();
    for terminal in items {
        let facts = app.terminals.facts(&terminal).await;
        shown.push(Shown::new(terminal, facts));
    }
    Page { items: shown, next }
}

/// Which terminals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TerminalsQuery {
    /// Only those of this thread.
    thread_id: Option<String>,
    /// Only those with this status: `live`, `exited` or `restorable`.
    status: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// The terminals of all threads, oldest first. With `status` a page may hold fewer items than
/// `limit`; the list ends where `next_cursor` is null.
#[utoipa::path(get, path = "/api/terminals", tag = "terminals", params(TerminalsQuery),
    responses((status = 200, description = "A page of terminals", body = List<Shown>)))]
async fn list_terminals(
    State(app): State<App>,
    Query(query): Query<TerminalsQuery>,
) -> Result<axum::Json<List<Shown>>, Problem> {
    let status = query.status.as_deref();
    if !matches!(status, None | Some("live" | "exited" | "restorable")) {
        return Err(Problem::query("status", "must be live, exited or restorable"));
    }
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = match &query.thread_id {
        Some(thread) => {
            let thread: ThreadId = thread
                .parse()
                .map_err(|_| Problem::query("thread_id", "is not the id of a thread"))?;
            app.store.thread_terminals_page(&thread, request).await?
        }
        None => app.store.terminals(request).await?,
    };
    let mut page = with_facts(&app, page).await;
    page.items.retain(|terminal| status.is_none_or(|status| terminal.status == status));
    Ok(axum::Json(page.into()))
}

async fn make(
    app: &App,
    thread: &ThreadId,
    new: New,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    let cols = new.cols.unwrap_or(80);
    let rows = new.rows.unwrap_or(24);
    let size = Size { cols, rows }.check()?;
    check_env(new.env.as_ref(), "/env")?;
    if new.cmd.as_ref().is_some_and(|cmd| cmd.first().is_none_or(String::is_empty)) {
        return Err(Problem::body("/cmd", "must name a program"));
    }
    if new.cmd.iter().flatten().any(|word| word.contains('\0')) {
        return Err(Problem::body("/cmd", "may not contain NUL"));
    }
    if new.cwd.as_deref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(Problem::body("/cwd", "may not contain NUL"));
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
    Ok((StatusCode::CREATED, axum::Json(Shown::new(terminal, facts))))
}

/// The terminals of a thread, oldest first.
#[utoipa::path(get, path = "/api/threads/{tid}/terminals", tag = "terminals",
    params(OfThread, PageQuery),
    responses((status = 200, description = "A page of them", body = List<Shown>)))]
async fn list(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<Shown>>, Problem> {
    if app.store.thread(&thread).await?.is_none() {
        return Err(Problem::missing("thread", &thread));
    }
    Ok(axum::Json(some_of(&app, &thread, query.request()?).await?))
}

/// Make one more terminal. The thread comes into being if it is not there.
#[utoipa::path(post, path = "/api/threads/{tid}/terminals", tag = "terminals",
    params(OfThread), request_body = New,
    responses((status = 201, description = "It runs", body = Shown)))]
async fn create(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    OptionalJson(new): OptionalJson<New>,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    make(&app, &thread, new).await
}

/// The terminals of a thread, by its older name.
#[utoipa::path(get, path = "/session/{sid}/pty", tag = "interactive",
    params(("sid" = String, Path, description = "The thread"), PageQuery),
    responses((status = 200, description = "A page of them", body = List<Shown>)))]
async fn list_older(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<Shown>>, Problem> {
    Ok(axum::Json(some_of(&app, &thread, query.request()?).await?))
}

/// Make a terminal, by its older name.
#[utoipa::path(post, path = "/session/{sid}/pty", tag = "interactive",
    params(("sid" = String, Path, description = "The thread")), request_body = New,
    responses((status = 201, description = "It runs", body = Shown)))]
async fn create_older(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    OptionalJson(new): OptionalJson<New>,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    make(&app, &thread, new).await
}

/// A terminal.
#[utoipa::path(get, path = "/api/terminals/{id}", tag = "terminals",
    params(OfTerminal),
    responses((status = 200, description = "It", body = Shown)))]
async fn show(State(app): State<App>, Target(terminal): Target) -> axum::Json<Shown> {
    let facts = app.terminals.facts(&terminal).await;
    axum::Json(Shown::new(terminal, facts))
}

/// A terminal, by its older name.
#[utoipa::path(get, path = "/session/{sid}/pty/{id}", tag = "interactive",
    params(("sid" = String, Path, description = "The thread"),
        OfTerminal),
    responses((status = 200, description = "It", body = Shown)))]
async fn show_older(app: State<App>, target: Target) -> axum::Json<Shown> {
    show(app, target).await
}

/// Delete a terminal and end all its processes.
#[utoipa::path(delete, path = "/api/terminals/{id}", tag = "terminals",
    params(OfTerminal, RemovalQuery),
    responses((status = 204, description = "The terminal is deleted"),
        (status = 202, description = "The deletion is recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    target: Deletable,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let removal = match target {
        Deletable::There(terminal) => app.delete_terminal(&terminal).await?,
        Deletable::Going(removal) => removal,
    };
    Ok(removal.answer(query).await)
}

/// Delete a terminal and end all its processes, by its older name.
#[utoipa::path(delete, path = "/session/{sid}/pty/{id}", tag = "interactive",
    params(("sid" = String, Path, description = "The thread"),
        OfTerminal, RemovalQuery),
    responses((status = 204, description = "The terminal is deleted"),
        (status = 202, description = "The deletion is recorded (`wait=false`)")))]
async fn delete_older(
    app: State<App>,
    target: Deletable,
    query: Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    delete(app, target, query).await
}

/// A change of the exported environment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// What to set.
    #[serde(default)]
    set: Env,
    /// What to remove.
    #[serde(default)]
    unset: Vec<String>,
}

/// A terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct State_ {
    /// The terminal.
    terminal_id: String,
    /// The version.
    version: u64,
    /// The shell's directory.
    cwd: String,
    /// What its environment has beyond what it started with; null for what was removed.
    #[schema(value_type = Object)]
    env_delta: BTreeMap<String, Option<String>>,
}

async fn state_of(app: &App, id: &TerminalId) -> Result<axum::Json<State_>, Problem> {
    let terminal = app.store.terminal(id).await?.ok_or_else(|| Problem::missing("terminal", id))?;
    Ok(axum::Json(State_ {
        terminal_id: terminal.terminal_id.to_string(),
        version: terminal.version,
        cwd: terminal.cwd,
        env_delta: terminal.env_delta,
    }))
}

/// Set and remove exported variables in the live shell.
#[utoipa::path(patch, path = "/api/terminals/{id}/env", tag = "terminals",
    params(OfTerminal), request_body = Patch,
    responses((status = 200, description = "The state after it", body = State_)))]
async fn patch_env(
    State(app): State<App>,
    Target(terminal): Target,
    Json(patch): Json<Patch>,
) -> Result<axum::Json<State_>, Problem> {
    check_env(Some(&patch.set), "/set")?;
    for (index, name) in patch.unset.iter().enumerate() {
        check_name(name, &format!("/unset/{index}"))?;
    }
    app.terminals.patch_env(&terminal, &patch.set, &patch.unset).await?;
    state_of(&app, &terminal.terminal_id).await
}

/// One version of a terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    /// The version.
    version: u64,
    /// The shell's directory.
    cwd: String,
    /// Why it came to be.
    #[schema(value_type = Object)]
    cause: Cause,
    /// When.
    #[schema(value_type = String)]
    at: Timestamp,
    /// Which parts of the state differ from the version before.
    changed: Vec<String>,
}

impl From<StateVersion> for Version {
    fn from(version: StateVersion) -> Version {
        let StateVersion { version, cwd, cause, at, changed } = version;
        let changed = changed.into_iter().filter(|name| !name.starts_with("stead.")).collect();
        Version { version, cwd, cause, at, changed }
    }
}

/// A terminal's state over time, newest first.
#[utoipa::path(get, path = "/api/terminals/{id}/versions", tag = "terminals",
    params(OfTerminal, PageQuery),
    responses((status = 200, description = "A page of versions", body = List<Version>)))]
async fn versions(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<Version>>, Problem> {
    let request = query.request()?;
    let page = app.store.versions(&terminal.terminal_id, request).await?;
    Ok(axum::Json(page.map(Version::from).into()))
}

/// Everything in one version of a terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct WholeVersion {
    /// The terminal.
    terminal_id: String,
    /// The version.
    version: u64,
    /// The shell's directory.
    cwd: String,
    /// The exported environment.
    #[schema(value_type = Object)]
    env: Env,
    /// The parts of the state as the shell would be told them, by name.
    #[schema(value_type = Object)]
    sections: BTreeMap<String, String>,
    /// What the version it is held against exported and this one does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unset: Vec<String>,
}

/// Where a version is.
#[derive(Debug, Deserialize)]
struct VersionPath {
    v: u64,
}

/// Which version, held against which.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct VersionQuery {
    /// Only what differs from this version.
    since: Option<u64>,
}

/// One version of a terminal's state, whole or held against another.
#[utoipa::path(get, path = "/api/terminals/{id}/versions/{v}", tag = "terminals",
    params(OfTerminal,
        ("v" = u64, Path, description = "The version"), VersionQuery),
    responses((status = 200, description = "It", body = WholeVersion)))]
async fn version(
    State(app): State<App>,
    Target(terminal): Target,
    Path(place): Path<VersionPath>,
    Query(query): Query<VersionQuery>,
) -> Result<axum::Json<WholeVersion>, Problem> {
    let (id, version) = (&terminal.terminal_id, place.v);
    let mut state = app.store.terminal_state(id, Some(version)).await?;
    let mut env = state::exported(&state);
    let mut unset = Vec::new();
    if let Some(since) = query.since {
        let other = app.store.terminal_state(id, Some(since)).await?;
        let before = state::exported(&other);
        state.sections.retain(|name, bytes| other.sections.get(name) != Some(bytes));
        unset.extend(before.keys().filter(|name| !env.contains_key(*name)).cloned());
        env.retain(|name, value| before.get(name) != Some(value));
    }
    let sections = state
        .sections
        .into_iter()
        .filter(|(name, _)| !name.starts_with("stead.") && name != "env")
        .map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned()))
        .collect();
    let (terminal_id, cwd) = (id.to_string(), state.cwd);
    Ok(axum::Json(WholeVersion { terminal_id, version: state.version, cwd, env, sections, unset }))
}

/// Which version to go back to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rollback {
    /// The version.
    version: u64,
}

/// Take up an earlier version again, as a version of its own.
#[utoipa::path(post, path = "/api/terminals/{id}/rollback", tag = "terminals",
    params(OfTerminal), request_body = Rollback,
    responses((status = 200, description = "The state after it", body = State_)))]
async fn rollback(
    State(app): State<App>,
    Target(terminal): Target,
    Json(rollback): Json<Rollback>,
) -> Result<axum::Json<State_>, Problem> {
    known_version(&terminal, rollback.version)?;
    app.terminals.rollback(&terminal, rollback.version).await?;
    state_of(&app, &terminal.terminal_id).await
}

/// Which version to begin with.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Fork {
    /// The version; the present one by default.
    version: Option<u64>,
}

/// Make another terminal of the same thread that begins with this one's state.
#[utoipa::path(post, path = "/api/terminals/{id}/fork", tag = "terminals",
    params(OfTerminal), request_body = Fork,
    responses((status = 201, description = "The other terminal", body = Shown)))]
async fn fork(
    State(app): State<App>,
    Target(terminal): Target,
    OptionalJson(fork): OptionalJson<Fork>,
) -> Result<(StatusCode, axum::Json<Shown>), Problem> {
    let version = fork.version.unwrap_or(terminal.version);
    known_version(&terminal, version)?;
    let other = app.terminals.fork(&terminal, version).await?;
    let facts = app.terminals.facts(&other).await;
    Ok((StatusCode::CREATED, axum::Json(Shown::new(other, facts))))
}

fn known_version(terminal: &Terminal, version: u64) -> Result<(), Problem> {
    if version == 0 || version > terminal.version {
        let detail = format!("the terminal has versions 1 to {}", terminal.version);
        return Err(Problem::field(Code::InvalidBody, "/version", detail));
    }
    Ok(())
}
