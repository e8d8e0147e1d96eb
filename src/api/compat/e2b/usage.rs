//! What sandboxes use, and what they have used.
//!
//! A measurement is kept whenever somebody asks for one, and now and then by itself, for as long as the
//! server runs and the sandbox lives.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Refusal,
    control::{cpus, disk_bytes, find, memory_bytes},
};
use crate::{
    api::{
        App,
        compat::sandbox::{Api, Sandbox, State as Life},
        error::Problem,
    },
    model::{Lease, ThreadId, Timestamp},
    provider::Limits,
};

/// Measurements that are kept of a sandbox; the oldest go first.
const KEPT: usize = 360;
/// How often one is taken without being asked for.
const EVERY: Duration = Duration::from_secs(30);
/// Sandboxes that are measured without being asked for.
const MEASURED: usize = 200;
/// Between measurements that are kept.
const APART: Duration = Duration::from_secs(1);
/// Sandboxes of one answer.
const MOST: usize = 100;

/// What a sandbox has to use: processors, bytes of memory, bytes of disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) cpus: u64,
    pub(super) memory: u64,
    pub(super) disk: u64,
}

impl Size {
    /// The limits, and the machine where there are none.
    pub(super) fn of(app: &App, lease: Option<&Lease>) -> Size {
        let limits = lease.and_then(|lease| limits(app, lease));
        let (cpus, memory, disk) = (cpus() as u64, memory_bytes(), disk_bytes(app).1);
        let Some(Limits { memory_bytes, milli_cpus, disk_bytes, .. }) = limits else {
            return Size { cpus, memory, disk };
        };
        Size {
            cpus: milli_cpus.div_ceil(1000).max(1),
            memory: memory_bytes,
            disk: disk_bytes.unwrap_or(disk),
        }
    }
}

/// What the instance of a lease may use, where that is limited.
fn limits(app: &App, lease: &Lease) -> Option<Limits> {
    let provider = app.leases.providers().named(&lease.provider).ok()?;
    provider.limits_of(&lease.spec, Some(&lease.lease_id))
}

/// What a sandbox uses at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Used {
    at: Timestamp,
    cpu_us: u64,
    cpu_percent: f64,
    memory: u64,
    disk: u64,
    size: Size,
}

impl Used {
    /// Of this sandbox, now; it is kept.
    pub async fn of(app: &App, sandbox: &Sandbox) -> Result<Used, Problem> {
        let at = app.now().at;
        let (_, lease) = app.sandbox_state(sandbox).await?;
        let metrics = match &lease {
            Some(lease) => app.leases.metrics(lease).await?.unwrap_or_default(),
            None => Default::default(),
        };
        let usage = &app.sandboxes.usage;
        let size = Size::of(app, lease.as_ref());
        // Since the last measurement, or since it was made where there is none of this instance.
        let began = lease.as_ref().and_then(|lease| lease.instance());
        let began = began.map_or(sandbox.started, |(instance, _)| instance.started_at);
        let last = usage.last(sandbox.id()).filter(|it| it.cpu_us <= metrics.cpu_us);
        let (since, before) = match last {
            Some(last) if last.at > began => (last.at, last.cpu_us),
            _ => (began, 0),
        };
        let seconds = at.duration_since(since).as_secs_f64().max(0.001);
        let percent = (metrics.cpu_us - before) as f64 / 1e4 / seconds / size.cpus as f64;
        let used = Used {
            at,
            cpu_us: metrics.cpu_us,
            cpu_percent: (percent.min(100.0) * 100.0).round() / 100.0,
            memory: metrics.memory_bytes,
            disk: if metrics.disk_bytes > 0 { metrics.disk_bytes } else { disk_bytes(app).0 },
            size,
        };
        usage.keep(sandbox.id(), used);
        Ok(used)
    }

    /// As the control plane writes it.
    pub fn of_control(&self) -> Value {
        json!({
            "timestamp": self.at.to_string(),
            "timestampUnix": self.at.as_second(),
            "cpuCount": self.size.cpus,
            "cpuUsedPct": self.cpu_percent,
            "memUsed": self.memory,
            "memTotal": self.size.memory,
            "memCache": 0,
            "diskUsed": self.disk,
            "diskTotal": self.size.disk,
            "diskFree": self.size.disk.saturating_sub(self.disk),
        })
    }

    /// As the daemon writes it.
    pub(super) fn of_daemon(&self) -> Value {
        json!({
            "ts": self.at.as_second(),
            "cpu_count": self.size.cpus,
            "cpu_used_pct": self.cpu_percent,
            "mem_total": self.size.memory,
            "mem_total_mib": self.size.memory >> 20,
            "mem_used": self.memory,
            "mem_used_mib": self.memory >> 20,
            "disk_used": self.disk,
            "disk_total": self.size.disk,
        })
    }
}

/// What sandboxes have used, each as far back as it is kept.
#[derive(Default)]
pub struct Usage(Mutex<HashMap<ThreadId, VecDeque<Used>>>);

impl Usage {
    fn all(&self) -> MutexGuard<'_, HashMap<ThreadId, VecDeque<Used>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self, id: &ThreadId) -> Option<Used> {
        self.all().get(id)?.back().copied()
    }

    fn keep(&self, id: &ThreadId, used: Used) {
        let mut all = self.all();
        let kept = all.entry(id.clone()).or_default();
        let apart =
            |last: &Used| used.at.duration_since(last.at) >= APART.try_into().unwrap_or_default();
        // Of many at once the first is as good as any.
        if kept.back().is_none_or(apart) {
            kept.push_back(used);
        }
        while kept.len() > KEPT {
            kept.pop_front();
        }
    }

    fn between(&self, id: &ThreadId, from: i64, to: i64) -> Vec<Used> {
        let all = self.all();
        let kept = all.get(id).into_iter().flatten();
        kept.filter(|used| (from..=to).contains(&used.at.as_second())).copied().collect()
    }

    /// A sandbox is gone.
    pub fn forget(&self, id: &ThreadId) {
        self.all().remove(id);
    }
}

/// Which measurements are asked for, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Span {
    start: Option<i64>,
    end: Option<i64>,
}

/// What a sandbox uses and has used.
pub(super) async fn metrics(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(span): Query<Span>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let used = Used::of(&app, &sandbox).await?;
    let (from, to) = (span.start.unwrap_or(i64::MIN), span.end.unwrap_or(i64::MAX));
    let mut all = app.sandboxes.usage.between(sandbox.id(), from, to);
    let now = used.at.as_second();
    // One that was too close to the last is not kept, but is what was asked for.
    if (from..=to).contains(&now) && all.last().is_none_or(|last| last.at < used.at) {
        all.push(used);
    }
    Ok(axum::Json(all.iter().map(Used::of_control).collect()))
}

/// What several sandboxes use.
pub(super) async fn metrics_of(
    State(app): State<App>,
    uri: Uri,
) -> Result<axum::Json<Value>, Refusal> {
    let mut all = serde_json::Map::new();
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    for (_, value) in query.filter(|(name, _)| name == "sandbox_ids") {
        for name in value.split(',').take(MOST) {
            if let Ok(sandbox) = find(&app, name).await {
                let used = Used::of(&app, &sandbox).await?;
                all.insert(sandbox.id().to_string(), used.of_control());
            }
        }
    }
    Ok(axum::Json(json!({"sandboxes": all})))
}

/// Measures the sandboxes of this machine that run, now and then. Other people's are only asked when
/// somebody asks.
pub async fn measure(app: App, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let Ok(all) = app.all_sandboxes(Api::E2b).await else { continue };
        for sandbox in all.iter().take(MEASURED) {
            let Ok((Life::Running, Some(lease))) = app.sandbox_state(sandbox).await else {
                continue;
            };
            if limits(&app, &lease).is_some()
                && let Err(problem) = Used::of(&app, sandbox).await
            {
                tracing::debug!(sandbox = %sandbox.id(), detail = problem.detail(), "not measured");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_kept_apart_and_bounded() {
        let usage = Usage::default();
        let id: ThreadId = "t".parse().unwrap();
        let size = Size { cpus: 1, memory: 1, disk: 1 };
        let used = |ms: i64| Used {
            at: Timestamp::from_millisecond(ms).unwrap(),
            cpu_us: 0,
            cpu_percent: 0.0,
            memory: 0,
            disk: 0,
            size,
        };
        for ms in [1000, 1500, 2000, 3100] {
            usage.keep(&id, used(ms));
        }
        let seconds = |from, to| -> Vec<i64> {
            usage.between(&id, from, to).iter().map(|used| used.at.as_second()).collect()
        };
        assert_eq!(seconds(0, 10), [1, 2, 3]);
        assert_eq!(seconds(2, 2), [2]);
        for second in 10..10 + KEPT as i64 {
            usage.keep(&id, used(second * 1000));
        }
        assert_eq!(seconds(0, i64::MAX).len(), KEPT);
        assert_eq!(seconds(0, 9), [] as [i64; 0]);
        usage.forget(&id);
        assert_eq!(usage.last(&id), None);
    }
}
