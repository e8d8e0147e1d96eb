//! The control plane: sandboxes are made, listed, stopped, started, labelled, and deleted.

use std::{collections::BTreeMap, time::Duration};

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Guest, Refusal, TOOLBOX, find};
use crate::{
    api::{
        App,
        compat::{
            port,
            sandbox::{Api, LASTING, Network, NewSandbox, OnTimeout, Sandbox, State as Life},
        },
        error::Problem,
    },
    model::{Desired, Env, Lease, OnExpiry, SessionPolicy, Timestamp},
};

/// Minutes without use after which a sandbox stops, where its client says nothing.
pub(super) const AUTO_STOP: u64 = 15;
/// How long a signed link is good, where nobody says.
const SIGNED_SECONDS: u32 = 60;
/// Sandboxes of a page.
const PAGE: usize = 100;

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
    volumes: Option<Vec<Value>>,
    build_info: Option<Value>,
}

/// The policy that stops a sandbox after so many minutes without use; 0 is never.
pub(super) fn policy(minutes: u64) -> SessionPolicy {
    if minutes == 0 {
        return LASTING;
    }
    let idle_timeout_s = minutes.saturating_mul(60).min(LASTING.idle_timeout_s);
    SessionPolicy { idle_timeout_s, on_expiry: OnExpiry::Stop, ..LASTING }
}

/// Makes a sandbox.
pub(super) async fn create(
    State(app): State<App>,
    Asked(asked): Asked<Create>,
) -> Result<axum::Json<Value>, Refusal> {
    if asked.network_allow_list.is_some_and(|list| !list.is_empty()) {
        let message = "network rules of a sandbox are the server's settings (`sandbox.egress`)";
        return Err(Refusal::bad(message));
    }
    if asked.volumes.is_some_and(|volumes| !volumes.is_empty()) {
        return Err(Refusal::bad("volumes are not supported"));
    }
    if asked.build_info.is_some_and(|info| !info.is_null()) {
        return Err(Refusal::bad("images are not built here; name a provider as the snapshot"));
    }
    let cut_off = asked.network_block_all == Some(true);
    let network = if cut_off { Network::Nothing } else { Network::Usual };
    let env = asked.env.unwrap_or_default();
    crate::api::terminals::check_env(Some(&env), "/env")?;
    let id = uuid::Uuid::now_v7().to_string();
    let name = free_name(&app, asked.name, &id).await?;
    let minutes = asked.auto_stop_interval.unwrap_or(AUTO_STOP);
    let open_to = if asked.public == Some(true) { port::ANYBODY } else { port::KEY };
    let more = BTreeMap::from([
        (port::OPEN_TO.to_owned(), open_to.to_owned()),
        ("cut_off".to_owned(), cut_off.to_string()),
        ("name".to_owned(), name),
        ("auto_stop".to_owned(), minutes.to_string()),
        ("auto_archive".to_owned(), asked.auto_archive_interval.unwrap_or(10_080).to_string()),
        ("auto_delete".to_owned(), asked.auto_delete_interval.unwrap_or(-1).to_string()),
    ]);
    let new = NewSandbox {
        api: Api::Daytona,
        id: id.parse().expect("a uuid is an id"),
        template: asked.snapshot.or(asked.image).unwrap_or_else(|| "default".to_owned()),
        timeout: Duration::MAX,
        on_timeout: OnTimeout::Kill,
        auto_resume: false,
        env,
        metadata: asked.labels.unwrap_or_default(),
        more,
        policy: Some(policy(minutes)),
        network,
        fork: None,
    };
    let sandbox = app.make_sandbox(new).await?;
    shown(&app, &sandbox).await
}

/// The name of a new sandbox, which nobody else has; where none is asked for, its id.
pub(super) async fn free_name(
    app: &App,
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
    app: &App,
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

pub(super) async fn shown(app: &App, sandbox: &Sandbox) -> Result<axum::Json<Value>, Refusal> {
    Ok(axum::Json(body(app, sandbox, life(app, sandbox).await?)))
}

fn body(app: &App, sandbox: &Sandbox, (state, desired): (&str, &str)) -> Value {
    let number = |name: &str, usual: i64| {
        sandbox.more.get(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(usual)
    };
    let mut env = sandbox.thread.env.clone();
    env.retain(|name, _| !matches!(name.as_str(), "HOME" | "USER" | "LOGNAME"));
    json!({
        "id": sandbox.id(),
        "organizationId": "00000000-0000-0000-0000-000000000001",
        "name": sandbox.more.get("name"),
        "snapshot": sandbox.template,
        "user": sandbox.api.user(),
        "env": env,
        "labels": sandbox.metadata,
        "public": sandbox.more.get(port::OPEN_TO).is_some_and(|to| to == port::ANYBODY),
        "networkBlockAll": sandbox.more.get("cut_off").is_some_and(|it| it == "true"),
        "kvm": false,
        "target": "local",
        "cpu": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "gpu": 0,
        "memory": 1,
        "disk": 3,
        "state": state,
        "desiredState": desired,
        "backupState": "None",
        "autoStopInterval": number("auto_stop", 15),
        "autoPauseInterval": number("auto_pause", 0),
        "autoArchiveInterval": number("auto_archive", 10_080),
        "autoDeleteInterval": number("auto_delete", -1),
        "volumes": [],
        "createdAt": sandbox.thread.created_at.to_string(),
        "updatedAt": sandbox.thread.updated_at.to_string(),
        "class": "small",
        "daemonVersion": TOOLBOX,
        "toolboxProxyUrl": toolbox(app),
    })
}

fn toolbox(app: &App) -> String {
    format!("{}/daytona/toolbox", app.url)
}

/// What clients want to know of the server.
pub(super) async fn config(State(app): State<App>) -> axum::Json<Value> {
    axum::Json(json!({"version": TOOLBOX, "proxyToolboxUrl": toolbox(&app)}))
}

/// A sandbox.
pub(super) async fn show(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    shown(&app, &sandbox).await
}

/// Which sandboxes are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    labels: Option<String>,
    limit: Option<usize>,
    page: Option<usize>,
    cursor: Option<String>,
}

/// A page of sandboxes, the youngest first.
pub(super) async fn list(
    State(app): State<App>,
    Query(filter): Query<Filter>,
) -> Result<axum::Json<Value>, Refusal> {
    let wanted: BTreeMap<String, String> = match filter.labels.as_deref() {
        None | Some("") => BTreeMap::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Refusal::bad(format!("labels are not an object: {error}")))?,
    };
    let limit = filter.limit.unwrap_or(PAGE);
    if limit == 0 || limit > PAGE {
        return Err(Refusal::bad(format!("limit must be 1 to {PAGE}")));
    }
    let takes = |sandbox: &Sandbox| {
        wanted.iter().all(|(name, value)| sandbox.metadata.get(name) == Some(value))
    };
    let mut all = app.all_sandboxes(Api::Daytona).await?;
    all.retain(takes);
    let total = all.len();
    let page = filter.page.unwrap_or(1).max(1);
    let begin = match &filter.cursor {
        None => (page - 1).saturating_mul(limit),
        Some(cursor) => {
            all.iter().position(|it| it.id().as_str() == cursor).map_or(total, |at| at + 1)
        }
    };
    let mut items = Vec::new();
    let mut last = None;
    for sandbox in all.iter().skip(begin).take(limit) {
        last = Some(sandbox.id().to_string());
        items.push(body(&app, sandbox, life(&app, sandbox).await?));
    }
    let more = begin + items.len() < total;
    Ok(axum::Json(json!({
        "items": items,
        "nextCursor": last.filter(|_| more),
        "total": total,
        "page": page,
        "totalPages": total.div_ceil(limit),
    })))
}

/// Deletes a sandbox.
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.kill_sandbox(sandbox.id()).await?;
    Ok(axum::Json(body(&app, &sandbox, ("destroyed", "destroyed"))))
}

/// Starts a sandbox that was stopped; its files and the state of its shells are there.
pub(super) async fn start(
    State(app): State<App>,
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
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    app.stop_sandbox(&sandbox).await?;
    shown(&app, &sandbox).await
}

/// Stops a sandbox for long. Nothing is moved elsewhere: what is stopped costs no more than its disk.
pub(super) async fn archive(
    State(app): State<App>,
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
    app: &App,
    name: &str,
    act: impl FnOnce(&mut crate::api::compat::sandbox::Facts),
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(app, name).await?;
    let changed = app.change_sandbox(sandbox.id(), act).await?;
    let changed = changed.ok_or_else(|| Refusal::missing(format!("Sandbox {name} not found")))?;
    shown(app, &changed).await
}

/// Notes that a sandbox is used.
pub(super) async fn touch(
    State(app): State<App>,
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
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(asked): Asked<Labels>,
) -> Result<axum::Json<Value>, Refusal> {
    change(&app, &name, |facts| facts.metadata = asked.labels).await
}

/// After how many minutes without use a sandbox stops; 0 is never.
pub(super) async fn auto_stop(
    State(app): State<App>,
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
    State(app): State<App>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let stops = sandbox.more.get("auto_stop").and_then(|text| text.parse().ok());
    let policy = match minutes {
        0 => policy(stops.unwrap_or(AUTO_STOP)),
        _ => SessionPolicy { on_expiry: OnExpiry::Pause, ..policy(minutes) },
    };
    app.set_sandbox_policy(&sandbox, policy).await?;
    change(&app, &name, |facts| {
        facts.more.insert("auto_pause".to_owned(), minutes.to_string());
    })
    .await
}

/// Noted and shown; nothing is moved elsewhere here.
pub(super) async fn auto_archive(
    State(app): State<App>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    change(&app, &name, |facts| {
        facts.more.insert("auto_archive".to_owned(), minutes.to_string());
    })
    .await
}

/// How many minutes after it stopped a sandbox is deleted; -1 is never.
pub(super) async fn auto_delete(
    State(app): State<App>,
    Path((name, minutes)): Path<(String, i64)>,
) -> Result<axum::Json<Value>, Refusal> {
    change(&app, &name, |facts| {
        facts.more.insert("auto_delete".to_owned(), minutes.to_string());
    })
    .await
}

/// How many minutes after it was made a sandbox is deleted; 0 is never.
pub(super) async fn ttl(
    State(app): State<App>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, Refusal> {
    let made = find(&app, &name).await?.thread.created_at;
    let ends = match minutes {
        0 => Timestamp::MAX,
        _ => made
            .checked_add(Duration::from_secs(minutes.saturating_mul(60)))
            .unwrap_or(Timestamp::MAX),
    };
    change(&app, &name, |facts| facts.ends = ends).await
}

/// Where a program that listens on a port is reached from outside, and with which key.
pub(super) async fn preview(
    State(app): State<App>,
    Path((name, number)): Path<(String, u16)>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    Ok(axum::Json(json!({
        "sandboxId": sandbox.id(),
        "url": link(&app, number, sandbox.id().as_str())?,
        "token": app.sandboxes.keys.access(sandbox.id()),
    })))
}

fn link(app: &App, number: u16, name: &str) -> Result<String, Refusal> {
    let Some((scheme, domain)) = port::domain(app) else {
        let message = "ports have names below one of the server: put one into the setting `names`";
        return Err(Refusal::bad(message));
    };
    Ok(format!("{scheme}://{number}-{name}.{domain}"))
}

/// How long a link is to be good.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Expires {
    expires_in_seconds: Option<u32>,
}

/// The same without a key, for a time.
pub(super) async fn signed_preview(
    State(app): State<App>,
    Path((name, number)): Path<(String, u16)>,
    Query(expires): Query<Expires>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let seconds = expires.expires_in_seconds.unwrap_or(SIGNED_SECONDS);
    let until = app.now().at.as_second() + i64::from(seconds);
    let token = app.sandboxes.keys.port(sandbox.id(), number, until);
    let token = token.ok_or_else(|| Refusal::bad("the id of the sandbox is no UUID"))?;
    Ok(axum::Json(json!({
        "sandboxId": sandbox.id(),
        "port": number,
        "url": link(&app, number, &token)?,
        "token": token,
    })))
}

/// Makes a sandbox hold still, with its processes; a start makes it go on.
pub(super) async fn pause(
    State(app): State<App>,
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
    State(app): State<App>,
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
    State(app): State<App>,
    Guest(sandbox): Guest,
    Asked(asked): Asked<NewEnv>,
) -> Result<axum::Json<Value>, Refusal> {
    crate::api::terminals::check_env(Some(&asked.set), "/set")?;
    app.change_sandbox_env(sandbox.id(), |env| {
        env.retain(|name, _| !asked.unset.contains(name));
        env.extend(asked.set);
    })
    .await?;
    Ok(axum::Json(json!({})))
}

/// Where the toolbox of a sandbox is.
pub(super) async fn toolbox_url(
    State(app): State<App>,
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
