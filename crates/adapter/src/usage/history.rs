//! The history of resource usage of each sandbox.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use model::{ThreadId, Timestamp};

/// The limit of measurements per sandbox; the oldest are dropped first.
const MAX_MEASUREMENTS: usize = 360;
/// The minimum time between two recorded measurements.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The resources of a sandbox; memory and disk are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxSize {
    /// The number of CPUs, rounded up.
    pub cpus: u64,
    pub memory: u64,
    pub disk: u64,
}

/// The resource usage of a sandbox at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageSample {
    pub(super) at: Timestamp,
    pub(super) cpu_us: u64,
    pub(super) cpu_percent: f64,
    pub(super) memory: u64,
    pub(super) disk: u64,
    pub(super) size: SandboxSize,
}

impl UsageSample {
    /// The measurement in the JSON format of a control plane.
    pub fn control_json(&self) -> Value {
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

    /// The measurement in the JSON format of the daemon inside a sandbox.
    pub fn daemon_json(&self) -> Value {
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

/// The recent measurements of all sandboxes.
#[derive(Default)]
pub struct UsageHistory(Mutex<HashMap<ThreadId, VecDeque<UsageSample>>>);

impl UsageHistory {
    pub(super) fn last(&self, id: &ThreadId) -> Option<UsageSample> {
        self.0.lock().get(id)?.back().copied()
    }

    /// Records a measurement, unless the last one is too recent.
    pub(super) fn record(&self, id: &ThreadId, used: UsageSample) {
        let mut all = self.0.lock();
        let recorded = all.entry(id.clone()).or_default();
        let is_due = |last: &UsageSample| {
            used.at.duration_since(last.at) >= MIN_INTERVAL.try_into().unwrap_or_default()
        };
        if recorded.back().is_none_or(is_due) {
            recorded.push_back(used);
        }
        while recorded.len() > MAX_MEASUREMENTS {
            recorded.pop_front();
        }
    }

    pub(super) fn between(&self, id: &ThreadId, from: i64, to: i64) -> Vec<UsageSample> {
        let all = self.0.lock();
        let recorded = all.get(id).into_iter().flatten();
        recorded.filter(|used| (from..=to).contains(&used.at.as_second())).copied().collect()
    }

    /// Removes the measurements of a deleted sandbox.
    pub fn forget(&self, id: &ThreadId) {
        self.0.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_have_a_minimum_distance_and_a_limit() {
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
            usage.record(&id, used(ms));
        }
        let seconds = |from, to| -> Vec<i64> {
            usage.between(&id, from, to).iter().map(|used| used.at.as_second()).collect()
        };
        assert_eq!(seconds(0, 10), [1, 2, 3]);
        assert_eq!(seconds(2, 2), [2]);
        for second in 10..10 + MAX_MEASUREMENTS as i64 {
            usage.record(&id, used(second * 1000));
        }
        assert_eq!(seconds(0, i64::MAX).len(), MAX_MEASUREMENTS);
        assert_eq!(seconds(0, 9), [] as [i64; 0]);
        usage.forget(&id);
        assert_eq!(usage.last(&id), None);
    }
}
