//! One server per home.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// The lock on a home directory; the kernel releases it when the process ends.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

/// Why a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server uses it.
    #[error("another server (pid {pid}) is already using {home}")]
    Held {
        home: PathBuf,
        /// The content of the lock file.
        pid: String,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {home}")]
    Io {
        home: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl HomeLock {
    /// Locks the home. The directory must exist.
    pub fn take(home: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { home: home.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(home.join("lock"))
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // Only for the error message.
                let _ = file.read_to_string(&mut pid);
                return Err(LockError::Held { home: home.to_owned(), pid: pid.trim().into() });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        // The pid is only for the error message: a full disk must not stop a server from starting.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_gets_an_error_with_the_pid_of_the_first() {
        let home = tempfile::tempdir().unwrap();
        let first = HomeLock::take(home.path()).unwrap();
        let second = HomeLock::take(home.path()).unwrap_err();
        assert!(second.to_string().contains(&format!("(pid {})", std::process::id())));
        drop(first);
        HomeLock::take(home.path()).unwrap();
    }
}
