//! The CPU governor: reserves CPUs for interactive sandboxes.
//!
//! The kernel lets a running process finish its time slice: while one sandbox starts processes without end,
//! a key stroke in another sandbox waits for milliseconds, regardless of their weights. So a sandbox that
//! is
//! busy for several checks is kept off the first CPUs of the machine, and gets a small share of the others,
//! until it is calm for [`CALM_CHECKS`] checks. The server, the hosts and all calm sandboxes may use every
//! CPU.
//!
//! ```text
//!            busy for BUSY_CHECKS               calm for CALM_CHECKS
//!   free ─────────────────────▶ restricted ─────────────────────────▶ free
//! ```
//! The restriction is in the sandbox's cgroup, which outlives the server; the next server continues from
//! there. A sandbox whose limit is all CPUs of the machine is never restricted.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::launch_file::SandboxLaunch;
use crate::layout::{CGROUP, CPU_SHARES};
use cgroup::Cgroups;

/// The interval between two checks.
pub const GOVERNOR_INTERVAL: Duration = Duration::from_millis(100);

/// A sandbox is busy above `BUSY` percent and calm below `CALM` percent of one CPU, or of its limit if that
/// is less. In between it keeps its state (hysteresis).
const BUSY: u64 = 50;
const CALM: u64 = 25;

/// Busy checks in a row after which a sandbox is restricted.
const BUSY_CHECKS: u32 = 3;

/// Calm checks in a row after which a sandbox is free again.
const CALM_CHECKS: u32 = 20;

/// The CPU shares of a restricted sandbox, instead of [`CPU_SHARES`].
const RESTRICTED_SHARES: u64 = 32;

/// Single sandboxes are only checked if all together use this many percent of one CPU.
const MIN_TOTAL_PERCENT: u64 = 5;

/// After a full scan, rest this many times as long as it took: at most 5 % of a CPU.
const REST: u32 = 20;

/// The state of all sandboxes.
#[derive(Debug, Default)]
pub(super) struct CpuGovernor(Mutex<GovernorState>);

#[derive(Debug, Default)]
struct GovernorState {
    /// The CPU time of all sandboxes at the last check; `None` before the first.
    total: Option<CpuReading>,
    /// By the name of their directory; `None` for a sandbox whose limit is all CPUs.
    sandboxes: HashMap<OsString, Option<GovernedSandbox>>,
    /// The earliest time of the next full scan.
    rest_until: Option<Instant>,
}

#[derive(Debug)]
struct GovernedSandbox {
    cgroups: Cgroups,
    milli_cpus: u64,
    last: CpuReading,
    state: CpuState,
}

/// The CPU time that had been used at an instant.
#[derive(Debug, Clone, Copy)]
struct CpuReading {
    at: Instant,
    used_us: u64,
}

impl CpuReading {
    fn of(cgroups: &Cgroups) -> Self {
        Self { at: Instant::now(), used_us: cgroups.cpu_us() }
    }

    /// The use since an earlier reading, in percent of one CPU, or of the limit if that is less.
    fn percent_since(self, earlier: Self, milli_cpus: u64) -> u64 {
        let elapsed_us = (self.at - earlier.at).as_micros() as u64;
        let available_us = elapsed_us * milli_cpus.clamp(1, 1000) / 1000;
        self.used_us.saturating_sub(earlier.used_us) * 100 / available_us.max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuState {
    /// It may use every CPU, and was busy at this many checks in a row.
    Free(u32),
    /// It may not use the reserved CPUs, and was calm at this many checks in a row.
    Restricted(u32),
}

impl CpuState {
    /// Returns the state after a check with this CPU usage.
    fn after(self, percent: u64) -> Self {
        match self {
            Self::Free(checks) if percent >= BUSY && checks + 1 >= BUSY_CHECKS => {
                Self::Restricted(0)
            }
            Self::Free(checks) if percent >= BUSY => Self::Free(checks + 1),
            Self::Free(_) => Self::Free(0),
            Self::Restricted(checks) if percent < CALM && checks + 1 >= CALM_CHECKS => {
                Self::Free(0)
            }
            Self::Restricted(checks) if percent < CALM => Self::Restricted(checks + 1),
            Self::Restricted(_) => Self::Restricted(0),
        }
    }

    fn is_restricted(self) -> bool {
        matches!(self, Self::Restricted(_))
    }
}

impl CpuGovernor {
    /// Whether single sandboxes have to be checked: one may be busy, or is not yet free and calm.
    pub(super) fn is_due(&self, all: &str) -> bool {
        let Ok(cgroups) = Cgroups::new(all) else { return false };
        let mut state = self.0.lock();
        let now = CpuReading::of(&cgroups);
        if state.rest_until.is_some_and(|until| now.at < until) {
            return false;
        }
        let before = state.total.replace(now);
        let busy = before.is_none_or(|before| now.percent_since(before, 1000) >= MIN_TOTAL_PERCENT);
        busy || state.sandboxes.values().flatten().any(|one| one.state != CpuState::Free(0))
    }

    /// Checks every sandbox, and restricts or frees it. Blocking.
    pub(super) fn govern(&self, sandboxes: &Path, reserved_cpus: usize) {
        let began = Instant::now();
        let mut state = self.0.lock();
        let mut checked = HashMap::new();
        for entry in fs::read_dir(sandboxes).into_iter().flatten().flatten() {
            let sandbox = match state.sandboxes.remove(&entry.file_name()) {
                Some(Some(known)) => Some(known.check(reserved_cpus)),
                Some(None) => None,
                None => match GovernedSandbox::read(&entry.path()) {
                    Ok(found) => found,
                    // It is still starting, or has ended.
                    Err(_) => continue,
                },
            };
            checked.insert(entry.file_name(), sandbox);
        }
        state.sandboxes = checked;
        state.rest_until = Some(Instant::now() + began.elapsed() * REST);
    }
}

impl GovernedSandbox {
    /// The sandbox of a directory; `None` if its limit is all CPUs.
    fn read(dir: &Path) -> io::Result<Option<Self>> {
        let launch = SandboxLaunch::read(dir)?;
        let all = std::thread::available_parallelism()?.get() as u64 * 1000;
        let milli_cpus = launch.spec.milli_cpus;
        if milli_cpus >= all {
            return Ok(None);
        }
        let cgroups = Cgroups::new(&format!("{CGROUP}/{}", launch.name))?;
        let state = if cgroups.avoids_cpus() { CpuState::Restricted(0) } else { CpuState::Free(0) };
        Ok(Some(Self { last: CpuReading::of(&cgroups), cgroups, milli_cpus, state }))
    }

    fn check(mut self, reserved_cpus: usize) -> Self {
        let now = CpuReading::of(&self.cgroups);
        let next = self.state.after(now.percent_since(self.last, self.milli_cpus));
        let set = |shares, avoided| {
            self.cgroups.set_cpu_shares(shares)?;
            self.cgroups.avoid_first_cpus(avoided)
        };
        let changed = match (self.state.is_restricted(), next.is_restricted()) {
            (false, true) => set(RESTRICTED_SHARES, reserved_cpus),
            (true, false) => set(CPU_SHARES, 0),
            (true, true) | (false, false) => Ok(()),
        };
        if let Err(error) = changed {
            // It has probably ended, which the next scan handles.
            tracing::debug!(%error, "cannot change the CPUs of a sandbox");
        }
        (self.last, self.state) = (now, next);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after checks with these CPU usages.
    fn after(state: CpuState, uses: impl IntoIterator<Item = u64>) -> CpuState {
        uses.into_iter().fold(state, CpuState::after)
    }

    fn times(count: u32, percent: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_n(percent, count as usize)
    }

    #[test]
    fn a_sandbox_that_is_busy_for_long_is_restricted_until_it_is_calm() {
        let free = CpuState::Free(0);
        assert!(!after(free, times(BUSY_CHECKS - 1, 100)).is_restricted());
        let restricted = after(free, times(BUSY_CHECKS, 100));
        assert!(restricted.is_restricted());
        assert!(after(restricted, times(1000, 100)).is_restricted());
        assert!(after(restricted, times(CALM_CHECKS - 1, 0)).is_restricted());
        assert_eq!(after(restricted, times(CALM_CHECKS, 0)), free);
    }

    #[test]
    fn a_sandbox_with_short_bursts_stays_free() {
        let bursts = (0..1000).map(|check| if check % BUSY_CHECKS == 0 { 0 } else { 100 });
        assert!(!after(CpuState::Free(0), bursts).is_restricted());
    }

    #[test]
    fn a_restricted_sandbox_with_short_pauses_stays_restricted() {
        let rests = (0..1000).map(|check| if check % CALM_CHECKS == 0 { BUSY } else { 0 });
        assert!(after(CpuState::Restricted(0), rests).is_restricted());
        // Between the thresholds, the state does not change.
        assert!(after(CpuState::Restricted(0), times(1000, CALM)).is_restricted());
        assert!(!after(CpuState::Free(0), times(1000, BUSY - 1)).is_restricted());
    }

    #[test]
    fn usage_is_relative_to_one_cpu_or_to_the_limit() {
        let at = Instant::now();
        let earlier = CpuReading { at, used_us: 1000 };
        let later = CpuReading { at: at + Duration::from_millis(100), used_us: 51_000 };
        for (milli_cpus, percent) in [(1000, 50), (1500, 50), (500, 100), (0, 50_000)] {
            assert_eq!(later.percent_since(earlier, milli_cpus), percent, "{milli_cpus}");
        }
        // Neither zero elapsed time nor a counter reset panics.
        assert_eq!(CpuReading { at, used_us: 0 }.percent_since(earlier, 1000), 0);
    }
}
