//! The root file system of a container, on the disk of its lease.
//!
//! The writable layer of an engine has no size limit, ends with the container and cannot be copied. So it
//! stays read-only and empty. Before anything but process 1 runs, the launcher mounts an overlay with the
//! lease's disk, moves some of the engine's mounts into it, and makes it the root:
//!
//! ```text
//! the image, as the engine mounts it         lower layer, read-only
//! the lease's disk: root, work               upper layer, for all writes
//! /proc /dev /sys /run, the host's program   moved from the engine's root to the new one
//! shown directories                          read-only overlays, of each container its own
//! programs of the machine, if root may       writable overlays with upper layers on the lease's disk
//! volumes, /etc/hosts, everything else       left in the engine's root
//! ```
//! All of this is in the container's mount namespace, and ends with its last process.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change, mount_remount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::files::{cannot, open_dir};
use crate::layout::{self, PROGRAMS, TERMINALS_GROUP};
use crate::private_programs::PrivatePrograms;
use crate::program_layers::{self, LayerStage, ProgramLayer};
use crate::spec::SandboxCapabilities;
use crate::sys::{self, MountAccess};
use crate::untrusted_tree::{UntrustedTree, change_root};

/// The path of the hand-off directory inside.
pub(super) const HANDOFF_INSIDE: &str = "/.stead-door";

/// The mounts of the engine that every container needs.
const NEEDED: [&str; 5] = ["/proc", "/dev", "/sys", "/run", PROGRAMS];

pub(super) struct ContainerRoot<'a> {
    /// Process 1 of the container.
    pub(super) pid: i32,
    /// The disk image of the lease.
    pub(super) disk: &'a Path,
    /// The directories of the machine that are mounted in it.
    pub(super) shown: &'a [PathBuf],
    /// Its user namespace, if its user 0 is not the machine's.
    pub(super) users: Option<BorrowedFd<'a>>,
    /// The files of `/etc` for name resolution, with their content.
    pub(super) names: [(&'static str, &'a str); 2],
    pub(super) capabilities: SandboxCapabilities,
    /// The machine's programs, if root inside may change them for itself.
    pub(super) programs: Option<&'a ContainerPrograms>,
}

/// Program directories of the machine that a container gets as writable layers.
pub(super) struct ContainerPrograms {
    layers: Vec<ProgramLayer>,
    private: PrivatePrograms,
}

impl ContainerPrograms {
    /// Called in the machine's mount namespace.
    pub(super) fn open() -> io::Result<Self> {
        let private = PrivatePrograms::find(&program_layers::directories())
            .map_err(cannot("find private programs"))?;
        Ok(Self { layers: program_layers::open(None)?, private })
    }
}

impl ContainerRoot<'_> {
    /// Mounts the root in the container. Needs a process of one thread.
    pub(super) fn mount(&self) -> io::Result<()> {
        let proc_file = |name: &str| format!("/proc/{}/{name}", self.pid);
        let mounts = File::open(proc_file("ns/mnt"))?;
        let moved = moved_mounts(&fs::read_to_string(proc_file("mountinfo"))?, self.shown)
            .map_err(cannot("find the mounts of the engine"))?;
        let first = |map: &str| -> io::Result<u32> {
            let map = fs::read_to_string(proc_file(map))?;
            let first = map.split_ascii_whitespace().nth(1).and_then(|first| first.parse().ok());
            first.ok_or_else(|| io::Error::other("the container has no user mapping"))
        };
        let (user, group) = (first("uid_map")?, first("gid_map")?);
        let disk = self.disk().map_err(cannot("mount the lease's disk"))?;
        if let Some(ContainerPrograms { layers, private }) = self.programs {
            program_layers::prepare(disk.as_fd(), layers, private)?;
        }
        let mounted = sys::fork(|| {
            sys::unshare(UnshareFlags::FS)?;
            sys::enter(mounts.as_fd(), LinkNameSpaceType::Mount)?;
            self.mount_overlay(disk.as_fd(), user, &moved)?;
            limit_devices(group).map_err(cannot("limit the container's terminals and devices"))
        })?;
        drop(disk);
        mounted.join().map_err(cannot("mount the container's root"))
    }

    /// Mounts the disk, detached from every namespace.
    fn disk(&self) -> io::Result<OwnedFd> {
        let (device, path) = sys::loop_device(self.disk)?;
        let files = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(files.as_fd(), "source", path)?;
        fsconfig_set_string(files.as_fd(), "errors", "remount-ro")?;
        // Not every kernel supports this option.
        let _ = fsconfig_set_flag(files.as_fd(), "noacl");
        fsconfig_create(files.as_fd())?;
        let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let disk = fsmount(files.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, quiet)?;
        drop(device);
        let all = MountAccess { write: true, execute: true };
        sys::restrict(disk.as_fd(), all, self.users)?;
        Ok(disk)
    }

    /// Mounts the disk over the current root, and makes that the root of all processes in this mount
    /// namespace.
    fn mount_overlay(&self, disk: BorrowedFd<'_>, user: u32, moved: &[PathBuf]) -> io::Result<()> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)?;
        let quiet = MountFlags::NOSUID | MountFlags::NODEV;
        // The hand-off is over, and its directory stays in the old root.
        let stage = Path::new(HANDOFF_INSIDE);
        mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k")?;
        let [layer, root, empty] = ["disk", "root", "empty"].map(|name| stage.join(name));
        for directory in [&layer, &root, &empty] {
            fs::create_dir(directory)?;
        }
        sys::move_mount(disk, open_dir(&layer)?.as_fd())?;
        let (flags, more) = match (self.capabilities, self.programs) {
            // Packages need `xino`, and `su` and `sudo` need set-id bits where the programs are.
            (SandboxCapabilities::Root, None) => (MountFlags::NODEV, ",xino=on"),
            (SandboxCapabilities::Root, Some(_)) => (quiet, ",xino=on"),
            (SandboxCapabilities::None, _) => (quiet, ""),
        };
        let layers = format!(
            "lowerdir=/,upperdir={},workdir={}{more}",
            layer.join("root").display(),
            layer.join("work").display()
        );
        let layers = CString::new(layers).map_err(io::Error::other)?;
        sys::as_user(user, || {
            mount("overlay", &root, "overlay", flags, layers.as_c_str())
                .map_err(|error| cannot("mount the disk over the image")(error.into()))?;
            let root = open_dir(&root)?;
            let inside = UntrustedTree(root.as_fd());
            for (name, text) in self.names {
                // The container may have made its own /etc unusable.
                let _ = inside.write(Path::new("etc"), name, text);
            }
            let programs = self.programs.map_or(&[][..], |programs| &programs.layers);
            for path in programs.iter().map(ProgramLayer::path) {
                inside.make_dir(path).map_err(cannot("create a mount point"))?;
            }
            LayerStage { stage, disk: &layer, first_user: user }.mount(programs, root.as_fd())?;
            for path in moved {
                if programs.iter().any(|layer| layer.path() == path) {
                    continue;
                }
                let at = inside.make_dir(path).map_err(cannot("create a mount point"))?;
                if self.shown.contains(path) && show_apart(path, &empty, at.as_fd()).is_ok() {
                    continue;
                }
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let from = rustix::fs::open(path, flags, Mode::empty())?;
                sys::move_mount(from.as_fd(), at.as_fd())
                    .map_err(cannot("move a mount of the engine"))?;
            }
            change_root(root.as_fd()).map_err(cannot("change the root"))
        })
    }
}

/// Mounts a read-only view of a directory. Locks and watches are on the inodes of the view, so containers cannot
/// notice or signal each other by them. Fails where the directory is on too many overlays.
fn show_apart(path: &Path, empty: &Path, at: BorrowedFd<'_>) -> io::Result<()> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let view = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // A second layer, because an overlay that is never written to needs two.
    let layers = format!("{}:{}", escaped_layer(path), empty.display());
    fsconfig_set_string(view.as_fd(), "lowerdir", layers)?;
    fsconfig_create(view.as_fd())?;
    let read_only = quiet | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let view = fsmount(view.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, read_only)?;
    sys::move_mount(view.as_fd(), at)
}

/// Escapes a path as one layer of an overlay.
fn escaped_layer(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:")
}

/// Limits the terminals, which the kernel counts for the whole machine, and the size of `/dev`, which is
/// memory. An engine allows much of both.
fn limit_devices(first_group: u32) -> io::Result<()> {
    let options = layout::terminal_options(first_group + TERMINALS_GROUP);
    let options = CString::new(options).map_err(io::Error::other)?;
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount("/dev/pts", quiet, options.as_c_str())?;
    Ok(mount_remount("/dev", quiet | MountFlags::STRICTATIME, c"mode=755,size=64k")?)
}

/// Returns the mounts that are moved to the new root: those directly on the container's root that are
/// needed or shown. Mounts below them move along.
fn moved_mounts(mountinfo: &str, shown: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mounts: Vec<[&str; 3]> = mountinfo
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some([words.next()?, words.next()?, words.nth(2)?])
        })
        .collect();
    let root = mounts.iter().rfind(|[.., at]| *at == "/").map(|[id, ..]| *id);
    let root = root.ok_or_else(|| io::Error::other("the container has no root"))?;
    let on_root = |path: &Path| {
        let name = escaped(path);
        mounts.iter().any(|[_, above, at]| *above == root && *at == name)
    };
    let mut found = Vec::new();
    for path in NEEDED.map(Path::new) {
        if !on_root(path) {
            return Err(io::Error::other(format!("{} is not mounted", path.display())));
        }
        found.push(path.to_owned());
    }
    found.extend(shown.iter().filter(|path| on_root(path)).cloned());
    Ok(found)
}

/// Escapes a path as in `mountinfo`.
fn escaped(path: &Path) -> String {
    let mut name = String::new();
    for letter in path.to_string_lossy().chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' => name.push_str(&format!("\\{:03o}", letter as u32)),
            other => name.push(other),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
600 500 0:50 / / ro,relatime - overlay overlay ro
601 600 0:51 / /proc rw - proc proc rw
602 601 0:51 /bus /proc/bus ro - proc proc rw
603 600 0:52 / /dev rw - tmpfs tmpfs rw
604 600 0:53 / /sys ro - sysfs sysfs ro
605 600 0:54 / /run rw - tmpfs tmpfs rw
606 600 8:1 /home/programs /.stead ro - ext4 /dev/a rw
607 600 8:1 /usr /usr ro - ext4 /dev/a rw
608 607 8:1 /usr/local/tools /usr/local/tools ro - ext4 /dev/a rw
609 600 8:1 /my\\040tools /my\\040tools ro - ext4 /dev/a rw
610 600 8:1 /volumes/1 /data rw - ext4 /dev/a rw
611 600 8:1 /hostname /etc/hostname rw - ext4 /dev/a rw
";

    #[test]
    fn unlimited_writable_mounts_stay_in_the_old_root() {
        let shown = ["/usr", "/usr/local/tools", "/my tools", "/absent"].map(PathBuf::from);
        let moved = moved_mounts(MOUNTS, &shown).unwrap();
        let expected = ["/proc", "/dev", "/sys", "/run", "/.stead", "/usr", "/my tools"];
        assert_eq!(moved, expected.map(PathBuf::from));
    }

    #[test]
    fn a_container_without_a_needed_mount_is_refused() {
        for missing in ["/proc rw", "/run rw", "/ ro"] {
            let mounts: Vec<&str> =
                MOUNTS.lines().filter(|line| !line.contains(&format!(" {missing}"))).collect();
            assert!(moved_mounts(&mounts.join("\n"), &[]).is_err(), "{missing}");
        }
    }
}
