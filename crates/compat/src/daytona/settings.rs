//! Settings of a sandbox that a client changes later, and measurements of it.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaGuest, DaytonaJson, DaytonaRefusal,
    control::{check_labels, delete_after_stop, idle_policy, lifetime, port_access, stop_policy},
    network::NetworkSettings,
    size::{DaytonaSize, SizeRequest},
    view::{self, AUTO_ARCHIVE, AUTO_PAUSE, AUTO_STOP, DEFAULT_AUTO_STOP_MINUTES, find, number},
};
use adapter::{Adapter, usage::UsageSample};
use api::error::Problem;
use engine::lease::LeaseError;
use model::{Env, Sandbox, SessionPolicy, ThreadId, Timestamp};
use store::ThreadChoices;

async fn change(
    app: &Adapter,
    name: &str,
    change: impl FnMut(&mut Sandbox),
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(app, name).await?;
    let changed = app.sandboxes.change(sandbox.id(), change).await?;
    let changed =
        changed.ok_or_else(|| DaytonaRefusal::missing(format!("Sandbox {name} not found")))?;
    Ok(axum::Json(view::sandbox(app, &changed)))
}

async fn set_policy(
    app: &Adapter,
    id: &ThreadId,
    policy: SessionPolicy,
) -> Result<(), DaytonaRefusal> {
    let first = app.first_use(id, ThreadChoices::default());
    Ok(app.sandboxes.set_policy(first, policy).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewLabels {
    labels: BTreeMap<String, String>,
}

/// Replaces the labels of a sandbox.
pub(super) async fn labels(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(asked): DaytonaJson<NewLabels>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    check_labels(&asked.labels)?;
    change(&app, &name, |sandbox| sandbox.labels = asked.labels.clone()).await
}

/// Sets after how many minutes without use a sandbox stops; 0 means never.
pub(super) async fn auto_stop(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    set_policy(&app, sandbox.id(), stop_policy(minutes)).await?;
    change(&app, &name, |sandbox| {
        sandbox.extra.insert(AUTO_STOP.to_owned(), minutes.to_string());
        sandbox.extra.remove(AUTO_PAUSE);
    })
    .await
}

/// Sets after how many minutes without use a sandbox is paused instead of stopped; 0 stops it again.
pub(super) async fn auto_pause(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let stop = number(&sandbox, AUTO_STOP).unwrap_or(DEFAULT_AUTO_STOP_MINUTES);
    set_policy(&app, sandbox.id(), idle_policy(stop, minutes)).await?;
    change(&app, &name, |sandbox| {
        sandbox.extra.insert(AUTO_PAUSE.to_owned(), minutes.to_string());
    })
    .await
}

/// Records the interval and shows it; nothing is moved elsewhere here.
pub(super) async fn auto_archive(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| {
        sandbox.extra.insert(AUTO_ARCHIVE.to_owned(), minutes.to_string());
    })
    .await
}

/// Sets how many minutes after its stop a sandbox is deleted; -1 means never.
pub(super) async fn auto_delete(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, i64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| sandbox.delete_after_stop = delete_after_stop(minutes)).await
}

/// Sets how many minutes after its creation a sandbox is deleted; 0 means never.
pub(super) async fn ttl(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| {
        let end = |time| sandbox.created_at.checked_add(time).unwrap_or(Timestamp::MAX);
        sandbox.expires_at = lifetime(minutes).map(end);
    })
    .await
}

/// Opens the ports of a sandbox to any client, or to those with its token alone.
pub(super) async fn public(
    State(app): State<Adapter>,
    Path((name, public)): Path<(String, bool)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| sandbox.port_access = port_access(public)).await
}

/// Changes the network rules of a sandbox; its programs keep running.
pub(super) async fn network(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(asked): DaytonaJson<NetworkSettings>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let network = asked.network();
    let changed = app.change_network(&sandbox, &network, |sandbox| {
        sandbox.extra.extend(asked.extra());
    });
    let missing = || DaytonaRefusal::missing(format!("Sandbox {name} not found"));
    let sandbox = changed.await?.ok_or_else(missing)?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// A change of the environment of programs that are started later.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EnvUpdate {
    set: Env,
    unset: Vec<String>,
}

/// Changes the environment of new programs and sessions.
pub(super) async fn env(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    DaytonaJson(update): DaytonaJson<EnvUpdate>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    api::check_env(Some(&update.set), "/set")?;
    let changed = app.store.change_env(sandbox.id(), app.now().at, move |env| {
        env.retain(|name, _| !update.unset.contains(name));
        env.extend(update.set);
    });
    changed.await?;
    Ok(axum::Json(json!({})))
}

/// Changes the limits of a sandbox: at once if it runs, and whenever it starts.
pub(super) async fn resize(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(asked): DaytonaJson<SizeRequest>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let (mut settings, present) = (asked.settings()?, DaytonaSize::of(&app, Some(&sandbox.lease)));
    // Sizes are rounded up: the size that the client was shown is no change.
    if asked.disk == Some(present.disk) {
        settings.remove("disk");
    }
    if settings.is_empty() && asked.disk.is_none() {
        return Err(DaytonaRefusal::bad("cpu, memory or disk is needed"));
    }
    if !settings.is_empty() {
        app.leases.resize(&sandbox.thread.lease_id, settings).await.map_err(
            |error| match error {
                LeaseError::Provider { ref source, .. } if !source.may_pass() => {
                    DaytonaRefusal::bad(source.to_string())
                }
                other => Problem::from(other).into(),
            },
        )?;
    }
    Ok(axum::Json(view::sandbox(&app, &find(&app, &name).await?)))
}

/// The names of the metrics, and the field of a measurement that each shows.
const METRICS: [(&str, &str); 7] = [
    ("daytona.sandbox.cpu.utilization", "cpuUsedPct"),
    ("daytona.sandbox.cpu.limit", "cpuCount"),
    ("daytona.sandbox.memory.usage", "memUsed"),
    ("daytona.sandbox.memory.limit", "memTotal"),
    ("daytona.sandbox.memory.cache", "memCache"),
    ("daytona.sandbox.filesystem.usage", "diskUsed"),
    ("daytona.sandbox.filesystem.total", "diskTotal"),
];

/// The time span of the measurements that a client asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetricsSpan {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

/// Measurements of a sandbox.
pub(super) async fn metrics(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(span): Query<MetricsSpan>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let from = span.from.map_or(i64::MIN, Timestamp::as_second);
    // The client's present is in our past.
    let to = span.to.map_or(i64::MAX, |to| to.as_second().saturating_add(1));
    let used = UsageSample::between(&app, &sandbox, from, to).await?;
    let used: Vec<Value> = used.iter().map(UsageSample::control_json).collect();
    let series = METRICS.map(|(metric, field)| {
        let points = used.iter();
        let points = points.map(|it| json!({"timestamp": it["timestamp"], "value": it[field]}));
        json!({"metricName": metric, "dataPoints": points.collect::<Vec<_>>()})
    });
    Ok(axum::Json(json!({"series": series})))
}
