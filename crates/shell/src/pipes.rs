//! The FIFOs between a shell and its driver.

use std::io;
use std::path::{Path, PathBuf};

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;

/// A FIFO's reading end.
#[derive(Debug)]
pub struct Pipe {
    /// The path at which writers open the FIFO.
    pub path: PathBuf,
    /// The reading end, in non-blocking mode.
    pub fd: OwnedFd,
    grown: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes; there may be more.
    Some(usize),
    /// No bytes, but a writer may exist.
    Empty,
    /// No bytes, and no writer.
    Closed,
}

impl Pipe {
    /// Creates the FIFO, or opens an existing one.
    pub fn open_or_create(path: PathBuf) -> io::Result<Self> {
        match mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let fd = open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path, fd, grown: false })
    }

    /// Takes over an open descriptor.
    pub fn adopt(path: PathBuf, fd: OwnedFd) -> Self {
        Self { path, fd, grown: false }
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        loop {
            return match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => Read::Closed,
                Ok(length) => {
                    // A full pipe means a fast writer: a larger pipe saves wake-ups on both sides.
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

    /// Adds the FIFO to an epoll set. Edge-triggered, because a FIFO without writers is always ready.
    pub fn watch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::ET | epoll::EventFlags::IN;
        Ok(epoll::add(epoll, &self.fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Returns whether another command may use the FIFO. An enlarged pipe is closed instead.
    pub fn is_reusable(&self) -> bool {
        !self.grown
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Wakes up writers that wait for a reader of a FIFO in `directory`: a shell whose host was killed would
/// otherwise stay blocked.
pub fn release(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        use std::os::unix::fs::FileTypeExt;
        if entry.file_type().is_ok_and(|kind| kind.is_fifo()) {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            drop(open(entry.path(), flags, Mode::empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_waits_for_a_reader_is_woken() {
        let directory = std::env::temp_dir().join(format!("stead-pipes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("state");
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        let opened = path.clone();
        let writer = std::thread::spawn(move || {
            std::fs::OpenOptions::new().write(true).open(opened).is_ok()
        });
        while !writer.is_finished() {
            release(&directory);
            std::thread::yield_now();
        }
        assert!(writer.join().unwrap());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
