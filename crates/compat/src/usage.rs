//! The resource usage of sandboxes, now and over time.
//!
//! A measurement is kept whenever a client asks for one, and periodically, for as long as the
//! server runs and the sandbox lives.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Compat;
use api::error::Problem;
use model::{Lease, LeaseId, SandboxStatus, ThreadId, Timestamp};
use provider::ResourceLimits;
use store::{SandboxFilter, SandboxRecord};

/// Measurements that are kept of a sandbox; the oldest go first.
const MAX_MEASUREMENTS: usize = 360;
const MEASURE_INTERVAL: Duration = Duration::from_secs(30);
/// Sandboxes that are measured without a request.
const MAX_MEASURED_SANDBOXES: usize = 200;
/// The shortest time between two measurements that are kept.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// What a sandbox has to use: processors, bytes of memory, bytes of disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxSize {
    /// Processors; a part of one counts as one.
    pub cpus: u64,
    pub memory: u64,
    pub disk: u64,
}

impl SandboxSize {
    /// Of the sandbox on this lease.
    pub fn of(app: &Compat, lease: Option<&Lease>) -> SandboxSize {
        let limits = match lease {
            Some(lease) => limits(app, lease),
            None => limits_on(app, &app.provider, &Value::Null, None),
        };
        SandboxSize::within(app, limits)
    }

    /// Of one that asks for nothing.
    pub fn default_size(app: &Compat) -> SandboxSize {
        SandboxSize::of(app, None)
    }

    /// Within these limits; where there are none, of this machine.
    fn within(app: &Compat, limits: Option<ResourceLimits>) -> SandboxSize {
        let cpus = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let memory = || {
            let info = rustix::system::sysinfo();
            info.totalram * u64::from(info.mem_unit)
        };
        let disk = || disk_bytes(app).1;
        SandboxSize {
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
pub struct UsageSample {
    at: Timestamp,
    cpu_us: u64,
    cpu_percent: f64,
    memory: u64,
    disk: u64,
    size: SandboxSize,
}

impl UsageSample {
    /// Of this sandbox, now; it is kept.
    pub async fn of(app: &Compat, sandbox: &SandboxRecord) -> Result<UsageSample, Problem> {
        let at = app.now().at;
        let lease = &sandbox.lease;
        let metrics = app.leases.metrics(lease).await?.unwrap_or_default();
        let usage = &app.state.usage;
        let size = SandboxSize::of(app, Some(lease));
        // Since the last measurement, or since it was made where there is none of this instance.
        let began = lease.instance();
        let began = began.map_or(sandbox.row.started_at, |(instance, _)| instance.started_at);
        let last = usage.last(sandbox.id()).filter(|it| it.cpu_us <= metrics.cpu_us);
        let (since, before) = match last {
            Some(last) if last.at > began => (last.at, last.cpu_us),
            _ => (began, 0),
        };
        let seconds = at.duration_since(since).as_secs_f64().max(0.001);
        let percent = (metrics.cpu_us - before) as f64 / 1e4 / seconds / size.cpus as f64;
        let used = UsageSample {
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
        sandbox: &SandboxRecord,
        from: i64,
        to: i64,
    ) -> Result<Vec<UsageSample>, Problem> {
        let used = UsageSample::of(app, sandbox).await?;
        let mut all = app.state.usage.between(sandbox.id(), from, to);
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
pub struct UsageHistory(Mutex<HashMap<ThreadId, VecDeque<UsageSample>>>);

impl UsageHistory {
    fn last(&self, id: &ThreadId) -> Option<UsageSample> {
        self.0.lock().get(id)?.back().copied()
    }

    fn keep(&self, id: &ThreadId, used: UsageSample) {
        let mut all = self.0.lock();
        let kept = all.entry(id.clone()).or_default();
        let apart = |last: &UsageSample| {
            used.at.duration_since(last.at) >= MIN_INTERVAL.try_into().unwrap_or_default()
        };
        // Of many at once the first is as good as any.
        if kept.back().is_none_or(apart) {
            kept.push_back(used);
        }
        while kept.len() > MAX_MEASUREMENTS {
            kept.pop_front();
        }
    }

    fn between(&self, id: &ThreadId, from: i64, to: i64) -> Vec<UsageSample> {
        let all = self.0.lock();
        let kept = all.get(id).into_iter().flatten();
        kept.filter(|used| (from..=to).contains(&used.at.as_second())).copied().collect()
    }

    /// A sandbox is gone.
    pub fn forget(&self, id: &ThreadId) {
        self.0.lock().remove(id);
    }
}

/// Measures the running sandboxes of this machine every so often. Those of a cloud provider are only
/// measured on request.
pub async fn measure(app: &Compat) {
    loop {
        tokio::time::sleep(MEASURE_INTERVAL).await;
        let filter = SandboxFilter {
            statuses: vec![SandboxStatus::Running, SandboxStatus::Stopped, SandboxStatus::Archived],
            ..SandboxFilter::default()
        };
        let all = app.sandboxes.all(filter).await.unwrap_or_default();
        for sandbox in all.iter().take(MAX_MEASURED_SANDBOXES) {
            if limits(app, &sandbox.lease).is_some()
                && let Err(problem) = UsageSample::of(app, sandbox).await
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
        let usage = UsageHistory::default();
        let id: ThreadId = "t".parse().unwrap();
        let size = SandboxSize { cpus: 1, memory: 1, disk: 1 };
        let used = |ms: i64| UsageSample {
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
        for second in 10..10 + MAX_MEASUREMENTS as i64 {
            usage.keep(&id, used(second * 1000));
        }
        assert_eq!(seconds(0, i64::MAX).len(), MAX_MEASUREMENTS);
        assert_eq!(seconds(0, 9), [] as [i64; 0]);
        usage.forget(&id);
        assert_eq!(usage.last(&id), None);
    }
}
