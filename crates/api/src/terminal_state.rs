//! The state of a terminal over time: environment, versions, rollback, fork.

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
    page::{List, PageQuery},
    params::TerminalPath,
    target::Target,
    terminals::{TerminalView, check_env, check_name},
};
use engine::terminal::state;
use model::{Cause, Env, StateVersion, Terminal, TerminalId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(patch_env))
        .routes(routes!(versions))
        .routes(routes!(version))
        .routes(routes!(rollback))
        .routes(routes!(fork))
}

/// A change of the exported environment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EnvPatch {
    /// What to set.
    #[serde(default)]
    set: Env,
    /// What to remove.
    #[serde(default)]
    unset: Vec<String>,
}

/// A terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct TerminalStateView {
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

async fn state_of(app: &App, id: &TerminalId) -> Result<axum::Json<TerminalStateView>, Problem> {
    let terminal = app.store.terminal(id).await?.ok_or_else(|| Problem::missing("terminal", id))?;
    Ok(axum::Json(TerminalStateView {
        terminal_id: terminal.terminal_id.to_string(),
        version: terminal.version,
        cwd: terminal.cwd,
        env_delta: terminal.env_delta,
    }))
}

/// Set and remove exported variables in the live shell.
#[utoipa::path(patch, path = "/api/terminals/{id}/env", tag = "terminals",
    params(TerminalPath), request_body = EnvPatch,
    responses((status = 200, description = "The state after it", body = TerminalStateView)))]
async fn patch_env(
    State(app): State<App>,
    Target(terminal): Target,
    Json(patch): Json<EnvPatch>,
) -> Result<axum::Json<TerminalStateView>, Problem> {
    check_env(Some(&patch.set), "/set")?;
    for (index, name) in patch.unset.iter().enumerate() {
        check_name(name, &format!("/unset/{index}"))?;
    }
    app.terminals.patch_env(&terminal, &patch.set, &patch.unset).await?;
    state_of(&app, &terminal.terminal_id).await
}

/// One version of a terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct VersionView {
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

impl From<StateVersion> for VersionView {
    fn from(version: StateVersion) -> VersionView {
        let StateVersion { version, cwd, cause, at, changed } = version;
        let changed = changed.into_iter().filter(|name| !name.starts_with("stead.")).collect();
        VersionView { version, cwd, cause, at, changed }
    }
}

/// A terminal's state over time, newest first.
#[utoipa::path(get, path = "/api/terminals/{id}/versions", tag = "terminals",
    params(TerminalPath, PageQuery),
    responses((status = 200, description = "A page of versions", body = List<VersionView>)))]
async fn versions(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<VersionView>>, Problem> {
    let request = query.request()?;
    let page = app.store.versions(&terminal.terminal_id, request).await?;
    Ok(axum::Json(page.map(VersionView::from).into()))
}

/// Everything in one version of a terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct VersionDetail {
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
    params(TerminalPath,
        ("v" = u64, Path, description = "The version"), VersionQuery),
    responses((status = 200, description = "It", body = VersionDetail)))]
async fn version(
    State(app): State<App>,
    Target(terminal): Target,
    Path(path): Path<VersionPath>,
    Query(query): Query<VersionQuery>,
) -> Result<axum::Json<VersionDetail>, Problem> {
    let (id, version) = (&terminal.terminal_id, path.v);
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
    Ok(axum::Json(VersionDetail { terminal_id, version: state.version, cwd, env, sections, unset }))
}

/// Which version to go back to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RollbackRequest {
    /// The version.
    version: u64,
}

/// Take up an earlier version again, as a version of its own.
#[utoipa::path(post, path = "/api/terminals/{id}/rollback", tag = "terminals",
    params(TerminalPath), request_body = RollbackRequest,
    responses((status = 200, description = "The state after it", body = TerminalStateView)))]
async fn rollback(
    State(app): State<App>,
    Target(terminal): Target,
    Json(rollback): Json<RollbackRequest>,
) -> Result<axum::Json<TerminalStateView>, Problem> {
    known_version(&terminal, rollback.version)?;
    app.terminals.rollback(&terminal, rollback.version).await?;
    state_of(&app, &terminal.terminal_id).await
}

/// Which version to begin with.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForkRequest {
    /// The version; the present one by default.
    version: Option<u64>,
}

/// Make another terminal of the same thread that begins with this one's state.
#[utoipa::path(post, path = "/api/terminals/{id}/fork", tag = "terminals",
    params(TerminalPath), request_body = ForkRequest,
    responses((status = 201, description = "The other terminal", body = TerminalView)))]
async fn fork(
    State(app): State<App>,
    Target(terminal): Target,
    OptionalJson(fork): OptionalJson<ForkRequest>,
) -> Result<(StatusCode, axum::Json<TerminalView>), Problem> {
    let version = fork.version.unwrap_or(terminal.version);
    known_version(&terminal, version)?;
    let other = app.terminals.fork(&terminal, version).await?;
    let facts = app.terminals.facts(&other).await;
    Ok((StatusCode::CREATED, axum::Json(TerminalView::new(other, facts))))
}

fn known_version(terminal: &Terminal, version: u64) -> Result<(), Problem> {
    if version == 0 || version > terminal.version {
        let detail = format!("the terminal has versions 1 to {}", terminal.version);
        return Err(Problem::field(Code::InvalidBody, "/version", detail));
    }
    Ok(())
}
