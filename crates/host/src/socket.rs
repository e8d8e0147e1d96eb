//! The files in a host's directory by which clients find the host.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The name of the host's socket.
pub(crate) const SOCKET: &str = "host.sock";

/// The name of the file with the host's process id.
pub(crate) const PID_FILE: &str = "host.pid";

/// Returns a short path to the directory, because the path of a socket has at most 107 bytes. The path is
/// valid as long as the descriptor is open.
pub(crate) fn short_path(dir: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    Ok((fd, path))
}
