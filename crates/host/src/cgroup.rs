//! One cgroup per terminal, if there is a writable cgroup v2 hierarchy: all processes of a terminal can
//! then be frozen and killed together, even if they daemonized.
//!
//! ```text
//! <our own cgroup>/stead/<instance>/<terminal>
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The cgroup of this host's instance.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates the cgroup. Returns `None` if that is not possible on this machine.
    pub(crate) fn create(instance: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = cgroup_directory(&mounts, &own)?.join("stead").join(instance);
        fs::create_dir_all(&path).ok()?;
        // Before Linux 5.14 there is no `cgroup.kill`; the processes are then found one by one.
        path.join("cgroup.kill").exists().then_some(())?;
        // The lock is held, so processes in the cgroup were left by a dead host of this instance.
        let _ = kill(&path);
        for entry in fs::read_dir(&path).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = remove(&entry.path());
            }
        }
        Some(Self(path))
    }

    /// Continues with a cgroup that another executable of this process created.
    pub(crate) fn resume(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the cgroup of a terminal. Returns its directory and its open `cgroup.procs`.
    pub(crate) fn terminal(&self, terminal: &str) -> io::Result<(PathBuf, File)> {
        let path = self.0.join(terminal);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let procs = open_procs(&path)?;
        Ok((path, procs))
    }

    /// Removes the cgroup if no terminal is left in it.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Opens `cgroup.procs`, through which a process joins a cgroup.
pub(crate) fn open_procs(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path.join("cgroup.procs"))
}

/// Kills every process in a cgroup and its descendants.
pub(crate) fn kill(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.kill"), "1")
}

/// Returns whether a cgroup or a descendant contains a process.
pub(crate) fn is_populated(path: &Path) -> bool {
    fs::read_to_string(path.join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

/// Removes an empty cgroup and its empty descendants.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Returns the directory of a process's cgroup, from `/proc/self/mountinfo` and the process's `/proc/PID/cgroup`.
#[must_use]
pub fn cgroup_directory(mountinfo: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_is_found_below_its_mount_point() {
        let check = |mountinfo: &str, own: &str, expected: Option<&str>| {
            assert_eq!(
                cgroup_directory(mountinfo, own).as_deref(),
                expected.map(Path::new),
                "{mountinfo}"
            );
        };
        let plain = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw";
        check(plain, "0::/user.slice\n", Some("/sys/fs/cgroup/user.slice"));
        check(plain, "0::/\n", Some("/sys/fs/cgroup/"));
        check(plain, "1:cpu:/\n", None);
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        check(hybrid, "3:cpu:/\n0::/a/b\n", Some("/sys/fs/cgroup/unified/a/b"));
        let bound = "30 23 0:26 /pod/one /sys/fs/cgroup rw - cgroup2 cgroup rw";
        check(bound, "0::/pod/one/x\n", Some("/sys/fs/cgroup/x"));
        check(bound, "0::/elsewhere\n", None);
        check("", "0::/\n", None);
    }
}
