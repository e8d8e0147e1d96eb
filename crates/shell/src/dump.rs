//! The FIFO into which a shell dumps its state.

use std::io;
use std::path::PathBuf;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::paths::Paths;
use super::pipes::{Pipe, Read};

/// The token of the state FIFO in the driver's epoll set.
pub const TOKEN: u64 = 0;

/// The next dump after one of this size still fits into the pipe, even if it is a little longer.
const MAX_PIPED_BYTES: usize = 48 << 10;

/// The reading end of the state FIFO.
#[derive(Debug)]
pub struct DumpReader {
    pub pipe: Pipe,
    /// The part of the dump that was read.
    pub bytes: Vec<u8>,
    /// The dump was read to its end.
    complete: bool,
    wakes: Wakes,
}

/// When the FIFO wakes us. bash writes a dump line by line, and a wake-up for each line costs more than
/// reading the line; a dump that fits into the pipe can stay there until its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// When the whole dump is written.
    AtEnd,
    OnEveryWrite,
}

impl DumpReader {
    pub fn create(paths: &Paths, epoll: &OwnedFd) -> io::Result<Self> {
        Self::watching(Pipe::open_or_create(path(paths))?, epoll)
    }

    /// Continues to read a FIFO that another executable left open.
    pub fn adopt(paths: &Paths, fd: OwnedFd, bytes: Vec<u8>, epoll: &OwnedFd) -> io::Result<Self> {
        Ok(Self { bytes, ..Self::watching(Pipe::adopt(path(paths), fd), epoll)? })
    }

    fn watching(pipe: Pipe, epoll: &OwnedFd) -> io::Result<Self> {
        pipe.watch(epoll, TOKEN)?;
        Ok(Self { pipe, bytes: Vec::new(), complete: false, wakes: Wakes::OnEveryWrite })
    }

    /// Reads all available bytes. Returns whether the dump is complete.
    pub fn read(&mut self) -> bool {
        // Small, because the stack of an idle host keeps its maximum size.
        let mut piece = [0; 8 << 10];
        loop {
            match self.pipe.read(&mut piece) {
                Read::Some(length) => self.bytes.extend_from_slice(&piece[..length]),
                Read::Empty => break,
                Read::Closed => {
                    self.complete |= !self.bytes.is_empty();
                    break;
                }
            }
        }
        self.complete
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Prepares for the next dump, and drops the rest of an interrupted one.
    pub fn discard(&mut self) {
        self.read();
        self.bytes.clear();
        self.complete = false;
    }

    /// Returns the dump, and prepares for another of about the same size.
    pub fn take(&mut self, epoll: &OwnedFd) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        let large = bytes.len() > MAX_PIPED_BYTES;
        self.wake(if large { Wakes::OnEveryWrite } else { Wakes::AtEnd }, epoll);
        bytes
    }

    /// Sets when the FIFO wakes us.
    pub fn wake(&mut self, wakes: Wakes, epoll: &OwnedFd) {
        let mut flags = epoll::EventFlags::ET;
        flags.set(epoll::EventFlags::IN, wakes == Wakes::OnEveryWrite);
        let token = epoll::EventData::new_u64(TOKEN);
        if self.wakes != wakes && epoll::modify(epoll, &self.pipe.fd, token, flags).is_ok() {
            self.wakes = wakes;
        }
    }
}

fn path(paths: &Paths) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(&paths.state()))
}
