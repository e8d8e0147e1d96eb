//! A host as seen from outside: its socket and its process.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use host::wire::{self, Decoder, Event, Request};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, Signal},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::sleep,
};

use super::LOOK;

/// A host that took our connection.
#[derive(Debug)]
pub(super) struct Host {
    stream: UnixStream,
    pid: i32,
    process: OwnedFd,
}

impl Host {
    /// The host whose directory this is, if it lives.
    pub(super) async fn connect(dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(dir, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // A socket's name has room for 107 bytes; the way over the descriptor is always short.
        let path = format!("/proc/self/fd/{}/host.sock", dir.as_raw_fd());
        let stream = match UnixStream::connect(&path).await {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset => Ok(None),
                    _ => Err(error),
                };
            }
        };
        let pid = rustix::net::sockopt::socket_peercred(stream.as_fd())?.pid;
        let process = match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Some(Self { stream, pid: pid.as_raw_nonzero().get(), process }))
    }

    /// Its process id. It is not given to another process while the host lives.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// The stream, with nothing read from it yet.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Asks it to end everything and itself. It need not answer: it may be gone by then.
    pub(super) async fn shut_down(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        greet(&mut bytes)?;
        Request::Shutdown { seq: 1 }.encode(&mut bytes).map_err(io::Error::other)?;
        let mut sent = 0;
        while sent < bytes.len() {
            self.stream.writable().await?;
            match self.stream.try_write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.ended().await;
        Ok(())
    }

    /// Ends the host itself, whatever it does.
    pub(super) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits until its process has ended.
    pub(super) async fn ended(&self) {
        // A pidfd is readable once its process has ended.
        let has_ended = || {
            let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        while !has_ended() {
            sleep(LOOK).await;
        }
    }

    /// The terminals it holds.
    pub(super) async fn terminals(&mut self) -> io::Result<Vec<String>> {
        let mut bytes = Vec::new();
        greet(&mut bytes)?;
        Request::List { seq: 1 }.encode(&mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes).await?;
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = self.stream.read(&mut buffer).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            decoder.feed(&buffer[..count]);
            while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
                if let Some(Event::Terminals { terminals, .. }) =
                    Event::decode(&frame).map_err(io::Error::other)?
                {
                    return Ok(terminals.into_iter().map(|info| info.terminal).collect());
                }
            }
        }
    }
}

fn greet(bytes: &mut Vec<u8>) -> io::Result<()> {
    let hello = Request::Hello { version: wire::VERSION, features: wire::FEATURES };
    hello.encode(bytes).map_err(io::Error::other)
}

/// The process with this number.
pub(super) fn pid(number: i32) -> Option<Pid> {
    Pid::from_raw(number)
}
