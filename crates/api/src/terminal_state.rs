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
    secrets::Secrets,
    shapes::CauseSchema,
    target::TargetTerminal,
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

/// Changes to the exported environment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"set": {"RUST_LOG": "debug"}, "unset": ["DEBUG"]}))]
struct EnvPatch {
    /// Variables to set.
    #[serde(default)]
    set: Env,
    /// Names of the variables to remove.
    #[serde(default)]
    unset: Vec<String>,
}

/// The state of a terminal.
#[derive(Debug, Serialize, ToSchema)]
struct TerminalStateView {
    /// Id of the terminal.
    terminal_id: String,
    /// Number of the version.
    version: u64,
    /// Working directory of the shell.
    cwd: String,
    /// Changes of the environment since the start; null for a removed variable.
    env_delta: BTreeMap<String, Option<String>>,
}

async fn state_of(app: &App, id: &TerminalId) -> Result<axum::Json<TerminalStateView>, Problem> {
    let terminal = app.store.terminal(id).await?.ok_or_else(|| Problem::missing("terminal", id))?;
    Ok(axum::Json(TerminalStateView {
        terminal_id: terminal.terminal_id.to_string(),
        version: terminal.version,
        cwd: terminal.cwd,
        env_delta: Secrets::Masked.delta(terminal.env_delta),
    }))
}

/// Set and remove exported variables in the live shell.
#[utoipa::path(patch, path = "/api/terminals/{id}/env", tag = "terminals",
    operation_id = "terminals.update_env", params(TerminalPath), request_body = EnvPatch,
    responses((status = 200, description = "The new state", body = TerminalStateView)))]
async fn patch_env(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
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
    /// Number of the version.
    version: u64,
    /// Working directory of the shell.
    cwd: String,
    /// What caused the version.
    #[schema(value_type = CauseSchema)]
    cause: Cause,
    /// Creation time.
    #[schema(value_type = String)]
    at: Timestamp,
    /// Sections of the state that differ from the previous version.
    changed: Vec<String>,
}

impl From<StateVersion> for VersionView {
    fn from(version: StateVersion) -> VersionView {
        let StateVersion { version, cwd, cause, at, changed } = version;
        let changed = changed.into_iter().filter(|name| !name.starts_with("stead.")).collect();
        VersionView { version, cwd, cause, at, changed }
    }
}

/// List the versions of the state of a terminal, newest first.
#[utoipa::path(get, path = "/api/terminals/{id}/versions", tag = "terminals",
    operation_id = "terminals.list_versions", params(TerminalPath, PageQuery),
    responses((status = 200, description = "A page of versions", body = List<VersionView>)))]
async fn versions(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<VersionView>>, Problem> {
    let request = query.request()?;
    let page = app.store.versions(&terminal.terminal_id, request).await?;
    Ok(axum::Json(page.map(VersionView::from).into()))
}

/// The content of one version of a terminal's state.
#[derive(Debug, Serialize, ToSchema)]
struct VersionDetail {
    /// Id of the terminal.
    terminal_id: String,
    /// Number of the version.
    version: u64,
    /// Working directory of the shell.
    cwd: String,
    /// The exported environment.
    #[schema(value_type = BTreeMap<String, String>)]
    env: Env,
    /// Sections of the state as shell source, by name.
    sections: BTreeMap<String, String>,
    /// With `since`: variables that only the other version exports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unset: Vec<String>,
}

/// The path parameter of a version.
#[derive(Debug, Deserialize)]
struct VersionPath {
    v: u64,
}

/// Selects a version to compare with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct VersionQuery {
    /// Return only the differences from this version.
    since: Option<u64>,
    /// `true` returns the values of variables whose names suggest a secret; by default they are `***`.
    reveal: Option<bool>,
}

/// Get one version of the state of a terminal.
///
/// With `since`, only the differences from that version.
#[utoipa::path(get, path = "/api/terminals/{id}/versions/{v}", tag = "terminals",
    operation_id = "terminals.get_version", params(TerminalPath,
        ("v" = u64, Path, description = "Number of the version"), VersionQuery),
    responses((status = 200, description = "The version", body = VersionDetail)))]
async fn version(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
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
    let secrets = Secrets::new(query.reveal);
    let env = secrets.env(env);
    let sections = state
        .sections
        .into_iter()
        .filter(|(name, _)| !name.starts_with("stead.") && name != "env")
        .map(|(name, bytes)| match name.as_str() {
            "vars" | "readonly" => (name, secrets.source(&bytes)),
            _ => (name, bytes),
        })
        .map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned()))
        .collect();
    let (terminal_id, cwd) = (id.to_string(), state.cwd);
    Ok(axum::Json(VersionDetail { terminal_id, version: state.version, cwd, env, sections, unset }))
}

/// The version to restore.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"version": 3}))]
struct RollbackRequest {
    /// Number of the version.
    version: u64,
}

/// Restore an earlier version of the state of a terminal.
///
/// The restored state becomes a new version.
#[utoipa::path(post, path = "/api/terminals/{id}/rollback", tag = "terminals",
    operation_id = "terminals.rollback", params(TerminalPath), request_body = RollbackRequest,
    responses((status = 200, description = "The new state", body = TerminalStateView)))]
async fn rollback(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Json(rollback): Json<RollbackRequest>,
) -> Result<axum::Json<TerminalStateView>, Problem> {
    check_version(&terminal, rollback.version)?;
    app.terminals.rollback(&terminal, rollback.version).await?;
    state_of(&app, &terminal.terminal_id).await
}

/// Options of a fork.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"version": 3}))]
struct ForkRequest {
    /// Number of the version; the current one by default.
    version: Option<u64>,
}

/// Create a terminal in the same thread from the state of this one.
#[utoipa::path(post, path = "/api/terminals/{id}/fork", tag = "terminals",
    operation_id = "terminals.fork", params(TerminalPath), request_body = ForkRequest,
    responses((status = 201, description = "The new terminal", body = TerminalView)))]
async fn fork(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    OptionalJson(fork): OptionalJson<ForkRequest>,
) -> Result<(StatusCode, axum::Json<TerminalView>), Problem> {
    let version = fork.version.unwrap_or(terminal.version);
    check_version(&terminal, version)?;
    let other = app.terminals.fork(&terminal, version).await?;
    let facts = app.terminals.facts(&other).await;
    Ok((StatusCode::CREATED, axum::Json(TerminalView::new(other, facts, Secrets::Masked))))
}

fn check_version(terminal: &Terminal, version: u64) -> Result<(), Problem> {
    if version == 0 || version > terminal.version {
        let detail = format!("the terminal has versions 1 to {}", terminal.version);
        return Err(Problem::field(Code::InvalidBody, "/version", detail));
    }
    Ok(())
}
