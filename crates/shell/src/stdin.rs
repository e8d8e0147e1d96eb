//! The standard input of a command that clients feed while it runs.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};

use wire::ReplyCode;

/// Bytes of standard input that may wait for room in the pipe.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// How many write ids are remembered.
const MAX_WRITE_IDS: usize = 256;

/// The writing end of a command's standard input.
#[derive(Debug)]
pub struct StdinPipe {
    /// The path at which the command opens the FIFO.
    pub path: PathBuf,
    /// Open for reading too, so that neither side blocks until the other has opened the FIFO.
    pub fd: OwnedFd,
    /// The bytes for which the pipe has no room yet.
    pub pending: VecDeque<u8>,
    /// No further write follows the pending bytes.
    pub eof: bool,
    /// The ids of the accepted writes, oldest first.
    pub accepted: Vec<String>,
}

/// Whether a write is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinEnd {
    Open,
    Eof,
}

impl StdinPipe {
    /// Creates the FIFO, with its first bytes.
    pub fn create(path: PathBuf, data: &[u8]) -> io::Result<Self> {
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600))?;
        let fd = open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let pending = data.iter().copied().collect();
        let mut stdin = Self { path, fd, pending, eof: false, accepted: Vec::new() };
        stdin.flush();
        Ok(stdin)
    }

    /// Accepts a write, unless one with the same id was accepted before.
    pub fn write(&mut self, write_id: &str, data: &[u8], end: StdinEnd) -> Result<(), ReplyCode> {
        if !write_id.is_empty() && self.accepted.iter().any(|accepted| accepted == write_id) {
            return Err(ReplyCode::AlreadyApplied);
        }
        if self.eof {
            return Err(ReplyCode::CommandEnded);
        }
        if self.pending.len() + data.len() > MAX_PENDING_BYTES {
            return Err(ReplyCode::InputFull);
        }
        if !write_id.is_empty() {
            if self.accepted.len() >= MAX_WRITE_IDS {
                self.accepted.remove(0);
            }
            self.accepted.push(write_id.to_owned());
        }
        self.pending.extend(data);
        self.eof |= end == StdinEnd::Eof;
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

    /// Returns whether all input is written and no more follows.
    pub fn is_done(&self) -> bool {
        self.eof && self.pending.is_empty()
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
