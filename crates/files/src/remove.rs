//! Removing a whole tree: links are removed, not followed, and depth costs no descriptors.

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

/// Directories open at once; what is deeper is first moved up.
const DEPTH: u32 = 24;
/// How often a tree that somebody goes on filling is emptied before we give up.
const ROUNDS: u32 = 64;

/// Removes what has this name in a directory, and all below it. What is not there is removed.
pub fn remove_tree_at(parent: impl AsFd, name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(io::Error::other)?;
    let parent = parent.as_fd();
    // Deep trees are flattened a little each round, so rounds without progress are what counts.
    let mut idle = 0;
    loop {
        match unlinkat(parent, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        let top = match open_child(parent, &name) {
            Ok(top) => top,
            // It was replaced by something that is no directory.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let moved = empty(&top, &top, DEPTH)?;
        match unlinkat(parent, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if moved => idle = 0,
            Err(Errno::NOTEMPTY | Errno::EXIST) if idle < ROUNDS => idle += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes what is in a directory; what is too deep is moved to the top instead. Says whether
/// something was.
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
            // Filled again meanwhile: the next round sees it.
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
