//! Ends sandboxes.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::timing::{POLL_INTERVAL, SANDBOX_TIMEOUT};
use crate::files::{open_dir, remove_all};
use crate::instances::Instances;
use crate::layout::{CGROUP, LOCK, TERMINALS};
use crate::lock::lock;
use crate::network::connect;
use crate::{slot, terminal_dir};
use cgroup::Cgroups;

/// Ends every sandbox of a home that `which` selects by its directory.
pub(super) fn end_all(home: &Path, which: impl Fn(&Path) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(home.join("sandboxes")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten().filter(|entry| which(&entry.path())) {
        let name = || entry.file_name().to_string_lossy().into_owned();
        let name = Instances::labelled_name(&entry.path()).unwrap_or_else(name);
        end(&entry.path(), &name, &home.join("terminals"))?;
    }
    Ok(())
}

/// Ends a sandbox. The directory is removed last, so that the next call completes an interrupted one.
pub(super) fn end(dir: &Path, name: &str, terminals: &Path) -> io::Result<()> {
    let cgroups = Cgroups::new(&format!("{CGROUP}/{name}"))?;
    // Before the lock: a launcher that became the runtime waits for its child.
    cgroups.kill(SANDBOX_TIMEOUT)?;
    kill_host(dir)?;
    if dir.exists() {
        // A launcher may still be running. Everything it starts is in the cgroup.
        let launcher = lock(&dir.join(LOCK))?;
        cgroups.kill(SANDBOX_TIMEOUT)?;
        connect::disconnect(dir)?;
        slot::release(dir)?;
        terminal_dir::move_all_out(&dir.join(TERMINALS), terminals)?;
        remove_all(dir)?;
        drop(launcher);
    }
    Ok(())
}

/// Kills the host of a directory, and with it all processes of its PID namespace. An unprivileged sandbox
/// has no cgroup to be killed by.
fn kill_host(dir: &Path) -> io::Result<()> {
    let Ok(dir) = open_dir(dir) else { return Ok(()) };
    let path = format!("/proc/self/fd/{}/host.sock", dir.as_raw_fd());
    let (address, flags) =
        (SocketAddrUnix::new(path)?, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let deadline = Instant::now() + SANDBOX_TIMEOUT;
    // A host that is stopped accepts no more connections than it has room for.
    while let Err(errno) = net::connect(&socket, &address) {
        match errno {
            Errno::AGAIN if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Errno::AGAIN => return Err(io::ErrorKind::TimedOut.into()),
            _ => return Ok(()),
        }
    }
    if let Ok(peer) = net::sockopt::socket_peercred(&socket) {
        let _ = rustix::process::kill_process(peer.pid, rustix::process::Signal::KILL);
    }
    Ok(())
}
