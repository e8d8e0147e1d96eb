//! Writable program directories: one overlay for each, over the machine's own.
//!
//! ```text
//! DISK/layers/<name>/upper    what the sandbox changed
//! DISK/layers/<name>/work     the overlay's work directory
//! ```
//! The machine's directory is the lower layer, read-only and with the sandbox's users mapped. One overlay over
//! the whole root would show every directory that the machine gets later. `layers` is beside the sandbox's root
//! on its disk, so programs inside reach it through the overlays only.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::files::{cannot, open_dir};
use crate::layout::{READ_ONLY_TREE, program_directories};
use crate::private_programs::PrivatePrograms;
use crate::sys;
use crate::untrusted_tree::UntrustedTree;

/// The package database, which belongs to the programs in `/usr`.
const PACKAGES: &str = "/var/lib/dpkg";

/// The directory on a disk with the layers.
const LAYERS: &str = "layers";

/// The attribute of an upper directory that hides the lower one.
const OPAQUE: &str = "trusted.overlay.opaque";

/// One directory of the machine that a sandbox may change for itself.
pub(crate) struct ProgramLayer {
    path: PathBuf,
    lower: OwnedFd,
    flags: MountAttrFlags,
}

/// The machine's directories that sandboxes get as layers.
pub(crate) fn directories() -> Vec<PathBuf> {
    let mut list = program_directories();
    list.extend(Some(PathBuf::from(PACKAGES)).filter(|path| path.is_dir()));
    list
}

/// Opens the lower layers, with the users of a sandbox mapped if it has its own. Called before the stage hides a
/// directory of the machine.
pub(crate) fn open(users: Option<BorrowedFd<'_>>) -> io::Result<Vec<ProgramLayer>> {
    let open = |path: PathBuf| {
        let lower = sys::clone_tree(&path, READ_ONLY_TREE, users)
            .map_err(cannot("map a directory of this machine"))?;
        // Set-id bits have an effect among programs only: `su` and `sudo` need them.
        let flags = match path == Path::new(PACKAGES) {
            true => MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID,
            false => MountAttrFlags::MOUNT_ATTR_NODEV,
        };
        Ok(ProgramLayer { path, lower, flags })
    };
    directories().into_iter().map(open).collect()
}

/// Creates the upper layers on a disk with the machine's users, which hide private files. Called in the machine's mount
/// namespace.
pub(crate) fn prepare(
    disk: BorrowedFd<'_>,
    layers: &[ProgramLayer],
    private: &PrivatePrograms,
) -> io::Result<()> {
    layers.iter().try_for_each(|layer| layer.prepare(disk, private))
}

impl ProgramLayer {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory on a disk.
    fn own(&self) -> PathBuf {
        Path::new(LAYERS).join(self.name())
    }

    fn name(&self) -> String {
        self.path.to_string_lossy().trim_matches('/').replace('/', "-")
    }

    fn prepare(&self, disk: BorrowedFd<'_>, private: &PrivatePrograms) -> io::Result<()> {
        let disk = UntrustedTree(disk);
        disk.make_dir(&self.own().join("work"))?;
        let upper = disk.make_dir(&self.own().join("upper"))?;
        let below = |path: &PathBuf| path.strip_prefix(&self.path).ok().map(Path::to_owned);
        for path in private.hidden.iter().filter_map(below) {
            hide(upper.as_fd(), &self.path, &path).map_err(cannot("hide a private file"))?;
        }
        for path in private.with_capabilities.iter().filter_map(below) {
            // Without the copy, this one program does not run.
            let _ = copy_plain(upper.as_fd(), &self.path, &path);
        }
        Ok(())
    }
}

/// The directories on a stage at which disk and layers are mounted.
pub(crate) struct LayerStage<'a> {
    pub(crate) stage: &'a Path,
    /// The disk with the sandbox's users mapped.
    pub(crate) disk: &'a Path,
    pub(crate) first_user: u32,
}

impl LayerStage<'_> {
    /// Mounts the layers in the root of a sandbox, which has their mount points.
    pub(crate) fn mount(&self, layers: &[ProgramLayer], root: BorrowedFd<'_>) -> io::Result<()> {
        for layer in layers {
            self.mount_one(layer, root).map_err(cannot("mount a program directory"))?;
        }
        Ok(())
    }

    fn mount_one(&self, layer: &ProgramLayer, root: BorrowedFd<'_>) -> io::Result<()> {
        let lower = self.stage.join(format!("lower-{}", layer.name()));
        fs::create_dir(&lower)?;
        sys::move_mount(layer.lower.as_fd(), open_dir(&lower)?.as_fd())?;
        let own = self.disk.join(layer.own());
        let at = UntrustedTree(root).open(&layer.path)?;
        let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |name: &str, value: &Path| fsconfig_set_string(overlay.as_fd(), name, value);
        set("lowerdir", &lower)?;
        set("upperdir", &own.join("upper"))?;
        set("workdir", &own.join("work"))?;
        // Without it, renaming one of two names of a changed file is ESTALE, and packages do that.
        set("xino", Path::new("on"))?;
        sys::as_user(self.first_user, || Ok(fsconfig_create(overlay.as_fd())?))?;
        let overlay = fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, layer.flags)?;
        sys::move_mount(overlay.as_fd(), at.as_fd())
    }
}

/// Hides a file or directory of a lower layer by an entry in the upper one.
fn hide(upper: BorrowedFd<'_>, lower: &Path, path: &Path) -> io::Result<()> {
    let Some((parent, name)) = parent(upper, lower, path)? else { return Ok(()) };
    match rustix::fs::mknodat(&parent, &name, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) => Ok(()),
        // Hidden already, or replaced inside. A directory is merged with the machine's unless it is opaque.
        Err(Errno::EXIST) => match rustix::fs::openat(&parent, &name, DIRECTORY, Mode::empty()) {
            Ok(dir) => {
                let dir = format!("/proc/self/fd/{}", dir.as_raw_fd());
                Ok(rustix::fs::setxattr(dir, OPAQUE, b"y", XattrFlags::empty())?)
            }
            Err(_) => Ok(()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Copies a program into the upper layer without its extended attributes, unless the sandbox has its own.
fn copy_plain(upper: BorrowedFd<'_>, lower: &Path, path: &Path) -> io::Result<()> {
    let Some((parent, name)) = parent(upper, lower, path)? else { return Ok(()) };
    let mut program = File::open(lower.join(path))?;
    let mode = Mode::from_raw_mode(program.metadata()?.mode() & 0o755);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut copy = match rustix::fs::openat(&parent, &name, flags, mode) {
        Err(Errno::EXIST) => return Ok(()),
        file => File::from(file?),
    };
    let copied = io::copy(&mut program, &mut copy);
    if copied.is_err() {
        rustix::fs::unlinkat(&parent, &name, AtFlags::empty())?;
    }
    copied.map(drop)
}

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the parent of a path in the upper layer, and creates it like the machine's. Returns `None` if the
/// sandbox has replaced one of the parents, which hides everything below it.
fn parent(
    upper: BorrowedFd<'_>,
    lower: &Path,
    path: &Path,
) -> io::Result<Option<(OwnedFd, std::ffi::OsString)>> {
    let Some(name) = path.file_name() else { return Ok(None) };
    let mut at = rustix::io::dup(upper)?;
    let mut below = PathBuf::new();
    for part in path.parent().into_iter().flatten() {
        below.push(part);
        at = match rustix::fs::openat(&at, part, DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(Errno::NOENT) => {
                let like = fs::symlink_metadata(lower.join(&below))?;
                rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(like.mode() & 0o7777))?;
                let (user, group) = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&at, part, Some(user), Some(group), flags)?;
                rustix::fs::openat(&at, part, DIRECTORY, Mode::empty())?
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some((at, name.to_owned())))
}
