//! A root file system that is being unpacked from layers of a stranger.
//!
//! The kernel resolves every path with the tree as its root (`openat2`), so that neither a symbolic link nor `..`
//! leads outside. The last name of a path is never followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use rustix::io::Errno;

/// A directory may not be nested more deeply, wherever links put it.
const MAX_DEPTH: usize = 256;

/// Owner, mode and time of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeMetadata {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) modified: i64,
}

/// The entry of a layer at a path.
pub(crate) enum LayerNode<'a> {
    Directory,
    File {
        content: &'a mut dyn Read,
        size: u64,
    },
    Symlink(&'a OsStr),
    HardLink(&'a Path),
    Fifo,
    /// Sandboxes have their own devices.
    Device,
}

/// Whether the owners of files can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerPolicy {
    Keep,
    Ignore,
}

pub(crate) struct RootTree {
    root: Rc<OwnedFd>,
    /// The directory that was resolved last; forgotten as soon as anything is removed.
    last_parent: Option<(PathBuf, Rc<OwnedFd>)>,
    owners: OwnerPolicy,
}

/// A refusal of content that no intact layer has.
pub(crate) fn hostile(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// The path of an entry, relative to the root. The root itself is empty.
pub(crate) fn inner_path(raw: &[u8]) -> io::Result<PathBuf> {
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(raw)).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                let name = String::from_utf8_lossy(raw);
                return Err(hostile(format!("the path {name:?} leads outside")));
            }
        }
    }
    Ok(path)
}

impl RootTree {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Rc::new(rustix::fs::open(root, flags, Mode::empty())?);
        let owners = match rustix::process::geteuid().is_root() {
            true => OwnerPolicy::Keep,
            false => OwnerPolicy::Ignore,
        };
        Ok(Self { root, last_parent: None, owners })
    }

    /// Writes everything to stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// Puts a node at a path, in place of what is there. A directory keeps its content.
    pub(crate) fn put(
        &mut self,
        path: &Path,
        node: LayerNode<'_>,
        metadata: NodeMetadata,
    ) -> io::Result<()> {
        let Some(name) = path.file_name() else {
            return match node {
                LayerNode::Directory => self.set_directory(&self.root.clone(), ".", metadata),
                _ => Err(hostile("the root is not a directory")),
            };
        };
        let parent = self.make_parent(path.parent().unwrap_or(Path::new("")))?;
        let mode = Mode::from_raw_mode(metadata.mode & 0o7777);
        match node {
            LayerNode::Directory => {
                if self.kind(&parent, name)? != Some(FileType::Directory) {
                    self.remove(&parent, name)?;
                    rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
                }
                return self.set_directory(&parent, name, metadata);
            }
            LayerNode::File { content, size } => {
                self.remove(&parent, name)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(file);
                if io::copy(content, &mut file)? != size {
                    return Err(hostile("a layer ends within a file"));
                }
                if self.owners == OwnerPolicy::Keep {
                    let (user, group) = owner(metadata);
                    rustix::fs::fchown(&file, Some(user), Some(group))?;
                }
                // Changing the owner would remove the set-id bits, so the mode is last.
                rustix::fs::fchmod(&file, mode)?;
                return Ok(rustix::fs::futimens(&file, &times(metadata))?);
            }
            LayerNode::Symlink(target) => {
                self.remove(&parent, name)?;
                rustix::fs::symlinkat(target, &parent, name)?;
            }
            LayerNode::HardLink(target) => return self.link(target, &parent, name),
            LayerNode::Fifo => {
                self.remove(&parent, name)?;
                rustix::fs::mknodat(&parent, name, FileType::Fifo, mode, 0)?;
            }
            LayerNode::Device => return self.remove(&parent, name),
        }
        self.set_owner(&parent, name, metadata)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&parent, name, &times(metadata), flags)?)
    }

    /// Removes what lower layers put at a path.
    pub(crate) fn whiteout(&mut self, path: &Path) -> io::Result<()> {
        let (Some(name), Some(dir)) = (path.file_name(), path.parent()) else {
            return Err(hostile("a whiteout of the root"));
        };
        match self.resolve(dir)? {
            Some(parent) => self.remove(&parent, name),
            None => Ok(()),
        }
    }

    /// Removes what lower layers put into a directory.
    pub(crate) fn whiteout_content(&mut self, dir: &Path) -> io::Result<()> {
        let Some(found) = self.resolve(dir)? else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&found, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.iter().try_for_each(|name| self.remove(&found, name))
    }

    fn link(&mut self, target: &Path, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let missing = || hostile(format!("a hard link to {} leads nowhere", target.display()));
        let target_name = target.file_name().ok_or_else(missing)?;
        let dir = self.resolve(target.parent().unwrap_or(Path::new("")))?.ok_or_else(missing)?;
        let stat =
            |dir: &OwnedFd, name: &OsStr| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = stat(&dir, target_name).map_err(|_| missing())?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(hostile("a hard link to a directory"));
        }
        if stat(parent, name).is_ok_and(|at| (at.st_dev, at.st_ino) == (found.st_dev, found.st_ino))
        {
            return Ok(());
        }
        self.remove(parent, name)?;
        match rustix::fs::linkat(&dir, target_name, parent, name, AtFlags::empty()) {
            // The target was within the directory that the link replaces.
            Err(Errno::NOENT) => Err(missing()),
            done => Ok(done?),
        }
    }

    /// Opens a directory; `None` if it does not exist.
    fn resolve(&mut self, dir: &Path) -> io::Result<Option<Rc<OwnedFd>>> {
        if let Some((path, found)) = &self.last_parent
            && path == dir
        {
            return Ok(Some(found.clone()));
        }
        let found = match self.open_inside(dir) {
            Ok(found) => Rc::new(found),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        check_depth(&found)?;
        self.last_parent = Some((dir.to_owned(), found.clone()));
        Ok(Some(found))
    }

    /// Opens a directory, and creates it with its parents unless it exists.
    fn make_parent(&mut self, dir: &Path) -> io::Result<Rc<OwnedFd>> {
        if let Some(found) = self.resolve(dir)? {
            return Ok(found);
        }
        let mut at = self.root.clone();
        let mut path = PathBuf::new();
        for name in dir {
            path.push(name);
            at = match self.resolve(&path)? {
                Some(next) => next,
                None => {
                    let mode = Mode::from_raw_mode(0o755);
                    match rustix::fs::mkdirat(&at, name, mode) {
                        Err(Errno::EXIST) => {
                            let path = path.display();
                            return Err(hostile(format!("{path} is not a directory")));
                        }
                        done => done?,
                    }
                    let made = self.resolve(&path)?;
                    made.ok_or_else(|| io::Error::other("a created directory vanished"))?
                }
            };
        }
        Ok(at)
    }

    fn open_inside(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn kind(&self, parent: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&mut self, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let kind = self.kind(parent, name)?;
        if kind.is_some() {
            self.last_parent = None;
        }
        match kind {
            None => Ok(()),
            Some(FileType::Directory) => {
                let dir = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string());
                std::fs::remove_dir_all(dir.join(name))
            }
            Some(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
        }
    }

    fn set_directory(
        &self,
        parent: &OwnedFd,
        name: impl AsRef<OsStr>,
        metadata: NodeMetadata,
    ) -> io::Result<()> {
        let name = name.as_ref();
        self.set_owner(parent, name, metadata)?;
        let mode = Mode::from_raw_mode(metadata.mode & 0o7777);
        Ok(rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?)
    }

    fn set_owner(&self, parent: &OwnedFd, name: &OsStr, metadata: NodeMetadata) -> io::Result<()> {
        if self.owners == OwnerPolicy::Ignore {
            return Ok(());
        }
        let (user, group) = owner(metadata);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(parent, name, Some(user), Some(group), flags)?)
    }
}

fn owner(metadata: NodeMetadata) -> (Uid, Gid) {
    (Uid::from_raw(metadata.user), Gid::from_raw(metadata.group))
}

fn times(metadata: NodeMetadata) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: metadata.modified, tv_nsec: 0 },
    }
}

/// Links can nest directories more deeply than any path of an archive says.
fn check_depth(dir: &impl AsFd) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    let too_deep = || hostile("its directories are nested too deeply");
    let path = rustix::fs::readlinkat(CWD, link, Vec::new()).map_err(|_| too_deep())?;
    let depth = path.as_bytes().iter().filter(|byte| **byte == b'/').count();
    if depth > MAX_DEPTH { Err(too_deep()) } else { Ok(()) }
}
