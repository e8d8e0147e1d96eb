//! Access to files that programs in a sandbox wrote: no link is followed, and no path leads outside.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::files::open_dir;

/// The root of a tree whose content is not trusted.
pub(crate) struct UntrustedTree<'a>(pub(crate) BorrowedFd<'a>);

impl UntrustedTree<'_> {
    pub(crate) fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        Ok(rustix::fs::openat2(self.0, path, flags, Mode::empty(), resolve)?)
    }

    /// Creates a directory and its parents. A file or link of the same name is removed.
    pub(crate) fn make_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o755);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::io::dup(self.0)?;
        for name in path.strip_prefix("/").unwrap_or(path) {
            at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
                Ok(next) => next,
                Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    rustix::fs::unlinkat(&at, name, AtFlags::empty())?;
                    rustix::fs::mkdirat(&at, name, mode)?;
                    rustix::fs::openat(&at, name, flags, Mode::empty())?
                }
                Err(rustix::io::Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, name, mode)?;
                    rustix::fs::openat(&at, name, flags, Mode::empty())?
                }
                Err(error) => return Err(error.into()),
            };
        }
        Ok(at)
    }

    /// Writes a file, replacing any existing entry of that name.
    pub(crate) fn write(&self, dir: &Path, name: &str, text: &str) -> io::Result<()> {
        let dir = self.make_dir(dir)?;
        let temporary = ".stead-new";
        let _ = rustix::fs::unlinkat(&dir, temporary, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat(&dir, temporary, flags | OFlags::CLOEXEC, mode)?;
        File::from(file).write_all(text.as_bytes())?;
        Ok(rustix::fs::renameat(&dir, temporary, &dir, name)?)
    }
}

/// Makes a directory the root of this process, and unmounts everything outside of it.
pub(crate) fn change_root(root: BorrowedFd<'_>) -> io::Result<()> {
    let outside = open_dir(Path::new("/"))?;
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    // The old root is mounted over the new one.
    rustix::process::fchdir(outside)?;
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(".", private)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}
