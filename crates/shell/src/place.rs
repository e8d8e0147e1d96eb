//! The directory of the files through which a shell is driven: in memory if this machine has a private
//! directory there, in the terminal's directory otherwise.
//!
//! ```text
//!  TERMINAL/run ──link──▶ /dev/shm/.stead-UID/OWNER.RANDOM/   as long as the host that made it lives
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
const SHARED: &str = "/dev/shm";

/// Exists on systems with logind, which removes a user's files in memory when the user's last login ends
/// (`RemoveIPC`), even if they are in use. User ids below [`PEOPLE`] are exempt.
const LOGINS: &str = "/run/systemd/seats";

/// The first user id of a person.
const PEOPLE: u32 = 1000;

/// How many bytes and files must be free in memory.
const ROOM: (u64, u64) = (4 << 20, 256);

/// The name of the directory, or of the link to it, in a terminal's directory.
const RUN: &str = "run";

/// Returns the run directory of a terminal: the one this process created, or a new one.
pub(super) fn of(terminal: &Path) -> io::Result<PathBuf> {
    Memory::at(Path::new(SHARED)).place(terminal)
}

/// Removes the run directory of a terminal whose shell or host is gone.
pub fn forget(terminal: &Path) {
    Memory::at(Path::new(SHARED)).forget(terminal);
}

/// Removes the directory of a terminal that will not be opened again, and its run directory. In a sandbox
/// `terminal` is a link to the instance's own directory: both are removed.
///
/// # Errors
/// If a file cannot be removed.
pub fn remove(terminal: &Path) -> io::Result<()> {
    forget(terminal);
    if let Ok(directory) = fs::read_link(terminal) {
        remove_all(&directory)?;
    }
    remove_all(terminal)
}

/// Removes the run directories of killed hosts.
pub fn sweep() {
    Memory::at(Path::new(SHARED)).sweep();
}

/// The run directories of one user.
struct Memory {
    base: PathBuf,
    root: PathBuf,
}

impl Memory {
    fn at(base: &Path) -> Self {
        // The kernel reports the path of a descriptor without links.
        let base = fs::canonicalize(base).unwrap_or_else(|_| base.to_owned());
        let root = base.join(format!(".stead-{}", geteuid().as_raw()));
        Self { base, root }
    }

    fn place(&self, terminal: &Path) -> io::Result<PathBuf> {
        private_dir(terminal)?;
        let own = |place: &PathBuf| {
            let owner = owner();
            place.is_dir() && owner.is_some_and(|owner| name(place).starts_with(&owner))
        };
        if let Some(place) = self.target(terminal).filter(own) {
            return Ok(place);
        }
        self.forget(terminal);
        if let Some(place) = self.make() {
            if symlink(&place, terminal.join(RUN)).is_ok() {
                return Ok(place);
            }
            let _ = remove_all(&place);
        }
        let on_disk = terminal.join(RUN);
        private_dir(&on_disk)?;
        Ok(on_disk)
    }

    /// Creates a run directory. Returns `None` if there is not enough memory, or no private directory.
    fn make(&self) -> Option<PathBuf> {
        if goes_at_logout(geteuid().as_raw(), Path::new(LOGINS)) {
            return None;
        }
        let owner = owner()?;
        let base = stat(&self.base).ok()?;
        let (writable, sticky) = (base.st_mode & 0o022 != 0, base.st_mode & 0o1000 != 0);
        if !(base.st_uid == 0 || base.st_uid == geteuid().as_raw()) || writable && !sticky {
            return None;
        }
        // The owner is checked below, whichever process created it.
        let _ = fs::DirBuilder::new().mode(0o700).create(&self.root);
        if !self.is_private() || !self.has_room() {
            return None;
        }
        let random = std::hash::RandomState::new().hash_one(0);
        let place = self.root.join(format!("{owner}{random:016x}"));
        fs::DirBuilder::new().mode(0o700).create(&place).ok().map(|()| place)
    }

    /// Returns whether our directory is a directory, in memory, and private.
    fn is_private(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(root) = open(&self.root, flags, Mode::empty()) else { return false };
        fstat(&root).is_ok_and(|is| is.st_uid == geteuid().as_raw() && is.st_mode & 0o077 == 0)
            && fstatfs(&root).is_ok_and(|is| is.f_type == libc::TMPFS_MAGIC)
    }

    /// A total of zero means that there is no limit.
    fn has_room(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.root, flags, Mode::empty()).and_then(fstatvfs).is_ok_and(|is| {
            (is.f_blocks == 0 || is.f_bavail.saturating_mul(is.f_frsize) >= ROOM.0)
                && (is.f_files == 0 || is.f_favail >= ROOM.1)
        })
    }

    /// Returns the target of a terminal's link, if it is a run directory of ours.
    fn target(&self, terminal: &Path) -> Option<PathBuf> {
        let target = fs::read_link(terminal.join(RUN)).ok()?;
        let ours = target.parent() == Some(&self.root) && target.file_name().is_some();
        (ours && self.is_private()).then_some(target)
    }

    fn forget(&self, terminal: &Path) {
        let run = terminal.join(RUN);
        let gone = self.target(terminal).is_none_or(|place| clear(&place).is_ok());
        let _ = match fs::symlink_metadata(&run) {
            Ok(found) if found.is_symlink() && gone => fs::remove_file(&run),
            Ok(found) if found.is_dir() => clear(&run),
            Ok(_) | Err(_) => Ok(()),
        };
    }

    fn sweep(&self) {
        let Some(space) = space().filter(|_| self.is_private()) else { return };
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if is_left(&name(&entry.path()), &space) {
                let _ = clear(&entry.path());
            }
        }
    }
}

/// Returns whether logind removes this user's files in memory at logout, although shells survive.
fn goes_at_logout(user: u32, logins: &Path) -> bool {
    user >= PEOPLE && logins.exists()
}

/// Returns whether the host that created the run directory of this name is gone. In doubt it is not: the
/// process ids of another pid namespace have no meaning here.
fn is_left(name: &str, space: &str) -> bool {
    let mut parts = name.split('.');
    let (own, pid, start) = (parts.next() == Some(space), parts.next(), parts.next());
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
    Some(format!("{}.{pid}.{}.", space()?, Process::read(pid)?.start))
}

/// Returns the id of our pid namespace.
fn space() -> Option<String> {
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    let digits = space.to_str()?.chars().filter(char::is_ascii_digit).collect::<String>();
    (!digits.is_empty()).then_some(digits)
}

fn name(place: &Path) -> String {
    place.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Removes a run directory, and wakes up the shells that wait at its FIFOs.
fn clear(place: &Path) -> io::Result<()> {
    for run in fs::read_dir(place).into_iter().flatten().flatten() {
        pipes::release(&run.path());
    }
    remove_all(place)
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
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A private directory in memory and a terminal's directory, removed at the end.
    struct Trial {
        memory: Memory,
        terminal: PathBuf,
        base: PathBuf,
    }

    impl Trial {
        /// Returns `None` if the machine has no files in memory.
        fn new() -> Option<Self> {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let nth = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("stead-place-test-{}-{nth}", std::process::id());
            let base = Path::new(SHARED).join(&name);
            let terminal = std::env::temp_dir().join(name);
            let made = fs::DirBuilder::new().mode(0o700).create(&base).is_ok();
            let trial = Self { memory: Memory::at(&base), terminal, base };
            if !made || trial.memory.make().is_none() {
                eprintln!("skipped: {SHARED} cannot be used here");
                return None;
            }
            fs::remove_dir_all(&trial.memory.root).unwrap();
            Some(trial)
        }

        fn places(&self) -> usize {
            fs::read_dir(&self.memory.root).map_or(0, Iterator::count)
        }
    }

    impl Drop for Trial {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.base);
            let _ = fs::remove_dir_all(&self.terminal);
        }
    }

    #[test]
    fn a_terminal_has_one_place_until_it_is_forgotten() {
        let Some(trial) = Trial::new() else { return };
        let place = trial.memory.place(&trial.terminal).unwrap();
        assert!(place.starts_with(&trial.memory.root));
        assert_eq!(fs::read_link(trial.terminal.join(RUN)).unwrap(), place);
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(trial.memory.place(&trial.terminal).unwrap(), place);
        fs::write(place.join("file"), "x").unwrap();
        trial.memory.forget(&trial.terminal);
        assert_eq!(trial.places(), 0);
        assert!(fs::symlink_metadata(trial.terminal.join(RUN)).is_err());
        trial.memory.forget(&trial.terminal);
    }

    #[test]
    fn one_that_somebody_removed_is_made_again() {
        let Some(trial) = Trial::new() else { return };
        let place = trial.memory.place(&trial.terminal).unwrap();
        fs::remove_dir_all(&trial.memory.root).unwrap();
        let again = trial.memory.place(&trial.terminal).unwrap();
        assert!(again != place && again.is_dir());
        assert_eq!(fs::read_link(trial.terminal.join(RUN)).unwrap(), again);
    }

    #[test]
    fn what_a_dead_host_left_is_swept_and_nothing_else() {
        let Some(trial) = Trial::new() else { return };
        let place = trial.memory.place(&trial.terminal).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let start = Process::read(child.id() as i32).unwrap().start;
        let of = |pid: u32, start: u64| format!("{}.{pid}.{start}.0", space().unwrap());
        let elsewhere = format!("1.{}.{start}.0", child.id());
        let kept = [of(child.id(), start), elsewhere, "other".to_owned()];
        let own = std::process::id();
        let left = of(own, Process::read(own as i32).unwrap().start + 1);
        for name in kept.iter().chain([&left]) {
            fs::create_dir(trial.memory.root.join(name)).unwrap();
        }
        trial.memory.sweep();
        assert!(place.is_dir());
        assert!(kept.iter().all(|name| trial.memory.root.join(name).is_dir()));
        assert!(!trial.memory.root.join(&left).exists(), "the number of another process");
        child.kill().unwrap();
        child.wait().unwrap();
        trial.memory.sweep();
        assert!(!trial.memory.root.join(&kept[0]).exists(), "its host is gone");
        assert_eq!(trial.places(), 3);
    }

    #[test]
    fn the_next_host_of_a_terminal_takes_the_place_of_the_one_before_away() {
        let Some(trial) = Trial::new() else { return };
        fs::create_dir_all(&trial.memory.root).unwrap();
        fs::set_permissions(&trial.memory.root, fs::Permissions::from_mode(0o700)).unwrap();
        let left = trial.memory.root.join("1.1.1.0");
        fs::create_dir_all(left.join("run")).unwrap();
        fs::create_dir_all(&trial.terminal).unwrap();
        symlink(&left, trial.terminal.join(RUN)).unwrap();
        let place = trial.memory.place(&trial.terminal).unwrap();
        assert!(place != left && !left.exists());
        assert_eq!(trial.places(), 1);
    }

    #[test]
    fn without_memory_of_our_own_the_terminals_directory_is_taken() {
        let Some(trial) = Trial::new() else { return };
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let elsewhere = trial.base.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        mode(&elsewhere, 0o700);
        let on_disk = trial.terminal.join(RUN);
        let check = |memory: &Memory, why: &str| {
            assert_eq!(memory.place(&trial.terminal).unwrap(), on_disk, "{why}");
            assert!(fs::symlink_metadata(&on_disk).unwrap().is_dir(), "{why}");
            memory.forget(&trial.terminal);
            assert!(fs::symlink_metadata(&on_disk).is_err(), "{why}");
        };
        check(&Memory::at(&trial.base.join("missing")), "there is none");
        check(&Memory::at(Path::new("/proc")), "it cannot be made");
        symlink(&elsewhere, &trial.memory.root).unwrap();
        check(&trial.memory, "a link");
        fs::remove_file(&trial.memory.root).unwrap();
        fs::create_dir(&trial.memory.root).unwrap();
        mode(&trial.memory.root, 0o750);
        check(&trial.memory, "open to others");
        fs::remove_dir(&trial.memory.root).unwrap();
        mode(&trial.base, 0o777);
        check(&trial.memory, "other users can replace it");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn a_terminal_in_a_sandbox_is_removed_with_the_directory_its_name_links_to() {
        let Some(trial) = Trial::new() else { return };
        let inside = trial.base.join("inside");
        fs::create_dir_all(inside.join("log")).unwrap();
        fs::write(inside.join("log/0"), "secret").unwrap();
        symlink(&inside, &trial.terminal).unwrap();
        remove(&trial.terminal).unwrap();
        assert!(fs::symlink_metadata(&trial.terminal).is_err());
        assert!(!inside.exists(), "the output of a deleted terminal stays");
        remove(&trial.terminal).unwrap();
    }

    #[test]
    fn what_goes_at_logout_is_no_place_for_shells_that_stay() {
        let (counted, uncounted) = (Path::new("/"), Path::new("/nosuch"));
        assert!(goes_at_logout(1000, counted) && goes_at_logout(65_000, counted));
        assert!(!goes_at_logout(0, counted) && !goes_at_logout(999, counted));
        assert!(!goes_at_logout(1000, uncounted));
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_not_followed() {
        let Some(trial) = Trial::new() else { return };
        let precious = trial.base.join("precious");
        fs::create_dir(&precious).unwrap();
        fs::create_dir_all(&trial.terminal).unwrap();
        for target in [precious.clone(), trial.memory.root.join("../precious")] {
            symlink(&target, trial.terminal.join(RUN)).unwrap();
            trial.memory.forget(&trial.terminal);
            assert!(precious.is_dir(), "{target:?}");
            assert!(fs::symlink_metadata(trial.terminal.join(RUN)).is_err());
        }
        let place = trial.memory.place(&trial.terminal).unwrap();
        assert!(place.starts_with(&trial.memory.root) && precious.is_dir());
    }
}
