//! Atomic writes: readers see the old file or the complete new one.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use parking_lot::Mutex;
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, fchmod, fchown, fsetxattr, fstat,
        openat, readlinkat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
    process::{Gid, Uid},
};

use crate::directory::{Directory, Reach, explain_at, shared_owner, stat_at, stat_of};
use crate::{FileError, Relative, Stat, memory::Expect};
use base::durable::part_name;

/// The number of links followed at the end of a path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Makes the version check and the rename atomic among the writers of this process.
static RENAME_LOCK: Mutex<()> = Mutex::new(());

/// A file that is being written and does not have its final name. Removed if dropped before `finish`.
#[derive(Debug)]
pub struct PartialFile {
    /// `None` after the last write: closed before the rename, so that a watcher reports one event.
    file: Option<File>,
    /// The directory of the unfinished file.
    staging: OwnedFd,
    part: String,
    parent: OwnedFd,
    name: String,
    path: String,
    expect: Expect,
    finished: bool,
    below: Directory,
}

/// How to handle missing parent directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    MustExist,
    Make,
}

impl Directory {
    /// Starts writing a file. A link at the end of the path is followed within the root.
    pub fn write(
        &self,
        path: &Relative,
        above: Above,
        expect: Expect,
    ) -> Result<PartialFile, FileError> {
        if above == Above::Make
            && let Some((above, _)) = path.split_last()
        {
            self.make_directories(&above)?;
        }
        let failed = |errno: Errno| FileError::from_io("write", path.as_str(), errno.into());
        let (parent, name, before) = self.target(path)?;
        match (expect, &before) {
            (Expect::Absent, Some(_)) => {
                return Err(FileError::Exists { path: path.to_string() });
            }
            (Expect::Version(_), None) => {
                return Err(FileError::Changed { path: path.to_string() });
            }
            _ => {}
        }
        let same_file_system = |staging: &OwnedFd| {
            let (one, other) = (fstat(staging).ok()?, fstat(&parent).ok()?);
            (one.st_dev == other.st_dev).then_some(())
        };
        let staging = match &self.staging {
            Some(staging) if same_file_system(staging).is_some() => staging.try_clone(),
            _ => parent.try_clone(),
        }
        .map_err(|error| FileError::from_io("write", path.as_str(), error))?;
        let owner = before.as_ref().map(owner_of).or_else(|| shared_owner(&parent));
        let created = self.create(|| create(&staging, before.as_ref(), owner));
        let (file, part) = created.map_err(failed)?;
        let path = path.to_string();
        let (file, below) = (Some(file), self.clone());
        Ok(PartialFile { file, staging, part, parent, name, path, expect, finished: false, below })
    }

    /// Returns the directory and name of the file to write, and the metadata of an existing file.
    fn target(
        &self,
        path: &Relative,
    ) -> Result<(OwnedFd, String, Option<rustix::fs::Stat>), FileError> {
        let failed = |errno: Errno| FileError::from_io("write", path.as_str(), errno.into());
        let is_directory = || FileError::IsDirectory { path: path.to_string() };
        let mut text = path.as_str().to_owned();
        for _ in 0..MAX_LINKS {
            let (above, name) = text.rsplit_once('/').unwrap_or(("", &text));
            if matches!(name, "" | "." | "..") {
                return Err(is_directory());
            }
            let parent = self.resolve_directory(above).map_err(failed)?;
            let found = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                Err(Errno::NOENT) => return Ok((parent, name.to_owned(), None)),
                Err(errno) => return Err(failed(errno)),
            };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => return Ok((parent, name.to_owned(), Some(found))),
                FileType::Directory => return Err(is_directory()),
                FileType::Symlink => {
                    let target = readlinkat(&parent, name, Vec::new()).map_err(failed)?;
                    let target = target.to_str().map_err(|_| failed(Errno::INVAL))?;
                    text = match (target.starts_with('/'), self.reach()) {
                        (false, _) if above.is_empty() => target.to_owned(),
                        (false, _) => format!("{above}/{target}"),
                        (true, Reach::InRoot) => target.trim_start_matches('/').to_owned(),
                        (true, Reach::Beneath) => return Err(failed(Errno::XDEV)),
                    };
                }
                FileType::Fifo => return Err(not_regular(path, "a FIFO")),
                FileType::Socket => return Err(not_regular(path, "a socket")),
                _ => return Err(not_regular(path, "a device")),
            }
        }
        Err(failed(Errno::LOOP))
    }
}

impl PartialFile {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Err(io::Error::other("the file is finished")),
        };
        written.map_err(|error| self.failed(error))
    }

    /// Sets an extended attribute.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> Result<(), FileError> {
        let Some(file) = &self.file else { return Ok(()) };
        fsetxattr(file, name, value, XattrFlags::empty()).map_err(|errno| self.failed(errno.into()))
    }

    /// Makes the file readable and executable for everyone.
    pub fn make_executable(&self) -> Result<(), FileError> {
        let Some(file) = &self.file else { return Ok(()) };
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::fchmod(file, mode).map_err(|errno| self.failed(errno.into()))
    }

    /// Renames the file to its final name. It is on stable storage when this returns, if the directory is
    /// durable.
    pub fn finish(mut self) -> Result<Stat, FileError> {
        if let Some(file) = self.file.take()
            && self.below.is_synced()
        {
            file.sync_all().map_err(|error| self.failed(error))?;
        }
        let renamed = match self.below.create(|| self.rename()) {
            // The same file system, but another mount: first copy the file next to its final path.
            Err(Errno::XDEV) => {
                self.copy_next_to_target().map_err(|error| self.failed(error))?;
                self.below.create(|| self.rename())
            }
            renamed => renamed,
        };
        let renamed = renamed.map_err(|errno| self.failed(errno.into()))?;
        self.finished = true;
        self.below.sync(&self.parent).map_err(|error| self.failed(error))?;
        let found = fstat(&renamed).map_err(|errno| self.failed(errno.into()))?;
        Ok(stat_of(&found, &self.path, None))
    }

    /// Returns a handle of the renamed file, because another writer may replace or remove it at any time.
    fn rename(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.staging, &self.part, flags, Mode::empty())?;
        match self.expect {
            Expect::Anything => renameat(&self.staging, &self.part, &self.parent, &self.name),
            Expect::Absent => renameat_with(
                &self.staging,
                &self.part,
                &self.parent,
                &self.name,
                RenameFlags::NOREPLACE,
            ),
            Expect::Version(version) => {
                let _lock = RENAME_LOCK.lock();
                let found = stat_at(&self.parent, &self.name, &self.path);
                if !found.is_ok_and(|found| found.version == Some(version)) {
                    return Err(Errno::AGAIN);
                }
                renameat(&self.staging, &self.part, &self.parent, &self.name)
            }
        }?;
        Ok(file)
    }

    fn copy_next_to_target(&mut self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut source = File::from(openat(&self.staging, &self.part, flags, Mode::empty())?);
        let like = fstat(&source)?;
        let created =
            self.below.create(|| create(&self.parent, Some(&like), Some(owner_of(&like))));
        let (mut file, part) = created?;
        io::copy(&mut source, &mut file)?;
        file.sync_all()?;
        let _ = unlinkat(&self.staging, &self.part, AtFlags::empty());
        self.staging = self.parent.try_clone()?;
        self.part = part;
        Ok(())
    }

    fn failed(&self, error: io::Error) -> FileError {
        explain_at(&self.parent, FileError::from_io("write", &self.path, error))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the next start removes it.
            let _ = unlinkat(&self.staging, &self.part, AtFlags::empty());
        }
    }
}

fn owner_of(found: &rustix::fs::Stat) -> (Uid, Gid) {
    (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid))
}

/// Creates an unfinished file with the mode of the file it will replace.
fn create(
    staging: &OwnedFd,
    before: Option<&rustix::fs::Stat>,
    owner: Option<(Uid, Gid)>,
) -> Result<(File, String), Errno> {
    let part = part_name().map_err(|_| Errno::IO)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(staging, &part, flags, Mode::from_raw_mode(0o600))?;
    if let Some((user, group)) = owner {
        // Only a privileged server can give a file to another owner.
        let _ = fchown(&file, Some(user), Some(group));
    }
    let mode = before.map_or(0o644, |before| before.st_mode & 0o777);
    fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok((File::from(file), part))
}

fn not_regular(path: &Relative, kind: &'static str) -> FileError {
    FileError::NotRegular { path: path.to_string(), kind }
}
