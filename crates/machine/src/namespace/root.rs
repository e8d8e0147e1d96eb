//! The root file system of a sandbox, which its launcher assembles.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::launch_file::SandboxLaunch;
use crate::files::{cannot, open_dir};
use crate::layout::{
    PROGRAMS, READ_ONLY_TREE, machine_directories, program_directories, shown_directories,
};
use crate::network::connect::ResolvedEgress;
use crate::private_programs::PrivatePrograms;
use crate::program_layers::{self as layers, LayerStage};
use crate::spec::SandboxCapabilities;
use crate::sys::{self, MountAccess};
use crate::untrusted_tree::UntrustedTree;

/// Directories that a launcher may mount over in its own mount namespace. The first without any of our
/// files is used.
const STAGES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// The name of the root directory on the stage.
pub(super) const ROOT: &str = "root";

/// The name of the directory with the device files on the stage.
pub(super) const DEVICES: &str = "devices";

/// What the launcher opened for the root before it entered the sandbox's cgroups.
pub(super) struct MountedParts {
    /// The loop device of the disk, and its path.
    pub(super) disk: (File, String),
    /// The detached file system with the device files.
    pub(super) devices: OwnedFd,
}

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
    MountedParts { disk: (device, device_path), devices }: MountedParts,
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
    let open = |path: PathBuf| {
        let tree = sys::clone_tree(&path, READ_ONLY_TREE, None)
            .map_err(cannot("mount a directory of this machine"))?;
        Ok((path, tree))
    };
    let host = sys::clone_tree(&launch.programs, READ_ONLY_TREE, None)?;
    let mut views = vec![(PathBuf::from(PROGRAMS), host)];
    let (directories, layers) = match programs {
        MachinePrograms::None => (vec![], vec![]),
        MachinePrograms::ReadOnly => (program_directories(), vec![]),
        MachinePrograms::Layers(_) => (vec![], layers::open(Some(users))?),
    };
    for path in directories {
        views.push(open(path)?);
    }
    // The operator may change these, which an overlay would not show.
    let shown: Vec<_> = match programs {
        MachinePrograms::None => vec![],
        MachinePrograms::ReadOnly | MachinePrograms::Layers(_) => {
            shown_directories(&launch.shown).cloned().map(open).collect::<io::Result<_>>()?
        }
    };

    let mount_tmpfs = rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k");
    mount_tmpfs.map_err(|error| cannot("mount the stage")(error.into()))?;
    let [disk, mapped, lower, root, empty] =
        ["disk", "mapped", "lower", ROOT, "empty"].map(|name| stage.join(name));
    for dir in [&disk, &mapped, &lower, &root, &empty, &stage.join(DEVICES)] {
        fs::create_dir(dir)?;
    }
    sys::move_mount(devices.as_fd(), open_dir(&stage.join(DEVICES))?.as_fd())?;
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
            // As for program directories: packages need `xino`, `su` and `sudo` need set-id bits.
            let options = format!(
                "lowerdir={},upperdir={},workdir={},xino=on",
                lower.display(),
                mapped.join("root").display(),
                mapped.join("work").display()
            );
            let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
            let flags = match launch.spec.capabilities {
                SandboxCapabilities::Root => MountFlags::NODEV,
                SandboxCapabilities::None => quiet,
            };
            sys::as_user(first_user, || {
                Ok(rustix::mount::mount("overlay", &root, "overlay", flags, options.as_c_str())?)
            })
            .map_err(cannot("mount the overlay"))?;
        }
    }
    let inside = open_dir(&root)?;
    if let MachinePrograms::Layers(private) = programs {
        layers::prepare(open_dir(&disk)?.as_fd(), &layers, private)?;
        LayerStage { stage, disk: &mapped, first_user }.mount(&layers, inside.as_fd())?;
    }
    let point =
        |path| UntrustedTree(inside.as_fd()).open(path).map_err(cannot("open a mount point"));
    for (number, (path, tree)) in views.iter().enumerate() {
        let below = stage.join(format!("view-{number}"));
        fs::create_dir(&below)?;
        sys::move_mount(tree.as_fd(), open_dir(&below)?.as_fd())?;
        mount_view(&below, &empty, point(path)?.as_fd(), first_user)
            .map_err(cannot("mount a view of a directory of this machine"))?;
    }
    for (path, tree) in &shown {
        sys::move_mount(tree.as_fd(), point(path)?.as_fd())
            .map_err(cannot("mount into the sandbox"))?;
    }
    Ok(())
}

/// Mounts a read-only directory as an overlay, so that its files are this sandbox's own for `inotify` and `flock`. `empty`
/// is an empty directory, because an overlay has at least two layers.
fn mount_view(
    directory: &Path,
    empty: &Path,
    at: BorrowedFd<'_>,
    first_user: u32,
) -> io::Result<()> {
    let options = format!("lowerdir={}:{}", directory.display(), empty.display());
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    let at = format!("/proc/self/fd/{}", at.as_raw_fd());
    sys::as_user(first_user, || {
        Ok(rustix::mount::mount("overlay", at.as_str(), "overlay", flags, options.as_c_str())?)
    })
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
