//! Mounts with their own access rights and user mapping.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

/// The allowed access to a mount, besides reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountAccess {
    pub(crate) write: bool,
    pub(crate) execute: bool,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Clones the mount at a path, from that path down, detached from every namespace. Set-id bits and device
/// files have no effect on it. With a user namespace, a file owned by user N on disk is owned by the
/// namespace's user N on the clone.
pub(crate) fn clone_tree(
    path: &Path,
    access: MountAccess,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    restrict(tree.as_fd(), access, users)?;
    Ok(tree)
}

/// Sets the access rights and the user mapping of a detached mount.
pub(crate) fn restrict(
    tree: BorrowedFd<'_>,
    access: MountAccess,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if !access.write {
        set |= MOUNT_ATTR_RDONLY;
    }
    if !access.execute {
        set |= MOUNT_ATTR_NOEXEC;
    }
    if users.is_some() {
        set |= MOUNT_ATTR_IDMAP;
    }
    let attr = MountAttr {
        set,
        clear: 0,
        propagation: 0,
        userns: users.map_or(0, |users| users.as_raw_fd() as u64),
    };
    // SAFETY: the path is null-terminated, and the kernel reads `attr` only as far as its given size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Attaches a detached mount at the directory `at`.
pub(crate) fn move_mount(tree: BorrowedFd<'_>, at: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", at, "", flags)?)
}
