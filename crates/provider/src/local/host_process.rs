//! A host that runs on this machine: its connection and its process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::time::sleep;
use wire::Request;

use super::timing::POLL_INTERVAL;
use crate::host_socket::HostSocket;

/// A host that accepted our connection.
#[derive(Debug)]
pub(super) struct HostProcess {
    socket: HostSocket,
    pidfd: OwnedFd,
}

impl HostProcess {
    /// Connects to the host of this directory. Returns `None` if no host runs there.
    pub(super) async fn connect(dir: &Path) -> io::Result<Option<Self>> {
        let Some(socket) = HostSocket::try_connect(dir).await? else { return Ok(None) };
        let Some(pid) = Pid::from_raw(socket.pid) else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(pidfd) => Ok(Some(Self { socket, pidfd })),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the process id, which is not reused while the host runs.
    pub(super) fn pid(&self) -> i32 {
        self.socket.pid
    }

    /// The connection, with nothing read from it.
    pub(super) fn into_socket(self) -> HostSocket {
        self.socket
    }

    /// Asks the host to terminate with all of its processes, and waits for its exit. It may exit without a
    /// reply.
    pub(super) async fn shut_down(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        greet(&mut bytes)?;
        Request::Shutdown { seq: 1 }.encode(&mut bytes).map_err(io::Error::other)?;
        let mut sent = 0;
        while sent < bytes.len() {
            self.socket.stream.writable().await?;
            match self.socket.stream.try_write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.ended().await;
        Ok(())
    }

    pub(super) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the host's process has exited.
    pub(super) async fn ended(&self) {
        // A pidfd is readable once its process has exited.
        let has_ended = || {
            let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        while !has_ended() {
            sleep(POLL_INTERVAL).await;
        }
    }
}

fn greet(bytes: &mut Vec<u8>) -> io::Result<()> {
    let hello = Request::Hello { version: wire::VERSION, features: wire::FEATURES };
    hello.encode(bytes).map_err(io::Error::other)
}
