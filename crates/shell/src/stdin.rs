//! The standard input of a command that clients feed while it runs.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};

use wire::ReplyCode;

/// Bytes of standard input that may wait for room in the pipe.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// How many ids of writes are remembered.
const MAX_WRITE_IDS: usize = 256;

/// The writing end of a command's standard input.
#[derive(Debug)]
pub struct StdinPipe {
    /// The path at which the command opens it.
    pub path: PathBuf,
    /// Open for reading too, so that neither side waits for the other.
    pub fd: OwnedFd,
    /// The bytes for which the pipe has no room yet.
    pub pending: VecDeque<u8>,
    /// Nothing follows the pending bytes.
    pub eof: bool,
    /// The ids of the writes that were accepted.
    pub taken: Vec<String>,
}

impl StdinPipe {
    /// Creates the FIFO, with its first bytes.
    pub fn create(path: PathBuf, data: &[u8]) -> io::Result<Self> {
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600))?;
        let fd = open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let pending = data.iter().copied().collect();
        let mut stdin = Self { path, fd, pending, eof: false, taken: Vec::new() };
        stdin.flush();
        Ok(stdin)
    }

    /// Accepts a write, unless one with the same id was accepted before.
    pub fn write(&mut self, write_id: &str, data: &[u8], eof: bool) -> Result<(), ReplyCode> {
        if !write_id.is_empty() && self.taken.iter().any(|taken| taken == write_id) {
            return Err(ReplyCode::AlreadyApplied);
        }
        if self.eof {
            return Err(ReplyCode::CommandEnded);
        }
        if self.pending.len() + data.len() > MAX_PENDING_BYTES {
            return Err(ReplyCode::InputFull);
        }
        if !write_id.is_empty() {
            if self.taken.len() >= MAX_WRITE_IDS {
                self.taken.remove(0);
            }
            self.taken.push(write_id.to_owned());
        }
        self.pending.extend(data);
        self.eof |= eof;
        self.flush();
        Ok(())
    }

    /// Writes as much as the pipe has room for.
    pub fn flush(&mut self) {
        while !self.pending.is_empty() {
            let (first, _) = self.pending.as_slices();
            match rustix::io::write(&self.fd, first) {
                Ok(length) => drop(self.pending.drain(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns whether everything is written and nothing will follow.
    pub fn is_done(&self) -> bool {
        self.eof && self.pending.is_empty()
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
