//! Keeps those who compute out of the way of those who answer keys.
//!
//! A kernel lets whoever runs finish what it is at; beside a sandbox that starts processes without end, a
//! key of its neighbour waits for milliseconds, whatever their weights are. So one that computes for long
//! is kept off the machine's first processors, and has its small part of the others, until it is calm for
//! a while. The server, the hosts and all who are calm may run everywhere.
//!
//! ```text
//!            busy for LONG                      calm for A_WHILE
//!   free ───────────────────▶ kept off ─────────────────────────▶ free
//! ```
//! Where a sandbox is kept off is in its cgroup, which outlives the server; a server that starts goes on
//! from there. One that was given all of the machine's processors is never kept off any.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cgroup::Cgroups;
use super::{Namespace, blocking, bundle, launch};

/// How often it is to be looked who computes.
pub const EVERY: Duration = Duration::from_millis(100);

/// Busy is who uses so much of what it could have of one processor, in percent, and calm who uses less
/// than so much; in between, things stay as they are.
const BUSY: u64 = 50;
const CALM: u64 = 25;

/// Who is busy for so many looks in a row computes for long.
const LONG: u32 = 3;

/// Who is calm for so many looks in a row is no trouble.
const A_WHILE: u32 = 20;

/// What one that computes for long gets of a processor that others want, too; the usual is
/// [`bundle::SHARES`].
const FEW_SHARES: u64 = 32;

/// So much of one processor, in percent, all sandboxes together use before each is looked at.
const WORTH_A_LOOK: u64 = 5;

/// After a look at each there is none for so many times as long as that took.
const REST: u32 = 20;

/// The sandboxes that are watched.
#[derive(Debug, Default)]
pub(super) struct Courtesy(Mutex<Watch>);

#[derive(Debug, Default)]
struct Watch {
    /// What all together had used at the last look; `None` before the first.
    all: Option<Reading>,
    /// By their directories; `None` for one that has a right to every processor.
    each: HashMap<OsString, Option<Watched>>,
    /// When each may be looked at again.
    rested: Option<Instant>,
}

#[derive(Debug)]
struct Watched {
    cgroups: Cgroups,
    milli_cpus: u64,
    last: Reading,
    manner: Manner,
}

/// Processor time that had been used at an instant.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    used_us: u64,
}

impl Reading {
    fn of(cgroups: &Cgroups) -> Self {
        Self { at: Instant::now(), used_us: cgroups.cpu_us() }
    }

    /// Use since an earlier one, in percent of what somebody with so many thousandths of a processor
    /// could have of one.
    fn percent_since(self, earlier: Self, milli_cpus: u64) -> u64 {
        let elapsed_us = (self.at - earlier.at).as_micros() as u64;
        let could = elapsed_us * milli_cpus.clamp(1, 1000) / 1000;
        self.used_us.saturating_sub(earlier.used_us) * 100 / could.max(1)
    }
}

/// How a sandbox behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It may run everywhere, and was busy at so many looks in a row.
    Free(u32),
    /// It is kept off some, and was calm at so many looks in a row.
    KeptOff(u32),
}

impl Manner {
    /// How it behaves after it has used so much, in percent of what it could have of one processor.
    fn after(self, percent: u64) -> Self {
        match self {
            Self::Free(looks) if percent >= BUSY && looks + 1 >= LONG => Self::KeptOff(0),
            Self::Free(looks) if percent >= BUSY => Self::Free(looks + 1),
            Self::Free(_) => Self::Free(0),
            Self::KeptOff(looks) if percent < CALM && looks + 1 >= A_WHILE => Self::Free(0),
            Self::KeptOff(looks) if percent < CALM => Self::KeptOff(looks + 1),
            Self::KeptOff(_) => Self::KeptOff(0),
        }
    }

    fn is_kept_off(self) -> bool {
        matches!(self, Self::KeptOff(_))
    }
}

impl Courtesy {
    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Namespace {
    /// Looks once who computes, and keeps them off or lets them go on. To be done [`EVERY`] so often.
    pub async fn be_courteous(&self) {
        // One small file, while nobody computes.
        if self.0.options.reserve_cpus == 0 || !self.somebody_computes() {
            return;
        }
        let this = self.clone();
        if let Err(error) = blocking("look who computes", move || this.look_at_each()).await {
            tracing::warn!(%error, "cannot keep sandboxes out of each other's way");
        }
    }

    /// Whether one of the sandboxes may be busy, as far as can be told from all together, or was.
    fn somebody_computes(&self) -> bool {
        let Ok(cgroups) = Cgroups::new(launch::CGROUP) else { return false };
        let mut watch = self.0.courtesy.lock();
        let now = Reading::of(&cgroups);
        if watch.rested.is_some_and(|rested| now.at < rested) {
            return false;
        }
        let before = watch.all.replace(now);
        let busy = before.is_none_or(|before| now.percent_since(before, 1000) >= WORTH_A_LOOK);
        busy || watch.each.values().flatten().any(|one| one.manner != Manner::Free(0))
    }

    fn look_at_each(&self) -> io::Result<()> {
        let began = Instant::now();
        let mut watch = self.0.courtesy.lock();
        let mut each = HashMap::new();
        for entry in fs::read_dir(&self.0.sandboxes).into_iter().flatten().flatten() {
            let known = match watch.each.remove(&entry.file_name()) {
                Some(Some(before)) => Some(self.look_at(before)),
                Some(None) => None,
                None => match newcomer(&entry.path()) {
                    Ok(found) => found,
                    // Not ready yet, or ended by now.
                    Err(_) => continue,
                },
            };
            each.insert(entry.file_name(), known);
        }
        watch.each = each;
        watch.rested = Some(Instant::now() + began.elapsed() * REST);
        Ok(())
    }

    fn look_at(&self, mut one: Watched) -> Watched {
        let now = Reading::of(&one.cgroups);
        let next = one.manner.after(now.percent_since(one.last, one.milli_cpus));
        let treated = match (one.manner.is_kept_off(), next.is_kept_off()) {
            (false, true) => one
                .cgroups
                .weigh(FEW_SHARES)
                .and_then(|()| one.cgroups.keep_off(self.0.options.reserve_cpus)),
            (true, false) => {
                one.cgroups.weigh(bundle::SHARES).and_then(|()| one.cgroups.keep_off(0))
            }
            (true, true) | (false, false) => Ok(()),
        };
        if let Err(error) = treated {
            // Its end is seen at the next look.
            tracing::debug!(%error, "cannot change which processors a sandbox has");
        }
        (one.last, one.manner) = (now, next);
        one
    }
}

/// What is to be known of the sandbox of a directory; `None` if it has a right to every processor.
fn newcomer(dir: &Path) -> io::Result<Option<Watched>> {
    let launch = launch::read(dir)?;
    let all = std::thread::available_parallelism()?.get() as u64 * 1000;
    let milli_cpus = launch.spec.milli_cpus;
    if milli_cpus >= all {
        return Ok(None);
    }
    let cgroups = Cgroups::new(&format!("{}/{}", launch::CGROUP, launch.name))?;
    let manner = if cgroups.is_kept_off() { Manner::KeptOff(0) } else { Manner::Free(0) };
    Ok(Some(Watched { last: Reading::of(&cgroups), cgroups, milli_cpus, manner }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How somebody is treated after looks that saw these uses.
    fn after(manner: Manner, uses: impl IntoIterator<Item = u64>) -> Manner {
        uses.into_iter().fold(manner, Manner::after)
    }

    fn times(count: u32, percent: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_n(percent, count as usize)
    }

    #[test]
    fn who_computes_for_long_is_kept_off_until_it_is_calm() {
        let free = Manner::Free(0);
        assert!(!after(free, times(LONG - 1, 100)).is_kept_off());
        let kept_off = after(free, times(LONG, 100));
        assert!(kept_off.is_kept_off());
        assert!(after(kept_off, times(1000, 100)).is_kept_off());
        assert!(after(kept_off, times(A_WHILE - 1, 0)).is_kept_off());
        assert_eq!(after(kept_off, times(A_WHILE, 0)), free);
    }

    #[test]
    fn who_computes_now_and_then_is_let_be() {
        let bursts = (0..1000).map(|look| if look % LONG == 0 { 0 } else { 100 });
        assert!(!after(Manner::Free(0), bursts).is_kept_off());
    }

    #[test]
    fn who_rests_now_and_then_is_still_kept_off() {
        let rests = (0..1000).map(|look| if look % A_WHILE == 0 { BUSY } else { 0 });
        assert!(after(Manner::KeptOff(0), rests).is_kept_off());
        // Nor does it come and go with a use in between.
        assert!(after(Manner::KeptOff(0), times(1000, CALM)).is_kept_off());
        assert!(!after(Manner::Free(0), times(1000, BUSY - 1)).is_kept_off());
    }

    #[test]
    fn use_is_counted_against_what_could_be_had_of_one_processor() {
        let at = Instant::now();
        let earlier = Reading { at, used_us: 1000 };
        let later = Reading { at: at + Duration::from_millis(100), used_us: 51_000 };
        for (milli_cpus, percent) in [(1000, 50), (1500, 50), (500, 100), (0, 50_000)] {
            assert_eq!(later.percent_since(earlier, milli_cpus), percent, "{milli_cpus}");
        }
        // Time that does not go on is no reason to fall over, nor is a counter that begins anew.
        assert_eq!(Reading { at, used_us: 0 }.percent_since(earlier, 1000), 0);
    }
}
