//! The network of a sandbox whose server is not root: `pasta` forwards its traffic through sockets of the
//! server's user.
//!
//! ```text
//!   sandbox                              machine
//!   eth0 198.18.0.2/30 ──── tap ──── pasta ──▶ sockets of the user
//!   output: the sandbox's rules      ▲
//!                                    └─ supervisor: kills pasta when process 1 of the sandbox has ended
//! ```
//! As for root, rules in the sandbox's namespace restrict its egress, and no program inside may change
//! them.
//! They are loaded before the sandbox is connected. The machine has no table for it, so the rules inside
//! also contain the machine's addresses.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::files::remove;
use crate::sys;
use crate::tools::{PATH, find_program};

/// The device with which `pasta` creates the sandbox's interface.
const TUN: &str = "/dev/net/tun";

/// The report of the supervisor when the sandbox is connected.
const CONNECTED: &str = "connected";

/// The address of the gateway, which no machine has.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The arguments of `pasta`: no port is forwarded in either direction, and no address inside means the
/// machine.
const ARGUMENTS: [&str; 18] = [
    "--quiet",
    "--config-net",
    "--ipv4-only",
    "--no-map-gw",
    "--ns-ifname",
    "eth0",
    "--address",
    "198.18.0.2",
    "--netmask",
    "30",
    "--tcp-ports",
    "none",
    "--udp-ports",
    "none",
    "--tcp-ns",
    "none",
    "--udp-ns",
    "none",
];

/// Returns why unprivileged sandboxes have no network on this machine, or `None` if they have one.
pub(crate) fn impossible() -> Option<String> {
    for (program, package) in [("pasta", "passt"), ("nft", "nftables")] {
        if find_program(Path::new(program)).is_none() {
            return Some(format!("{program} was not found; install {package}"));
        }
    }
    let tun = OpenOptions::new().read(true).write(true).open(TUN);
    tun.err().map(|error| format!("{TUN}: {error}; let the server's user open it"))
}

/// A process in the machine's namespace that runs `pasta` for the sandbox of its parent.
#[derive(Debug)]
pub(crate) struct PastaSupervisor {
    start: OwnedFd,
    report: OwnedFd,
    lifetime: OwnedFd,
}

impl PastaSupervisor {
    /// Forks the supervisor. Needs a process of one thread that is still in the machine's namespaces.
    pub(crate) fn fork(dir: &Path) -> io::Result<Self> {
        let (started, start) = pipe_with(PipeFlags::CLOEXEC)?;
        let (report, reporter) = pipe_with(PipeFlags::CLOEXEC)?;
        let (ended, lifetime) = pipe_with(PipeFlags::CLOEXEC)?;
        let sandbox = std::process::id();
        let supervisor = Self { start, report, lifetime };
        let others =
            [supervisor.start.as_fd(), supervisor.report.as_fd(), supervisor.lifetime.as_fd()];
        sys::fork_without(&others, || {
            // The launcher ended before it was ready.
            if rustix::io::read(&started, &mut [0u8])? == 0 {
                return Ok(());
            }
            let pasta = match connect(dir, sandbox) {
                Ok(pasta) => pasta,
                Err(error) => return File::from(reporter).write_all(error.to_string().as_bytes()),
            };
            File::from(reporter).write_all(CONNECTED.as_bytes())?;
            let mut either =
                [PollFd::new(&ended, PollFlags::IN), PollFd::new(&pasta, PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = poll(&mut either, None) {}
            // pasta may have ended first.
            let _ = rustix::process::pidfd_send_signal(&pasta, Signal::KILL);
            Ok(())
        })?;
        Ok(supervisor)
    }

    /// Connects the current network namespace of this process, for as long as the returned descriptor is
    /// open in any process.
    pub(crate) fn connect(self) -> io::Result<OwnedFd> {
        rustix::io::write(&self.start, &[1])?;
        let mut report = String::new();
        File::from(self.report).read_to_string(&mut report)?;
        match report.as_str() {
            CONNECTED => Ok(self.lifetime),
            "" => Err(io::Error::other("the supervisor of pasta ended early")),
            error => Err(io::Error::other(error.to_owned())),
        }
    }
}

/// Starts `pasta` for the namespaces of a process. It is ready once it has forked into the background.
fn connect(dir: &Path, sandbox: u32) -> io::Result<OwnedFd> {
    let pid_file = dir.join("pasta.pid");
    let status = Command::new("pasta")
        .args(ARGUMENTS)
        .arg("--gateway")
        .arg(GATEWAY.to_string())
        .arg("--pid")
        .arg(&pid_file)
        .arg(sandbox.to_string())
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("pasta.err"))?)
        .status()?;
    if !status.success() {
        let stderr = fs::read_to_string(dir.join("pasta.err")).unwrap_or_default();
        return Err(io::Error::other(format!("pasta: {status}: {}", stderr.trim())));
    }
    let pid = fs::read_to_string(&pid_file)?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("pasta wrote no process id"))?;
    remove(&pid_file)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}
