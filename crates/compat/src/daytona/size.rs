//! What a sandbox may use: asked for, told, changed and measured.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Asked, Refusal, control::shown, find};
use crate::Compat;
use crate::usage::{self, Used};
use engine::lease::LeaseError;
use model::{Lease, Timestamp};

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
    pub(super) fn of(app: &Compat, lease: Option<&Lease>) -> Size {
        usage::Size::of(app, lease).into()
    }

    /// Of one that asks for nothing.
    pub(super) fn usual(app: &Compat) -> Size {
        usage::Size::usual(app).into()
    }
}

impl From<usage::Size> for Size {
    fn from(size: usage::Size) -> Size {
        let (memory, disk) = (size.memory.div_ceil(GIB), size.disk.div_ceil(GIB));
        Size { cpu: size.cpus, memory, disk }
    }
}

/// Gives a sandbox other limits: at once if it runs, and whenever it starts.
pub(super) async fn resize(
    State(app): State<Compat>,
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
                other => api::error::Problem::from(other).into(),
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

/// Which measurements are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Span {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

/// What the sandbox uses and has used.
pub(super) async fn metrics(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Query(span): Query<Span>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let from = span.from.map_or(i64::MIN, Timestamp::as_second);
    // A client's now is before ours.
    let to = span.to.map_or(i64::MAX, |to| to.as_second().saturating_add(1));
    let used = Used::between(&app, &sandbox, from, to).await?;
    let used: Vec<Value> = used.iter().map(Used::of_control).collect();
    let series = METRICS.map(|(metric, field)| {
        let points = used.iter();
        let points = points.map(|it| json!({"timestamp": it["timestamp"], "value": it[field]}));
        json!({"metricName": metric, "dataPoints": points.collect::<Vec<_>>()})
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
    fn a_part_counts_as_a_whole() {
        let size = usage::Size { cpus: 2, memory: GIB / 2, disk: 3 * GIB };
        assert_eq!(Size::from(size), Size { cpu: 2, memory: 1, disk: 3 });
    }
}
