//! The run directory of a terminal: the files through which its shell is driven. It is in memory if this
//! machine has a private directory there, and in the terminal's directory otherwise.
//!
//! ```text
//!  TERMINAL/run ──link──▶ /dev/shm/.stead-UID/OWNER.RANDOM/   for the lifetime of the host that created it
//! ```
//! The name identifies the owner, so that the directories of killed hosts are found. It is hidden, so that
//! `rm -rf /dev/shm/*` does not remove it.

use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, fstatfs, fstatvfs, open, stat};
use rustix::process::{Pid, geteuid, getpid, test_kill_process};

use super::files::private_dir;
use super::pipes;
use super::procs::Process;

/// The system's directory for files in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Exists on systems with logind, which removes a user's files in memory when the user's last login ends
/// (`RemoveIPC`), even if they are in use. User ids below [`FIRST_LOGIN_UID`] are exempt.
const LOGIND_SEATS: &str = "/run/systemd/seats";

/// The first user id that is not a system account.
const FIRST_LOGIN_UID: u32 = 1000;

/// How many bytes must be free in memory.
const MIN_FREE_BYTES: u64 = 4 << 20;

/// How many files must be free in memory.
const MIN_FREE_FILES: u64 = 256;

/// The name of the directory, or of the link to it, in a terminal's directory.
const RUN: &str = "run";

/// Returns the run directory of a terminal: the one this process created, or a new one.
pub(super) fn open_or_create(terminal: &Path) -> io::Result<PathBuf> {
    RunDirs::at(Path::new(SHARED_MEMORY)).open_or_create(terminal)
}

/// Removes the run directory of a terminal whose shell or host is gone.
pub fn remove(terminal: &Path) {
    RunDirs::at(Path::new(SHARED_MEMORY)).remove(terminal);
}

/// Removes the directory of a terminal that will not be opened again, and its run directory. In a sandbox
/// `terminal` is a link to the instance's own directory: both are removed.
///
/// # Errors
/// If a file cannot be removed.
pub fn remove_terminal(terminal: &Path) -> io::Result<()> {
    remove(terminal);
    if let (Ok(target), Some(parent)) = (fs::read_link(terminal), terminal.parent()) {
        remove_all(&parent.join(target))?;
    }
    remove_all(terminal)
}

/// Removes the run directories of killed hosts.
pub fn remove_orphans() {
    RunDirs::at(Path::new(SHARED_MEMORY)).remove_orphans();
}

/// The run directories of one user that are in memory.
struct RunDirs {
    base: PathBuf,
    root: PathBuf,
}

impl RunDirs {
    fn at(base: &Path) -> Self {
        // The kernel reports the path of a descriptor without links.
        let base = fs::canonicalize(base).unwrap_or_else(|_| base.to_owned());
        let root = base.join(format!(".stead-{}", geteuid().as_raw()));
        Self { base, root }
    }

    fn open_or_create(&self, terminal: &Path) -> io::Result<PathBuf> {
        private_dir(terminal)?;
        let own = |directory: &PathBuf| {
            let owner = owner();
            directory.is_dir() && owner.is_some_and(|owner| name(directory).starts_with(&owner))
        };
        if let Some(directory) = self.target(terminal).filter(own) {
            return Ok(directory);
        }
        self.remove(terminal);
        if let Some(directory) = self.create() {
            if symlink(&directory, terminal.join(RUN)).is_ok() {
                return Ok(directory);
            }
            let _ = remove_all(&directory);
        }
        let on_disk = terminal.join(RUN);
        private_dir(&on_disk)?;
        Ok(on_disk)
    }

    /// Creates a run directory. Returns `None` if there is not enough memory, or no private directory.
    fn create(&self) -> Option<PathBuf> {
        if is_removed_at_logout(geteuid().as_raw(), Path::new(LOGIND_SEATS)) {
            return None;
        }
        let owner = owner()?;
        let base = stat(&self.base).ok()?;
        let (writable, sticky) = (base.st_mode & 0o022 != 0, base.st_mode & 0o1000 != 0);
        if !(base.st_uid == 0 || base.st_uid == geteuid().as_raw()) || writable && !sticky {
            return None;
        }
        // Any process may have created it; `is_private` checks the owner.
        let _ = fs::DirBuilder::new().mode(0o700).create(&self.root);
        if !self.is_private() || !self.has_room() {
            return None;
        }
        let random = std::hash::RandomState::new().hash_one(0);
        let directory = self.root.join(format!("{owner}{random:016x}"));
        fs::DirBuilder::new().mode(0o700).create(&directory).ok().map(|()| directory)
    }

    /// Returns whether `root` is a directory in memory that only we can use.
    fn is_private(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(root) = open(&self.root, flags, Mode::empty()) else { return false };
        fstat(&root).is_ok_and(|is| is.st_uid == geteuid().as_raw() && is.st_mode & 0o077 == 0)
            && fstatfs(&root).is_ok_and(|is| is.f_type == libc::TMPFS_MAGIC)
    }

    /// Returns whether there is room for another run directory. A total of zero means that there is no limit.
    fn has_room(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.root, flags, Mode::empty()).and_then(fstatvfs).is_ok_and(|is| {
            (is.f_blocks == 0 || is.f_bavail.saturating_mul(is.f_frsize) >= MIN_FREE_BYTES)
                && (is.f_files == 0 || is.f_favail >= MIN_FREE_FILES)
        })
    }

    /// Returns the target of a terminal's link, if it is a run directory of ours.
    fn target(&self, terminal: &Path) -> Option<PathBuf> {
        let target = fs::read_link(terminal.join(RUN)).ok()?;
        let ours = target.parent() == Some(&self.root) && target.file_name().is_some();
        (ours && self.is_private()).then_some(target)
    }

    fn remove(&self, terminal: &Path) {
        let run = terminal.join(RUN);
        let gone = self.target(terminal).is_none_or(|directory| clear(&directory).is_ok());
        let _ = match fs::symlink_metadata(&run) {
            Ok(found) if found.is_symlink() && gone => fs::remove_file(&run),
            Ok(found) if found.is_dir() => clear(&run),
            Ok(_) | Err(_) => Ok(()),
        };
    }

    fn remove_orphans(&self) {
        let Some(namespace) = pid_namespace().filter(|_| self.is_private()) else { return };
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if is_orphan(&name(&entry.path()), &namespace) {
                let _ = clear(&entry.path());
            }
        }
    }
}

/// Returns whether logind removes this user's files in memory at logout, although shells survive.
fn is_removed_at_logout(user: u32, seats: &Path) -> bool {
    user >= FIRST_LOGIN_UID && seats.exists()
}

/// Returns whether the host that created the run directory of this name is gone. Returns `false` if that
/// is unknown: the process ids of another pid namespace have no meaning here.
fn is_orphan(name: &str, namespace: &str) -> bool {
    let mut parts = name.split('.');
    let (own, pid, start) = (parts.next() == Some(namespace), parts.next(), parts.next());
    let pid = pid.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let (true, Some(pid), Some(start)) = (own, pid, start) else { return false };
    match test_kill_process(pid) {
        Err(error) => error == rustix::io::Errno::SRCH,
        Ok(()) => Process::read(pid.as_raw_nonzero().get())
            .is_some_and(|process| !process.alive() || process.start.to_string() != start),
    }
}

/// Returns the prefix of this process's run directories.
fn owner() -> Option<String> {
    let pid = getpid().as_raw_nonzero().get();
    Some(format!("{}.{pid}.{}.", pid_namespace()?, Process::read(pid)?.start))
}

/// Returns the id of our pid namespace.
fn pid_namespace() -> Option<String> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let digits = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect::<String>();
    (!digits.is_empty()).then_some(digits)
}

fn name(directory: &Path) -> String {
    directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Removes a run directory, and wakes up the shells that are blocked on its FIFOs.
fn clear(directory: &Path) -> io::Result<()> {
    for run in fs::read_dir(directory).into_iter().flatten().flatten() {
        pipes::release(&run.path());
    }
    remove_all(directory)
}

/// Removes a directory. A dying shell whose host was killed may still write into it.
fn remove_all(directory: &Path) -> io::Result<()> {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound};
    for _ in 0..100 {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == DirectoryNotEmpty => std::thread::yield_now(),
            Err(error) if error.kind() != NotFound => return Err(error),
            _ => return Ok(()),
        }
    }
    Err(DirectoryNotEmpty.into())
}

#[cfg(test)]
mod tests;
