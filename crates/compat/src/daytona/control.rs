//! The control plane: sandboxes are made, listed, stopped, started, labelled, and deleted.

use std::{collections::BTreeMap, time::Duration};

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Asked, Guest, Refusal, TOOLBOX, find,
    image::{self, BuildInfo},
    network,
    size::{Asking, Size},
    volume::{self, Mount},
};
use crate::Compat;
use crate::{
    build::ALIAS,
    port,
    sandbox::{Api, LASTING, NewSandbox, OnTimeout, Sandbox, State as Life},
    volume::mounts,
};
use api::error::Problem;
use model::{Desired, Env, Lease, OnExpiry, SessionPolicy, Timestamp};

/// The one organization there is.
pub(super) const OWNER: &str = "00000000-0000-0000-0000-000000000001";
/// Labels of a sandbox, and bytes of one.
const MOST_LABELS: usize = 100;
const MOST_LABEL: usize = 8 << 10;
/// Bytes of a name.
const MOST_NAME: usize = 255;
/// Minutes without use after which a sandbox stops, where its client says nothing.
pub(super) const AUTO_STOP: u64 = 15;

/// What a client asks for. Fields that are not known here are a later version's.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Create {
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
    volumes: Option<Vec<Mount>>,
    build_info: Option<BuildInfo>,
    user: Option<String>,
    auto_pause_interval: Option<u64>,
    ttl_minutes: Option<u64>,
    secrets: Option<Vec<Value>>,
    kvm: Option<bool>,
    linked_sandbox: Option<String>,
    outbound_proxy_url: Option<String>,
    #[serde(flatten)]
    size: Asking,
}

impl Create {
    /// Refuses what contradicts itself, or would not be what was asked for.
    fn check(&self) -> Result<(), Refusal> {
        let set = |minutes: Option<u64>| minutes.is_some_and(|minutes| minutes > 0);
        if set(self.auto_stop_interval) && set(self.auto_pause_interval) {
            let message = "autoStopInterval and autoPauseInterval are mutually exclusive";
            return Err(Refusal::bad(message));
        }
        if set(self.auto_pause_interval) && self.auto_delete_interval == Some(0) {
            let message = "a sandbox that is deleted when it stops cannot be paused by itself";
            return Err(Refusal::bad(message));
        }
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        for (asked, what) in [
            (self.secrets.as_ref().is_some_and(|all| !all.is_empty()), "secrets"),
            (self.kvm == Some(true), "virtual machines in sandboxes"),
            (given(&self.linked_sandbox), "linked sandboxes"),
            (given(&self.outbound_proxy_url), "outbound proxies"),
        ] {
            if asked {
                return Err(Refusal::bad(format!("{what} are not supported")));
            }
        }
        match self.user.as_deref() {
            None | Some("" | "root") => {}
            Some(user) if user == Api::Daytona.user() => {}
            Some(user) => {
                let message = format!("there is no user {user}; a sandbox has daytona and root");
                return Err(Refusal::bad(message));
            }
        }
        if self.name.as_ref().is_some_and(|name| name.len() > MOST_NAME) {
            return Err(Refusal::bad(format!("a name has {MOST_NAME} bytes at most")));
        }
        check_labels(self.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if labels.len() > MOST_LABELS {
        return Err(Refusal::bad(format!("a sandbox has {MOST_LABELS} labels at most")));
    }
    let long = |(name, value): (&String, &String)| {
        name.is_empty() || name.len() + value.len() > MOST_LABEL
    };
    if labels.iter().any(long) {
        let message = format!("a label has a name, and {MOST_LABEL} bytes at most");
        return Err(Refusal::bad(message));
    }
    Ok(())
}

/// The policy that stops a sandbox after so many minutes without use; 0 is never.
fn policy(minutes: u64) -> SessionPolicy {
    if minutes == 0 {
        return LASTING;
    }
    let idle_timeout_s = minutes.saturating_mul(60).min(LASTING.idle_timeout_s);
    SessionPolicy { idle_timeout_s, on_expiry: OnExpiry::Stop, ..LASTING }
}

/// The policy that pauses a sandbox after so many minutes, or else stops it.
pub(super) fn idle(stop: u64, pause: u64) -> SessionPolicy {
    match pause {
        0 => policy(stop),
        _ => SessionPolicy { on_expiry: OnExpiry::Pause, ..policy(pause) },
    }
}

/// How long that is; 0 is for ever.
fn minutes(count: u64) -> Duration {
    if count == 0 { Duration::MAX } else { Duration::from_secs(count.saturating_mul(60)) }
}

/// Makes a sandbox.
pub(super) async fn create(
    State(app): State<Compat>,
    Asked(asked): Asked<Create>,
) -> Result<axum::Json<Value>, Refusal> {
    asked.check()?;
    let mut settings = asked.size.settings()?;
    let volumes = asked.volumes.unwrap_or_default();
    app.mount_volumes(&mut settings, volumes.into_iter().map(Into::into).collect()).await?;
    let reach = network::Settings {
        network_block_all: asked.network_block_all,
        network_allow_list: asked.network_allow_list,
        domain_allow_list: asked.domain_allow_list,
    };
    let env = asked.env.unwrap_or_default();
    api::check_env(Some(&env), "/env")?;
    let id = uuid::Uuid::now_v7().to_string();
    let name = free_name(&app, asked.name, &id).await?;
    let pause = asked.auto_pause_interval.unwrap_or(0);
    let usual = if pause > 0 { 0 } else { AUTO_STOP };
    let stop = asked.auto_stop_interval.unwrap_or(usual);
    let open_to = if asked.public == Some(true) { port::ANYBODY } else { port::KEY };
    let mut more = BTreeMap::from([
        (port::OPEN_TO.to_owned(), open_to.to_owned()),
        ("name".to_owned(), name),
        ("auto_stop".to_owned(), stop.to_string()),
        ("auto_pause".to_owned(), pause.to_string()),
        ("auto_archive".to_owned(), asked.auto_archive_interval.unwrap_or(10_080).to_string()),
        ("auto_delete".to_owned(), asked.auto_delete_interval.unwrap_or(-1).to_string()),
    ]);
    if let Some(user) = asked.user.filter(|user| !user.is_empty()) {
        more.insert("user".to_owned(), user);
    }
    more.extend(reach.notes());
    let new = NewSandbox {
        api: Api::Daytona,
        id: id.parse().expect("a uuid is an id"),
        template: asked.snapshot.or(asked.image).unwrap_or_else(|| "default".to_owned()),
        timeout: minutes(asked.ttl_minutes.unwrap_or(0)),
        on_timeout: OnTimeout::Kill,
        auto_resume: false,
        env,
        metadata: asked.labels.unwrap_or_default(),
        more,
        policy: Some(idle(stop, pause)),
        network: reach.network(),
        settings,
        fork: None,
    };
    let new = match &asked.build_info {
        Some(info) => match image::make(&app, info, new).await? {
            Ok(waiting) => return Ok(waiting),
            Err(new) => new,
        },
        None => new,
    };
    let sandbox = app.make_sandbox(new).await?;
    shown(&app, &sandbox).await
}

/// The name of a new sandbox, which nobody else has; where none is asked for, its id.
pub(super) async fn free_name(
    app: &Compat,
    asked: Option<String>,
    id: &str,
) -> Result<String, Refusal> {
    let name = asked.filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_owned());
    let all = app.all_sandboxes(Api::Daytona).await?;
    if all.iter().any(|other| other.more.get("name") == Some(&name)) {
        let message = format!("Sandbox with name {name} already exists");
        return Err(Refusal::new(axum::http::StatusCode::CONFLICT, message));
    }
    Ok(name)
}

/// The word for how a sandbox is, and what is wanted of it.
pub(super) async fn life(
    app: &Compat,
    sandbox: &Sandbox,
) -> Result<(&'static str, &'static str), Refusal> {
    let (state, lease) = app.sandbox_state(sandbox).await?;
    if state == Life::Paused && sandbox.more.contains_key("paused") {
        return Ok(("paused", "paused"));
    }
    let stopped = lease.is_some_and(|lease: Lease| lease.desired == Desired::Stopped);
    Ok(match stopped {
        true if sandbox.more.contains_key("archived") => ("archived", "archived"),
        true => ("stopped", "stopped"),
        // What was paused in the app, too: it goes on with its next use.
        false => ("started", "started"),
    })
}

pub(super) async fn shown(app: &Compat, sandbox: &Sandbox) -> Result<axum::Json<Value>, Refusal> {
    Ok(axum::Json(body(app, sandbox, life(app, sandbox).await?).await?))
}

async fn body(
    app: &Compat,
    sandbox: &Sandbox,
    (state, desired): (&str, &str),
) -> Result<Value, Refusal> {
    let lease = app.store.lease(&sandbox.thread.lease_id).await?;
    let size = Size::of(app, lease.as_ref());
    let session = app.store.last_session(sandbox.id()).await?;
    let active = session.map_or(sandbox.started, |session| session.last_active.at);
    let number = |name: &str, usual: i64| {
        sandbox.more.get(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(usual)
    };
    let mut env = sandbox.thread.env.clone();
    env.retain(|name, _| !matches!(name.as_str(), "HOME" | "USER" | "LOGNAME"));
    let mut body = json!({
        "id": sandbox.id(),
        "organizationId": OWNER,
        "name": sandbox.more.get("name"),
        "snapshot": sandbox.more.get(ALIAS).unwrap_or(&sandbox.template),
        "user": sandbox.more.get("user").map_or(sandbox.api.user(), String::as_str),
        "env": env,
        "labels": sandbox.metadata,
        "public": sandbox.more.get(port::OPEN_TO).is_some_and(|to| to == port::ANYBODY),
        "kvm": false,
        "target": "local",
        "cpu": size.cpu,
        "gpu": 0,
        "memory": size.memory,
        "disk": size.disk,
        "state": state,
        "desiredState": desired,
        "backupState": "None",
        "autoStopInterval": number("auto_stop", 15),
        "autoPauseInterval": number("auto_pause", 0),
        "autoArchiveInterval": number("auto_archive", 10_080),
        "autoDeleteInterval": number("auto_delete", -1),
        "volumes": volume::told(&mounts(&lease.map_or(Value::Null, |lease| lease.spec))),
        "createdAt": sandbox.thread.created_at.to_string(),
        "updatedAt": sandbox.thread.updated_at.to_string(),
        "lastActivityAt": active.to_string(),
        "autoDestroyAt": (sandbox.ends < Timestamp::MAX).then(|| sandbox.ends.to_string()),
        "class": "small",
        "daemonVersion": TOOLBOX,
        "toolboxProxyUrl": toolbox(app),
    });
    network::tell(sandbox, &mut body);
    Ok(body)
}

pub(super) fn toolbox(app: &Compat) -> String {
    format!("{}/daytona/toolbox", app.url)
}

/// What clients want to know of the server.
pub(super) async fn config(State(app): State<Compat>) -> axum::Json<Value> {
    let (scheme, domain) = port::domain(&app).unwrap_or(("http", String::new()));
    axum::Json(json!({
        "version": TOOLBOX,
        "proxyToolboxUrl": toolbox(&app),
        "proxyTemplateUrl": format!("{scheme}://{{{{PORT}}}}-{{{{sandboxId}}}}.{domain}"),
        "dashboardUrl": app.url,
        "defaultSnapshot": app.provider,
        "maxAutoArchiveInterval": 43_200,
        "environment": "production",
        "maintananceMode": false,
        "linkedAccountsEnabled": false,
        "announcements": {},
        // Nobody signs in with another's name here: the key is the server's token.
        "oidc": {"issuer": "", "clientId": "", "audience": "", "provider": ""},
    }))
}

/// A sandbox.
pub(super) async fn show(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    if let Some(waiting) = image::show_waiting(&app, &name).await? {
        return Ok(axum::Json(waiting));
    }
    let sandbox = find(&app, &name).await?;
    shown(&app, &sandbox).await
}

/// Deletes a sandbox.
pub(super) async fn delete(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    if let Some(gone) = image::forget_waiting(&app, &name).await? {
        return Ok(axum::Json(gone));
    }
    let sandbox = find(&app, &name).await?;
    let gone = body(&app, &sandbox, ("destroyed", "destroyed")).await?;
    app.kill_sandbox(sandbox.id()).await?;
    Ok(axum::Json(gone))
}

/// Starts a sandbox that was stopped; its files and the state of its shells are there.
pub(super) async fn start(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.used(sandbox.id()).await;
    app.leases.running(&sandbox.thread.lease_id).await.map_err(Problem::from)?;
    let changed = app.change_sandbox(sandbox.id(), |facts| {
        facts.more.retain(|name, _| name != "archived" && name != "paused");
    });
    let sandbox = changed.await?;
    let sandbox = sandbox.ok_or_else(|| Refusal::missing(format!("Sandbox {name} not found")))?;
    shown(&app, &sandbox).await
}

/// Stops a sandbox: its processes end, its files stay.
pub(super) async fn stop(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.stop_sandbox(&sandbox).await?;
    shown(&app, &sandbox).await
}

/// Stops a sandbox for long. Nothing is moved elsewhere: what is stopped costs no more than its disk.
pub(super) async fn archive(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    if life(&app, &sandbox).await?.0 == "started" {
        return Err(Refusal::bad("Sandbox is not stopped"));
    }
    change(&app, &name, |facts| {
        facts.more.insert("archived".to_owned(), "true".to_owned());
    })
    .await
}

async fn change(
    app: &Compat,
    name: &str,
    act: impl FnOnce(&mut crate::sandbox::Facts),
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(app, name).await?;
    let changed = app.change_sandbox(sandbox.id(), act).await?;
    let changed = changed.ok_or_else(|| Refusal::missing(format!("Sandbox {name} not found")))?;
    shown(app, &changed).await
}

/// Notes that a sandbox is used.
pub(super) async fn touch(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.used(sandbox.id()).await;
    shown(&app, &sandbox).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    labels: BTreeMap<String, String>,
}

/// Gives a sandbox other labels.
pub(super) async fn labels(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(asked): Asked<Labels>,
) -> Result<axum::Json<Value>, Refusal> {
    check_labels(&asked.labels)?;
    change(&app, &name, |facts| facts.metadata = asked.labels).await
}

/// After how many minutes without use a sandbox stops; 0 is never.
pub(super) async fn auto_stop(
    State(app): State<Compat>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.set_sandbox_policy(&sandbox, policy(minutes)).await?;
    change(&app, &name, |facts| {
        facts.more.insert("auto_stop".to_owned(), minutes.to_string());
        facts.more.remove("auto_pause");
    })
    .await
}

/// After how many minutes without use a sandbox is paused, in place of being stopped; 0 takes that back.
pub(super) async fn auto_pause(
    State(app): State<Compat>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let stops = sandbox.more.get("auto_stop").and_then(|text| text.parse().ok());
    app.set_sandbox_policy(&sandbox, idle(stops.unwrap_or(AUTO_STOP), minutes)).await?;
    change(&app, &name, |facts| {
        facts.more.insert("auto_pause".to_owned(), minutes.to_string());
    })
    .await
}

/// Noted and shown; nothing is moved elsewhere here.
pub(super) async fn auto_archive(
    State(app): State<Compat>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    change(&app, &name, |facts| {
        facts.more.insert("auto_archive".to_owned(), minutes.to_string());
    })
    .await
}

/// How many minutes after it stopped a sandbox is deleted; -1 is never.
pub(super) async fn auto_delete(
    State(app): State<Compat>,
    Path((name, minutes)): Path<(String, i64)>,
) -> Result<axum::Json<Value>, Refusal> {
    change(&app, &name, |facts| {
        facts.more.insert("auto_delete".to_owned(), minutes.to_string());
    })
    .await
}

/// How many minutes after it was made a sandbox is deleted; 0 is never.
pub(super) async fn ttl(
    State(app): State<Compat>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    let made = find(&app, &name).await?.thread.created_at;
    let ends = made.checked_add(self::minutes(minutes)).unwrap_or(Timestamp::MAX);
    change(&app, &name, |facts| facts.ends = ends).await
}

/// Where a program that listens on a port is reached from outside, and with which key.
pub(super) async fn preview(
    State(app): State<Compat>,
    Path((name, number)): Path<(String, u16)>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    Ok(axum::Json(json!({
        "sandboxId": sandbox.id(),
        "url": address(&app, number, sandbox.id().as_str())?,
        "token": app.sandboxes.keys.traffic(sandbox.id()),
    })))
}

pub(super) fn address(app: &Compat, number: u16, name: &str) -> Result<String, Refusal> {
    let Some((scheme, domain)) = port::domain(app) else {
        let message = "ports have names below one of the server: put one into the setting `names`";
        return Err(Refusal::bad(message));
    };
    Ok(format!("{scheme}://{number}-{name}.{domain}"))
}

/// Makes a sandbox hold still, with its processes; a start makes it go on.
pub(super) async fn pause(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    if life(&app, &sandbox).await?.0 != "started" {
        return Err(Refusal::bad("Sandbox is not started"));
    }
    app.pause_sandbox(&sandbox).await?;
    change(&app, &name, |facts| {
        facts.more.insert("paused".to_owned(), "true".to_owned());
    })
    .await
}

/// Opens the ports of a sandbox to anybody, or to its key alone.
pub(super) async fn public(
    State(app): State<Compat>,
    Path((name, public)): Path<(String, bool)>,
) -> Result<axum::Json<Value>, Refusal> {
    let to = if public { port::ANYBODY } else { port::KEY };
    change(&app, &name, |facts| {
        facts.more.insert(port::OPEN_TO.to_owned(), to.to_owned());
    })
    .await
}

/// How the environment of what starts from now on is to differ.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewEnv {
    set: Env,
    unset: Vec<String>,
}

/// Changes what new programs and sessions have in their environment.
pub(super) async fn env(
    State(app): State<Compat>,
    Guest(sandbox): Guest,
    Asked(asked): Asked<NewEnv>,
) -> Result<axum::Json<Value>, Refusal> {
    api::check_env(Some(&asked.set), "/set")?;
    app.change_sandbox_env(sandbox.id(), |env| {
        env.retain(|name, _| !asked.unset.contains(name));
        env.extend(asked.set);
    })
    .await?;
    Ok(axum::Json(json!({})))
}

/// Where the toolbox of a sandbox is.
pub(super) async fn toolbox_url(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    find(&app, &name).await?;
    Ok(axum::Json(json!({"url": toolbox(&app)})))
}

/// When a sandbox that stopped is to be deleted; `None` if never.
pub fn deletes_at(sandbox: &Sandbox, lease: Option<&Lease>) -> Option<Timestamp> {
    let minutes: u64 = sandbox.more.get("auto_delete")?.parse().ok()?;
    let lease = lease.filter(|lease| lease.desired == Desired::Stopped)?;
    lease.updated_at.checked_add(Duration::from_secs(minutes.saturating_mul(60))).ok()
}
