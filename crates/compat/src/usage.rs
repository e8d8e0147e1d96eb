//! What sandboxes use, and what they have used.
//!
//! A measurement is kept whenever somebody asks for one, and now and then by itself, for as long as the
//! server runs and the sandbox lives.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::sandbox::{Api, Sandbox, State};
use crate::Compat;
use api::error::Problem;
use model::{Lease, LeaseId, ThreadId, Timestamp};
use provider::ResourceLimits;

/// Measurements that are kept of a sandbox; the oldest go first.
const KEPT: usize = 360;
/// How often one is taken without being asked for.
const EVERY: Duration = Duration::from_secs(30);
/// Sandboxes that are measured without being asked for.
const MEASURED: usize = 200;
/// Between measurements that are kept.
const APART: Duration = Duration::from_secs(1);

/// What a sandbox has to use: processors, bytes of memory, bytes of disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Processors; a part of one counts as one.
    pub cpus: u64,
    /// Memory.
    pub memory: u64,
    /// Disk.
    pub disk: u64,
}

impl Size {
    /// Of the sandbox on this lease.
    pub fn of(app: &Compat, lease: Option<&Lease>) -> Size {
        let limits = match lease {
            Some(lease) => limits(app, lease),
            None => limits_on(app, &app.provider, &Value::Null, None),
        };
        Size::within(app, limits)
    }

    /// Of one that asks for nothing.
    pub fn usual(app: &Compat) -> Size {
        Size::of(app, None)
    }

    /// Within these limits; where there are none, of this machine.
    fn within(app: &Compat, limits: Option<ResourceLimits>) -> Size {
        let cpus = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let memory = || {
            let info = rustix::system::sysinfo();
            info.totalram * u64::from(info.mem_unit)
        };
        let disk = || disk_bytes(app).1;
        Size {
            cpus: limits.map_or_else(cpus, |limits| limits.milli_cpus.div_ceil(1000).max(1)),
            memory: limits.map_or_else(memory, |limits| limits.memory_bytes),
            disk: limits.and_then(|limits| limits.disk_bytes).unwrap_or_else(disk),
        }
    }
}

/// What the instance of a lease may use, where that is limited.
fn limits(app: &Compat, lease: &Lease) -> Option<ResourceLimits> {
    limits_on(app, &lease.provider, &lease.spec, Some(&lease.lease_id))
}

fn limits_on(
    app: &Compat,
    provider: &str,
    spec: &Value,
    lease: Option<&LeaseId>,
) -> Option<ResourceLimits> {
    app.leases.providers().named(provider).ok()?.limits()?.limits_of(spec, lease)
}

/// How much of the machine's disk is used, and how much there is.
fn disk_bytes(app: &Compat) -> (u64, u64) {
    match rustix::fs::statvfs(&app.settings.home) {
        Ok(disk) => ((disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(_) => (0, 0),
    }
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
    pub async fn of(app: &Compat, sandbox: &Sandbox) -> Result<Used, Problem> {
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

    /// Of this sandbox between two moments, in seconds; now is measured, too.
    pub async fn between(
        app: &Compat,
        sandbox: &Sandbox,
        from: i64,
        to: i64,
    ) -> Result<Vec<Used>, Problem> {
        let used = Used::of(app, sandbox).await?;
        let mut all = app.sandboxes.usage.between(sandbox.id(), from, to);
        // One that was too close to the last is not kept, but is what was asked for.
        if (from..=to).contains(&used.at.as_second()) && all.last().is_none_or(|it| it.at < used.at)
        {
            all.push(used);
        }
        Ok(all)
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
    pub fn of_daemon(&self) -> Value {
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

/// Measures the sandboxes of this machine that run, now and then. Other people's are only asked when
/// somebody asks.
pub async fn measure(app: Compat, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let mut all = Vec::new();
        for api in [Api::E2b, Api::Daytona] {
            all.extend(app.all_sandboxes(api).await.unwrap_or_default());
        }
        for sandbox in all.iter().take(MEASURED) {
            let Ok((State::Running, Some(lease))) = app.sandbox_state(sandbox).await else {
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
