//! The disk reserve: a part of the machine's disk that sandboxes cannot use.
//!
//! The images of disks, workspaces and volumes are sparse, and together they may be larger than the disk they are on.
//! Once that disk is full, the kernel cannot store blocks that the file system in an image has given out: data is
//! lost, and a lost block of metadata makes that file system read-only until it is mounted again. So before the disk
//! is full, no image gives out blocks: ext4 keeps all of its free blocks for itself (`reserved_clusters`). A write
//! inside fails with `ENOSPC`, as on any full disk, and works again when there is space.
//!
//! ```text
//!           free < reserve                         free > 2 × reserve
//!   open ───────────────────▶ closed (ENOSPC inside) ───────────────────▶ open
//! ```
//! What is free is what remains when all that was written inside is stored. The kernel keeps the setting of an image
//! until it is unmounted, so it is read, not remembered: the next server opens what a killed one closed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directories of a home with images that sandboxes write to.
const IMAGES: [&str; 4] = ["disks", "container-disks", "workspaces", "volumes"];

/// The reserve: a part of the disk, and at most so many bytes.
const RESERVE_DIVISOR: u64 = 20;
const MAX_RESERVE_BYTES: u64 = 256 << 20;

/// How fast sandboxes may write: the next check is made before the reserve can be reached.
const MAX_RATE: u64 = 2 << 30;
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);
const CLOSED_INTERVAL: Duration = Duration::from_millis(250);

/// The kernel's default for `reserved_clusters`.
const DEFAULT_DIVISOR: u64 = 50;
const MAX_DEFAULT_CLUSTERS: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReserveState {
    /// A killed server may have closed images.
    Unknown,
    Open,
    Closed,
}

/// The disk reserve of a home.
#[derive(Debug)]
pub struct DiskReserve {
    home: PathBuf,
    state: ReserveState,
}

/// An image of the home that is mounted somewhere.
struct MountedImage {
    /// Its directory in `/sys/fs/ext4`.
    settings: PathBuf,
    clusters: u64,
    cluster_bytes: u64,
}

impl DiskReserve {
    #[must_use]
    pub fn new(home: &Path) -> Self {
        // The kernel reports resolved paths.
        let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
        Self { home, state: ReserveState::Unknown }
    }

    /// Closes or opens the images, if necessary. Returns the time until the next check. Blocking.
    ///
    /// # Errors
    /// If the free space or the images cannot be read, or an image cannot be closed.
    pub fn check(&mut self) -> io::Result<Duration> {
        let disk = rustix::fs::statvfs(&self.home)?;
        let (free, size) = (disk.f_bfree * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let reserve = (size / RESERVE_DIVISOR).min(MAX_RESERVE_BYTES);
        // Pages that are not written yet fit into the memory.
        if self.state == ReserveState::Open && free > reserve + memory_bytes() {
            return Ok(interval(free - reserve - memory_bytes()));
        }
        let images = self.images()?;
        let unwritten = images.iter().map(MountedImage::unwritten_bytes).sum::<u64>();
        let left = free.saturating_sub(unwritten);
        let next = next_state(self.state, left, reserve);
        if next != self.state {
            match next {
                ReserveState::Closed => tracing::warn!(
                    left,
                    "the machine's disk is nearly full: sandboxes can write no more until there is space"
                ),
                _ if self.state == ReserveState::Closed => {
                    tracing::info!(left, "sandboxes can write again");
                }
                _ => {}
            }
        }
        // Repeated for those that were mounted since.
        if next == ReserveState::Closed || next != self.state {
            images.iter().try_for_each(|image| image.set(next))?;
        }
        self.state = next;
        Ok(match next {
            ReserveState::Closed => CLOSED_INTERVAL,
            ReserveState::Open | ReserveState::Unknown => interval(left - reserve),
        })
    }

    fn images(&self) -> io::Result<Vec<MountedImage>> {
        let ours = |file: &Path| IMAGES.iter().any(|name| file.starts_with(self.home.join(name)));
        let images = images_in_use()?.into_iter().filter(|(_, file)| ours(file));
        // One may be unmounted in between.
        Ok(images.filter_map(|(device, file)| MountedImage::of(&device, &file).ok()).collect())
    }
}

impl MountedImage {
    fn of(device: &str, file: &Path) -> io::Result<Self> {
        let settings = Path::new("/sys/fs/ext4").join(device);
        // The superblock of ext4: the number of blocks, and the logarithm of their size.
        let mut superblock = [0; 32];
        File::open(file)?.read_exact_at(&mut superblock, 1024)?;
        let word =
            |at: usize| u32::from_le_bytes([0_usize, 1, 2, 3].map(|byte| superblock[at + byte]));
        let cluster_bytes = 1024 << word(24).min(6);
        Ok(Self { settings, clusters: word(4).into(), cluster_bytes })
    }

    /// Bytes that were written but have no block yet.
    fn unwritten_bytes(&self) -> u64 {
        self.read("delayed_allocation_blocks").unwrap_or(0) * self.cluster_bytes
    }

    fn set(&self, state: ReserveState) -> io::Result<()> {
        let closed = self.clusters.saturating_sub(1);
        let wanted = match state {
            ReserveState::Closed => closed,
            // Only what a server has closed, so that a setting of the operator stays.
            ReserveState::Open | ReserveState::Unknown => {
                if self.read("reserved_clusters") != Some(closed) {
                    return Ok(());
                }
                (self.clusters / DEFAULT_DIVISOR).min(MAX_DEFAULT_CLUSTERS)
            }
        };
        match fs::write(self.settings.join("reserved_clusters"), wanted.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    fn read(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.settings.join(name)).ok()?.trim().parse().ok()
    }
}

fn next_state(state: ReserveState, left: u64, reserve: u64) -> ReserveState {
    match state {
        _ if left < reserve => ReserveState::Closed,
        ReserveState::Closed if left <= 2 * reserve => ReserveState::Closed,
        ReserveState::Closed | ReserveState::Open | ReserveState::Unknown => ReserveState::Open,
    }
}

/// The names of the loop devices that are in use, each with its file. None of them is opened, which would delay its end.
fn images_in_use() -> io::Result<Vec<(String, PathBuf)>> {
    let of = |entry: fs::DirEntry| {
        // Only a device that is in use has this file.
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), file.trim_end_matches('\n').into()))
    };
    Ok(fs::read_dir("/sys/block")?.flatten().filter_map(of).collect())
}

fn memory_bytes() -> u64 {
    let memory = rustix::system::sysinfo();
    memory.totalram * u64::from(memory.mem_unit)
}

/// The time until a writer could have written so many bytes.
fn interval(bytes: u64) -> Duration {
    Duration::from_millis(bytes * 1000 / MAX_RATE).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_closed_below_the_reserve_and_opened_above_twice_as_much() {
        use ReserveState::{Closed, Open, Unknown};
        for (state, left, expected) in [
            (Unknown, 100, Open),
            (Unknown, 99, Closed),
            (Open, 100, Open),
            (Open, 99, Closed),
            (Closed, 100, Closed),
            (Closed, 200, Closed),
            (Closed, 201, Open),
        ] {
            assert_eq!(next_state(state, left, 100), expected, "{state:?} {left}");
        }
    }

    #[test]
    fn the_next_check_is_made_before_the_reserve_can_be_reached() {
        assert_eq!(interval(0), MIN_INTERVAL);
        assert_eq!(interval(MAX_RATE / 4), Duration::from_millis(250));
        assert_eq!(interval(u64::MAX / 1000), MAX_INTERVAL);
    }
}
