//! Files below a root directory, without any way out of it.
//!
//! The kernel resolves every path, with `openat2` and relative to the root's descriptor, so that neither a
//! link nor a race leads out. A file is first opened with `O_PATH` and checked, and only then opened for
//! reading: a FIFO never blocks and a device is never touched.
//! All functions block.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, StatVfsMountFlags,
        Uid, chownat, fgetxattr, flistxattr, flistxattr_query, fstat, mkdirat, openat2, readlinkat,
        renameat, renameat_with, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::remove::remove_tree_at;
use crate::{FileError, FileKind, Relative, Stat, memory::Expect};
use base::durable::{open_directory, part_name, sync_directory};
use base::shared_users::{SharedUsers, inside};
use model::Timestamp;

/// How often a path resolution that a rename interrupted is retried.
const MAX_ATTEMPTS: u32 = 128;

/// The kernel's limit for the names of a file's attributes, and for one value.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// The allowed targets of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not outside the root; a link that leads outside is refused.
    Beneath,
    /// Not outside the root; absolute links start at the root, like in a chroot.
    InRoot,
}

/// Runs a function once, with the file system user and group of these numbers.
pub type IdentityScope = fn((u32, u32), &mut dyn FnMut());

/// A directory and everything below it; cheap to clone.
///
/// A new file in a directory with [shared users](base::shared_users) belongs to user 0 of its sandboxes.
#[derive(Debug, Clone)]
pub struct Directory {
    root: Arc<OwnedFd>,
    /// Files are written here and then renamed to their final path. By default they are written next to it.
    pub(super) staging: Option<Arc<OwnedFd>>,
    reach: Reach,
    durability: Durability,
    /// Whom new files belong to, and how to become that user.
    identity: Option<((u32, u32), IdentityScope)>,
}

/// Whether a change is on stable storage when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    Synced,
    /// Only in the page cache, as for a program that does not call `fsync`.
    Cached,
}

impl Directory {
    /// Opens the root. Files are written to `staging`, which should be on the same file system, or else
    /// next
    /// to their final path.
    pub fn open(root: &Path, staging: Option<&Path>, reach: Reach) -> Result<Self, FileError> {
        let open = |path: &Path| {
            open_directory(path)
                .map(Arc::new)
                .map_err(|error| FileError::from_io("open", &path.display().to_string(), error))
        };
        let staging = staging.map(open).transpose()?;
        let durability = Durability::Synced;
        Ok(Self { root: open(root)?, staging, reach, durability, identity: None })
    }

    /// Creates files as the owner of the root. In a sandbox the server's own user may not exist, and then the
    /// kernel refuses to create files as that user.
    ///
    /// # Errors
    /// If the owner of the root cannot be read.
    pub fn as_its_owner(self, scope: IdentityScope) -> Result<Self, FileError> {
        let owner = self.root_owner()?;
        Ok(Self { identity: Some((owner, scope)), ..self })
    }

    /// Creates files as another directory does.
    #[must_use]
    pub fn as_owner_of(self, other: &Self) -> Self {
        Self { identity: other.identity, ..self }
    }

    /// Runs a function that creates files.
    pub(super) fn create<T>(&self, create: impl FnOnce() -> T) -> T {
        let Some((owner, scope)) = self.identity else { return create() };
        let (mut create, mut created) = (Some(create), None);
        scope(owner, &mut || created = create.take().map(|create| create()));
        created.expect("the scope runs its function once")
    }

    /// Turns off syncing, for files without a durability guarantee.
    #[must_use]
    pub fn cached(self) -> Self {
        Self { durability: Durability::Cached, ..self }
    }

    /// Syncs a directory, if changes are durable.
    pub(super) fn sync(&self, directory: &OwnedFd) -> io::Result<()> {
        match self.durability {
            Durability::Synced => sync_directory(directory),
            Durability::Cached => Ok(()),
        }
    }

    /// Returns whether changes are synced.
    pub(super) fn is_synced(&self) -> bool {
        self.durability == Durability::Synced
    }

    /// Returns the metadata of a path; a link is not followed.
    pub fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        let Some((parent, name)) = self.parent(path)? else {
            let root = fstat(&*self.root).map_err(failed("stat", path))?;
            return Ok(stat_of(&root, path.as_str(), None));
        };
        stat_at(&parent, name, path.as_str()).map_err(failed("stat", path))
    }

    /// Returns the metadata of a path; a link is followed, within the root.
    pub fn stat_followed(&self, path: &Relative) -> Result<Stat, FileError> {
        let file = self.resolve(path, OFlags::PATH).map_err(failed("stat", path))?;
        let found = fstat(&file).map_err(failed("stat", path))?;
        Ok(stat_of(&found, path.as_str(), None))
    }

    /// Returns the size as the file system reports it, also for a directory.
    pub fn size_on_disk(&self, path: &Relative) -> Result<u64, FileError> {
        let file = self.resolve(path, OFlags::PATH).map_err(failed("stat", path))?;
        let found = fstat(&file).map_err(failed("stat", path))?;
        Ok(u64::try_from(found.st_size).unwrap_or(0))
    }

    /// Returns the user and group of the root.
    pub fn root_owner(&self) -> Result<(u32, u32), FileError> {
        let found = fstat(&*self.root).map_err(failed("stat", &Relative::root()))?;
        Ok((found.st_uid, found.st_gid))
    }

    /// Opens a file for reading, and returns its metadata.
    pub fn read(&self, path: &Relative) -> Result<(File, Stat), FileError> {
        let file = self.resolve(path, OFlags::PATH).map_err(failed("open", path))?;
        open_regular(&file, path.as_str())
    }

    /// Returns the extended attributes of a file whose names start with `prefix`, by the rest of their
    /// names.
    pub fn attributes(
        &self,
        path: &Relative,
        prefix: &str,
    ) -> Result<BTreeMap<String, String>, FileError> {
        let (file, _) = self.read(path)?;
        let mut attributes = BTreeMap::new();
        match flistxattr_query(&file) {
            // Most files have none, and some file systems do not support them.
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(attributes),
            Ok(_) => {}
            Err(errno) => return Err(failed("stat", path)(errno)),
        }
        let mut names = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
        flistxattr(&file, spare_capacity(&mut names)).map_err(failed("stat", path))?;
        for name in names.split(|byte| *byte == 0) {
            let Some(rest) = std::str::from_utf8(name).ok().and_then(|it| it.strip_prefix(prefix))
            else {
                continue;
            };
            let mut value = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
            // It may have been removed meanwhile.
            if fgetxattr(&file, name, spare_capacity(&mut value)).is_ok() {
                attributes.insert(rest.to_owned(), String::from_utf8_lossy(&value).into_owned());
            }
        }
        Ok(attributes)
    }

    /// Creates a directory; its parent must exist.
    pub fn make_directory(&self, path: &Relative) -> Result<(), FileError> {
        let Some((parent, name)) = self.parent(path)? else {
            return Err(FileError::Exists { path: path.to_string() });
        };
        self.create(|| mkdirat(&parent, name, Mode::from_raw_mode(0o755)))
            .map_err(io::Error::from)
            .and_then(|()| share(&parent, name))
            .and_then(|()| self.sync(&parent))
            .map_err(failed_io("make", path))
    }

    /// Creates a symbolic link; its parent must exist.
    pub fn make_link(&self, target: &str, path: &Relative) -> Result<(), FileError> {
        let Some((parent, name)) = self.parent(path)? else {
            return Err(FileError::Exists { path: path.to_string() });
        };
        self.create(|| symlinkat(target, &parent, name))
            .map_err(io::Error::from)
            .and_then(|()| share(&parent, name))
            .and_then(|()| self.sync(&parent))
            .map_err(failed_io("link", path))
    }

    /// Creates a directory and its missing parents.
    pub fn make_directories(&self, path: &Relative) -> Result<(), FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.resolve(path, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("open", path)(errno)),
        }
        if let Some((above, _)) = path.split_last() {
            self.make_directories(&above)?;
        }
        match self.make_directory(path) {
            // It was created meanwhile, or is a dangling link.
            Err(FileError::Exists { .. }) => {
                self.resolve(path, flags).map(drop).map_err(failed("open", path))
            }
            other => other,
        }
    }

    /// Renames a file or directory. Only a file may replace a file.
    pub fn rename(&self, from: &Relative, to: &Relative, expect: Expect) -> Result<(), FileError> {
        let (Some((from_parent, from_name)), Some((to_parent, to_name))) =
            (self.parent(from)?, self.parent(to)?)
        else {
            let what = "the root of a route cannot be moved";
            return Err(FileError::NotSupported { path: "".into(), what });
        };
        let source =
            stat_at(&from_parent, from_name, from.as_str()).map_err(failed("stat", from))?;
        if to.below(from).is_some_and(|rest| !rest.is_root()) {
            let why = "it is below the source";
            return Err(FileError::BadPath { path: to.to_string(), why });
        }
        if from == to {
            return Ok(());
        }
        let target = stat_at(&to_parent, to_name, to.as_str());
        if target.is_ok_and(|target| target.kind == FileKind::Directory) {
            return Err(FileError::IsDirectory { path: to.to_string() });
        }
        let renamed = self.create(|| match (expect, source.kind) {
            (Expect::Anything, FileKind::File | FileKind::Link | FileKind::Other) => {
                renameat(&from_parent, from_name, &to_parent, to_name)
            }
            (Expect::Anything, FileKind::Directory) | (Expect::Absent | Expect::Version(_), _) => {
                let flags = RenameFlags::NOREPLACE;
                renameat_with(&from_parent, from_name, &to_parent, to_name, flags)
            }
        });
        match renamed {
            // Within one route this is a mount inside of it, not a way out.
            Err(Errno::XDEV) => {
                let what = "source and target are on different file systems";
                return Err(FileError::NotSupported { path: from.to_string(), what });
            }
            Err(errno) => return Err(failed("move", to)(errno)),
            Ok(()) => {}
        }
        self.sync(&to_parent).and_then(|()| self.sync(&from_parent)).map_err(failed_io("move", to))
    }

    /// Removes a file, a link or an empty directory.
    pub fn remove(&self, path: &Relative) -> Result<(), FileError> {
        let (parent, name) = self.not_root(path)?;
        let found = stat_at(&parent, name, path.as_str()).map_err(failed("stat", path))?;
        let flags =
            if found.kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&parent, name, flags).map_err(failed("remove", path))?;
        self.sync(&parent).map_err(failed_io("remove", path))
    }

    /// Removes a file, or a directory with everything below it. Links are removed, not followed. With a
    /// staging directory the name disappears atomically and the content is removed afterwards.
    pub fn remove_tree(&self, path: &Relative) -> Result<(), FileError> {
        let (parent, name) = self.not_root(path)?;
        let found = stat_at(&parent, name, path.as_str()).map_err(failed("stat", path))?;
        if found.kind != FileKind::Directory {
            return self.remove(path);
        }
        if let Some(staging) = &self.staging {
            let part = part_name().map_err(failed_io("remove", path))?;
            match renameat(&parent, name, staging, &part) {
                Ok(()) => {
                    self.sync(&parent).map_err(failed_io("remove", path))?;
                    return remove_tree_at(staging, &part).map_err(failed_io("remove", path));
                }
                // There is a mount in between: the content is removed in place.
                Err(Errno::XDEV) => {}
                Err(errno) => return Err(failed("remove", path)(errno)),
            }
        }
        remove_tree_at(&parent, name).map_err(failed_io("remove", path))?;
        self.sync(&parent).map_err(failed_io("remove", path))
    }

    /// Opens a directory to read its entries.
    pub(super) fn open_below(&self, path: &Relative) -> Result<OwnedFd, FileError> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
            .map_err(failed("open", path))
    }

    /// Returns the parent directory and the name of a path, or `None` for the root.
    pub(super) fn parent<'a>(
        &self,
        path: &'a Relative,
    ) -> Result<Option<(OwnedFd, &'a str)>, FileError> {
        let Some((_, name)) = path.split_last() else { return Ok(None) };
        let above = path.as_str()[..path.as_str().len() - name.len()].trim_end_matches('/');
        Ok(Some((self.resolve_directory(above).map_err(failed("open", path))?, name)))
    }

    fn not_root<'a>(&self, path: &'a Relative) -> Result<(OwnedFd, &'a str), FileError> {
        self.parent(path)?.ok_or_else(|| {
            let what = "the root of a route cannot be removed";
            FileError::NotSupported { path: String::new(), what }
        })
    }

    /// Opens a directory for `*at` calls and for syncing.
    /// Tells a path that nobody may change from one whose disk image the kernel has made read-only.
    pub(super) fn explain(&self, error: FileError, path: &Relative) -> FileError {
        let mut above = path.as_str();
        while matches!(error, FileError::ReadOnly { .. }) && !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
            if let Ok(directory) = self.resolve_directory(above) {
                return explain_at(&directory, error);
            }
        }
        error
    }

    pub(super) fn resolve_directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve_text(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
    }

    fn resolve(&self, path: &Relative, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolve_text(path.as_str(), flags)
    }

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    fn resolve_text(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let reach = match self.reach {
            Reach::Beneath => ResolveFlags::BENEATH,
            Reach::InRoot => ResolveFlags::IN_ROOT,
        };
        let path = if path.is_empty() { "." } else { path };
        let resolve = reach | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_ATTEMPTS {
            // `EAGAIN`: a concurrent rename may have led outside.
            match openat2(&*self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Opens the regular file of an `O_PATH` descriptor for reading.
pub fn open_regular(file: &OwnedFd, path: &str) -> Result<(File, Stat), FileError> {
    let found = fstat(file).map_err(|errno| FileError::from_io("stat", path, errno.into()))?;
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => return Err(FileError::IsDirectory { path: path.to_owned() }),
        FileType::Symlink => return Err(FileError::Loop { path: path.to_owned() }),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => Some("of an unknown kind"),
    };
    if let Some(kind) = kind {
        return Err(FileError::NotRegular { path: path.to_owned(), kind });
    }
    // Some kernel files are regular and block nevertheless.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, descriptor_path(file), flags, Mode::empty())
        .map_err(|errno| FileError::from_io("open", path, errno.into()))?;
    Ok((File::from(file), stat_of(&found, path, None)))
}

/// Returns a path to the file of a descriptor that stays valid when it is renamed.
pub(super) fn descriptor_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Returns the metadata of a name in a directory; a link is not followed.
pub fn stat_at(directory: impl AsFd, name: &str, path: &str) -> Result<Stat, Errno> {
    let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = match FileType::from_raw_mode(found.st_mode) {
        // It may have been replaced since.
        FileType::Symlink => readlinkat(&directory, name, Vec::new())
            .ok()
            .map(|target| target.to_string_lossy().into_owned()),
        _ => None,
    };
    Ok(stat_of(&found, path, target))
}

pub(super) fn stat_of(found: &rustix::fs::Stat, path: &str, target: Option<String>) -> Stat {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let nanos = i32::try_from(found.st_mtime_nsec).unwrap_or(0);
    Stat {
        path: path.to_owned(),
        kind,
        size: if kind == FileKind::File { u64::try_from(found.st_size).unwrap_or(0) } else { 0 },
        modified_at: Timestamp::new(found.st_mtime, nanos).ok(),
        mode: Some(found.st_mode & 0o7777),
        owner: Some((inside(found.st_uid), inside(found.st_gid))),
        target,
        version: (kind == FileKind::File).then(|| version(found)),
    }
}

/// Returns a number that changes with each write: the inode changes with an atomic write, the times with
/// any other.
fn version(found: &rustix::fs::Stat) -> u64 {
    let mut hash = blake3::Hasher::new();
    for part in [found.st_dev, found.st_ino, found.st_size.cast_unsigned()] {
        hash.update(&part.to_le_bytes());
    }
    for part in [found.st_mtime, found.st_ctime] {
        hash.update(&part.to_le_bytes());
    }
    for part in [found.st_mtime_nsec, found.st_ctime_nsec] {
        hash.update(&part.to_le_bytes());
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// The owner of a new file in a directory with shared users.
pub(super) fn shared_owner(directory: impl AsFd) -> Option<(Uid, Gid)> {
    let found = fstat(directory).ok()?;
    let (user, group) = (SharedUsers::of(found.st_uid)?, SharedUsers::of(found.st_gid));
    let group = group.unwrap_or(user);
    Some((Uid::from_raw(user.first()), Gid::from_raw(group.first())))
}

/// Gives a new file to user 0 of the sandboxes that share its directory. Everything that this name may stand
/// for by now belongs to them, too.
fn share(directory: &OwnedFd, name: &str) -> io::Result<()> {
    let Some((user, group)) = shared_owner(directory) else { return Ok(()) };
    Ok(chownat(directory, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(super) fn failed(doing: &'static str, path: &Relative) -> impl Fn(Errno) -> FileError {
    move |errno| FileError::from_io(doing, path.as_str(), errno.into())
}

pub(super) fn failed_io(doing: &'static str, path: &Relative) -> impl Fn(io::Error) -> FileError {
    move |error| FileError::from_io(doing, path.as_str(), error)
}
/// As [`Directory::explain`], for something in this directory. Images are ext4 on loop devices, and are never mounted
/// read-only; an overlay above one does not show that its upper layer became read-only.
pub(super) fn explain_at(directory: &OwnedFd, error: FileError) -> FileError {
    const EXT4: u64 = 0xef53;
    const OVERLAY: u64 = 0x794c_7630;
    const LOOP_DEVICES: u32 = 7;
    let FileError::ReadOnly { path } = error else { return error };
    let (Ok(stat), Ok(kind), Ok(flags)) = (
        rustix::fs::fstat(directory),
        rustix::fs::fstatfs(directory),
        rustix::fs::fstatvfs(directory).map(|found| found.f_flag),
    ) else {
        return FileError::ReadOnly { path };
    };
    let is_stopped = match kind.f_type as u64 {
        EXT4 => rustix::fs::major(stat.st_dev) == LOOP_DEVICES,
        OVERLAY => !flags.contains(StatVfsMountFlags::RDONLY),
        _ => false,
    };
    if is_stopped { FileError::DiskStopped { path } } else { FileError::ReadOnly { path } }
}
