//! The control plane: creates, forks, pauses, resumes, extends and deletes sandboxes.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    E2bApi, E2bJson, E2bRefusal,
    address::sandbox_id,
    bad,
    network::NetworkConfig,
    vendor,
    view::{self, connection, find, missing},
    volume::E2bMount,
};
use adapter::{
    Adapter,
    build::{ALIAS, CWD},
    new_sandbox::NewSandbox,
    sandbox::is_paused,
};
use api::error::Problem;
use engine::sandbox::Extension;
use model::{ExpiryAction, SandboxStatus, ThreadId};
use store::SandboxRecord;

/// The default timeout in the first version of the API.
const DEFAULT_TIMEOUT_SECONDS: u64 = 15;
/// The default timeout in the second version of the API.
const DEFAULT_TIMEOUT_SECONDS_V2: u64 = 300;
/// The maximum timeout of a sandbox.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// The limit of forks per request.
const MAX_FORKS: usize = 20;
/// The limit of the total size of a sandbox's metadata.
const MAX_METADATA_BYTES: usize = 64 << 10;

/// A request for a sandbox. Unknown fields belong to a later version of the API and are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CreateE2bSandbox {
    #[serde(alias = "templateID")]
    template_id: String,
    timeout: Option<u64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    lifecycle: Option<SandboxLifecycle>,
    #[serde(alias = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    volume_mounts: Option<Vec<E2bMount>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    network: Option<NetworkConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SandboxLifecycle {
    on_timeout: Option<String>,
    auto_resume: Option<bool>,
}

fn checked_timeout(given: u64) -> Result<Duration, E2bRefusal> {
    let time = Duration::from_secs(given);
    if time > MAX_TIMEOUT {
        return Err(bad(format!(
            "Timeout cannot be greater than {} seconds",
            MAX_TIMEOUT.as_secs()
        )));
    }
    Ok(time)
}

pub(super) async fn create(
    State(app): State<Adapter>,
    E2bJson(request): E2bJson<CreateE2bSandbox>,
) -> Result<Response, E2bRefusal> {
    create_with(&app, request, DEFAULT_TIMEOUT_SECONDS).await
}

/// Creates a sandbox, in the second version of the API.
pub(super) async fn create_v2(
    State(app): State<Adapter>,
    E2bJson(request): E2bJson<CreateE2bSandbox>,
) -> Result<Response, E2bRefusal> {
    create_with(&app, request, DEFAULT_TIMEOUT_SECONDS_V2).await
}

async fn create_with(
    app: &Adapter,
    request: CreateE2bSandbox,
    default_timeout: u64,
) -> Result<Response, E2bRefusal> {
    let mut config = request.network.unwrap_or_default();
    config.allow_internet_access = request.allow_internet_access;
    let network = config.network()?;
    if request.iam.is_some_and(|iam| iam["tokens"].as_object().is_some_and(|it| !it.is_empty())) {
        return Err(bad("workload identities are not supported"));
    }
    let mut settings = serde_json::Map::new();
    let mounts = request.volume_mounts.unwrap_or_default();
    let mounts = mounts.into_iter().map(Into::into).collect();
    let mounted = app.mount_volumes(&mut settings, mounts).await;
    mounted.map_err(|problem| bad(problem.detail()))?;
    if request.mcp.is_some_and(|mcp| !mcp.is_null()) {
        return Err(bad("MCP servers in sandboxes are not supported"));
    }
    let labels = request.metadata.unwrap_or_default();
    let bytes: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        return Err(bad(format!("metadata may have up to {MAX_METADATA_BYTES} bytes")));
    }
    let mut env = request.env_vars.unwrap_or_default();
    api::check_env(Some(&env), "/envVars")?;
    let lifecycle = request.lifecycle.unwrap_or_default();
    let pauses =
        request.auto_pause == Some(true) || lifecycle.on_timeout.as_deref() == Some("pause");
    let auto_resume = request.auto_resume.is_some_and(|it| it.enabled)
        || lifecycle.auto_resume.unwrap_or_default();
    let template = match request.template_id.as_str() {
        "" => "base".to_owned(),
        name => name.to_owned(),
    };
    let id = random_id()?;
    for (name, value) in
        [("E2B_SANDBOX", "true"), ("E2B_SANDBOX_ID", id.as_str()), ("E2B_TEMPLATE_ID", &template)]
    {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    let new = NewSandbox {
        timeout: Some(checked_timeout(request.timeout.unwrap_or(default_timeout))?),
        on_expiry: match (pauses, request.auto_pause_memory) {
            (false, _) => ExpiryAction::Delete,
            (true, Some(false)) => ExpiryAction::Suspend,
            (true, Some(true) | None) => ExpiryAction::Pause,
        },
        auto_resume,
        port_access: config.port_access(),
        env,
        labels,
        extra: config.extra().into_iter().collect(),
        network,
        settings,
        ..NewSandbox::new(&E2bApi, id, template)
    };
    let sandbox = app.create_sandbox(new).await?;
    Ok((StatusCode::CREATED, axum::Json(connection(app, &sandbox))).into_response())
}

fn random_id() -> Result<ThreadId, Problem> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::internal("generate the id of a sandbox", &error))?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("i{id}").parse().expect("letters and digits are an id"))
}

/// The number of forks and their timeout.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ForkSandbox {
    timeout: Option<u64>,
    count: Option<usize>,
}

/// Creates sandboxes with the files of another. The response has a result for each, which may be an error.
pub(super) async fn fork(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(request): E2bJson<ForkSandbox>,
) -> Result<Response, E2bRefusal> {
    let sandbox = find(&app, &name).await?;
    let timeout = checked_timeout(request.timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS))?;
    let count = request.count.unwrap_or(1);
    if !(1..=MAX_FORKS).contains(&count) {
        return Err(bad(format!("count must be 1 to {MAX_FORKS}")));
    }
    let mut forks = Vec::with_capacity(count);
    for _ in 0..count {
        let id = random_id()?;
        let row = &sandbox.row;
        let mut env = sandbox.thread.env.clone();
        env.insert("E2B_SANDBOX_ID".to_owned(), id.to_string());
        let template_records = [ALIAS, CWD].map(|key| row.extra.get_key_value(key));
        let template_records = template_records.into_iter().flatten();
        let config = NetworkConfig::of(row);
        let mut extra: BTreeMap<_, _> = config.extra().into_iter().collect();
        extra.extend(template_records.map(|(key, value)| (key.clone(), value.clone())));
        let new = NewSandbox {
            timeout: Some(timeout),
            on_expiry: row.on_expiry,
            auto_resume: row.auto_resume,
            port_access: config.port_access(),
            env,
            labels: row.labels.clone(),
            extra,
            ..NewSandbox::new(&E2bApi, id, row.template.clone())
        };
        forks.push(match app.fork_sandbox(&sandbox, new).await {
            Ok(fork) => json!({"sandbox": connection(&app, &fork)}),
            Err(problem) => json!({"error": E2bRefusal::from(problem).body()}),
        });
    }
    Ok((StatusCode::CREATED, axum::Json(forks)).into_response())
}

pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    Ok(axum::Json(view::sandbox(&app, &find(&app, &name).await?)))
}

pub(super) async fn kill(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<StatusCode, E2bRefusal> {
    let id = sandbox_id(&name).ok_or_else(|| missing(&name))?;
    match app.delete_sandbox(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing(&name)),
    }
}

/// A request to pause a sandbox.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PauseSandbox {
    /// Whether programs continue after the resume; they do by default.
    memory: Option<bool>,
}

pub(super) async fn pause(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(PauseSandbox { memory }): E2bJson<PauseSandbox>,
) -> Result<StatusCode, E2bRefusal> {
    let sandbox = find(&app, &name).await?;
    let paused = match memory {
        _ if is_paused(&sandbox) => None,
        Some(false) => Some(app.suspend_sandbox(&sandbox).await?),
        Some(true) | None => app.sandboxes.pause(&sandbox).await?,
    };
    match paused {
        Some(_) => Ok(StatusCode::NO_CONTENT),
        None => {
            let message = format!("Error pausing sandbox - sandbox '{name}' is already paused");
            Err(E2bRefusal::new(StatusCode::CONFLICT, message))
        }
    }
}

/// The requested lifetime of a sandbox.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lifetime {
    timeout: Option<u64>,
    duration: Option<u64>,
    /// Whether a resumed sandbox keeps its memory; it does by default.
    memory: Option<bool>,
}

impl Lifetime {
    fn timeout(&self) -> Result<Option<Duration>, E2bRefusal> {
        self.timeout.map(checked_timeout).transpose()
    }
}

/// Resumes a sandbox if it is paused, and extends its lifetime.
pub(super) async fn connect(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(lifetime): E2bJson<Lifetime>,
) -> Result<Response, E2bRefusal> {
    connect_with(&app, &name, &lifetime).await
}

/// Resumes a sandbox if it is paused, in the second version of the API.
pub(super) async fn connect_v2(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(lifetime): E2bJson<Lifetime>,
) -> Result<Response, E2bRefusal> {
    let timeout = lifetime.timeout.or(Some(DEFAULT_TIMEOUT_SECONDS_V2));
    connect_with(&app, &name, &Lifetime { timeout, ..lifetime }).await
}

async fn connect_with(
    app: &Adapter,
    name: &str,
    lifetime: &Lifetime,
) -> Result<Response, E2bRefusal> {
    let sandbox = find(app, name).await?;
    let timeout = lifetime.timeout()?;
    let was_paused = resume_with(app, &sandbox, lifetime.memory, timeout).await?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(connection(app, &sandbox))).into_response())
}

/// Resumes a sandbox. Without its memory, only its files are kept. Returns whether it was paused.
async fn resume_with(
    app: &Adapter,
    sandbox: &SandboxRecord,
    memory: Option<bool>,
    timeout: Option<Duration>,
) -> Result<bool, E2bRefusal> {
    if sandbox.status() == SandboxStatus::Paused && memory == Some(false) {
        let suspended = app.suspend_sandbox(sandbox).await?;
        return Ok(vendor::resume(app, &suspended, timeout).await?);
    }
    Ok(vendor::resume(app, sandbox, timeout).await?)
}

/// Resumes a paused sandbox. Fails if the sandbox is running.
pub(super) async fn resume(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(lifetime): E2bJson<Lifetime>,
) -> Result<Response, E2bRefusal> {
    let sandbox = find(&app, &name).await?;
    if !is_paused(&sandbox) {
        let message = format!("Sandbox {name} is already running");
        return Err(E2bRefusal::new(StatusCode::CONFLICT, message));
    }
    resume_with(&app, &sandbox, lifetime.memory, lifetime.timeout()?).await?;
    Ok((StatusCode::CREATED, axum::Json(connection(&app, &sandbox))).into_response())
}

/// Sets the remaining lifetime of a sandbox.
pub(super) async fn timeout(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(lifetime): E2bJson<Lifetime>,
) -> Result<StatusCode, E2bRefusal> {
    let timeout = lifetime.timeout()?.ok_or_else(|| bad("timeout is missing"))?;
    extend(&app, &name, Extension::Exactly(timeout)).await
}

/// Extends the remaining lifetime of a sandbox if it is shorter.
pub(super) async fn refresh(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(lifetime): E2bJson<Lifetime>,
) -> Result<StatusCode, E2bRefusal> {
    let timeout = checked_timeout(lifetime.duration.unwrap_or(DEFAULT_TIMEOUT_SECONDS))?;
    extend(&app, &name, Extension::AtLeast(timeout)).await
}

async fn extend(app: &Adapter, name: &str, extension: Extension) -> Result<StatusCode, E2bRefusal> {
    let id = sandbox_id(name).ok_or_else(|| missing(name))?;
    match app.sandboxes.extend(&id, extension).await? {
        Some(_) => Ok(StatusCode::NO_CONTENT),
        None => Err(missing(name)),
    }
}

/// Replaces the egress rules of a sandbox.
pub(super) async fn update_network(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    E2bJson(update): E2bJson<NetworkConfig>,
) -> Result<StatusCode, E2bRefusal> {
    let sandbox = find(&app, &name).await?;
    let config = NetworkConfig::of(&sandbox.row).updated(update);
    let network = config.network()?;
    let changed = app.change_network(&sandbox, &network, |row| {
        row.port_access = config.port_access();
        row.extra.extend(config.extra());
    });
    changed.await?.map(|_| StatusCode::NO_CONTENT).ok_or_else(|| missing(&name))
}
