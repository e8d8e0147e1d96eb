//! The resource usage of sandboxes, now and over time.
//!
//! A measurement is kept whenever a client asks for one, and periodically, for as long as the
//! server runs and the sandbox lives.

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
/// Sandboxes that are measured without a request.
const MAX_MEASURED_SANDBOXES: usize = 200;

impl SandboxSize {
    /// Of the sandbox on this lease.
    pub fn of(app: &Adapter, lease: Option<&Lease>) -> SandboxSize {
        let limits = match lease {
            Some(lease) => limits(app, lease),
            None => limits_on(app, &app.provider, &Value::Null, None),
        };
        SandboxSize::within(app, limits)
    }

    /// Of one that asks for nothing.
    pub fn default_size(app: &Adapter) -> SandboxSize {
        SandboxSize::of(app, None)
    }

    /// Within these limits; where there are none, of this machine.
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

/// What the instance of a lease may use, where that is limited.
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

/// How much of the machine's disk is used, and how much there is.
fn disk_bytes(app: &Adapter) -> (u64, u64) {
    match rustix::fs::statvfs(&app.settings.home) {
        Ok(disk) => ((disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(_) => (0, 0),
    }
}

impl UsageSample {
    /// Of this sandbox, now; it is kept.
    pub async fn of(app: &Adapter, sandbox: &SandboxRecord) -> Result<UsageSample, Problem> {
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
        app: &Adapter,
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
}

/// Measures the running sandboxes of this machine every so often. Those of a cloud provider are only
/// measured on request.
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
                tracing::debug!(sandbox = %sandbox.id(), detail = problem.detail(), "not measured");
            }
        }
    }
}
