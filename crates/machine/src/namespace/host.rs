//! The host inside a sandbox, as seen from outside.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::LOOK;

/// How long a host has to make room for another connection.
const ROOM: Duration = Duration::from_secs(5);

/// The host that listens on the socket in a sandbox's directory.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) stream: UnixStream,
    /// Its process id on this machine; not given to another while it lives.
    pub(crate) pid: i32,
}

/// Ends the host whose directory this is, if it lives, and with it all that is in its namespace.
pub(super) fn kill(dir: &Path) {
    let Ok(dir) = super::launch::open_dir(dir) else { return };
    let path = format!("/proc/self/fd/{}/host.sock", dir.as_raw_fd());
    let Ok(stream) = std::os::unix::net::UnixStream::connect(path) else { return };
    if let Ok(peer) = rustix::net::sockopt::socket_peercred(stream.as_fd()) {
        let _ = rustix::process::kill_process(peer.pid, rustix::process::Signal::KILL);
    }
}

impl Host {
    /// Whether the host whose directory this is lives. One that holds still does not take
    /// connections in, so that there may be no room for another.
    pub(crate) async fn lives(dir: &Path) -> io::Result<bool> {
        match Self::try_connect(dir).await {
            Ok(host) => Ok(host.is_some()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The host whose directory this is, if it lives.
    pub(crate) async fn connect(dir: &Path) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + ROOM;
        loop {
            match Self::try_connect(dir).await {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    sleep(LOOK).await;
                }
                result => return result,
            }
        }
    }

    async fn try_connect(dir: &Path) -> io::Result<Option<Self>> {
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
        // Who listens, not who named the socket: the host itself began to listen.
        let pid = rustix::net::sockopt::socket_peercred(stream.as_fd())?.pid;
        Ok(Some(Self { stream, pid: pid.as_raw_nonzero().get() }))
    }
}
