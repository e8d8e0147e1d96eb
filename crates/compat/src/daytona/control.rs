//! The control plane: creates, shows, starts, stops, pauses, archives and deletes sandboxes.

use std::{collections::BTreeMap, time::Duration};

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaApi, DaytonaJson, DaytonaRefusal, ORIGIN, TOOLBOX,
    image::BuildInfo,
    network::NetworkSettings,
    size::SizeRequest,
    view::{
        self, AUTO_ARCHIVE, AUTO_PAUSE, AUTO_STOP, DEFAULT_AUTO_ARCHIVE_MINUTES,
        DEFAULT_AUTO_STOP_MINUTES, DEFAULT_SNAPSHOT, USER, find, port_url, toolbox_url,
    },
    volume::DaytonaMount,
    waiting_sandbox,
};
use adapter::{Adapter, new_sandbox::NewSandbox, port, vendor::VendorApi};
use engine::sandbox::UNLIMITED_SESSION;
use model::{Env, OnExpiry, PortAccess, ProjectId, SandboxState, SessionPolicy};

const MAX_LABELS: usize = 100;
const MAX_LABEL_BYTES: usize = 8 << 10;
const MAX_NAME_BYTES: usize = 255;

/// A request for a sandbox. Unknown fields belong to a later version of the API and are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CreateDaytonaSandbox {
    name: Option<String>,
    snapshot: Option<String>,
    image: Option<String>,
    env: Option<Env>,
    labels: Option<BTreeMap<String, String>>,
    public: Option<bool>,
    auto_stop_interval: Option<u64>,
    auto_archive_interval: Option<u64>,
    auto_delete_interval: Option<i64>,
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    domain_allow_list: Option<String>,
    volumes: Option<Vec<DaytonaMount>>,
    build_info: Option<BuildInfo>,
    user: Option<String>,
    auto_pause_interval: Option<u64>,
    ttl_minutes: Option<u64>,
    secrets: Option<Vec<Value>>,
    kvm: Option<bool>,
    linked_sandbox: Option<String>,
    outbound_proxy_url: Option<String>,
    #[serde(flatten)]
    size: SizeRequest,
}

impl CreateDaytonaSandbox {
    /// Refuses contradictory and unsupported options.
    fn check(&self) -> Result<(), DaytonaRefusal> {
        let is_set = |minutes: Option<u64>| minutes.is_some_and(|minutes| minutes > 0);
        if is_set(self.auto_stop_interval) && is_set(self.auto_pause_interval) {
            let message = "autoStopInterval and autoPauseInterval are mutually exclusive";
            return Err(DaytonaRefusal::bad(message));
        }
        if is_set(self.auto_pause_interval) && self.auto_delete_interval == Some(0) {
            let message = "a sandbox that is deleted when it stops cannot be paused automatically";
            return Err(DaytonaRefusal::bad(message));
        }
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        for (is_requested, feature) in [
            (self.secrets.as_ref().is_some_and(|all| !all.is_empty()), "secrets"),
            (self.kvm == Some(true), "virtual machines in sandboxes"),
            (given(&self.linked_sandbox), "linked sandboxes"),
            (given(&self.outbound_proxy_url), "outbound proxies"),
        ] {
            if is_requested {
                return Err(DaytonaRefusal::bad(format!("{feature} are not supported")));
            }
        }
        match self.user.as_deref() {
            None | Some("" | "root") => {}
            Some(user) if user == DaytonaApi.user() => {}
            Some(user) => {
                let message =
                    format!("unknown user {user}; a sandbox has the users daytona and root");
                return Err(DaytonaRefusal::bad(message));
            }
        }
        if self.name.as_ref().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            return Err(DaytonaRefusal::bad(format!(
                "a name may have up to {MAX_NAME_BYTES} bytes"
            )));
        }
        check_labels(self.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), DaytonaRefusal> {
    if labels.len() > MAX_LABELS {
        return Err(DaytonaRefusal::bad(format!("a sandbox may have up to {MAX_LABELS} labels")));
    }
    let is_invalid = |(name, value): (&String, &String)| {
        name.is_empty() || name.len() + value.len() > MAX_LABEL_BYTES
    };
    if labels.iter().any(is_invalid) {
        let message = format!("a label needs a name and may have up to {MAX_LABEL_BYTES} bytes");
        return Err(DaytonaRefusal::bad(message));
    }
    Ok(())
}

/// The policy that stops a sandbox after a number of idle minutes; 0 means never.
pub(super) fn stop_policy(minutes: u64) -> SessionPolicy {
    if minutes == 0 {
        return UNLIMITED_SESSION;
    }
    let idle_timeout_s = minutes.saturating_mul(60).min(UNLIMITED_SESSION.idle_timeout_s);
    SessionPolicy { idle_timeout_s, on_expiry: OnExpiry::Stop, ..UNLIMITED_SESSION }
}

/// The policy that pauses or stops a sandbox after a number of idle minutes; `pause` takes precedence unless it
/// is 0.
pub(super) fn idle_policy(stop: u64, pause: u64) -> SessionPolicy {
    match pause {
        0 => stop_policy(stop),
        _ => SessionPolicy { on_expiry: OnExpiry::Pause, ..stop_policy(pause) },
    }
}

/// A lifetime in minutes; 0 means unlimited.
pub(super) fn lifetime(minutes: u64) -> Option<Duration> {
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

/// The time between the stop and the deletion of a sandbox; a negative number of minutes means never.
pub(super) fn delete_after_stop(minutes: i64) -> Option<Duration> {
    Some(Duration::from_secs(u64::try_from(minutes).ok()?.saturating_mul(60)))
}

pub(super) async fn create(
    State(app): State<Adapter>,
    DaytonaJson(request): DaytonaJson<CreateDaytonaSandbox>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    request.check()?;
    let mut settings = request.size.settings()?;
    let volumes = request.volumes.unwrap_or_default();
    app.mount_volumes(&mut settings, volumes.into_iter().map(Into::into).collect()).await?;
    let egress = NetworkSettings {
        network_block_all: request.network_block_all,
        network_allow_list: request.network_allow_list,
        domain_allow_list: request.domain_allow_list,
    };
    let env = request.env.unwrap_or_default();
    api::check_env(Some(&env), "/env")?;
    let id = uuid::Uuid::now_v7().to_string();
    let name = free_name(&app, request.name, &id).await?;
    let pause = request.auto_pause_interval.unwrap_or(0);
    let default_stop = if pause > 0 { 0 } else { DEFAULT_AUTO_STOP_MINUTES };
    let stop = request.auto_stop_interval.unwrap_or(default_stop);
    let archive = request.auto_archive_interval.unwrap_or(DEFAULT_AUTO_ARCHIVE_MINUTES);
    let mut extra = BTreeMap::from([
        (AUTO_STOP.to_owned(), stop.to_string()),
        (AUTO_PAUSE.to_owned(), pause.to_string()),
        (AUTO_ARCHIVE.to_owned(), archive.to_string()),
    ]);
    if let Some(user) = request.user.filter(|user| !user.is_empty()) {
        extra.insert(USER.to_owned(), user);
    }
    extra.extend(egress.extra());
    let template =
        request.snapshot.or(request.image).unwrap_or_else(|| DEFAULT_SNAPSHOT.to_owned());
    let new = NewSandbox {
        name: Some(name),
        timeout: lifetime(request.ttl_minutes.unwrap_or(0)),
        delete_after_stop: delete_after_stop(request.auto_delete_interval.unwrap_or(-1)),
        port_access: match request.public {
            Some(true) => PortAccess::Public,
            Some(false) | None => PortAccess::Token,
        },
        env,
        labels: request.labels.unwrap_or_default(),
        extra,
        policy: idle_policy(stop, pause),
        network: egress.network(),
        settings,
        ..NewSandbox::new(&DaytonaApi, id.parse().expect("a uuid is an id"), template)
    };
    let new = match &request.build_info {
        Some(info) => match waiting_sandbox::create(&app, info, new).await? {
            Ok(waiting) => return Ok(waiting),
            Err(new) => new,
        },
        None => new,
    };
    let sandbox = app.create_sandbox(new).await?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// Checks that the requested name of a new sandbox is free. Returns the id if no name is requested.
pub(super) async fn free_name(
    app: &Adapter,
    requested: Option<String>,
    id: &str,
) -> Result<String, DaytonaRefusal> {
    let name = requested.filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_owned());
    if app.sandboxes.named(&ProjectId::default_project(), ORIGIN, &name).await?.is_some() {
        let message = format!("Sandbox with name {name} already exists");
        return Err(DaytonaRefusal::new(axum::http::StatusCode::CONFLICT, message));
    }
    Ok(name)
}

/// Describes the server to clients.
pub(super) async fn config(State(app): State<Adapter>) -> axum::Json<Value> {
    let (scheme, domain) = port::domain(&app).unwrap_or(("http", String::new()));
    axum::Json(json!({
        "version": TOOLBOX,
        "proxyToolboxUrl": toolbox_url(&app),
        "proxyTemplateUrl": format!("{scheme}://{{{{PORT}}}}-{{{{sandboxId}}}}.{domain}"),
        "dashboardUrl": app.url,
        "defaultSnapshot": app.provider,
        "maxAutoArchiveInterval": 43_200,
        "environment": "production",
        "maintananceMode": false,
        "linkedAccountsEnabled": false,
        "announcements": {},
        // There is no external identity provider: the API key is the server's token.
        "oidc": {"issuer": "", "clientId": "", "audience": "", "provider": ""},
    }))
}

pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if let Some(waiting) = waiting_sandbox::show(&app, &name).await? {
        return Ok(axum::Json(waiting));
    }
    Ok(axum::Json(view::sandbox(&app, &find(&app, &name).await?)))
}

pub(super) async fn delete(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if let Some(cancelled) = waiting_sandbox::cancel(&app, &name).await? {
        return Ok(axum::Json(cancelled));
    }
    let sandbox = find(&app, &name).await?;
    app.delete_sandbox(sandbox.id()).await?;
    Ok(axum::Json(view::sandbox_as(&app, &sandbox, "destroyed")))
}

/// Starts a stopped or paused sandbox with its files and the state of its shells.
pub(super) async fn start(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    app.used(sandbox.id()).await;
    let sandbox = app.sandboxes.resume(&sandbox).await?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// Stops a sandbox: its processes end, its files are kept.
pub(super) async fn stop(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let stopped = app.stop_sandbox(&find(&app, &name).await?).await?;
    Ok(axum::Json(view::sandbox(&app, &stopped)))
}

/// Marks a stopped sandbox as archived. Its files stay where they are: a stopped sandbox uses only its disk.
pub(super) async fn archive(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let mut sandbox = find(&app, &name).await?;
    if view::state(&sandbox) == "started" {
        return Err(DaytonaRefusal::bad("Sandbox is not stopped"));
    }
    if sandbox.row.state != SandboxState::Paused {
        sandbox = app.sandboxes.archive(&sandbox).await?;
    }
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// Pauses a sandbox with its processes; a start resumes it.
pub(super) async fn pause(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    if view::state(&sandbox) != "started" {
        return Err(DaytonaRefusal::bad("Sandbox is not started"));
    }
    app.sandboxes.pause(&sandbox).await?;
    Ok(axum::Json(view::sandbox(&app, &find(&app, &name).await?)))
}

/// Postpones the automatic stop of a sandbox.
pub(super) async fn touch(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    app.used(sandbox.id()).await;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// The URL of a port, and the token that opens it.
pub(super) async fn preview(
    State(app): State<Adapter>,
    Path((name, number)): Path<(String, u16)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    Ok(axum::Json(json!({
        "sandboxId": sandbox.id(),
        "url": port_url(&app, number, sandbox.id().as_str())?,
        "token": app.keys.traffic(sandbox.id()),
    })))
}

/// The URL of the toolbox of a sandbox.
pub(super) async fn toolbox(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    find(&app, &name).await?;
    Ok(axum::Json(json!({"url": toolbox_url(&app)})))
}
