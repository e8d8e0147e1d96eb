//! Recursive removal. Links are removed, not followed, and the number of open descriptors does not depend
//! on the depth.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat},
    io::Errno,
};

use base::durable::part_name;

/// The number of directories open at once; deeper ones are first moved up.
const MAX_DEPTH: u32 = 24;
/// Removal fails after this many rounds without progress, in a tree that is being filled concurrently.
const MAX_IDLE_ROUNDS: u32 = 64;

/// Removes a file or a directory with everything below it. Does nothing if it does not exist.
pub fn remove_tree_at(parent: impl AsFd, name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(io::Error::other)?;
    let parent = parent.as_fd();
    // Each round flattens a deep tree a little, so only rounds without progress count.
    let mut idle = 0;
    loop {
        match unlinkat(parent, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        let top = match open_child(parent, &name) {
            Ok(top) => top,
            // It was replaced by a file of another type.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let moved = empty(&top, &top, MAX_DEPTH)?;
        match unlinkat(parent, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if moved => idle = 0,
            Err(Errno::NOTEMPTY | Errno::EXIST) if idle < MAX_IDLE_ROUNDS => idle += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes the entries of a directory. Entries that are too deep are moved to the top instead; returns
/// whether there were any.
fn empty(directory: &OwnedFd, top: &OwnedFd, depth: u32) -> io::Result<bool> {
    let mut moved = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        if depth == 0 {
            renameat(directory, name, top, part_name()?)?;
            moved = true;
            continue;
        }
        match open_child(directory.as_fd(), name) {
            Ok(child) => moved |= empty(&child, top, depth - 1)?,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match unlinkat(directory, name, AtFlags::REMOVEDIR) {
            // If it was filled again meanwhile, the next round removes it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(moved)
}

fn open_child(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
