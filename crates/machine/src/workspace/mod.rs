//! Workspaces of sandboxes, each on a file system of its own, so that the kernel bounds their bytes and inodes.
//!
//! ```text
//! HOME/workspaces/<project>/
//!     disk.img               an ext4 image; its size is the limit of the sandboxes that use the project
//!     disk/                  where it is mounted: repo/, memories/, tmp/ (unfinished files of the server)
//!     repo                   a link to disk/repo
//!     memories/persistent    a link to disk/memories
//! ```
//! A project gets its disk when a sandbox uses it for the first time (`carry`); without one, these are plain
//! directories. The disk is mounted in the machine's namespace, because the server and local shells use the same
//! files. The mount outlives the server; the next one finds it. All names are relative, so a home can be moved.
//!
//! The lock of the workspace's directory is held while its disk is created, mounted or grown.

mod carry;
mod image;
mod users;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;

use crate::files::{remove, remove_all};
use carry::{CarryStep, is_carried};
use image::{IMAGE, UNFINISHED, detach, is_mounted, mount_point};
use provider::WorkspaceDisks;

/// How long a use of a workspace waits while its files are moved to its disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The directories with workspaces, including those of deleted projects.
const WORKSPACES: [&str; 2] = ["workspaces", "trash"];
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What limits the writes of sandboxes to a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WorkspaceBound {
    /// The file system that it is on.
    Disk,
    /// Nothing: it could not be moved to a disk, for this reason.
    None(&'static str),
}

/// The workspaces of a home that are on disk images.
#[derive(Debug)]
pub struct WorkspaceImages {
    home: PathBuf,
    /// When each was last used.
    used: Mutex<HashMap<PathBuf, Instant>>,
}

impl WorkspaceImages {
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), used: Mutex::default() }
    }

    /// Unmounts the disks that were not used for this time and that no process on the machine uses. Those of
    /// running sandboxes stay attached to them. While local shells run, which may use any path at any time, the
    /// disks are only synced. Blocking.
    pub fn unmount_idle(&self, idle: Duration) {
        let now = Instant::now();
        let mut local_hosts = fs::read_dir(self.home.join("run")).into_iter().flatten();
        let has_local_shells = local_hosts.next().is_some();
        for workspace in mounted_below(&self.home, &WORKSPACES) {
            // Those of an earlier server count from now on.
            let since = *self.used.lock().entry(workspace.clone()).or_insert(now);
            if now.duration_since(since) < idle && !image::is_stopped(&workspace) {
                continue;
            }
            let Ok(_lock) = try_lock(&workspace) else { continue };
            // A sandbox may keep using the disk, and a backup copies what is in the image.
            image::sync(&workspace);
            if has_local_shells {
                continue;
            }
            match rustix::mount::unmount(mount_point(&workspace), UnmountFlags::empty()) {
                Ok(()) => drop(self.used.lock().remove(&workspace)),
                Err(rustix::io::Errno::BUSY) => {}
                Err(error) => {
                    let workspace = workspace.display();
                    tracing::warn!(%workspace, %error, "cannot unmount the disk of a workspace");
                }
            }
        }
    }
}

impl WorkspaceDisks for WorkspaceImages {
    fn attach(&self, workspace: &Path) -> io::Result<()> {
        let exists = |name| fs::symlink_metadata(workspace.join(name)).is_ok();
        if !exists(IMAGE) && !exists(UNFINISHED) {
            return Ok(());
        }
        self.used.lock().insert(workspace.to_owned(), Instant::now());
        attach(workspace)
    }

    fn detach(&self, workspace: &Path) -> io::Result<()> {
        self.used.lock().remove(workspace);
        detach(workspace)
    }
}

/// Puts a workspace on a disk of at least this size, and mounts it. Blocking.
pub(crate) fn bound(workspace: &Path, bytes: u64) -> io::Result<WorkspaceBound> {
    bound_until(workspace, bytes, &|_| Ok(()))
}

/// The same, interrupted where `at` returns an error.
fn bound_until(
    workspace: &Path,
    bytes: u64,
    at: &dyn Fn(CarryStep) -> io::Result<()>,
) -> io::Result<WorkspaceBound> {
    if is_ready(workspace) && image::bytes(workspace)? >= bytes && !image::is_stopped(workspace) {
        return Ok(WorkspaceBound::Disk);
    }
    let lock = lock(workspace)?;
    if !workspace.join(IMAGE).exists()
        && let Some(why) = carry::prepare(workspace, bytes, &lock, at)?
    {
        return Ok(WorkspaceBound::None(why));
    }
    open(workspace, &lock, at)?;
    image::grow(workspace, bytes)?;
    Ok(WorkspaceBound::Disk)
}

/// Mounts the disk of a workspace, if it has one, and completes what a killed server began.
fn attach(workspace: &Path) -> io::Result<()> {
    if is_ready(workspace) {
        return Ok(());
    }
    let lock = lock(workspace)?;
    if workspace.join(IMAGE).exists() {
        return open(workspace, &lock, &|_| Ok(()));
    }
    // The files are where they were before.
    carry::undo(workspace)
}

fn open(workspace: &Path, lock: &File, at: &dyn Fn(CarryStep) -> io::Result<()>) -> io::Result<()> {
    // Left by a server that was killed while it enlarged a copy.
    remove(&workspace.join(UNFINISHED))?;
    image::unmount_stopped(workspace)?;
    if !is_mounted(workspace) {
        image::mount(workspace, IMAGE)?;
        // Unfinished files of an earlier server. A process with an open one would keep the disk mounted.
        let tmp = mount_point(workspace).join("tmp");
        for entry in fs::read_dir(&tmp)?.flatten() {
            remove_all(&entry.path()).or_else(|_| fs::remove_file(entry.path()))?;
        }
    }
    carry::complete(workspace, lock, at)
}

/// Creates a disk of this size in a directory that has none, and mounts it. Returns the mount point. Blocking.
pub(crate) fn create_disk(directory: &Path, bytes: u64) -> io::Result<PathBuf> {
    image::create(&directory.join(IMAGE), bytes)?;
    image::mount(directory, IMAGE)?;
    Ok(mount_point(directory))
}

/// Mounts the disk of a directory, unless it is mounted. Returns the mount point; `None` if there is no disk. Blocking.
pub(crate) fn mount_disk(directory: &Path) -> io::Result<Option<PathBuf>> {
    if !directory.join(IMAGE).exists() {
        return Ok(None);
    }
    if !is_mounted(directory) {
        let _lock = lock(directory)?;
        if !is_mounted(directory) {
            image::mount(directory, IMAGE)?;
        }
    }
    Ok(Some(mount_point(directory)))
}

/// Unmounts the disk of a directory, if it is mounted. Blocking.
pub(crate) fn detach_disk(directory: &Path) -> io::Result<()> {
    detach(directory)
}

fn is_ready(workspace: &Path) -> bool {
    workspace.join(IMAGE).exists() && is_mounted(workspace) && is_carried(workspace)
}

/// Unmounts the disks of all workspaces and volumes of a home, whose sandboxes have ended.
pub(crate) fn detach_all(home: &Path) -> io::Result<()> {
    let [workspaces, trash] = WORKSPACES;
    mounted_below(home, &[workspaces, trash, "volumes"])
        .iter()
        .try_for_each(|workspace| detach(workspace))
}

/// The entries of these directories of a home whose disk is mounted.
fn mounted_below(home: &Path, directories: &[&str]) -> Vec<PathBuf> {
    let entries = directories.iter().filter_map(|name| {
        Some(fs::read_dir(home.join(name)).ok()?.flatten().map(|entry| entry.path()))
    });
    entries.flatten().filter(|workspace| is_mounted(workspace)).collect()
}

fn try_lock(workspace: &Path) -> io::Result<File> {
    let directory = File::open(workspace)?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn lock(workspace: &Path) -> io::Result<File> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match try_lock(workspace) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            locked => return locked,
        }
        if Instant::now() > deadline {
            let what = "the files of this workspace are being moved to a disk of their own; \
                try again later";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests;
