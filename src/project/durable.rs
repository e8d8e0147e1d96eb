//! Files that are whole or absent, whatever happens while they are written.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

/// What the name of a file that is not finished begins with. Lists leave such names out, and what a
/// crash left of them is removed at the next start.
pub(crate) const PART: &str = ".stead-part-";

/// A name that nothing else has.
pub(crate) fn part_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{PART}{:016x}", u64::from_le_bytes(bytes)))
}

/// Opens a directory of ours by its path.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Makes what was created, renamed or removed in a directory last.
pub(crate) fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}

/// Makes a directory, open to us alone, that lasts. One that is there already is left as it is.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) => match path.parent() {
            Some(parent) => sync_directory(open_directory(parent)?),
            None => Ok(()),
        },
        Err(rustix::io::Errno::EXIST) if path.is_dir() => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Puts a whole file in place of whatever has that name: written beside, synced, renamed.
pub(crate) fn replace(directory: impl AsFd, name: &str, content: &[u8]) -> io::Result<()> {
    let directory = directory.as_fd();
    let part = part_name()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &part, flags, Mode::from_raw_mode(0o600))?);
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(directory, &part, directory, name)?));
    if let Err(error) = written {
        // The first error is the one to tell; what is left is removed at the next start.
        let _ = unlinkat(directory, &part, AtFlags::empty());
        return Err(error);
    }
    sync_directory(directory)
}

/// Removes unfinished files that a crash left in a directory.
pub(crate) fn sweep_parts(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PART) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
