//! The device files of a sandbox.
//!
//! They are its own, because a process that opens a file can watch it (`inotify`) and lock it (`flock`): through
//! shared files, sandboxes could observe and signal each other.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, makedev};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The devices of every sandbox, with the numbers that Linux assigns to them.
pub(super) const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// The options of their file system.
const OPTIONS: [(&CStr, &CStr); 2] = [(c"mode", c"755"), (c"size", c"64k")];

/// Creates the devices in a file system of their own, detached from every namespace. Called outside the sandbox's
/// cgroups, which deny it, and outside its user namespace, where devices of a new file system cannot be opened.
pub(super) fn create() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (option, value) in OPTIONS {
        rustix::mount::fsconfig_set_string(&context, option, value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tree = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let mode = Mode::from_raw_mode(0o666);
    for (name, major, minor) in DEVICES {
        rustix::fs::mknodat(&tree, name, FileType::CharacterDevice, mode, makedev(major, minor))?;
        // Whatever the umask.
        rustix::fs::chmodat(&tree, name, mode, AtFlags::empty())?;
    }
    Ok(tree)
}
