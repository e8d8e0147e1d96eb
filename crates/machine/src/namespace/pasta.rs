//! The network of a sandbox whose server is not root: `pasta` takes what the sandbox sends and sends it
//! on from the machine's own network, with the rights of the server's user and no more.
//!
//! ```text
//!   sandbox                              machine
//!   eth0 198.18.0.2/30 ──── tap ──── pasta ──▶ sockets of the user
//!   output: the sandbox's rules      ▲
//!                                    └─ minder: ends it when process 1 of the sandbox is gone
//! ```
//! What may be reached is said by rules in the sandbox's namespace, as for root, and nobody inside has
//! the right to change them. They stand before there is a way out. The machine has no rules of its own
//! for it, so those inside also name the machine's addresses.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::disk::{self, PATH};
use super::make::find_program;
use super::sys;

/// What `pasta` opens to make the sandbox's end.
const TUN: &str = "/dev/net/tun";

/// What the minder says when the sandbox is connected.
const CONNECTED: &str = "connected";

/// The address of the way out, at which nobody is.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// What it is told beside where the sandbox is: nothing is passed in from the machine, nothing is passed
/// to the machine's loopback, no address inside means the machine.
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

/// Why a user's sandboxes reach nothing on this machine, if they do not.
pub(super) fn impossible() -> Option<String> {
    for (program, package) in [("pasta", "passt"), ("nft", "nftables")] {
        if find_program(Path::new(program)).is_none() {
            return Some(format!("there is no {program}; install {package}"));
        }
    }
    let tun = OpenOptions::new().read(true).write(true).open(TUN);
    tun.err().map(|error| format!("{TUN}: {error}; let the server's user open it"))
}

/// A process on the machine's side that connects the sandbox of the process that started it.
#[derive(Debug)]
pub(super) struct Minder {
    go: OwnedFd,
    said: OwnedFd,
    life: OwnedFd,
}

impl Minder {
    /// For a process of one thread that has not left the machine yet.
    pub(super) fn start(dir: &Path) -> io::Result<Self> {
        let (hear_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (said, say) = pipe_with(PipeFlags::CLOEXEC)?;
        let (hear_end, life) = pipe_with(PipeFlags::CLOEXEC)?;
        let sandbox = std::process::id();
        let minder = Self { go, said, life };
        let others = [minder.go.as_fd(), minder.said.as_fd(), minder.life.as_fd()];
        sys::beside_without(&others, || {
            // One that ends before it is ready needs no network.
            if rustix::io::read(&hear_go, &mut [0u8])? == 0 {
                return Ok(());
            }
            let pasta = match connect(dir, sandbox) {
                Ok(pasta) => pasta,
                Err(error) => return File::from(say).write_all(error.to_string().as_bytes()),
            };
            File::from(say).write_all(CONNECTED.as_bytes())?;
            let mut either =
                [PollFd::new(&hear_end, PollFlags::IN), PollFd::new(&pasta, PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = poll(&mut either, None) {}
            // It may have ended first.
            let _ = rustix::process::pidfd_send_signal(&pasta, Signal::KILL);
            Ok(())
        })?;
        Ok(minder)
    }

    /// Connects the network namespace that this process is in now. As long as somebody holds what this
    /// returns it stays connected.
    pub(super) fn connect(self) -> io::Result<OwnedFd> {
        rustix::io::write(&self.go, &[1])?;
        let mut said = String::new();
        File::from(self.said).read_to_string(&mut said)?;
        match said.as_str() {
            CONNECTED => Ok(self.life),
            "" => Err(io::Error::other("what connects it ended early")),
            wrong => Err(io::Error::other(wrong.to_owned())),
        }
    }
}

/// Starts `pasta` for the namespaces of a process; it is ready when it has gone into the background.
fn connect(dir: &Path, sandbox: u32) -> io::Result<OwnedFd> {
    let number = dir.join("pasta.pid");
    let output = Command::new("pasta")
        .args(ARGUMENTS)
        .arg("--gateway")
        .arg(GATEWAY.to_string())
        .arg("--pid")
        .arg(&number)
        .arg(sandbox.to_string())
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("pasta.err"))?)
        .status()?;
    if !output.success() {
        let said = fs::read_to_string(dir.join("pasta.err")).unwrap_or_default();
        return Err(io::Error::other(format!("pasta: {output}: {}", said.trim())));
    }
    let pid = fs::read_to_string(&number)?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("pasta does not say who it is"))?;
    disk::remove(&number)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}
