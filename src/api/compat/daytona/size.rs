//! What a sandbox may use: asked for, told, changed and measured.

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Asked, Refusal, control::shown, find};
use crate::{
    api::{App, compat::e2b::Used},
    lease::LeaseError,
    model::{Lease, LeaseId},
    provider::Limits,
};

const GIB: u64 = 1 << 30;

/// What a client asks for, in processors and GiB.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asking {
    cpu: Option<u64>,
    memory: Option<u64>,
    disk: Option<u64>,
    gpu: Option<u64>,
}

impl Asking {
    /// The same in the words of a provider's settings.
    pub(super) fn settings(&self) -> Result<Map<String, Value>, Refusal> {
        if self.gpu.is_some_and(|count| count > 0) {
            return Err(Refusal::bad("there are no graphics processors here"));
        }
        let mut settings = Map::new();
        for (name, asked) in [("cpu", self.cpu), ("memory", self.memory), ("disk", self.disk)] {
            let Some(count) = asked else { continue };
            if count == 0 {
                return Err(Refusal::bad(format!("{name} must be at least 1")));
            }
            match name {
                "cpu" => settings.insert("cpus".to_owned(), count.into()),
                _ => settings.insert(name.to_owned(), format!("{count}g").into()),
            };
        }
        Ok(settings)
    }
}

/// What a sandbox may use, in processors and GiB; a part counts as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Processors.
    pub(super) cpu: u64,
    /// Memory.
    pub(super) memory: u64,
    /// Disk.
    pub(super) disk: u64,
}

impl Size {
    /// Of the sandbox on this lease.
    pub(super) fn of(app: &App, lease: Option<&Lease>) -> Size {
        lease.map_or_else(
            || Size::usual(app),
            |lease| Size::under(app, &lease.provider, &lease.spec, Some(&lease.lease_id)),
        )
    }

    /// Of one that asks for nothing.
    pub(super) fn usual(app: &App) -> Size {
        Size::under(app, &app.provider, &Value::Null, None)
    }

    fn under(app: &App, provider: &str, spec: &Value, lease: Option<&LeaseId>) -> Size {
        let provider = app.leases.providers().named(provider).ok();
        Size::within(provider.and_then(|provider| provider.limits_of(spec, lease)))
    }

    /// Within these limits; where there are none, of this machine.
    fn within(limits: Option<Limits>) -> Size {
        let cpus = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let disk = || rustix::fs::statvfs("/").map_or(GIB, |disk| disk.f_blocks * disk.f_frsize);
        let memory = || {
            let info = rustix::system::sysinfo();
            u64::from(info.mem_unit) * info.totalram
        };
        Size {
            cpu: limits.map_or_else(cpus, |limits| limits.milli_cpus.div_ceil(1000)),
            memory: limits.map_or_else(memory, |limits| limits.memory_bytes).div_ceil(GIB),
            disk: limits.and_then(|limits| limits.disk_bytes).unwrap_or_else(disk).div_ceil(GIB),
        }
    }
}

/// Gives a sandbox other limits: at once if it runs, and whenever it starts.
pub(super) async fn resize(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(asked): Asked<Asking>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let lease = app.store.lease(&sandbox.thread.lease_id).await?;
    let (mut settings, has) = (asked.settings()?, Size::of(&app, lease.as_ref()));
    // A part counts as a whole: what is told already is no change.
    if asked.disk == Some(has.disk) {
        settings.remove("disk");
    }
    if settings.is_empty() && asked.disk.is_none() {
        return Err(Refusal::bad("cpu, memory or disk is needed"));
    }
    if !settings.is_empty() {
        app.leases.resize(&sandbox.thread.lease_id, settings).await.map_err(
            |error| match error {
                LeaseError::Provider { ref source, .. } if !source.may_pass() => {
                    Refusal::bad(source.to_string())
                }
                other => crate::api::error::Problem::from(other).into(),
            },
        )?;
    }
    shown(&app, &sandbox).await
}

/// What a metric is called, and where it is in what is measured.
const METRICS: [(&str, &str); 7] = [
    ("daytona.sandbox.cpu.utilization", "cpuUsedPct"),
    ("daytona.sandbox.cpu.limit", "cpuCount"),
    ("daytona.sandbox.memory.usage", "memUsed"),
    ("daytona.sandbox.memory.limit", "memTotal"),
    ("daytona.sandbox.memory.cache", "memCache"),
    ("daytona.sandbox.filesystem.usage", "diskUsed"),
    ("daytona.sandbox.filesystem.total", "diskTotal"),
];

/// What the sandbox uses over time: of that only the present is known.
pub(super) async fn metrics(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let used = Used::of(&app, &sandbox).await?.of_control();
    let series = METRICS.map(|(metric, field)| {
        let point = json!({"timestamp": used["timestamp"], "value": used[field]});
        json!({"metricName": metric, "dataPoints": [point]})
    });
    Ok(axum::Json(json!({"series": series})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_asked_for_in_the_words_of_a_provider() {
        let asked = Asking { cpu: Some(2), memory: Some(4), disk: Some(8), gpu: Some(0) };
        let expected = json!({"cpus": 2, "memory": "4g", "disk": "8g"});
        assert_eq!(Value::Object(asked.settings().unwrap()), expected);
        assert!(Asking::default().settings().unwrap().is_empty());
        assert!(Asking { gpu: Some(1), ..Asking::default() }.settings().is_err());
        assert!(Asking { cpu: Some(0), ..Asking::default() }.settings().is_err());
    }

    #[test]
    fn a_part_of_a_processor_counts_as_one() {
        let limits = Limits {
            memory_bytes: GIB / 2,
            milli_cpus: 1500,
            processes: 1,
            disk_bytes: Some(3 * GIB),
        };
        assert_eq!(Size::within(Some(limits)), Size { cpu: 2, memory: 1, disk: 3 });
        let machine = Size::within(None);
        assert!(machine.cpu > 0 && machine.memory > 0 && machine.disk > 0);
    }
}
