//! The source of the current time.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use model::{Moment, Timestamp};

/// The environment variable with the path of the file that [`offset_file`] returns.
const OFFSET_FILE_VARIABLE: &str = "STEAD_CLOCK_FILE";

/// A clock; tests pass in their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The machine's clock: wall time, and time since boot.
    #[must_use]
    pub fn system() -> Self {
        Self::with_offset(offset_file().map(OffsetFile::new))
    }

    fn with_offset(offset: Option<OffsetFile>) -> Self {
        let boot = boot();
        Self::from_fn(move || {
            let since = clock_gettime(ClockId::Boottime);
            let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
            let nanos = u32::try_from(since.tv_nsec).unwrap_or(0);
            let now = Timestamp::now();
            let offset = offset.as_ref().map_or(0, OffsetFile::seconds);
            let second = now.as_second().saturating_add(offset);
            let at = Timestamp::new(second, now.subsec_nanosecond());
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

/// Returns the file that shifts the wall clock, for tests of clocks that jump, or `None` in normal operation. The file
/// contains a number of seconds, and is read again for every reading of the clock.
#[must_use]
pub fn offset_file() -> Option<PathBuf> {
    std::env::var_os(OFFSET_FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A file with the seconds by which the wall clock is shifted.
#[derive(Debug)]
struct OffsetFile {
    path: PathBuf,
    /// The last offset that could be read.
    last: AtomicI64,
}

impl OffsetFile {
    fn new(path: PathBuf) -> Self {
        Self { path, last: AtomicI64::new(0) }
    }

    fn seconds(&self) -> i64 {
        let text = std::fs::read_to_string(&self.path).ok();
        match text.and_then(|text| text.trim().parse().ok()) {
            Some(seconds) => {
                self.last.store(seconds, Ordering::Relaxed);
                seconds
            }
            None => self.last.load(Ordering::Relaxed),
        }
    }
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

    #[test]
    fn the_wall_clock_jumps_when_the_offset_file_changes_and_time_since_boot_does_not() {
        let path = std::env::temp_dir().join(format!("stead-clock-{}", std::process::id()));
        let clock = Clock::with_offset(Some(OffsetFile::new(path.clone())));
        let start = clock.now();
        let check = |content: &str, expected: i64| {
            std::fs::write(&path, content).unwrap();
            let now = clock.now();
            let jumped = now.at.as_second() - start.at.as_second();
            assert!((expected..expected + 60).contains(&jumped), "{jumped} s after {content:?}");
            assert!(now.since(&start) < Duration::from_secs(60));
        };
        check("86400", 86_400);
        check("-86400\n", -86_400);
        check("nonsense", -86_400);
        check("9223372036854775807", 0);
        check("0", 0);
        std::fs::remove_file(path).unwrap();
    }
}
