//! The files through which a shell is driven.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::files::{private_dir, write_fresh};
use super::spec::Setup;
use super::{pipes, run_dir};

/// The directory for the files of a sandbox's terminals.
const SANDBOX_RUN: &str = "/run/stead";

/// The files through which a shell is driven, all in one directory.
#[derive(Debug, Clone)]
pub struct Paths {
    pub run: PathBuf,
    /// The directory for files that do not fit into memory.
    disk: Option<PathBuf>,
}

impl Paths {
    /// Creates a new directory for a terminal's shell, and removes the old ones. A shell whose host was
    /// killed may still run for a short time and write into its own directory.
    pub fn fresh(setup: &Setup) -> io::Result<Self> {
        let all = Self::all(setup)?;
        for old in fs::read_dir(&all)?.flatten() {
            pipes::release(&old.path());
            let _ = fs::remove_dir_all(old.path());
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = since.as_nanos() as u64;
        for name in first.. {
            let run = all.join(format!("{name:x}"));
            match fs::DirBuilder::new().mode(0o700).create(&run) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|()| Self::at_run(run, setup)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the files in an existing directory.
    pub fn at_run(run: PathBuf, setup: &Setup) -> Self {
        let in_memory = !crate::procs::is_first_process() && !run.starts_with(&setup.dir);
        Self { run, disk: in_memory.then(|| setup.dir.join("spill")) }
    }

    /// Returns the parent directory for all shells of a terminal. In a sandbox the shell cannot see the
    /// terminal's own directory, so a RAM disk of the sandbox is used.
    fn all(setup: &Setup) -> io::Result<PathBuf> {
        if !crate::procs::is_first_process() {
            return run_dir::open_or_create(&setup.dir);
        }
        let all = Path::new(SANDBOX_RUN).join(&setup.terminal);
        private_dir(&all).map(|()| all)
    }

    /// Returns whether the directory exists.
    pub fn exist(&self) -> bool {
        self.ctl_dir().is_dir()
    }

    /// Replaces a file. If memory is full, the file is a link to one on disk.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let path = self.run.join(name);
        match (write_fresh(&path, bytes), &self.disk) {
            (Err(error), Some(disk)) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                private_dir(disk)?;
                let spilled = disk.join(name.replace('/', "-"));
                write_fresh(&spilled, bytes)?;
                self.remove(name);
                symlink(spilled, path)
            }
            (written, _) => written,
        }
    }

    /// Removes a file if it exists.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.run.join(name));
    }

    /// Returns the path of a file in the directory.
    pub fn at(&self, name: &str) -> Vec<u8> {
        self.run.join(name).into_os_string().into_encoded_bytes()
    }
    /// The drive file, which the key sources.
    pub fn drive(&self) -> Vec<u8> {
        self.at("drive")
    }
    /// The command's own text.
    pub fn command(&self) -> Vec<u8> {
        self.at("command")
    }
    /// The file that sets `$?` to the last exit code when it is sourced.
    pub fn status(&self) -> Vec<u8> {
        self.at("status")
    }
    /// The FIFO for dumps of the state.
    pub fn state(&self) -> Vec<u8> {
        self.at("state")
    }
    /// The file that the shell reads when it starts.
    pub fn rc(&self) -> PathBuf {
        self.run.join("rc")
    }
    /// A record, whose name is the message.
    pub fn ctl(&self, name: &str) -> Vec<u8> {
        self.run.join("ctl").join(name).as_os_str().as_bytes().to_vec()
    }
    /// The file that the drive file creates when it begins. It is polled, not watched.
    pub fn begun(&self) -> Vec<u8> {
        self.at("begun")
    }
    /// The directory of the records.
    pub fn ctl_dir(&self) -> PathBuf {
        self.run.join("ctl")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::kind::Kind;

    #[test]
    fn a_shell_that_exits_slowly_does_not_disturb_the_next() {
        let dir = std::env::temp_dir().join(format!("stead-paths-{}", std::process::id()));
        let setup = Setup {
            terminal: "t".into(),
            kind: Kind::Bash,
            program: Vec::new(),
            env: Vec::new(),
            cwd: "/".into(),
            dir: dir.clone(),
            cgroup: None,
        };
        let old = Paths::fresh(&setup).unwrap();
        private_dir(&old.ctl_dir()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let records = (0..).take_while(|_| !over.load(Ordering::Relaxed));
                records
                    .for_each(|number| drop(fs::write(old.ctl_dir().join(number.to_string()), "")));
            });
            for _ in 0..200 {
                let new = Paths::fresh(&setup).unwrap();
                assert_ne!(new.run, old.run);
                private_dir(&old.ctl_dir()).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        Paths::fresh(&setup).unwrap();
        assert_eq!(
            fs::read_dir(dir.join("run")).unwrap().count(),
            1,
            "old directories are removed"
        );
        run_dir::remove_terminal(&dir).unwrap();
    }
}
