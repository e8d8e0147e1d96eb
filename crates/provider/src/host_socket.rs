//! The socket of a host in the directory of its instance.
//!
//! The socket shows whether a host runs: the kernel closes it with the host. The kernel also reports the
//! host's process id, so a reused number in a file can never identify the wrong process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// How long to wait for a free slot in the host's connection queue.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A connection to a host.
#[derive(Debug)]
pub struct HostSocket {
    /// The connection, with nothing read from it.
    pub stream: UnixStream,
    /// The host's process id on this machine; not reused while the host runs.
    pub pid: i32,
}

impl HostSocket {
    /// Whether the host of this directory runs. A paused host accepts nothing, so its queue may be full.
    pub async fn is_alive(dir: &Path) -> io::Result<bool> {
        match Self::try_connect(dir).await {
            Ok(socket) => Ok(socket.is_some()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Connects to the host of this directory. Returns `None` if no host runs there. Waits while its queue
    /// is full.
    pub async fn connect(dir: &Path) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        loop {
            match Self::try_connect(dir).await {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    sleep(POLL_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    /// Connects to the host of this directory. Returns `None` if no host runs there. Fails with
    /// `WouldBlock`
    /// if its queue is full.
    pub async fn try_connect(dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(dir, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // The name of a socket has at most 107 bytes; the path through the descriptor is always short.
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
        // The kernel reports the process that called `listen`, which is the host itself.
        let pid = rustix::net::sockopt::socket_peercred(stream.as_fd())?.pid;
        Ok(Some(Self { stream, pid: pid.as_raw_nonzero().get() }))
    }
}
