//! Write rate limits for the disks of sandboxes.
//!
//! Programs write to the page cache. The kernel writes it back to the disk later, as fast as the disk
//! allows,
//! while all other users of the disk and the CPU wait. So the write rate of each sandbox's loop device is
//! limited. Version 2 of cgroups charges writeback to the sandbox. Version 1 charges it to the root cgroup:
//! there the limit is set for the device in the root cgroup, and does not end with the sandbox.
//!
//! ```text
//! HOME/sandboxes/<instance>/device    the device, its rate, and the sandbox's name
//! /run/stead/<device>.pace.lock       the name of the sandbox whose limit the device has
//! ```
//! The end of the sandbox removes the limit, or else the next start of any server, unless another sandbox
//! has the device by then.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroups;
use crate::files::remove;
use crate::lock::{lock, machine_lock};

/// The file in a sandbox's directory that describes its [`IoLimit`].
const FILE: &str = "device";

/// The suffix of the note files.
const NOTE: &str = ".pace.lock";

/// The write rate limit of a sandbox on its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IoLimit {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Bytes per second; 0 means unlimited.
    pub(crate) rate: u64,
    /// The name of the sandbox.
    pub(crate) name: String,
}

impl IoLimit {
    pub(crate) fn new(device: &fs::File, rate: u64, name: &str) -> io::Result<Self> {
        let number = device.metadata()?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Ok(Self { major, minor, rate, name: name.to_owned() })
    }

    /// Reads the limit of the sandbox with this directory; `None` if it has none.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(FILE)).ok()?;
        let mut words = text.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            rate: words.next()?.parse().ok()?,
            name: words.next()?.to_owned(),
        })
    }

    /// The device in the kernel's notation.
    fn device(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }

    /// Limits writeback to the device, and writes the note first. Direct writes of the sandbox's programs
    /// are
    /// limited by its cgroup.
    pub(crate) fn set(&self, dir: &Path, cgroups: &Cgroups) -> io::Result<()> {
        if self.rate != 0 {
            fs::write(dir.join(FILE), format!("{} {} {}", self.device(), self.rate, self.name))?;
        }
        let Some(limits) = cgroups.root_write_limits() else { return Ok(()) };
        let note = note(&self.device())?;
        let _others = lock(&machine_lock("devices")?)?;
        match self.rate {
            0 if !note.exists() => Ok(()),
            // The limit of an earlier sandbox, whose end no server has handled yet.
            0 => {
                fs::write(limits, format!("{} 0", self.device()))?;
                remove(&note)
            }
            rate => {
                fs::write(note, &self.name)?;
                fs::write(limits, format!("{} {rate}", self.device()))
            }
        }
    }

    /// Suspends the limit until [`Self::restore`].
    pub(crate) fn lift(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, 0, |_| Ok(()))
    }

    pub(crate) fn restore(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, self.rate, |_| Ok(()))
    }

    pub(crate) fn end(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, 0, remove)
    }

    /// Changes the limit and then applies `then` to its note, unless another sandbox has the device by now.
    fn change(
        &self,
        cgroups: &Cgroups,
        rate: u64,
        then: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        // The sandbox's cgroup may no longer exist.
        let _ = cgroups.limit_writes(&self.device(), rate);
        let Some(limits) = cgroups.root_write_limits() else { return Ok(()) };
        let note = note(&self.device())?;
        let _others = lock(&machine_lock("devices")?)?;
        if fs::read_to_string(&note).ok().as_deref() != Some(&self.name) {
            return Ok(());
        }
        fs::write(limits, format!("{} {rate}", self.device()))?;
        then(&note)
    }
}

/// The file that names the sandbox whose limit a device has.
fn note(device: &str) -> io::Result<PathBuf> {
    machine_lock(&format!("{device}.pace"))
}

/// Removes the limits of unused devices, which belonged to homes that no longer exist.
pub(crate) fn sweep() -> io::Result<()> {
    let limits = Cgroups::new("/")?.root_write_limits();
    let lock_file = machine_lock("devices")?;
    let _others = lock(&lock_file)?;
    for entry in fs::read_dir(lock_file.parent().unwrap_or(&lock_file))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(device) = name.strip_suffix(NOTE) else { continue };
        if Path::new("/sys/dev/block").join(device).join("loop/backing_file").exists() {
            continue;
        }
        if let Some(limits) = &limits {
            // A device that does not exist any more has no limit.
            let _ = fs::write(limits, format!("{device} 0"));
        }
        remove(&entry.path())?;
    }
    Ok(())
}
