//! A time that tolerates jumps of the wall clock.
//!
//! Two clocks are read together: the wall clock, for display, and the time since boot, for
//! differences. Between two moments of the same boot the time since boot counts, so that a jump in
//! either direction makes nothing expire early or late. Across boots only the wall clock is known,
//! and a negative difference counts as zero.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One instant, read from two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The wall clock, in whole microseconds.
    pub at: Timestamp,
    /// The time since boot, if known.
    #[serde(default)]
    pub since_boot: Option<SinceBoot>,
}

/// Time since the machine booted, suspension included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinceBoot {
    /// Identifies the boot; equal for moments that can be compared.
    pub boot: u64,
    /// Microseconds since the boot.
    pub micros: u64,
}

impl Moment {
    /// Returns a moment that only the wall clock knows.
    #[must_use]
    pub fn wall(at: Timestamp) -> Self {
        Self { at: whole_micros(at), since_boot: None }
    }

    /// Returns a moment that both clocks know.
    #[must_use]
    pub fn new(at: Timestamp, boot: u64, since_boot: Duration) -> Self {
        let micros = u64::try_from(since_boot.as_micros()).unwrap_or(u64::MAX);
        Self { at: whole_micros(at), since_boot: Some(SinceBoot { boot, micros }) }
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        match (self.since_boot, earlier.since_boot) {
            (Some(now), Some(then)) if now.boot == then.boot => {
                Duration::from_micros(now.micros.saturating_sub(then.micros))
            }
            _ => {
                let micros = self.at.as_microsecond().saturating_sub(earlier.at.as_microsecond());
                Duration::from_micros(u64::try_from(micros).unwrap_or(0))
            }
        }
    }

    /// Returns the wall-clock time after `wait`, or the maximum timestamp on overflow.
    #[must_use]
    pub fn plus(&self, wait: Duration) -> Timestamp {
        self.at.saturating_add(wait).unwrap_or(Timestamp::MAX)
    }
}

/// Truncates a timestamp to microseconds, the precision of the store.
fn whole_micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wall_s: i64, boot: u64, since_s: u64) -> Moment {
        let at = Timestamp::from_second(wall_s).unwrap();
        Moment::new(at, boot, Duration::from_secs(since_s))
    }

    #[test]
    fn within_a_boot_a_jump_of_the_wall_clock_changes_nothing() {
        let then = moment(1_000_000, 1, 10);
        for wall in [0, 1_000_000, 9_000_000_000] {
            assert_eq!(moment(wall, 1, 25).since(&then), Duration::from_secs(15));
        }
    }

    #[test]
    fn across_boots_the_wall_clock_counts_and_never_runs_backwards() {
        let then = moment(1_000, 1, 10);
        assert_eq!(moment(1_060, 2, 3).since(&then), Duration::from_secs(60));
        assert_eq!(moment(900, 2, 3).since(&then), Duration::ZERO);
        assert_eq!(moment(1_060, 2, 3).since(&Moment::wall(then.at)), Duration::from_secs(60));
    }
}
