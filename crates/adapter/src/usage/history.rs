//! Measurements of sandboxes, as far back as they are kept.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use model::{ThreadId, Timestamp};

/// Measurements that are kept of a sandbox; the oldest go first.
const MAX_MEASUREMENTS: usize = 360;
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

/// What a sandbox uses at one moment.
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
    pub(super) fn last(&self, id: &ThreadId) -> Option<UsageSample> {
        self.0.lock().get(id)?.back().copied()
    }

    pub(super) fn keep(&self, id: &ThreadId, used: UsageSample) {
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

    pub(super) fn between(&self, id: &ThreadId, from: i64, to: i64) -> Vec<UsageSample> {
        let all = self.0.lock();
        let kept = all.get(id).into_iter().flatten();
        kept.filter(|used| (from..=to).contains(&used.at.as_second())).copied().collect()
    }

    /// A sandbox is gone.
    pub fn forget(&self, id: &ThreadId) {
        self.0.lock().remove(id);
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
