//! The control plane: sandboxes are created, shown, started, stopped, paused, archived and deleted.

use std::{collections::BTreeMap, time::Duration};

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaApi, DaytonaJson, DaytonaRefusal, ORIGIN, TOOLBOX,
    image::{self, BuildInfo},
    network::NetworkSettings,
    size::SizeRequest,
    view::{
        self, AUTO_ARCHIVE, AUTO_PAUSE, AUTO_STOP, DEFAULT_AUTO_ARCHIVE_MINUTES,
        DEFAULT_AUTO_STOP_MINUTES, DEFAULT_SNAPSHOT, USER, find, port_url, toolbox_url,
    },
    volume::DaytonaMount,
};
use adapter::{Adapter, new_sandbox::NewSandbox, port, vendor::VendorApi};
use engine::sandbox::UNLIMITED_SESSION;
use model::{Env, OnExpiry, PortAccess, ProjectId, SandboxState, SessionPolicy};

const MAX_LABELS: usize = 100;
const MAX_LABEL_BYTES: usize = 8 << 10;
const MAX_NAME_BYTES: usize = 255;

/// What a client asks for. Unknown fields belong to a later version of the API and are ignored.
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
    /// Refuses contradictions, and options that could not be honoured.
    fn check(&self) -> Result<(), DaytonaRefusal> {
        let set = |minutes: Option<u64>| minutes.is_some_and(|minutes| minutes > 0);
        if set(self.auto_stop_interval) && set(self.auto_pause_interval) {
            let message = "autoStopInterval and autoPauseInterval are mutually exclusive";
            return Err(DaytonaRefusal::bad(message));
        }
        if set(self.auto_pause_interval) && self.auto_delete_interval == Some(0) {
            let message = "a sandbox that is deleted when it stops cannot be paused by itself";
            return Err(DaytonaRefusal::bad(message));
        }
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        for (asked, what) in [
            (self.secrets.as_ref().is_some_and(|all| !all.is_empty()), "secrets"),
            (self.kvm == Some(true), "virtual machines in sandboxes"),
            (given(&self.linked_sandbox), "linked sandboxes"),
            (given(&self.outbound_proxy_url), "outbound proxies"),
        ] {
            if asked {
                return Err(DaytonaRefusal::bad(format!("{what} are not supported")));
            }
        }
        match self.user.as_deref() {
            None | Some("" | "root") => {}
            Some(user) if user == DaytonaApi.user() => {}
            Some(user) => {
                let message = format!("there is no user {user}; a sandbox has daytona and root");
                return Err(DaytonaRefusal::bad(message));
            }
        }
        if self.name.as_ref().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            return Err(DaytonaRefusal::bad(format!("a name has {MAX_NAME_BYTES} bytes at most")));
        }
        check_labels(self.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), DaytonaRefusal> {
    if labels.len() > MAX_LABELS {
        return Err(DaytonaRefusal::bad(format!("a sandbox has {MAX_LABELS} labels at most")));
    }
    let long = |(name, value): (&String, &String)| {
        name.is_empty() || name.len() + value.len() > MAX_LABEL_BYTES
    };
    if labels.iter().any(long) {
        let message = format!("a label has a name, and {MAX_LABEL_BYTES} bytes at most");
        return Err(DaytonaRefusal::bad(message));
    }
    Ok(())
}

/// The policy that stops a sandbox after so many minutes without use; 0 means never.
pub(super) fn stop_policy(minutes: u64) -> SessionPolicy {
    if minutes == 0 {
        return UNLIMITED_SESSION;
    }
    let idle_timeout_s = minutes.saturating_mul(60).min(UNLIMITED_SESSION.idle_timeout_s);
    SessionPolicy { idle_timeout_s, on_expiry: OnExpiry::Stop, ..UNLIMITED_SESSION }
}

/// The policy that pauses a sandbox after so many minutes without use, or else stops it.
pub(super) fn idle_policy(stop: u64, pause: u64) -> SessionPolicy {
    match pause {
        0 => stop_policy(stop),
        _ => SessionPolicy { on_expiry: OnExpiry::Pause, ..stop_policy(pause) },
    }
}

/// A number of minutes of which 0 means for ever.
pub(super) fn lifetime(minutes: u64) -> Option<Duration> {
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

/// The time after a stop at which a sandbox is deleted; a negative number of minutes means never.
pub(super) fn delete_after_stop(minutes: i64) -> Option<Duration> {
    Some(Duration::from_secs(u64::try_from(minutes).ok()?.saturating_mul(60)))
}

pub(super) fn port_access(public: bool) -> PortAccess {
    if public { PortAccess::Public } else { PortAccess::Token }
}

pub(super) async fn create(
    State(app): State<Adapter>,
    DaytonaJson(asked): DaytonaJson<CreateDaytonaSandbox>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    asked.check()?;
    let mut settings = asked.size.settings()?;
    let volumes = asked.volumes.unwrap_or_default();
    app.mount_volumes(&mut settings, volumes.into_iter().map(Into::into).collect()).await?;
    let egress = NetworkSettings {
        network_block_all: asked.network_block_all,
        network_allow_list: asked.network_allow_list,
        domain_allow_list: asked.domain_allow_list,
    };
    let env = asked.env.unwrap_or_default();
    api::check_env(Some(&env), "/env")?;
    let id = uuid::Uuid::now_v7().to_string();
    let name = free_name(&app, asked.name, &id).await?;
    let pause = asked.auto_pause_interval.unwrap_or(0);
    let default_stop = if pause > 0 { 0 } else { DEFAULT_AUTO_STOP_MINUTES };
    let stop = asked.auto_stop_interval.unwrap_or(default_stop);
    let archive = asked.auto_archive_interval.unwrap_or(DEFAULT_AUTO_ARCHIVE_MINUTES);
    let mut extra = BTreeMap::from([
        (AUTO_STOP.to_owned(), stop.to_string()),
        (AUTO_PAUSE.to_owned(), pause.to_string()),
        (AUTO_ARCHIVE.to_owned(), archive.to_string()),
    ]);
    if let Some(user) = asked.user.filter(|user| !user.is_empty()) {
        extra.insert(USER.to_owned(), user);
    }
    extra.extend(egress.extra());
    let template = asked.snapshot.or(asked.image).unwrap_or_else(|| DEFAULT_SNAPSHOT.to_owned());
    let new = NewSandbox {
        name: Some(name),
        timeout: lifetime(asked.ttl_minutes.unwrap_or(0)),
        delete_after_stop: delete_after_stop(asked.auto_delete_interval.unwrap_or(-1)),
        port_access: port_access(asked.public == Some(true)),
        env,
        labels: asked.labels.unwrap_or_default(),
        extra,
        policy: idle_policy(stop, pause),
        network: egress.network(),
        settings,
        ..NewSandbox::new(&DaytonaApi, id.parse().expect("a uuid is an id"), template)
    };
    let new = match &asked.build_info {
        Some(info) => match image::create_sandbox(&app, info, new).await? {
            Ok(waiting) => return Ok(waiting),
            Err(new) => new,
        },
        None => new,
    };
    let sandbox = app.create_sandbox(new).await?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// The name of a new sandbox, which no other has; its id if no name is asked for.
pub(super) async fn free_name(
    app: &Adapter,
    asked: Option<String>,
    id: &str,
) -> Result<String, DaytonaRefusal> {
    let name = asked.filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_owned());
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
        // There is no sign-in with another identity provider: the key is the server's token.
        "oidc": {"issuer": "", "clientId": "", "audience": "", "provider": ""},
    }))
}

pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if let Some(waiting) = image::show_waiting(&app, &name).await? {
        return Ok(axum::Json(waiting));
    }
    Ok(axum::Json(view::sandbox(&app, &find(&app, &name).await?)))
}

pub(super) async fn delete(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if let Some(gone) = image::forget_waiting(&app, &name).await? {
        return Ok(axum::Json(gone));
    }
    let sandbox = find(&app, &name).await?;
    app.delete_sandbox(sandbox.id()).await?;
    Ok(axum::Json(view::sandbox_as(&app, &sandbox, "destroyed")))
}

/// Starts a sandbox that was stopped or paused, with its files and the state of its shells.
pub(super) async fn start(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    app.used(sandbox.id()).await;
    let sandbox = app.sandboxes.resume(&sandbox).await?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// Stops a sandbox: its processes end, its files stay.
pub(super) async fn stop(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let stopped = app.stop_sandbox(&find(&app, &name).await?).await?;
    Ok(axum::Json(view::sandbox(&app, &stopped)))
}

/// Marks a stopped sandbox as archived. Nothing is moved elsewhere: a stopped sandbox costs no more than
/// its disk.
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
        "token": app.keys().traffic(sandbox.id()),
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
