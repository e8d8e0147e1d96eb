//! Moves the files of a workspace to its disk, once.
//!
//! ```text
//! prepare    disk.new is created, mounted and filled with copies; then it is renamed to disk.img
//! complete   each directory is exchanged for its link; what changed meanwhile is copied; the old is removed
//! ```
//! Until the rename, the plain directories are the files, and an interrupted attempt is undone. From then on the
//! disk has them, and an interrupted attempt is completed before the next use.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};

use super::image::{self, BYTES_PER_INODE, IMAGE, UNFINISHED, mount_point};
use super::users;
use crate::files::{cannot, remove, remove_all};
use crate::tools::run_tool;
use base::durable::{open_directory, sync_directory};

/// A point at which the server may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CarryStep {
    Created,
    Mounted,
    Copied,
    Committed,
    Linked,
    Merged,
}

/// A directory that sandboxes write to.
pub(super) struct Carried {
    /// Its path in the workspace.
    pub(super) path: &'static str,
    /// The link that takes its place.
    link: &'static str,
    on_disk: &'static str,
    /// The name of the old directory until it is removed.
    old: &'static str,
}

pub(super) const CARRIED: [Carried; 2] = [
    Carried { path: "repo", link: "disk/repo", on_disk: "repo", old: "moved-repo" },
    Carried {
        path: "memories/persistent",
        link: "../disk/memories",
        on_disk: "memories",
        old: "moved-memories",
    },
];

/// Room for the metadata of copied files.
const METADATA_DIVISOR: u64 = 16;

/// How long the files of a workspace may take to be copied.
const COPY_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The machine keeps at least this free while files are copied.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Whether all directories are links to the disk, and nothing of the old ones is left.
pub(super) fn is_carried(workspace: &Path) -> bool {
    CARRIED.iter().all(|carried| {
        is_link(&workspace.join(carried.path))
            && fs::symlink_metadata(workspace.join(carried.old)).is_err()
    })
}

/// Creates the disk, with copies of the files. Returns why it was not done, if they have to stay.
pub(super) fn prepare(
    workspace: &Path,
    bytes: u64,
    lock: &File,
    at: &dyn Fn(CarryStep) -> io::Result<()>,
) -> io::Result<Option<&'static str>> {
    undo(workspace)?;
    let unfinished = workspace.join(UNFINISHED);
    // From here on, other uses of the workspace wait for the lock.
    File::create(&unfinished)?;
    let content = ContentSize::of(workspace)?;
    if let Some(why) = obstacle(workspace, content)? {
        undo(workspace)?;
        return Ok(Some(why));
    }
    image::create(&unfinished, bytes + content.room())?;
    at(CarryStep::Created)?;
    image::mount(workspace, UNFINISHED)?;
    at(CarryStep::Mounted)?;
    let disk = mount_point(workspace);
    fs::create_dir(disk.join("tmp"))?;
    for carried in &CARRIED {
        let (from, to) = (workspace.join(carried.path), disk.join(carried.on_disk));
        fs::create_dir(&to)?;
        if !is_empty(&from)? {
            copy(&from, &to, &["-a"], lock)?;
        }
        adopt(&from, &to)?;
    }
    rustix::fs::syncfs(File::open(&disk)?)?;
    File::open(&unfinished)?.sync_all()?;
    at(CarryStep::Copied)?;
    fs::rename(&unfinished, workspace.join(IMAGE))?;
    sync(workspace)?;
    at(CarryStep::Committed)?;
    Ok(None)
}

/// Removes a disk that was not finished.
pub(super) fn undo(workspace: &Path) -> io::Result<()> {
    image::detach(workspace)?;
    remove(&workspace.join(UNFINISHED))
}

/// Replaces the old directories by links to the mounted disk.
pub(super) fn complete(
    workspace: &Path,
    lock: &File,
    at: &dyn Fn(CarryStep) -> io::Result<()>,
) -> io::Result<()> {
    for carried in &CARRIED {
        let (path, old) = (workspace.join(carried.path), workspace.join(carried.old));
        if !is_link(&path) {
            if is_link(&old) {
                fs::remove_file(&old)?;
            }
            symlink(carried.link, &old)?;
            rustix::fs::renameat_with(CWD, &old, CWD, &path, RenameFlags::EXCHANGE)
                .map_err(|error| cannot("exchange a directory for its link")(error.into()))?;
        }
        at(CarryStep::Linked)?;
    }
    if is_carried(workspace) {
        return Ok(());
    }
    for carried in &CARRIED {
        sync(workspace.join(carried.path).parent().unwrap_or(workspace))?;
    }
    for carried in &CARRIED {
        let old = workspace.join(carried.old);
        if is_link(&old) {
            fs::remove_file(&old)?;
        }
        if fs::symlink_metadata(&old).is_err() {
            continue;
        }
        if !is_empty(&old)? {
            let disk = mount_point(workspace).join(carried.on_disk);
            // Requests that began before wrote to the old directory.
            copy(&old, &disk, &["-a", "-u"], lock)?;
            rustix::fs::syncfs(File::open(&disk)?)?;
        }
        at(CarryStep::Merged)?;
        remove_all(&old)?;
    }
    Ok(())
}

/// Why the files have to stay where they are.
fn obstacle(workspace: &Path, content: ContentSize) -> io::Result<Option<&'static str>> {
    let paths: Vec<PathBuf> = CARRIED.iter().map(|it| workspace.join(it.path)).collect();
    if users::has_other_users(&paths)? {
        return Ok(Some("programs outside of sandboxes are using it"));
    }
    let disk = rustix::fs::statvfs(workspace)?;
    let free = disk.f_bavail * disk.f_frsize;
    if content.files > 0 && free < content.room() + MIN_FREE_BYTES {
        return Ok(Some("the machine has too little free space to copy it"));
    }
    Ok(None)
}

/// How much has to be copied.
#[derive(Debug, Clone, Copy, Default)]
struct ContentSize {
    bytes: u64,
    files: u64,
}

impl ContentSize {
    fn of(workspace: &Path) -> io::Result<Self> {
        let mut content = Self::default();
        let mut directories: Vec<_> = CARRIED.iter().map(|it| workspace.join(it.path)).collect();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                // Removed in the meantime.
                let Ok(found) = entry.metadata() else { continue };
                content.files += 1;
                content.bytes += found.blocks() * 512;
                if found.is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        Ok(content)
    }

    /// The space that the copies need, in addition to what sandboxes may write.
    fn room(self) -> u64 {
        self.bytes + self.bytes / METADATA_DIVISOR + self.files * BYTES_PER_INODE
    }
}

/// Copies the content of a directory with owners, times, links and attributes. The program keeps the lock until it
/// ends, even if this process is killed before.
fn copy(from: &Path, to: &Path, options: &[&str], lock: &File) -> io::Result<()> {
    let paths = [OsString::from("--"), from.join(".").into(), to.join(".").into()];
    let arguments = options.iter().map(OsString::from).chain(paths).collect();
    let copied = run_tool("workspace.copy", COPY_TIMEOUT, "cp", arguments, Some(lock));
    copied.map_err(io::Error::other)
}

/// Gives a directory the owner and the mode of another.
fn adopt(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::metadata(from)?;
    chown(to, Some(found.uid()), Some(found.gid()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn sync(directory: &Path) -> io::Result<()> {
    sync_directory(open_directory(directory)?)
}
