//! The disk image of a workspace: created, mounted and grown.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::CapabilitySet;

use crate::disk;
use crate::files::{cannot, make_dir};
use crate::sys;
use crate::tools::make_ext4;

pub(super) const IMAGE: &str = "disk.img";

/// The image while it is being filled. Until it is renamed, the files are still in their plain directories.
pub(super) const UNFINISHED: &str = "disk.new";

const BLOCK_BYTES: u64 = 4096;

/// There is one inode for so many bytes: enough for source trees, whose files are small.
pub(super) const BYTES_PER_INODE: u64 = 8192;

const OPTIONS: &std::ffi::CStr = c"errors=remount-ro,discard,noinit_itable";

pub(super) fn mount_point(workspace: &Path) -> PathBuf {
    workspace.join("disk")
}

pub(super) fn is_mounted(workspace: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    match (device(workspace), device(&mount_point(workspace))) {
        (Ok(above), Ok(below)) => above != below,
        _ => false,
    }
}

/// Whether the kernel has made the mounted disk read-only, because the machine's disk was full or failed.
pub(super) fn is_stopped(workspace: &Path) -> bool {
    let Ok(found) = fs::metadata(mount_point(workspace)) else { return false };
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = format!("{major}:{minor}");
    mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&device)).any(|line| {
        // The last word has the options of the file system, which are not those of the mount.
        let options = line.rsplit(' ').next().unwrap_or_default();
        options.split(',').any(|option| ["ro", "emergency_ro"].contains(&option))
    })
}

/// Unmounts a disk that the kernel has made read-only, unless it is in use: the next mount repairs it.
pub(super) fn unmount_stopped(workspace: &Path) -> io::Result<()> {
    if !is_stopped(workspace) {
        return Ok(());
    }
    match rustix::mount::unmount(mount_point(workspace), UnmountFlags::empty()) {
        Err(rustix::io::Errno::BUSY) => Ok(()),
        unmounted => Ok(unmounted?),
    }
}

/// The size of a workspace's disk.
pub(super) fn bytes(workspace: &Path) -> io::Result<u64> {
    Ok(fs::metadata(workspace.join(IMAGE))?.len())
}

/// Creates an image with an empty file system.
pub(super) fn create(image: &Path, bytes: u64) -> io::Result<()> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(image)?;
    file.set_len(bytes.next_multiple_of(BLOCK_BYTES))?;
    let (block, inode) = (BLOCK_BYTES.to_string(), BYTES_PER_INODE.to_string());
    make_ext4(vec!["-b".into(), block.into(), "-i".into(), inode.into(), image.into()])
}

/// Mounts an image of a workspace. A disk that running sandboxes use is mounted again: it is the same device.
pub(super) fn mount(workspace: &Path, name: &str) -> io::Result<()> {
    let (image, point) = (workspace.join(name), mount_point(workspace));
    make_dir(&point)?;
    if !rustix::process::geteuid().is_root() {
        let what =
            "the files of this project are on a disk image; run the server as root to use them";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let (device, path) = match sys::loop_device_of(&image)? {
        Some(found) => found,
        None => sys::loop_device(&image).map_err(cannot("attach the disk to a loop device"))?,
    };
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(&path, &point, "ext4", quiet, OPTIONS)
        .map_err(|error| cannot("mount the disk of the workspace")(error.into()))?;
    if can_grow_in_use()? {
        // A server may have been killed after it enlarged the file.
        fill(&image, &device, &point)?;
    }
    Ok(())
}

/// Unmounts the disk of a workspace at once. Running sandboxes keep using it until they end.
pub(super) fn detach(workspace: &Path) -> io::Result<()> {
    while is_mounted(workspace) {
        rustix::mount::unmount(mount_point(workspace), UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Makes the disk of a workspace at least this large. Without the right to do so while it is in use, the disk keeps
/// its size until nothing uses it.
pub(super) fn grow(workspace: &Path, bytes: u64) -> io::Result<()> {
    let (image, point) = (workspace.join(IMAGE), mount_point(workspace));
    let bytes = bytes.next_multiple_of(BLOCK_BYTES);
    let file = OpenOptions::new().write(true).open(&image)?;
    if file.metadata()?.len() >= bytes {
        return Ok(());
    }
    if can_grow_in_use()? {
        file.set_len(bytes)?;
        file.sync_all()?;
        return match sys::loop_device_of(&image)? {
            Some((device, _)) => fill(&image, &device, &point),
            None => Err(io::Error::other("the disk of the workspace is not mounted")),
        };
    }
    match rustix::mount::unmount(&point, UnmountFlags::empty()) {
        Err(rustix::io::Errno::BUSY) => return Ok(()),
        unmounted => unmounted?,
    }
    let grown = match sys::loop_device_of(&image)? {
        // A sandbox uses it.
        Some(_) => Ok(()),
        None => disk::image::grow(&image, bytes),
    };
    mount(workspace, IMAGE)?;
    grown
}

/// Whether the kernel lets this process resize a mounted file system.
fn can_grow_in_use() -> io::Result<bool> {
    let own = rustix::thread::capabilities(None)?;
    Ok(own.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Makes the mounted file system as large as its image.
fn fill(image: &Path, device: &File, point: &Path) -> io::Result<()> {
    sys::grow_loop_device(device).map_err(cannot("grow a loop device"))?;
    let blocks = fs::metadata(image)?.len() / BLOCK_BYTES;
    sys::grow_ext4(&File::open(point)?, blocks).map_err(cannot("grow the disk of the workspace"))
}

/// Writes everything to the image.
pub(super) fn sync(workspace: &Path) {
    let synced = File::open(mount_point(workspace))
        .and_then(|root| rustix::fs::syncfs(root).map_err(io::Error::from));
    if let Err(error) = synced {
        let workspace = workspace.display();
        tracing::warn!(%workspace, %error, "cannot sync the disk of a workspace");
    }
}
