//! How fast sandboxes write to their disks.
//!
//! What programs write goes to memory first; the kernel writes it out later, at once and as fast as the
//! machine's disk takes it, and whoever else wants that disk or a processor waits. So each sandbox's
//! loop device is bounded. Version 1 of cgroups counts what is written out later as the kernel's, not as
//! the sandbox's: there, the bound is one on the device for the kernel, and not gone with the sandbox.
//!
//! ```text
//! HOME/sandboxes/<instance>/device    the device, its rate, and the sandbox's name
//! /run/stead/<device>.pace.lock       that name: whose bound it is that the device has
//! ```
//! A bound is taken away by the sandbox's end, or by the next start of any server, unless the device is
//! somebody else's by then.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::cgroup::Cgroups;
use super::disk;
use super::launch::{lock, machine_lock};

/// The file in a sandbox's directory that [`Pace`] is in.
const FILE: &str = "device";

/// What the names of the machine's notes end with.
const NOTE: &str = ".pace.lock";

/// How fast a sandbox writes to which device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The numbers of the device.
    pub(super) major: u32,
    /// See `major`.
    pub(super) minor: u32,
    /// Bytes a second; 0 is no bound.
    pub(super) rate: u64,
    /// The name of the sandbox.
    pub(super) name: String,
}

impl Pace {
    /// That of a sandbox whose disk is this device.
    pub(super) fn new(device: &fs::File, rate: u64, name: &str) -> io::Result<Self> {
        let number = device.metadata()?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Ok(Self { major, minor, rate, name: name.to_owned() })
    }

    /// That of the sandbox of a directory, if it has one.
    pub(super) fn of(dir: &Path) -> Option<Self> {
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

    /// The device as the kernel writes it.
    fn device(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }

    /// Bounds what the kernel writes to the device, and notes it first. What its programs themselves
    /// write is bounded in the limits of its cgroup.
    pub(super) fn set(&self, dir: &Path, cgroups: &Cgroups) -> io::Result<()> {
        if self.rate != 0 {
            fs::write(dir.join(FILE), format!("{} {} {}", self.device(), self.rate, self.name))?;
        }
        let Some(bounds) = cgroups.kernels_writing() else { return Ok(()) };
        let note = note(&self.device())?;
        let _others = lock(&machine_lock("devices")?)?;
        match self.rate {
            // Nobody's before, or of somebody whose end nobody has seen yet.
            0 if !note.exists() => Ok(()),
            0 => {
                fs::write(bounds, format!("{} 0", self.device()))?;
                disk::remove(&note)
            }
            rate => {
                fs::write(note, &self.name)?;
                fs::write(bounds, format!("{} {rate}", self.device()))
            }
        }
    }

    /// Lets the sandbox write as fast as it can, until [`Self::again`].
    pub(super) fn lift(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, 0, |_| Ok(()))
    }

    /// Takes back what [`Self::lift`] did.
    pub(super) fn again(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, self.rate, |_| Ok(()))
    }

    /// Takes the bound away for good.
    pub(super) fn end(&self, cgroups: &Cgroups) -> io::Result<()> {
        self.change(cgroups, 0, disk::remove)
    }

    /// Changes the bound, and then does something with its note, unless the device is another
    /// sandbox's by now.
    fn change(
        &self,
        cgroups: &Cgroups,
        rate: u64,
        then: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        // That of its own cgroup, which may be gone.
        let _ = cgroups.pace_writing(&self.device(), rate);
        let Some(bounds) = cgroups.kernels_writing() else { return Ok(()) };
        let note = note(&self.device())?;
        let _others = lock(&machine_lock("devices")?)?;
        if fs::read_to_string(&note).ok().as_deref() != Some(&self.name) {
            return Ok(());
        }
        fs::write(bounds, format!("{} {rate}", self.device()))?;
        then(&note)
    }
}

/// The note of whose bound a device has.
fn note(device: &str) -> io::Result<PathBuf> {
    machine_lock(&format!("{device}.pace"))
}

/// Takes the bounds of devices away that are in nobody's use: what is left of homes that are gone.
pub(super) fn sweep() -> io::Result<()> {
    let bounds = Cgroups::new("/")?.kernels_writing();
    let lock_file = machine_lock("devices")?;
    let _others = lock(&lock_file)?;
    for entry in fs::read_dir(lock_file.parent().unwrap_or(&lock_file))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(device) = name.strip_suffix(NOTE) else { continue };
        if Path::new("/sys/dev/block").join(device).join("loop/backing_file").exists() {
            continue;
        }
        if let Some(bounds) = &bounds {
            // One that is no device any more has no bound.
            let _ = fs::write(bounds, format!("{device} 0"));
        }
        disk::remove(&entry.path())?;
    }
    Ok(())
}
