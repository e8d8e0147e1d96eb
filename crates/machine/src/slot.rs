//! Slots: unique numbers of the running sandboxes of this machine, across all servers.
//!
//! A slot determines a sandbox's user range and its addresses. It is a locked file in `/run/stead`; the
//! sandbox holds the descriptor, so the kernel frees the slot when its last process exits.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::lock::machine_lock;
use images::open_lock;

/// The number of slots: each has four addresses of 198.18.0.0/15.
pub(crate) const SLOTS: u32 = 1 << 15;

/// The number of users of a slot.
pub(crate) const USERS: u32 = 65_536;

/// The first user of slot 0.
const FIRST_USER: u32 = 0x4000_0000;

/// The machine's first user id of a slot.
pub(crate) fn first_user(slot: u32) -> u32 {
    FIRST_USER + slot * USERS
}

/// The first of the users that create the user namespaces of containers, one for each slot. They lie below the ranges
/// of the slots, because container engines accept no user above 2³¹ - 1.
const FIRST_CREATOR: u32 = FIRST_USER - SLOTS;

/// The machine's user that creates the user namespace of a slot's container.
pub(crate) fn creator(slot: u32) -> u32 {
    FIRST_CREATOR + slot
}

/// The file in an instance's directory that contains the number of its slot.
const SLOT: &str = "slot";

/// Takes a free slot for the sandbox of a directory. The slot is held as long as the descriptor is open.
pub(crate) fn take(dir: &Path, name: &str) -> io::Result<(u32, OwnedFd)> {
    // Starting at a hash of the name (FNV-1a) makes a collision, and so a second step, unlikely.
    let start = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    for step in 0..SLOTS {
        let slot = start.wrapping_add(step) % SLOTS;
        let path = machine_lock(&slot.to_string())?;
        let file = open_lock(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // A slot that was just released has no file name any more, so this lock protects nothing.
            Ok(()) if file.metadata()?.nlink() == 0 => {}
            Ok(()) => {
                fs::write(dir.join(SLOT), slot.to_string())?;
                return Ok((slot, file.into()));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!("all {SLOTS} sandbox slots of this machine are taken")))
}

/// Removes the files of free slots, which servers that were killed left behind.
pub(crate) fn sweep() -> io::Result<()> {
    let dir = machine_lock("network")?;
    for entry in fs::read_dir(dir.parent().unwrap_or(&dir))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let slot = name.strip_suffix(".lock").and_then(|slot| slot.parse::<u32>().ok());
        if slot.is_some() {
            remove_unless_taken(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the slot file of an instance that has ended.
pub(crate) fn release(dir: &Path) -> io::Result<()> {
    match fs::read_to_string(dir.join(SLOT)) {
        Ok(slot) => remove_unless_taken(&machine_lock(&slot)?),
        Err(_) => Ok(()),
    }
}

fn remove_unless_taken(path: &Path) -> io::Result<()> {
    let Ok(file) = File::open(path) else { return Ok(()) };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_engines_accept_every_creator_and_no_sandbox_has_it() {
        for slot in [0, SLOTS / 2, SLOTS - 1] {
            let creator = creator(slot);
            assert!(creator < FIRST_USER && creator <= i32::MAX as u32, "{creator}");
        }
        assert_ne!(creator(0), creator(1));
    }
}
