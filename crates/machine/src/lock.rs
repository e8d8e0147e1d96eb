//! File locks: of one instance's directory, and those that all servers of this machine share.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use images::open_lock;

/// Waits for the lock of a file, which is created if it does not exist.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// The path of a lock file, or of a note, that all servers of this machine share.
pub(crate) fn machine_lock(name: &str) -> io::Result<PathBuf> {
    let dir = Path::new("/run/stead");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    Ok(dir.join(format!("{name}.lock")))
}
