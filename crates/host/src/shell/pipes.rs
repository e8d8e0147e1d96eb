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

    /// Waits for bytes in an epoll set. Edge-triggered: a FIFO whose writers are gone would be ready
    /// for ever.
    pub fn watch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::ET | epoll::EventFlags::IN;
        Ok(epoll::add(epoll, &self.fd, epoll::EventData::new_u64(token), flags)?)
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

/// Lets go whoever waits for a reader of a FIFO in `directory`: a shell whose host was killed while it
/// opened one would wait for ever, and be left.
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
    fn a_writer_that_waits_for_a_reader_is_let_go() {
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
