//! Files that are whole or absent, whatever happens while they are written.
//!
//! A file is written under another name, and renamed. [`replace`] syncs it first, for what has to
//! outlive a power failure; [`replace_volatile`] does not, for what describes something that the machine
//! takes with it. Both expect one writer of a file at a time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

/// What the name of a file that is not finished begins with. Lists leave such names out, and what a
/// crash left of them is removed at the next start.
pub const PART: &str = ".stead-part-";

/// Returns a unique name for an unfinished file.
pub fn part_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{PART}{:016x}", u64::from_le_bytes(bytes)))
}

/// Opens a directory of ours by its path.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Syncs a directory, so that created, renamed and removed names are on stable storage.
pub fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}

/// Creates a directory with mode 0700 and syncs its parent. An existing one is left as it is.
pub fn make_directory(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) => match path.parent() {
            Some(parent) => sync_directory(open_directory(parent)?),
            None => Ok(()),
        },
        Err(rustix::io::Errno::EXIST) if path.is_dir() => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Replaces a file atomically, with mode 0600. It is on stable storage when this returns.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, file) = write_beside(path, content)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    sync_directory(open_directory(path.parent().unwrap_or(Path::new("/")))?)
}

/// Replaces a file atomically, with mode 0600. A power failure may lose it, or leave an empty file.
pub fn replace_volatile(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, _) = write_beside(path, content)?;
    fs::rename(beside, path)
}

/// The name is always the same, so that what a crash leaves is overwritten by the next attempt.
fn write_beside(path: &Path, content: &[u8]) -> io::Result<(PathBuf, File)> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    Ok((beside.into(), file))
}

/// Replaces a file in a directory atomically and syncs it.
pub fn replace_at(directory: impl AsFd, name: &str, content: &[u8]) -> io::Result<()> {
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
pub fn sweep_parts(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PART) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let dir = std::env::temp_dir().join(format!("stead-durable-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file.json");
        for replace in [replace, replace_volatile] {
            // What a crash left of an attempt.
            fs::write(dir.join("file.json.new"), "a longer text than the one that follows")
                .unwrap();
            replace(&path, b"first").unwrap();
            replace(&path, b"next").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"next");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
            fs::create_dir(dir.join("file.json.new")).unwrap();
            assert!(replace(&path, b"never").is_err());
            assert_eq!(fs::read(&path).unwrap(), b"next");
            fs::remove_dir(dir.join("file.json.new")).unwrap();
            fs::remove_file(&path).unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
