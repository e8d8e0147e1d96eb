//! Mounts directories of the machine in a running sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::shared_tree;
use crate::sys::{self, MountAccess};
use crate::tools::run_for_sandbox;
use base::shared_users::{SharedUsers, USERS};

/// A directory of the machine, and its path in a sandbox.
pub(crate) type BindMount = (PathBuf, PathBuf);

/// Chooses the mount points for directories of the machine in the sandbox of a process. Returns all
/// mounts, and those that are missing.
pub(crate) fn plan(
    pid: i32,
    directories: &[BindMount],
) -> io::Result<(Vec<BindMount>, Vec<BindMount>)> {
    let (mut all, mut missing) = (Vec::with_capacity(directories.len()), Vec::new());
    for (outside, target) in directories {
        let (inside, mounted) = path_inside(pid, outside, target)?;
        if !mounted {
            missing.push((outside.clone(), inside.clone()));
        }
        all.push((outside.clone(), inside));
    }
    Ok((all, missing))
}

/// Mounts directories of the machine in the sandbox of a process, in a launcher process.
pub(crate) async fn show(executable: &Path, pid: i32, directories: &[BindMount]) -> io::Result<()> {
    let paths =
        directories.iter().flat_map(|(source, target)| [source.as_os_str(), target.as_ref()]);
    run_for_sandbox(executable, "mount", pid, &paths.collect::<Vec<_>>()).await.map(drop)
}

/// The path of a directory in a sandbox, and whether it is mounted there. Projects may share a lease: the
/// first one gets the short path.
fn path_inside(pid: i32, source: &Path, target: &Path) -> io::Result<(PathBuf, bool)> {
    match state(pid, source, target)? {
        MountState::Same => Ok((target.to_owned(), true)),
        MountState::None => Ok((target.to_owned(), false)),
        MountState::Other => {
            let target = longer_path(source, target);
            let mounted = state(pid, source, &target)? == MountState::Same;
            Ok((target, mounted))
        }
    }
}

/// The machine's user id that is user 0 in the namespace of a process.
pub(crate) fn first_user(pid: i32) -> io::Result<u32> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    let first = map.split_ascii_whitespace().nth(1).and_then(|first| first.parse().ok());
    first.ok_or_else(|| io::Error::other("the process has no user mapping"))
}

/// Whether programs in the sandbox of a process can have capabilities.
pub(crate) fn has_capabilities(pid: i32) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = bounding.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    bounding.map(|set| set != 0).ok_or_else(|| io::Error::other("the process has no capabilities"))
}

/// Mounts directories of the machine, each at an absolute path, in the sandbox of a process. Needs a
/// process of one thread, which is in the sandbox's mount namespace afterwards and should end.
pub(crate) fn mount(pid: i32, directories: &[(&Path, &Path)]) -> io::Result<()> {
    let namespace = |name: &str| fs::File::open(format!("/proc/{pid}/ns/{name}"));
    let (users, mounts) = (namespace("user")?, namespace("mnt")?);
    let identity = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    if identity(&pid.to_string())? == identity("self")? {
        return Err(io::Error::other("the process has no mount namespace of its own"));
    }
    let first_user = first_user(pid)?;
    let has_capabilities = has_capabilities(pid)?;
    let access = MountAccess { write: true, execute: true };
    // A container may have the machine's own user ids, and an unprivileged sandbox has its owner's.
    let root = rustix::process::geteuid().is_root();
    let mapped = (root && first_user != 0).then(|| users.as_fd());
    if !root {
        // The creator of a user namespace has all capabilities in it; the mounts are copied from there.
        sys::enter(users.as_fd(), LinkNameSpaceType::User)?;
        sys::unshare(UnshareFlags::NEWNS)?;
    }
    let mut mappings: Vec<(SharedUsers, OwnedFd)> = Vec::new();
    let mut trees = Vec::with_capacity(directories.len());
    for (source, _) in directories {
        let tree = match shared_tree::users_of(source)? {
            Some(shared) if root => {
                if !mappings.iter().any(|(users, _)| *users == shared) {
                    let mapping = sys::mapping_namespace(first_user, shared.first(), USERS)?;
                    mappings.push((shared, mapping));
                }
                let mapping = mappings.iter().find(|(users, _)| *users == shared);
                sys::clone_tree(source, access, mapping.map(|(_, mapping)| mapping.as_fd()))?
            }
            // A set-user-id file would belong to a user of the machine.
            None if has_capabilities => {
                let what = "a directory with the machine's users is not shared";
                return Err(io::Error::other(what));
            }
            Some(_) | None => sys::clone_tree(source, access, mapped)?,
        };
        trees.push(tree);
    }
    sys::unshare(UnshareFlags::FS)?;
    sys::enter(mounts.as_fd(), LinkNameSpaceType::Mount)?;
    // From here on paths are resolved in the sandbox, whose links cannot lead outside.
    for ((_, target), tree) in directories.iter().zip(&trees) {
        if root {
            sys::as_user(first_user, || fs::create_dir_all(target))?;
        } else {
            fs::create_dir_all(target)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = rustix::fs::open(*target, flags, Mode::empty())?;
        sys::move_mount(tree.as_fd(), at.as_fd())?;
    }
    Ok(())
}

/// The mount at a path in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountState {
    /// The expected directory is mounted.
    Same,
    /// Another directory is mounted.
    Other,
    None,
}

/// Compares the mount at `target` in the sandbox of a process with the directory `source`.
pub(crate) fn state(pid: i32, source: &Path, target: &Path) -> io::Result<MountState> {
    use std::os::unix::fs::MetadataExt;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let name = target.to_string_lossy();
    if !mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*name)) {
        return Ok(MountState::None);
    }
    let outside = fs::metadata(source)?;
    let below = target.strip_prefix("/").unwrap_or(target);
    let inside = fs::symlink_metadata(Path::new(&format!("/proc/{pid}/root")).join(below))?;
    let same = (inside.dev(), inside.ino()) == (outside.dev(), outside.ino());
    Ok(if same { MountState::Same } else { MountState::Other })
}

/// Returns an alternative to a mount point that is taken: the name of the source's parent is appended.
fn longer_path(source: &Path, target: &Path) -> PathBuf {
    let parent = source.parent().and_then(Path::file_name).unwrap_or_default();
    let mut name = target.as_os_str().to_owned();
    name.push("-");
    name.push(parent);
    name.into()
}
