//! Changes of a sandbox's settings, and measurements of its usage.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaJson, DaytonaRefusal, ToolboxSandbox,
    control::{check_labels, delete_after_stop, idle_policy, lifetime, stop_policy},
    network::NetworkSettings,
    size::{DaytonaSize, SizeRequest},
    view::{self, AUTO_ARCHIVE, AUTO_PAUSE, AUTO_STOP, DEFAULT_AUTO_STOP_MINUTES, find, number},
};
use adapter::{Adapter, usage::UsageSample};
use api::error::Problem;
use engine::lease::LeaseError;
use model::{Env, PortAccess, Sandbox, SessionPolicy, ThreadId, Timestamp};
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
    DaytonaJson(request): DaytonaJson<NewLabels>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    check_labels(&request.labels)?;
    change(&app, &name, |sandbox| sandbox.labels = request.labels.clone()).await
}

/// Sets the number of idle minutes after which a sandbox stops; 0 means never.
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

/// Sets the number of idle minutes after which a sandbox is paused instead of stopped; 0 restores the stop.
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

/// Records the archive interval. It has no effect: sandboxes are not archived automatically.
pub(super) async fn auto_archive(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, u64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| {
        sandbox.extra.insert(AUTO_ARCHIVE.to_owned(), minutes.to_string());
    })
    .await
}

/// Sets the number of minutes between the stop and the deletion of a sandbox; -1 means never.
pub(super) async fn auto_delete(
    State(app): State<Adapter>,
    Path((name, minutes)): Path<(String, i64)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    change(&app, &name, |sandbox| sandbox.delete_after_stop = delete_after_stop(minutes)).await
}

/// Sets the number of minutes between the creation and the deletion of a sandbox; 0 means never.
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

/// Makes the ports of a sandbox public or private.
pub(super) async fn public(
    State(app): State<Adapter>,
    Path((name, public)): Path<(String, bool)>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let port_access = if public { PortAccess::Public } else { PortAccess::Token };
    change(&app, &name, |sandbox| sandbox.port_access = port_access).await
}

/// Changes the network rules of a sandbox; its programs keep running.
pub(super) async fn network(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(request): DaytonaJson<NetworkSettings>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let network = request.network();
    let changed = app.change_network(&sandbox, &network, |sandbox| {
        sandbox.extra.extend(request.extra());
    });
    let missing = || DaytonaRefusal::missing(format!("Sandbox {name} not found"));
    let sandbox = changed.await?.ok_or_else(missing)?;
    Ok(axum::Json(view::sandbox(&app, &sandbox)))
}

/// A change of the environment of programs started later.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EnvUpdate {
    set: Env,
    unset: Vec<String>,
}

/// Changes the environment of programs and sessions started later.
pub(super) async fn env(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(update): DaytonaJson<EnvUpdate>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    api::check_env(Some(&update.set), "/set")?;
    let changed = app.store.change_env(sandbox.id(), app.now().at, move |env| {
        env.retain(|name, _| !update.unset.contains(name));
        env.extend(update.set.clone());
    });
    changed.await?;
    Ok(axum::Json(json!({})))
}

/// Changes the resource limits of a sandbox: immediately if it runs, and for later starts.
pub(super) async fn resize(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(request): DaytonaJson<SizeRequest>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let (mut settings, current) =
        (request.settings()?, DaytonaSize::of(&app, Some(&sandbox.lease)));
    // Sizes are rounded up, so the size that the client has read is not a change.
    if request.disk == Some(current.disk) {
        settings.remove("disk");
    }
    if settings.is_empty() && request.disk.is_none() {
        return Err(DaytonaRefusal::bad("cpu, memory or disk is required"));
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

/// The names of the metrics and the fields of a measurement.
const METRICS: [(&str, &str); 7] = [
    ("daytona.sandbox.cpu.utilization", "cpuUsedPct"),
    ("daytona.sandbox.cpu.limit", "cpuCount"),
    ("daytona.sandbox.memory.usage", "memUsed"),
    ("daytona.sandbox.memory.limit", "memTotal"),
    ("daytona.sandbox.memory.cache", "memCache"),
    ("daytona.sandbox.filesystem.usage", "diskUsed"),
    ("daytona.sandbox.filesystem.total", "diskTotal"),
];

/// The time span of the requested measurements.
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
    // The measurement of the present is taken after the client read its clock.
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
