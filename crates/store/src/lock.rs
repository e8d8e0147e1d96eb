//! One server per home.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Held as long as this server may use the home; the kernel lets go of it when the process ends.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

/// Why a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server uses it.
    #[error("{home} is held by pid {pid}")]
    Held {
        /// The home.
        home: PathBuf,
        /// What the other server wrote down.
        pid: String,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {home}")]
    Io {
        /// The home.
        home: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl HomeLock {
    /// Takes the home, or says who has it. The directory must exist.
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
                // Whatever is in it is only shown.
                let _ = file.read_to_string(&mut pid);
                return Err(LockError::Held { home: home.to_owned(), pid: pid.trim().into() });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        // What is written is only a help for the reader of the refusal: a full disk must not stop
        // a server from starting.
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
    fn a_second_server_is_told_who_has_the_home() {
        let home = tempfile::tempdir().unwrap();
        let first = HomeLock::take(home.path()).unwrap();
        let second = HomeLock::take(home.path()).unwrap_err();
        assert!(second.to_string().ends_with(&format!("is held by pid {}", std::process::id())));
        drop(first);
        HomeLock::take(home.path()).unwrap();
    }
}
