//! The disk governor: slows heavy writers down while others wait for the disk.
//!
//! Programs write to the page cache. The kernel writes it back to the disk later, as fast as the disk allows,
//! while reads and syncs of all others wait. A limit for every sandbox would also slow down a sandbox that is
//! alone. So nothing is limited until small writes to the home take long and another sandbox runs. Then the
//! device with the most writes is limited, and the next one if that does not help.
//!
//! ```text
//!              slow for SLOW_CHECKS               calm for CALM_CHECKS
//!   n limits ─────────────────────▶ n + 1 limits ─────────────────────▶ n limits
//! ```
//! The devices are the disks of leases, workspaces and volumes. The kernel keeps the limits, also after the
//! server was killed: a limit of a device of this home that this governor did not set is removed.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::store::WARM_PREFIX;
use crate::layout::CGROUP;
use cgroup::Cgroups;

/// The interval between two checks.
pub const DISK_GOVERNOR_INTERVAL: Duration = Duration::from_secs(1);

/// The disk is slow if the probe takes this long, and calm if it takes less than [`CALM_LATENCY`]. In between,
/// limits stay as they are (hysteresis).
const SLOW_LATENCY: Duration = Duration::from_millis(100);
const CALM_LATENCY: Duration = Duration::from_millis(50);

/// Slow checks in a row after which one more device is limited.
const SLOW_CHECKS: u32 = 2;
/// Calm checks in a row after which one device fewer is limited.
const CALM_CHECKS: u32 = 10;

/// The directories of a home with images that sandboxes write to.
const IMAGES: [&str; 3] = ["disks", "workspaces", "volumes"];
/// The directories of a home with one entry for each sandbox.
const SANDBOXES: [&str; 2] = ["sandboxes", "containers"];

/// How long a device stays unlimited after [`FullSpeed`] was dropped, while the kernel writes its last pages.
const GRACE: Duration = Duration::from_secs(30);

/// The file that the probe writes.
const PROBE_FILE: &str = "disk-probe";
const PROBE_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;

/// Measures how long others wait for the disk.
pub struct LatencyProbe(Box<dyn Fn() -> io::Result<Duration> + Send + Sync>);

impl LatencyProbe {
    pub fn new(measure: impl Fn() -> io::Result<Duration> + Send + Sync + 'static) -> Self {
        Self(Box::new(measure))
    }

    /// Measures a small synced write to the home.
    #[must_use]
    pub fn of_home(home: &Path) -> Self {
        let file = home.join(PROBE_FILE);
        Self::new(move || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&file)?;
            let began = Instant::now();
            // The same block each time, so that the file system has no metadata to write.
            file.write_all_at(&[0; PROBE_BYTES], 0)?;
            file.sync_data()?;
            Ok(began.elapsed())
        })
    }
}

impl std::fmt::Debug for LatencyProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LatencyProbe")
    }
}

/// The disk governor of a home.
#[derive(Debug)]
pub struct DiskGovernor {
    home: PathBuf,
    /// Bytes per second that a heavy writer is slowed down to; 0 means never.
    rate: u64,
    probe: LatencyProbe,
    state: Mutex<DiskGovernorState>,
    /// Images whose device is not limited, and until when; `None` until the [`FullSpeed`] is dropped.
    exempt: Mutex<HashMap<PathBuf, Option<Instant>>>,
}

#[derive(Debug, Default)]
struct DiskGovernorState {
    /// When the devices were checked, and the bytes that had been written to each by then.
    last: Option<(Instant, HashMap<String, u64>)>,
    checks: DiskChecks,
    /// The limited devices with their images, the first limited first.
    limited: Vec<(String, PathBuf)>,
}

/// The slow or calm checks in a row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct DiskChecks {
    slow: u32,
    calm: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskDecision {
    Keep,
    LimitOne,
    LiftOne,
}

impl DiskChecks {
    /// Decides after a check with this latency.
    fn after(self, latency: Duration) -> (Self, DiskDecision) {
        let none = Self::default();
        if latency >= SLOW_LATENCY {
            return match self.slow + 1 {
                SLOW_CHECKS.. => (none, DiskDecision::LimitOne),
                slow => (Self { slow, calm: 0 }, DiskDecision::Keep),
            };
        }
        if latency >= CALM_LATENCY {
            return (none, DiskDecision::Keep);
        }
        match self.calm + 1 {
            CALM_CHECKS.. => (none, DiskDecision::LiftOne),
            calm => (Self { slow: 0, calm }, DiskDecision::Keep),
        }
    }
}

impl DiskGovernor {
    /// `rate` is what a heavy writer is slowed down to in bytes per second; 0 means never.
    #[must_use]
    pub fn new(home: &Path, rate: u64, probe: LatencyProbe) -> Self {
        // The kernel reports resolved paths.
        let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
        Self { home, rate, probe, state: Mutex::default(), exempt: Mutex::default() }
    }

    /// Checks once who writes and who waits, and limits one more device or one fewer. Call it every
    /// [`DISK_GOVERNOR_INTERVAL`]. Blocking.
    ///
    /// # Errors
    /// If the kernel's counters cannot be read, or the probe fails.
    pub fn govern(&self) -> io::Result<()> {
        if self.rate == 0 {
            return Ok(());
        }
        let cgroups = Cgroups::new(CGROUP)?;
        let mut state = self.state.lock();
        let now = Instant::now();
        let written = written_bytes(&fs::read_to_string("/proc/diskstats")?);
        let before = state.last.replace((now, written.clone()));
        self.reconcile(&cgroups, &mut state.limited);
        let Some((at, before)) = before else { return Ok(()) };
        let elapsed = now.duration_since(at).as_secs_f64().max(0.001);
        let rate = |device: &String, bytes: u64| {
            bytes.saturating_sub(before.get(device).copied().unwrap_or(bytes)) as f64 / elapsed
        };
        let is_limited = |device: &str| state.limited.iter().any(|(known, _)| known == device);
        let heaviest = written
            .iter()
            .map(|(device, bytes)| (device, rate(device, *bytes)))
            .filter(|(device, rate)| *rate > self.rate as f64 && !is_limited(device))
            .filter_map(|(device, rate)| Some((device.clone(), rate, self.image(device)?)))
            .filter(|(_, _, image)| !self.is_exempt(image))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        if heaviest.is_none() && state.limited.is_empty() {
            state.checks = DiskChecks::default();
            return Ok(());
        }
        let latency = if self.has_neighbours() { (self.probe.0)()? } else { Duration::ZERO };
        let (checks, decision) = state.checks.after(latency);
        state.checks = checks;
        match (decision, heaviest) {
            (DiskDecision::LimitOne, Some((device, _, image))) => {
                tracing::info!(%device, image = %image.display(), ?latency, "a heavy writer is slowed down");
                state.limited.push((device, image));
            }
            (DiskDecision::LiftOne, _) if !state.limited.is_empty() => {
                let (device, _) = state.limited.remove(0);
                tracing::info!(%device, "a writer is no longer slowed down");
                cgroups.limit_writes(&device, 0)?;
            }
            (DiskDecision::Keep | DiskDecision::LimitOne | DiskDecision::LiftOne, _) => {}
        }
        // Repeated for the sandboxes that were started since.
        let mut limited = state.limited.iter().filter(|(_, image)| !self.is_exempt(image));
        limited.try_for_each(|(device, _)| cgroups.limit_writes(device, self.rate))
    }

    /// Removes limits that must not be in force: those of an earlier server, and of devices that are another
    /// file by now. Forgets those that were removed meanwhile.
    fn reconcile(&self, cgroups: &Cgroups, limited: &mut Vec<(String, PathBuf)>) {
        let in_force = cgroups.limited_devices();
        limited.retain(|(device, _)| in_force.contains(device));
        for device in &in_force {
            let file = backing_file(device);
            let own = limited.iter().position(|(known, _)| known == device);
            let keep = match (&file, own) {
                (Some(file), Some(at)) => limited[at].1 == *file && !self.is_exempt(file),
                // A device of another home is governed by its server.
                (Some(file), None) => !self.is_ours(file),
                (None, _) => false,
            };
            if !keep {
                // The device may have ended in between.
                let _ = cgroups.limit_writes(device, 0);
                limited.retain(|(known, _)| known != device);
            }
        }
    }

    /// Removes the limit of an image's device, and sets none while the returned value exists. Blocking.
    #[must_use]
    pub(crate) fn at_full_speed(self: &Arc<Self>, image: &Path) -> FullSpeed {
        let image = fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
        self.exempt.lock().insert(image.clone(), None);
        if let Ok(cgroups) = Cgroups::new(CGROUP) {
            let devices = cgroups.limited_devices().into_iter();
            for device in devices.filter(|it| backing_file(it).as_ref() == Some(&image)) {
                // The device may have ended in between.
                let _ = cgroups.limit_writes(&device, 0);
            }
        }
        FullSpeed { governor: self.clone(), image }
    }

    fn is_exempt(&self, image: &Path) -> bool {
        let mut exempt = self.exempt.lock();
        exempt.retain(|_, until| until.is_none_or(|until| Instant::now() < until));
        exempt.contains_key(image)
    }

    /// The image of a device, if it is one of this home.
    fn image(&self, device: &str) -> Option<PathBuf> {
        backing_file(device).filter(|file| self.is_ours(file))
    }

    fn is_ours(&self, file: &Path) -> bool {
        IMAGES.iter().any(|name| file.starts_with(self.home.join(name)))
    }

    /// Whether there is more than one sandbox. A writer that is alone only slows itself down.
    fn has_neighbours(&self) -> bool {
        let entries = SANDBOXES.iter().filter_map(|name| fs::read_dir(self.home.join(name)).ok());
        let used = entries
            .flatten()
            .flatten()
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with(WARM_PREFIX));
        used.take(2).count() == 2
    }
}

/// While this exists, the device of an image is not limited.
#[derive(Debug)]
pub(crate) struct FullSpeed {
    governor: Arc<DiskGovernor>,
    image: PathBuf,
}

impl Drop for FullSpeed {
    fn drop(&mut self) {
        let until = Instant::now() + GRACE;
        self.governor.exempt.lock().insert(self.image.clone(), Some(until));
    }
}

/// The file that a loop device is; `None` if the device is not in use.
fn backing_file(device: &str) -> Option<PathBuf> {
    let file = Path::new("/sys/dev/block").join(device).join("loop/backing_file");
    Some(PathBuf::from(fs::read_to_string(file).ok()?.trim_end_matches('\n')))
}

/// The bytes that were written to each loop device, from `/proc/diskstats`.
fn written_bytes(diskstats: &str) -> HashMap<String, u64> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [major, minor, name, _, _, _, _, _, _, sectors, ..] = words[..] else { return None };
        let bytes = sectors.parse::<u64>().ok()? * SECTOR_BYTES;
        name.starts_with("loop").then(|| (format!("{major}:{minor}"), bytes))
    };
    diskstats.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of limits after checks with these latencies in milliseconds.
    fn limits_after(mut limits: u32, latencies: impl IntoIterator<Item = u64>) -> u32 {
        let mut checks = DiskChecks::default();
        for latency in latencies {
            let (next, decision) = checks.after(Duration::from_millis(latency));
            checks = next;
            match decision {
                DiskDecision::Keep => {}
                DiskDecision::LimitOne => limits += 1,
                DiskDecision::LiftOne => limits = limits.saturating_sub(1),
            }
        }
        limits
    }

    fn times(count: u32, latency: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_n(latency, count as usize)
    }

    #[test]
    fn writers_are_limited_one_by_one_while_the_disk_is_slow_and_freed_when_it_is_calm() {
        assert_eq!(limits_after(0, times(SLOW_CHECKS - 1, 100)), 0);
        assert_eq!(limits_after(0, times(SLOW_CHECKS, 100)), 1);
        assert_eq!(limits_after(0, times(3 * SLOW_CHECKS, 5000)), 3);
        assert_eq!(limits_after(2, times(CALM_CHECKS - 1, 49)), 2);
        assert_eq!(limits_after(2, times(CALM_CHECKS, 0)), 1);
        assert_eq!(limits_after(2, times(2 * CALM_CHECKS, 0)), 0);
    }

    #[test]
    fn single_slow_and_calm_checks_change_nothing() {
        assert_eq!(limits_after(1, times(1000, 75)), 1);
        let peaks =
            (0..1000).map(|check| if u64::from(SLOW_CHECKS) > 1 + check % 3 { 500 } else { 75 });
        assert_eq!(limits_after(1, peaks), 1);
        let rests = (0..1000).map(|check| if check % CALM_CHECKS == 0 { 75 } else { 0 });
        assert_eq!(limits_after(1, rests), 1);
    }

    #[test]
    fn the_written_bytes_of_loop_devices_are_read() {
        let text = "   7       1 loop1 889 1603 6434 193 1457 3278 442198 5426 0 1360 6120\n \
                    254       0 vda 443028 30511 9128428 135348 484379 419530 65068618 887736 0 1 2\n\
                    7 2 loop2\n";
        assert_eq!(written_bytes(text), HashMap::from([("7:1".to_owned(), 442_198 * 512)]));
    }
}
