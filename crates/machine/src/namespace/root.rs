//! The root file system of a sandbox, which its launcher assembles.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::launch_file::SandboxLaunch;
use super::layers::{self, LayerStage};
use super::private_programs::PrivatePrograms;
use crate::files::{cannot, open_dir};
use crate::layout::{PROGRAMS, READ_ONLY_TREE, machine_directories, shown_directories};
use crate::network::connect::ResolvedEgress;
use crate::spec::SandboxCapabilities;
use crate::sys::{self, MountAccess};
use crate::untrusted_tree::UntrustedTree;

/// Directories that a launcher may mount over in its own mount namespace. The first without any of our
/// files is used.
const STAGES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// The name of the root directory on the stage.
pub(super) const ROOT: &str = "root";

/// What a sandbox gets of this machine's program directories.
pub(super) enum MachinePrograms {
    /// Nothing: it has an image.
    None,
    /// The directories themselves, read-only.
    ReadOnly,
    /// Writable layers over the directories, without these files.
    Layers(PrivatePrograms),
}

impl MachinePrograms {
    /// What the sandbox of a launch gets.
    pub(super) fn of(launch: &SandboxLaunch) -> io::Result<Self> {
        match (&launch.image, launch.spec.capabilities) {
            (Some(_), _) => Ok(Self::None),
            (None, SandboxCapabilities::None) => Ok(Self::ReadOnly),
            (None, SandboxCapabilities::Root) => {
                PrivatePrograms::find(&layers::directories()).map(Self::Layers)
            }
        }
    }
}

/// Mounts the root of a sandbox on the stage.
pub(super) fn mount_root(
    launch: &SandboxLaunch,
    programs: &MachinePrograms,
    resolved: &ResolvedEgress,
    stage: &Path,
    (device, device_path): (File, String),
    (users, first_user): (BorrowedFd<'_>, u32),
) -> io::Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    // Opened before the stage hides anything.
    let image = match &launch.image {
        Some(image) => Some(
            sys::clone_tree(image, READ_ONLY_TREE, Some(users))
                .map_err(cannot("map the image's users"))?,
        ),
        None => None,
    };
    let mut mounts =
        vec![(PathBuf::from(PROGRAMS), sys::clone_tree(&launch.programs, READ_ONLY_TREE, None)?)];
    let (directories, layers) = match programs {
        MachinePrograms::None => (vec![], vec![]),
        MachinePrograms::ReadOnly => (machine_directories(&launch.shown), vec![]),
        MachinePrograms::Layers(_) => {
            (shown_directories(&launch.shown).cloned().collect(), layers::open(users)?)
        }
    };
    for path in directories {
        let tree = sys::clone_tree(&path, READ_ONLY_TREE, None)
            .map_err(cannot("mount a directory of this machine"))?;
        mounts.push((path, tree));
    }

    let mount_tmpfs = rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k");
    mount_tmpfs.map_err(|error| cannot("mount the stage")(error.into()))?;
    let [disk, mapped, lower, root] =
        ["disk", "mapped", "lower", ROOT].map(|name| stage.join(name));
    for dir in [&disk, &mapped, &lower, &root] {
        fs::create_dir(dir)?;
    }
    rustix::mount::mount(&device_path, &disk, "ext4", quiet, c"noacl,errors=remount-ro")
        .or_else(|_| rustix::mount::mount(&device_path, &disk, "ext4", quiet, None))
        .map_err(|error| cannot("mount the disk")(error.into()))?;
    drop(device);
    furnish(launch, resolved, &disk.join("root"))?;

    let layer = sys::clone_tree(&disk, MountAccess { write: true, execute: true }, Some(users))
        .map_err(cannot("map the disk's users"))?;
    sys::move_mount(layer.as_fd(), open_dir(&mapped)?.as_fd())?;
    match image {
        None => rustix::mount::mount_bind(mapped.join("root"), &root)?,
        Some(image) => {
            sys::move_mount(image.as_fd(), open_dir(&lower)?.as_fd())?;
            let options = format!(
                "lowerdir={},upperdir={},workdir={}",
                lower.display(),
                mapped.join("root").display(),
                mapped.join("work").display()
            );
            let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
            sys::as_user(first_user, || {
                Ok(rustix::mount::mount("overlay", &root, "overlay", quiet, options.as_c_str())?)
            })
            .map_err(cannot("mount the overlay"))?;
        }
    }
    let inside = open_dir(&root)?;
    if let MachinePrograms::Layers(private) = programs {
        LayerStage { stage, disk: &disk, mapped: &mapped, first_user }.mount(
            &layers,
            private,
            inside.as_fd(),
        )?;
    }
    for (path, tree) in &mounts {
        let at = UntrustedTree(inside.as_fd()).open(path).map_err(cannot("open a mount point"))?;
        sys::move_mount(tree.as_fd(), at.as_fd()).map_err(cannot("mount into the sandbox"))?;
    }
    Ok(())
}

/// Creates the mount points, and writes the files for name resolution. The sandbox wrote the disk's
/// content, so no link is followed.
pub(super) fn furnish(
    launch: &SandboxLaunch,
    resolved: &ResolvedEgress,
    root: &Path,
) -> io::Result<()> {
    let root = open_dir(root)?;
    let inside = UntrustedTree(root.as_fd());
    for path in ["proc", "dev", "sys", "run", "workspace", "memories/hot", "memories/persistent"] {
        inside.make_dir(Path::new(path))?;
    }
    inside.make_dir(Path::new(PROGRAMS))?;
    if launch.image.is_none() {
        for path in machine_directories(&launch.shown) {
            inside.make_dir(&path)?;
        }
        if launch.spec.capabilities == SandboxCapabilities::Root {
            for path in layers::directories() {
                inside.make_dir(&path)?;
            }
        }
    }
    let (hosts, resolv) = resolved.names(&launch.spec.egress);
    // The sandbox may have made its own /etc unusable.
    let _ = inside.write(Path::new("etc"), "hosts", &hosts);
    let _ = inside.write(Path::new("etc"), "resolv.conf", &resolv);
    Ok(())
}

/// A directory of this machine to mount the root on.
pub(super) fn stage(dir: &Path, launch: &SandboxLaunch) -> io::Result<&'static Path> {
    let ours = [Some(dir), launch.runtime.as_deref()];
    STAGES
        .iter()
        .map(Path::new)
        .find(|stage| stage.is_dir() && ours.iter().flatten().all(|path| !path.starts_with(stage)))
        .ok_or_else(|| io::Error::other("no directory to mount the root on; create /mnt"))
}
