//! The root of a container, on the disk of its lease.
//!
//! What an engine gives a container to write to has no limit, is gone with the container and is nothing
//! that could be copied. So it stays read-only and empty. Before anything but process 1 runs, the launcher
//! lays the lease's disk over it, carries over what of the engine's mounts belongs inside, and makes that
//! the root of all that is in the container:
//!
//! ```text
//! the image, as the engine shows it          below, read-only
//! the lease's disk: root, work               above; what is written
//! /proc /dev /sys /run, what is shown        moved from the one root to the other
//! volumes, /etc/hosts, all else              left behind with the engine's root
//! ```
//! All of this is in the container's own view of files: it ends with its last process.

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

use super::launch::DOOR_INSIDE;
use crate::namespace::bundle;
use crate::namespace::launch::{Inside, doing, open_dir};
use crate::namespace::runtime::change_root;
use crate::namespace::sys::{self, Allows};

/// What a container cannot be without.
const NEEDED: [&str; 5] = ["/proc", "/dev", "/sys", "/run", bundle::PROGRAMS];

/// What a container's root is made from.
#[derive(Debug)]
pub(super) struct Root<'a> {
    /// Process 1 of the container.
    pub(super) pid: i32,
    /// The disk's file.
    pub(super) disk: &'a Path,
    /// The directories of the machine that are shown in it.
    pub(super) shown: &'a [PathBuf],
    /// Its users, where they are others than here.
    pub(super) users: Option<BorrowedFd<'a>>,
    /// The files of `/etc` that say which names are known, and what is in them.
    pub(super) names: [(&'static str, &'a str); 2],
}

impl Root<'_> {
    /// Makes it the root of the container. For a process of one thread.
    pub(super) fn make(&self) -> io::Result<()> {
        let of = |name: &str| format!("/proc/{}/{name}", self.pid);
        let mounts = File::open(of("ns/mnt"))?;
        let carried = carried(&fs::read_to_string(of("mountinfo"))?, self.shown)
            .map_err(doing("find what the engine mounted"))?;
        let first = |map: &str| -> io::Result<u32> {
            let map = fs::read_to_string(of(map))?;
            let first = map.split_ascii_whitespace().nth(1).and_then(|first| first.parse().ok());
            first.ok_or_else(|| io::Error::other("the container has no users"))
        };
        let (user, group) = (first("uid_map")?, first("gid_map")?);
        let disk = self.disk().map_err(doing("mount the lease's disk"))?;
        let made = sys::beside(|| {
            sys::leave(UnshareFlags::FS)?;
            sys::enter(mounts.as_fd(), LinkNameSpaceType::Mount)?;
            self.lay(disk.as_fd(), user, &carried)?;
            bound(group).map_err(doing("bound the container's terminals and devices"))
        })?;
        drop(disk);
        made.join().map_err(doing("make the container's root"))
    }

    /// The disk, mounted nowhere yet.
    fn disk(&self) -> io::Result<OwnedFd> {
        let (device, path) = sys::loop_device(self.disk)?;
        let files = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(files.as_fd(), "source", path)?;
        fsconfig_set_string(files.as_fd(), "errors", "remount-ro")?;
        // Not every kernel knows the word.
        let _ = fsconfig_set_flag(files.as_fd(), "noacl");
        fsconfig_create(files.as_fd())?;
        let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let disk = fsmount(files.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, quiet)?;
        drop(device);
        let all = Allows { writing: true, running: true };
        sys::restrict(disk.as_fd(), all, self.users)?;
        Ok(disk)
    }

    /// Lays the disk over the root that this process has, in the container's view, and makes that the
    /// root of all who have the same.
    fn lay(&self, disk: BorrowedFd<'_>, user: u32, carried: &[PathBuf]) -> io::Result<()> {
        let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", alone)?;
        let quiet = MountFlags::NOSUID | MountFlags::NODEV;
        // Nobody comes to the door any more, and it is left behind with the rest.
        let stage = Path::new(DOOR_INSIDE);
        mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k")?;
        let [layer, root] = ["disk", "root"].map(|name| stage.join(name));
        fs::create_dir(&layer)?;
        fs::create_dir(&root)?;
        sys::attach(disk, open_dir(&layer)?.as_fd())?;
        let layers = format!(
            "lowerdir=/,upperdir={},workdir={}",
            layer.join("root").display(),
            layer.join("work").display()
        );
        let layers = CString::new(layers).map_err(io::Error::other)?;
        sys::as_user(user, || {
            mount("overlay", &root, "overlay", quiet, layers.as_c_str())
                .map_err(|error| doing("lay the disk over the image")(error.into()))?;
            let root = open_dir(&root)?;
            let inside = Inside(root.as_fd());
            for (name, text) in self.names {
                // What it did to its own files is its own loss.
                let _ = inside.write(Path::new("etc"), name, text);
            }
            for path in carried {
                let at = inside.make(path).map_err(doing("find a place inside"))?;
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let from = rustix::fs::open(path, flags, Mode::empty())?;
                sys::attach(from.as_fd(), at.as_fd()).map_err(doing("carry a mount over"))?;
            }
            change_root(root.as_fd()).map_err(doing("change the root"))
        })
    }
}

/// Terminals are counted for the whole machine, and what is written to `/dev` is memory; an engine lets a
/// container have much of both.
fn bound(first_group: u32) -> io::Result<()> {
    let options = bundle::terminal_options(first_group + bundle::TERMINALS_GROUP);
    let options = CString::new(options).map_err(io::Error::other)?;
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount("/dev/pts", quiet, options.as_c_str())?;
    Ok(mount_remount("/dev", quiet | MountFlags::STRICTATIME, c"mode=755,size=64k")?)
}

/// What is carried over of the mounts of a container: of those right on its root, what it needs and what
/// is shown in it. What is mounted on these comes with them.
fn carried(mountinfo: &str, shown: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
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
            return Err(io::Error::other(format!("there is no {}", path.display())));
        }
        found.push(path.to_owned());
    }
    found.extend(shown.iter().filter(|path| on_root(path)).cloned());
    Ok(found)
}

/// A path as the kernel writes it in a list of mounts.
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
    fn what_can_be_written_without_a_limit_is_left_behind() {
        let shown = ["/usr", "/usr/local/tools", "/my tools", "/absent"].map(PathBuf::from);
        let carried = carried(MOUNTS, &shown).unwrap();
        let expected = ["/proc", "/dev", "/sys", "/run", "/.stead", "/usr", "/my tools"];
        assert_eq!(carried, expected.map(PathBuf::from));
    }

    #[test]
    fn a_container_without_what_it_needs_is_refused() {
        for missing in ["/proc rw", "/run rw", "/ ro"] {
            let mounts: Vec<&str> =
                MOUNTS.lines().filter(|line| !line.contains(&format!(" {missing}"))).collect();
            assert!(carried(&mounts.join("\n"), &[]).is_err(), "{missing}");
        }
    }
}
