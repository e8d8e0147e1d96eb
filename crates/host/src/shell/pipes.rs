//! The FIFOs between a shell and its driver.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;

/// A FIFO's reading end.
#[derive(Debug)]
pub struct Pipe {
    /// Where writers open it.
    pub path: PathBuf,
    /// Our end; it never blocks.
    pub fd: OwnedFd,
    grown: bool,
}

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, and perhaps more.
    Some(usize),
    /// Nothing there, but somebody may still write.
    Empty,
    /// Nothing there, and nobody holds the writing end.
    Closed,
}

impl Pipe {
    /// Makes the FIFO, or takes the one that is there.
    pub fn make(path: PathBuf) -> io::Result<Self> {
        match mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let fd = open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path, fd, grown: false })
    }

    /// Takes over an end that is open already.
    pub fn adopt(path: PathBuf, fd: OwnedFd) -> Self {
        Self { path, fd, grown: false }
    }

    /// Reads what is there.
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        loop {
            return match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => Read::Closed,
                Ok(length) => {
                    // A full pipe means a fast writer: a larger one saves both sides wake-ups.
                    if !self.grown && length >= 64 << 10 {
                        self.grown = true;
                        let _ = fcntl_setpipe_size(self.fd.as_fd(), 1 << 20);
                    }
                    Read::Some(length)
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Read::Empty,
                Err(_) => Read::Closed,
            };
        }
    }

    /// Whether it may serve another command: a grown one is given back to the kernel.
    pub fn reusable(&self) -> bool {
        !self.grown
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes a file that was not there: a truncated one would be flushed by some file systems.
pub fn write_fresh(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
