//! Copies the files of a disk and of the image below it to one directory.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::UnshareFlags;

use crate::files::cannot;
use crate::sys;

/// The directories beside the root that the layers are mounted on.
pub(crate) const LAYERS: [&str; 3] = ["disk", "image", "files"];

/// Mounts a disk over an image, and becomes the program that copies all files to a directory. Returns only if that
/// fails. The mounts end with this process.
pub(super) fn flatten(disk: &Path, image: &Path, root: &Path) -> io::Error {
    match mount_layers(disk, image, root) {
        Ok(()) => {
            // Extended attributes are those of the overlay, and the sandbox could not use others.
            let flags = ["-a", "--reflink=auto", "--no-preserve=xattr"];
            sys::exec_with(Command::new("cp").args(flags).arg("files/.").arg(root), &[])
        }
        Err(error) => error,
    }
}

fn mount_layers(disk: &Path, image: &Path, root: &Path) -> io::Result<()> {
    let beside = root.parent().ok_or_else(|| io::Error::other("the root has no parent"))?;
    sys::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // The names of the layers are relative: a path may contain what separates layers.
    std::env::set_current_dir(beside)?;
    for name in LAYERS {
        fs::create_dir(name)?;
    }
    let [upper, lower, files] = LAYERS;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    let (device, path) = sys::loop_device(disk).map_err(cannot("open the disk"))?;
    mount(&path, upper, "ext4", quiet | MountFlags::RDONLY, c"errors=remount-ro")
        .map_err(|error| cannot("mount the disk")(error.into()))?;
    drop(device);
    mount_bind(image, lower)?;
    let layers = c"lowerdir=disk/root:image";
    mount("overlay", files, "overlay", quiet | MountFlags::RDONLY, layers)
        .map_err(|error| cannot("mount the disk over the image")(error.into()))
}
