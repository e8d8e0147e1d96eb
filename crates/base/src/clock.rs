//! The source of the current time.

use std::{fmt, sync::Arc, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use model::{Moment, Timestamp};

/// A clock; tests pass in their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The machine's clock: wall time, and time since boot.
    #[must_use]
    pub fn system() -> Self {
        let (boot, offset) = (boot(), offset_seconds());
        Self::from_fn(move || {
            let since = clock_gettime(ClockId::Boottime);
            let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
            let nanos = u32::try_from(since.tv_nsec).unwrap_or(0);
            let now = Timestamp::now();
            let at = Timestamp::new(now.as_second() + offset, now.subsec_nanosecond());
            Moment::new(at.unwrap_or(now), boot, Duration::new(seconds, nanos))
        })
    }

    /// A clock that calls a function for each reading.
    pub fn from_fn(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the wall time and the time since boot.
    #[must_use]
    pub fn now(&self) -> Moment {
        (self.0)()
    }

    /// Returns the wall time, in whole microseconds.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.now().at
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now().at)
    }
}

/// The offset of the wall clock in a debug build, for tests with a clock that jumps.
fn offset_seconds() -> i64 {
    let offset = std::env::var("STEAD_CLOCK_OFFSET").ok().filter(|_| cfg!(debug_assertions));
    offset.and_then(|offset| offset.parse().ok()).unwrap_or(0)
}

/// A number that identifies this boot of the machine; random if the kernel has no boot id.
fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id")
        .unwrap_or_else(|_| uuid::Uuid::now_v7().as_bytes().to_vec());
    // It has to fit into a signed database column and into a JSON number without loss.
    u64::from_le_bytes(*blake3::hash(&id).as_bytes().first_chunk().expect("32 bytes")) >> 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_advances_within_one_boot() {
        let clock = Clock::system();
        let (first, second) = (clock.now(), clock.now());
        assert!(second.since(&first) < Duration::from_secs(60));
        assert_eq!(first.since_boot.unwrap().boot, second.since_boot.unwrap().boot);
    }
}
