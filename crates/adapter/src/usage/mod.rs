//! The resource usage of sandboxes, current and over time.
//!
//! A measurement is recorded whenever a client requests one, and periodically. The history is in memory: it ends
//! with the server or the sandbox.

mod history;

use std::time::Duration;

use serde_json::Value;

pub use history::{SandboxSize, UsageHistory, UsageSample};

use crate::Adapter;
use api::error::Problem;
use model::{Lease, LeaseId, SandboxStatus};
use provider::ResourceLimits;
use store::{SandboxFilter, SandboxRecord};

const MEASURE_INTERVAL: Duration = Duration::from_secs(30);
/// The limit of sandboxes that are measured periodically.
const MAX_MEASURED_SANDBOXES: usize = 200;

impl SandboxSize {
    /// The size of the sandbox on this lease.
    pub fn of(app: &Adapter, lease: Option<&Lease>) -> SandboxSize {
        let limits = match lease {
            Some(lease) => limits(app, lease),
            None => limits_on(app, &app.provider, &Value::Null, None),
        };
        SandboxSize::within(app, limits)
    }

    /// The size of a sandbox whose request names none.
    pub fn default_size(app: &Adapter) -> SandboxSize {
        SandboxSize::of(app, None)
    }

    /// The size that these limits allow; without a limit it is the machine's.
    fn within(app: &Adapter, limits: Option<ResourceLimits>) -> SandboxSize {
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

/// The resource limits of a lease's instance, if it has any.
fn limits(app: &Adapter, lease: &Lease) -> Option<ResourceLimits> {
    limits_on(app, &lease.provider, &lease.spec, Some(&lease.lease_id))
}

fn limits_on(
    app: &Adapter,
    provider: &str,
    spec: &Value,
    lease: Option<&LeaseId>,
) -> Option<ResourceLimits> {
    app.leases.providers().named(provider).ok()?.limits()?.limits_of(spec, lease)
}

/// The used and the total bytes of the disk that holds the server's home directory.
fn disk_bytes(app: &Adapter) -> (u64, u64) {
    match rustix::fs::statvfs(&app.settings.home) {
        Ok(disk) => ((disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(_) => (0, 0),
    }
}

impl UsageSample {
    /// Measures a sandbox and records the result.
    pub async fn of(app: &Adapter, sandbox: &SandboxRecord) -> Result<UsageSample, Problem> {
        let at = app.now().at;
        let lease = &sandbox.lease;
        let metrics = app.leases.metrics(lease).await?.unwrap_or_default();
        let usage = &app.state.usage;
        let size = SandboxSize::of(app, Some(lease));
        // The CPU usage since the last measurement of this instance, or else since the instance started.
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
        usage.record(sandbox.id(), used);
        Ok(used)
    }

    /// The measurements of a sandbox between two times, in seconds since 1970, including one of the present.
    pub async fn between(
        app: &Adapter,
        sandbox: &SandboxRecord,
        from: i64,
        to: i64,
    ) -> Result<Vec<UsageSample>, Problem> {
        let used = UsageSample::of(app, sandbox).await?;
        let mut all = app.state.usage.between(sandbox.id(), from, to);
        // A measurement too soon after the last one was not recorded, but belongs to the answer.
        if (from..=to).contains(&used.at.as_second()) && all.last().is_none_or(|it| it.at < used.at)
        {
            all.push(used);
        }
        Ok(all)
    }
}

/// Measures the running sandboxes of this machine periodically. Sandboxes at cloud providers are measured on
/// request only.
pub async fn measure(app: &Adapter) {
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
                tracing::debug!(sandbox = %sandbox.id(), detail = problem.detail(), "cannot measure a sandbox");
            }
        }
    }
}
