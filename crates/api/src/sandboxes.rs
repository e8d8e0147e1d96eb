//! Sandboxes: compute with a name, labels and a lifetime, each with the thread that runs in it.

use std::{collections::BTreeMap, time::Duration};

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, OptionalJson, Path, Query},
    page::{self, List},
    params::SandboxPath,
    providers::{check_provider, check_settings},
    removal::RemovalQuery,
    shapes::EgressSchema,
    snapshots::{self, NewSnapshot, SnapshotView},
    terminals::check_env,
};
use engine::sandbox::{Extension, NATIVE_ORIGIN, UNLIMITED_SESSION};
use model::{
    Env, ExpiryAction, PortAccess, ProjectId, Sandbox, SandboxState, SandboxStatus, ThreadId,
};
use provider::Fidelity;
use store::{SandboxFilter, SandboxOrder, SandboxRecord, StoreError, ThreadChoices};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(suspend))
        .routes(routes!(extend))
        .routes(routes!(fork))
        .routes(routes!(snapshot))
}

const MAX_LABELS: usize = 64;
const MAX_NAME_BYTES: usize = 100;
const MAX_TIMEOUT_S: u64 = 10 * 365 * 86_400;

/// A sandbox to create; all fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "build", "memory": "2g", "timeout_s": 3600, "labels": {"team": "web"}}))]
struct SandboxRequest {
    /// Name, unique within the project. If a sandbox of this name exists, it is returned instead.
    name: Option<String>,
    /// Id of its project.
    #[schema(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// Name of its provider; the default provider if omitted.
    provider: Option<String>,
    /// Image whose files it starts with.
    image: Option<String>,
    /// Snapshot whose files it starts with.
    snapshot: Option<String>,
    /// Number of CPUs.
    #[schema(value_type = Option<f64>)]
    cpus: Option<Value>,
    /// Memory limit, e.g. `512m`.
    #[schema(value_type = Option<String>)]
    memory: Option<Value>,
    /// Maximum number of processes and threads.
    #[schema(value_type = Option<u64>)]
    processes: Option<Value>,
    /// Disk limit, e.g. `10g`.
    #[schema(value_type = Option<String>)]
    disk: Option<Value>,
    /// Rules for outgoing connections.
    #[schema(value_type = Option<EgressSchema>)]
    egress: Option<Value>,
    /// Capabilities of root inside, over its own files and users: `root`, with which it installs packages and
    /// manages users, or `none`, with which the machine's programs are read-only.
    #[schema(value_type = Option<String>)]
    capabilities: Option<Value>,
    /// Environment variables of its shells.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Env>,
    /// Lifetime in seconds; unlimited if omitted. A use after the lifetime starts a new one.
    timeout_s: Option<u64>,
    /// What happens at the end of the lifetime: `suspend` (default) or `destroy`.
    #[serde(default)]
    on_timeout: OnTimeout,
    /// Labels set by clients.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// What happens to a sandbox at the end of its lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnTimeout {
    /// Ends its processes and keeps its files; the next use starts it.
    #[default]
    Suspend,
    /// Deletes it.
    Destroy,
}

impl From<OnTimeout> for ExpiryAction {
    fn from(action: OnTimeout) -> ExpiryAction {
        match action {
            OnTimeout::Suspend => ExpiryAction::Suspend,
            OnTimeout::Destroy => ExpiryAction::Delete,
        }
    }
}

/// A sandbox.
#[derive(Debug, Serialize, ToSchema)]
struct SandboxView {
    /// Id of the sandbox, which is also the id of its thread.
    sandbox_id: String,
    /// Name of the sandbox.
    name: Option<String>,
    /// Id of its project.
    project_id: String,
    /// Id of its thread.
    thread_id: String,
    /// Id of the default terminal of its thread.
    terminal_id: String,
    /// Id of its lease.
    lease_id: String,
    /// Name of its provider.
    provider: String,
    /// `running` (or starts on its next use), `paused`, `suspended`, `stopped` or `archived`.
    #[schema(value_type = String)]
    state: SandboxStatus,
    /// The image, snapshot or template it started from; empty for the default.
    template: String,
    /// The API it was created through: `stead` for this one, otherwise the name of the other API.
    origin: String,
    /// Labels set by clients.
    labels: BTreeMap<String, String>,
    /// Lifetime in seconds; null if it is unlimited.
    timeout_s: Option<u64>,
    /// What happens at the end of the lifetime: `suspend`, `pause` or `destroy`.
    on_timeout: &'static str,
    /// End of the lifetime; null if it is unlimited.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Timestamp>,
    /// Time of the last use.
    #[schema(value_type = Option<String>)]
    last_active_at: Option<Timestamp>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

impl From<SandboxRecord> for SandboxView {
    fn from(record: SandboxRecord) -> SandboxView {
        let state = record.status();
        let SandboxRecord { row, thread, lease, last_active_at } = record;
        SandboxView {
            sandbox_id: row.thread_id.to_string(),
            name: row.name,
            project_id: row.project_id.to_string(),
            thread_id: row.thread_id.to_string(),
            terminal_id: thread.terminal_id.to_string(),
            lease_id: thread.lease_id.to_string(),
            provider: lease.provider,
            state,
            template: row.template,
            origin: row.origin,
            labels: row.labels,
            timeout_s: row.lifetime.map(|lifetime| lifetime.as_secs()),
            on_timeout: match row.on_expiry {
                ExpiryAction::Delete => "destroy",
                ExpiryAction::Pause => "pause",
                ExpiryAction::Suspend => "suspend",
            },
            expires_at: row.expires_at,
            last_active_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SandboxesQuery {
    /// Only sandboxes with these labels, `KEY=VALUE`, separated by commas.
    label: Option<String>,
    /// Only sandboxes in one of these states, separated by commas.
    state: Option<String>,
    /// Only sandboxes of this project.
    #[param(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl SandboxesQuery {
    fn filter(&self) -> Result<SandboxFilter, Problem> {
        let parts = |text: &Option<String>| -> Vec<String> {
            text.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect()
        };
        let mut filter =
            SandboxFilter { project_id: self.project_id.clone(), ..SandboxFilter::default() };
        for label in parts(&self.label) {
            let Some((key, value)) = label.split_once('=') else {
                return Err(Problem::query("label", "must be KEY=VALUE, separated by commas"));
            };
            filter.labels.push(vec![(key.to_owned(), value.to_owned())]);
        }
        for state in parts(&self.state) {
            let status = serde_json::from_value(Value::String(state));
            filter.statuses.push(status.map_err(|_| {
                let states = "running, paused, suspended, stopped or archived";
                Problem::query("state", format!("must be {states}, separated by commas"))
            })?);
        }
        Ok(filter)
    }
}

/// List all sandboxes, newest first.
#[utoipa::path(get, path = "/api/sandboxes", tag = "sandboxes",
    operation_id = "sandboxes.list", params(SandboxesQuery),
    responses((status = 200, description = "A page of sandboxes", body = List<SandboxView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<SandboxesQuery>,
) -> Result<axum::Json<List<SandboxView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.sandboxes.list(query.filter()?, SandboxOrder::NewestFirst, request).await?;
    Ok(axum::Json(page.map(SandboxView::from).into()))
}

/// Create a sandbox and start it.
///
/// With a `name`, the request can be repeated: an existing sandbox of that name is returned unchanged.
#[utoipa::path(post, path = "/api/sandboxes", tag = "sandboxes",
    operation_id = "sandboxes.create", request_body = SandboxRequest,
    responses((status = 201, description = "The new sandbox", body = SandboxView),
        (status = 200, description = "The sandbox that has this name", body = SandboxView)))]
async fn create(
    State(app): State<App>,
    OptionalJson(new): OptionalJson<SandboxRequest>,
) -> Result<(StatusCode, axum::Json<SandboxView>), Problem> {
    check_name(new.name.as_deref())?;
    check_labels(&new.labels)?;
    check_env(new.env.as_ref(), "/env")?;
    check_timeout(new.timeout_s)?;
    check_provider(&app, new.provider.as_deref())?;
    let project = new.project_id.clone().unwrap_or_else(ProjectId::default_project);
    app.projects.project(&project).await?;
    if new.image.is_some() && new.snapshot.is_some() {
        return Err(Problem::body("/snapshot", "cannot be combined with image"));
    }
    let provider = new.provider.clone().unwrap_or_else(|| app.provider.clone());
    let mut settings = Map::new();
    for (key, value) in [
        ("image", new.image.clone().map(Value::from)),
        ("snapshot", new.snapshot.clone().map(Value::from)),
        ("cpus", new.cpus),
        ("memory", new.memory),
        ("processes", new.processes),
        ("disk", new.disk),
        ("egress", new.egress),
        ("capabilities", new.capabilities),
    ] {
        let Some(value) = value else { continue };
        let alone = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
        check_settings(&app, &provider, &alone, &format!("/{key}"))?;
        settings.insert(key.to_owned(), value);
    }
    if let Some(found) = named(&app, &project, new.name.as_deref()).await? {
        return Ok((StatusCode::OK, axum::Json(found.into())));
    }
    let choices = ThreadChoices {
        project_id: Some(project.clone()),
        provider: Some(provider),
        spec: (!settings.is_empty()).then_some(Value::Object(settings)),
        policy: Some(UNLIMITED_SESSION),
        env: new.env,
        ..ThreadChoices::default()
    };
    let sandbox = Sandbox {
        name: new.name.clone(),
        template: new.image.or(new.snapshot).unwrap_or_default(),
        on_expiry: new.on_timeout.into(),
        labels: new.labels,
        ..blank(&app, project.clone(), new.timeout_s)
    };
    let first = app.first_use(&sandbox.thread_id, choices);
    let created = match app.sandboxes.create(first, sandbox).await {
        Ok(created) => created,
        Err(error) => {
            // Another request with the same name may have been first.
            return match named(&app, &project, new.name.as_deref()).await? {
                Some(found) => Ok((StatusCode::OK, axum::Json(found.into()))),
                None => Err(error.into()),
            };
        }
    };
    start(&app, created).await
}

/// Starts a new sandbox, or deletes it if it cannot start.
async fn start(
    app: &App,
    created: SandboxRecord,
) -> Result<(StatusCode, axum::Json<SandboxView>), Problem> {
    if let Err(error) = app.leases.running(&created.thread.lease_id).await {
        app.sandboxes.delete(created.id()).await?;
        return Err(error.into());
    }
    Ok((StatusCode::CREATED, axum::Json(find(app, created.id()).await?.into())))
}

/// Returns a sandbox with a new id, without a name and with the default choices.
fn blank(app: &App, project_id: ProjectId, timeout_s: Option<u64>) -> Sandbox {
    let now = app.now().at;
    let id = format!("sb_{}", uuid::Uuid::now_v7().simple());
    Sandbox {
        thread_id: id.parse().expect("letters, digits and an underscore are an id"),
        project_id,
        name: None,
        origin: NATIVE_ORIGIN.to_owned(),
        template: String::new(),
        build_id: None,
        user: "root".to_owned(),
        home: "/root".to_owned(),
        state: SandboxState::Active,
        started_at: now,
        lifetime: timeout_s.map(Duration::from_secs),
        expires_at: timeout_s.map(|seconds| after(now, seconds)),
        on_expiry: ExpiryAction::Suspend,
        expires_while_paused: false,
        delete_after_stop: None,
        auto_resume: true,
        port_access: PortAccess::Token,
        labels: BTreeMap::new(),
        extra: BTreeMap::new(),
        created_at: now,
        updated_at: now,
        revision: 0,
    }
}

fn after(now: Timestamp, seconds: u64) -> Timestamp {
    now.checked_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

async fn named(
    app: &App,
    project: &ProjectId,
    name: Option<&str>,
) -> Result<Option<SandboxRecord>, Problem> {
    match name {
        Some(name) => Ok(app.sandboxes.named(project, NATIVE_ORIGIN, name).await?),
        None => Ok(None),
    }
}

async fn find(app: &App, id: &ThreadId) -> Result<SandboxRecord, Problem> {
    app.sandboxes.get(id).await?.ok_or_else(|| Problem::missing("sandbox", id))
}

fn check_name(name: Option<&str>) -> Result<(), Problem> {
    let Some(name) = name else { return Ok(()) };
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let rule = format!("must have 1 to {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Problem::body("/name", rule));
    }
    Ok(())
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    let is_bad = |(key, value): (&String, &String)| {
        key.is_empty() || key.len() > 128 || value.len() > 1024 || key.contains(['=', ','])
    };
    if labels.len() > MAX_LABELS || labels.iter().any(is_bad) {
        let rule = format!(
            "must be at most {MAX_LABELS} labels; a key has 1 to 128 bytes without '=' and ',', a value at \
             most 1024 bytes"
        );
        return Err(Problem::body("/labels", rule));
    }
    Ok(())
}

fn check_timeout(timeout_s: Option<u64>) -> Result<(), Problem> {
    match timeout_s {
        Some(0) | Some(MAX_TIMEOUT_S..) => {
            Err(Problem::body("/timeout_s", format!("must be 1 to {}", MAX_TIMEOUT_S - 1)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Get a sandbox.
#[utoipa::path(get, path = "/api/sandboxes/{id}", tag = "sandboxes",
    operation_id = "sandboxes.get", params(SandboxPath),
    responses((status = 200, description = "The sandbox", body = SandboxView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SandboxView>, Problem> {
    Ok(axum::Json(find(&app, &id).await?.into()))
}

/// Changes to a sandbox; omitted fields stay as they are.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"labels": {"team": "web"}, "timeout_s": 7200}))]
struct SandboxChange {
    /// New name, unique within the project.
    name: Option<String>,
    /// Labels, which replace all previous ones.
    labels: Option<BTreeMap<String, String>>,
    /// Lifetime in seconds, from now.
    timeout_s: Option<u64>,
    /// What happens at the end of the lifetime: `suspend` or `destroy`.
    on_timeout: Option<OnTimeout>,
}

/// Change the name, labels or lifetime of a sandbox.
#[utoipa::path(patch, path = "/api/sandboxes/{id}", tag = "sandboxes",
    operation_id = "sandboxes.update", params(SandboxPath), request_body = SandboxChange,
    responses((status = 200, description = "The changed sandbox", body = SandboxView)))]
async fn change(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(change): Json<SandboxChange>,
) -> Result<axum::Json<SandboxView>, Problem> {
    check_name(change.name.as_deref())?;
    check_labels(change.labels.as_ref().unwrap_or(&BTreeMap::new()))?;
    check_timeout(change.timeout_s)?;
    let now = app.now().at;
    let changed = app.sandboxes.change(&id, |sandbox| {
        if let Some(name) = &change.name {
            sandbox.name = Some(name.clone());
        }
        if let Some(labels) = &change.labels {
            sandbox.labels.clone_from(labels);
        }
        if let Some(seconds) = change.timeout_s {
            sandbox.expires_at = Some(after(now, seconds));
            sandbox.lifetime = Some(Duration::from_secs(seconds));
        }
        if let Some(action) = change.on_timeout {
            sandbox.on_expiry = action.into();
        }
    });
    let changed = changed.await?.ok_or_else(|| Problem::missing("sandbox", &id))?;
    Ok(axum::Json(changed.into()))
}

/// Delete a sandbox with its thread and everything in it.
#[utoipa::path(delete, path = "/api/sandboxes/{id}", tag = "sandboxes",
    operation_id = "sandboxes.delete", params(SandboxPath, RemovalQuery),
    responses((status = 204, description = "The sandbox is deleted"),
        (status = 202, description = "The deletion was recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let removal = match app.sandboxes.get(&id).await? {
        Some(_) => app.delete_thread(&id).await?,
        None => app.removals.of("thread", &id).ok_or_else(|| Problem::missing("sandbox", &id))?,
    };
    Ok(query.answer(removal).await)
}

/// Pause a sandbox with its processes.
///
/// The next use resumes it.
#[utoipa::path(post, path = "/api/sandboxes/{id}/pause", tag = "sandboxes",
    operation_id = "sandboxes.pause", params(SandboxPath),
    responses((status = 200, description = "The sandbox", body = SandboxView)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SandboxView>, Problem> {
    app.sandboxes.pause(&find(&app, &id).await?).await?;
    Ok(axum::Json(find(&app, &id).await?.into()))
}

/// Resume a paused or suspended sandbox.
#[utoipa::path(post, path = "/api/sandboxes/{id}/resume", tag = "sandboxes",
    operation_id = "sandboxes.resume", params(SandboxPath),
    responses((status = 200, description = "The sandbox", body = SandboxView)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<SandboxView>, Problem> {
    let sandbox = find(&app, &id).await?;
    Ok(axum::Json(app.sandboxes.resume(&sandbox).await?.into()))
}

/// What a suspension or a fork keeps.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"memory": false}))]
struct SandboxSuspendRequest {
    /// Whether memory is kept as well; refused if the provider does not support it.
    memory: Option<bool>,
}

/// Refuses to keep memory where the provider cannot.
fn check_memory(app: &App, sandbox: &SandboxRecord, memory: Option<bool>) -> Result<(), Problem> {
    let name = &sandbox.lease.provider;
    let provider = app.leases.providers().named(name);
    let keeps = provider.is_ok_and(|provider| provider.profile().suspend == Fidelity::Memory);
    if memory == Some(true) && !keeps {
        let detail = format!("the provider {name} keeps files, but not memory");
        return Err(Problem::new(Code::NotSupported, detail));
    }
    Ok(())
}

/// Suspend a sandbox.
///
/// Ends its processes and keeps its files and the state of its shells. The next use starts it from them.
#[utoipa::path(post, path = "/api/sandboxes/{id}/suspend", tag = "sandboxes",
    operation_id = "sandboxes.suspend", params(SandboxPath), request_body = SandboxSuspendRequest,
    responses((status = 200, description = "The sandbox", body = SandboxView)))]
async fn suspend(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    OptionalJson(request): OptionalJson<SandboxSuspendRequest>,
) -> Result<axum::Json<SandboxView>, Problem> {
    let sandbox = find(&app, &id).await?;
    check_memory(&app, &sandbox, request.memory)?;
    Ok(axum::Json(app.sandboxes.suspend(&sandbox).await?.into()))
}

/// A longer lifetime.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"timeout_s": 3600}))]
struct ExtendRequest {
    /// The sandbox lives at least this many seconds from now.
    timeout_s: u64,
}

/// Extend the lifetime of a sandbox.
///
/// A sandbox that already lives longer, or without a limit, is not changed.
#[utoipa::path(post, path = "/api/sandboxes/{id}/extend", tag = "sandboxes",
    operation_id = "sandboxes.extend", params(SandboxPath), request_body = ExtendRequest,
    responses((status = 200, description = "The sandbox", body = SandboxView)))]
async fn extend(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(request): Json<ExtendRequest>,
) -> Result<axum::Json<SandboxView>, Problem> {
    check_timeout(Some(request.timeout_s))?;
    let extension = Extension::AtLeast(Duration::from_secs(request.timeout_s));
    let extended = app.sandboxes.extend(&id, extension).await?;
    Ok(axum::Json(extended.ok_or_else(|| Problem::missing("sandbox", &id))?.into()))
}

/// Options of a fork; omitted ones are those of the original.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "attempt-2"}))]
struct SandboxForkRequest {
    /// Whether memory is copied as well; refused if the provider does not support it.
    memory: Option<bool>,
    /// Name of the fork, unique within the project.
    name: Option<String>,
    /// Labels of the fork.
    labels: Option<BTreeMap<String, String>>,
    /// Lifetime of the fork in seconds.
    timeout_s: Option<u64>,
}

/// Create a sandbox with a copy of the files of this one.
///
/// The default terminal of the fork continues with the working directory, environment and functions of the
/// original's.
#[utoipa::path(post, path = "/api/sandboxes/{id}/fork", tag = "sandboxes",
    operation_id = "sandboxes.fork", params(SandboxPath), request_body = SandboxForkRequest,
    responses((status = 201, description = "The new sandbox", body = SandboxView)))]
async fn fork(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    OptionalJson(request): OptionalJson<SandboxForkRequest>,
) -> Result<(StatusCode, axum::Json<SandboxView>), Problem> {
    check_name(request.name.as_deref())?;
    check_labels(request.labels.as_ref().unwrap_or(&BTreeMap::new()))?;
    check_timeout(request.timeout_s)?;
    let original = find(&app, &id).await?;
    check_memory(&app, &original, request.memory)?;
    let project = original.row.project_id.clone();
    if let Some(found) = named(&app, &project, request.name.as_deref()).await? {
        let name = found.row.name.unwrap_or_default();
        return Err(StoreError::Exists { what: format!("a sandbox with the name {name}") }.into());
    }
    let lifetime = original.row.lifetime.map(|lifetime| lifetime.as_secs());
    let sandbox = Sandbox {
        name: request.name,
        template: original.row.template.clone(),
        user: original.row.user.clone(),
        home: original.row.home.clone(),
        on_expiry: original.row.on_expiry,
        labels: request.labels.unwrap_or_else(|| original.row.labels.clone()),
        ..blank(&app, project.clone(), request.timeout_s.or(lifetime))
    };
    let choices = ThreadChoices {
        project_id: Some(project),
        provider: Some(original.lease.provider.clone()),
        policy: Some(UNLIMITED_SESSION),
        env: Some(original.thread.env.clone()),
        cwd: original.thread.cwd.clone(),
        ..ThreadChoices::default()
    };
    let first = app.first_use(&sandbox.thread_id, choices);
    start(&app, app.sandboxes.fork(&original, first, sandbox).await?).await
}

/// Create a named snapshot of the files of a sandbox.
#[utoipa::path(post, path = "/api/sandboxes/{id}/snapshot", tag = "sandboxes",
    operation_id = "sandboxes.snapshot", params(SandboxPath), request_body = NewSnapshot,
    responses((status = 201, description = "The snapshot", body = SnapshotView)))]
async fn snapshot(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(new): Json<NewSnapshot>,
) -> Result<(StatusCode, axum::Json<SnapshotView>), Problem> {
    let sandbox = find(&app, &id).await?;
    let taken = snapshots::take(&app, &sandbox.thread.lease_id, &new).await?;
    Ok((StatusCode::CREATED, axum::Json(taken)))
}
