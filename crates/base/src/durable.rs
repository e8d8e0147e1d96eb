//! Atomic replacement of files: after a crash a file has its old or its new content.
//!
//! A file is written under another name, then renamed. [`replace`] syncs it first, for data that must
//! survive a power failure; [`replace_volatile`] does not, for data about processes that do not survive
//! one either. Both expect one writer of a file at a time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

/// The prefix of unfinished files. Listings skip them, and the next start removes those that a crash left.
pub const PART: &str = ".stead-part-";

/// Returns a unique name for an unfinished file.
pub fn part_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{PART}{:016x}", u64::from_le_bytes(bytes)))
}

/// Opens a trusted directory by its path, following symbolic links.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Syncs a directory, so that created, renamed and removed names are on stable storage.
pub fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}

/// Creates a directory with mode 0700 and syncs its parent. An existing directory is not changed.
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
    publish(&beside, path)
}

/// Replaces a file atomically by a copy of another with this mode. It is on stable storage when this returns.
pub fn copy(from: &Path, path: &Path, mode: u32) -> io::Result<()> {
    let beside = beside(path);
    // A crash may have left one that cannot be written to.
    let _ = fs::remove_file(&beside);
    fs::copy(from, &beside)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(mode))?;
    File::open(&beside)?.sync_all()?;
    publish(&beside, path)
}

/// Gives a file or directory that was synced its name, atomically. The name is on stable storage when this returns.
pub fn publish(synced: &Path, path: &Path) -> io::Result<()> {
    fs::rename(synced, path)?;
    sync_directory(open_directory(path.parent().unwrap_or(Path::new("/")))?)
}

/// Replaces a file atomically, with mode 0600. A power failure may lose it, or leave an empty file.
pub fn replace_volatile(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, _) = write_beside(path, content)?;
    fs::rename(beside, path)
}

/// The name of the new content until it is complete. It is fixed, so that the next attempt overwrites what a crash
/// left.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<(PathBuf, File)> {
    let beside = beside(path);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    Ok((beside, file))
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
        // The first error is the one to report; the next start removes what is left.
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
    use super::*;

    #[test]
    fn a_copy_replaces_a_file_and_what_a_crash_left() {
        let dir = std::env::temp_dir().join(format!("stead-durable-copy-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (from, path, left) = (dir.join("from"), dir.join("program"), dir.join("program.new"));
        fs::write(&path, "previous").unwrap();
        fs::write(&left, "half").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o555)).unwrap();
        fs::write(&from, "program").unwrap();
        copy(&from, &path, 0o555).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"program");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);
        assert!(!left.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_is_replaced_atomically_or_not_changed() {
        let dir = std::env::temp_dir().join(format!("stead-durable-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file.json");
        for replace in [replace, replace_volatile] {
            // Left by an attempt that crashed.
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
