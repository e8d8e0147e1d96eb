//! Small file helpers: directories, removal, and errors that name the failed operation.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Creates a directory with mode 0700, and its parents, unless it exists.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a directory as a reference for `*at` calls; its entries cannot be listed through it.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes a directory tree. Succeeds if it does not exist.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    ignore_missing(fs::remove_dir_all(path))
}

/// Removes a file. Succeeds if it does not exist.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    ignore_missing(fs::remove_file(file))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Adds the failed operation to an error, for `map_err`: "cannot mount the disk: no such device".
pub(crate) fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
