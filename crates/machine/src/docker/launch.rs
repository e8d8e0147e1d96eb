//! Single-threaded processes: the launcher, which runs while a container starts, and the entry, which is
//! process 1 of the container.
//!
//! ```text
//! server ──▶ launcher: binds the host's socket, listens on the hand-off socket, prints "ready" and a user
//! server ──▶ engine:   creates and starts the container with this user
//! entry  ──▶ launcher: connects to the hand-off socket, from a user namespace of its own
//! launcher ──▶ entry:  sets up the root and the network, hands over socket, terminals, filters and slot
//! entry:               drops its other capabilities, and becomes the host
//! ```
//! The kernel counts inotify instances, pending signals and other things for each user, also for the one who
//! created a user namespace. So each container's namespace is created by a user of its own. It maps every
//! user to itself, because the engine's files belong to the machine's users; where an engine maps users
//! itself, the container has no other user namespace.
//!
//! Only process 1 runs inside until the hand-off socket is closed, and the handed-over files have no path
//! inside. If the server or the launcher exits, so does the entry, and with it the container.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use images::ImageSettings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};

pub(super) use super::root::HANDOFF_INSIDE;
use super::root::{ContainerPrograms, ContainerRoot};
use super::timing::START_TIMEOUT;
use crate::capabilities;
use crate::files::{cannot, open_dir};
use crate::layout::{LOCK, TERMINALS, filters};
use crate::lock::lock;
use crate::network::connect::{self, ResolvedEgress};
use crate::seccomp::bpf;
use crate::slot;
use crate::spec::{EgressPolicy, SandboxCapabilities};
use crate::sys::{self, MountAccess};

/// The input of the launcher of a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ContainerLaunch {
    pub(super) name: String,
    pub(super) egress: EgressPolicy,
    /// The disk image of the lease.
    pub(super) disk: PathBuf,
    /// Directories of this machine that are mounted in it.
    pub(super) shown: Vec<PathBuf>,
    #[serde(default)]
    pub(super) programs: ImagePrograms,
    #[serde(default = "SandboxCapabilities::none")]
    pub(super) capabilities: SandboxCapabilities,
    /// What its image says about programs.
    #[serde(default)]
    pub(super) image: ImageSettings,
}

/// The file in an instance's directory that contains [`ContainerLaunch`].
const FILE: &str = "launch.json";

/// The name of the directory with the hand-off socket, and of the socket in it.
pub(super) const HANDOFF: &str = "door";

/// The file with the path of the container's cgroup.
pub(super) const CGROUP_FILE: &str = "cgroup";

/// The line that a launcher prints when the container may be started begins with this; the user of process 1 follows.
pub(super) const READY: &str = "ready ";

/// The most descriptors that are handed over.
const MAX_HANDED_OVER: usize = 4;

/// The location of a container's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum ImagePrograms {
    /// On this machine, mounted into the container.
    Machine,
    /// In the image itself.
    #[default]
    Own,
}

/// The capabilities of root in a container whose process 1 starts as this user of the machine. Capabilities are harmless
/// outside only if process 1 creates the user namespace itself, so user 0 gets none.
pub(super) fn effective_capabilities(
    wanted: SandboxCapabilities,
    user: u32,
) -> SandboxCapabilities {
    if user == 0 { SandboxCapabilities::None } else { wanted }
}

impl ContainerLaunch {
    pub(super) fn read(dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
    }

    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        fs::write(dir.join(FILE), serde_json::to_vec(self)?)
    }
}

/// Waits for the container of an instance, and gives it its root, its network and its descriptors.
pub(super) fn launch(dir: &Path) -> io::Result<()> {
    let launch = ContainerLaunch::read(dir)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Its own session: signals to the server's process group do not reach it. Its standard input is closed
    // when the server exits.
    let _ = rustix::process::setsid();
    let _lock = lock(&dir.join(LOCK))?;
    let (slot, slot_lock) = slot::take(dir, &launch.name).map_err(cannot("take a slot"))?;

    let resolved = ResolvedEgress::new(&launch.egress);
    let (hosts, resolv) = resolved.names(&launch.egress);
    let here = open_dir(dir)?;
    let socket =
        sys::bound_socket(here.as_fd(), "host.sock").map_err(cannot("bind the host's socket"))?;
    let handoff_dir = open_dir(&dir.join(HANDOFF))?;
    let handoff = sys::bound_socket(handoff_dir.as_fd(), HANDOFF)
        .map_err(cannot("bind the hand-off socket"))?;
    // User 0 inside may be another user here. Outside, only the server can get into the directory above.
    fs::set_permissions(dir.join(HANDOFF).join(HANDOFF), Permissions::from_mode(0o666))?;
    rustix::net::listen(&handoff, 1)?;
    let user = slot::creator(slot);
    let user = if sys::may_create_user_namespace(user) { user } else { 0 };
    println!("{READY}{user}");
    io::stdout().flush()?;

    let stream = accept(&handoff)?;
    fs::remove_file(dir.join(HANDOFF).join(HANDOFF))?;
    let entry = rustix::net::sockopt::socket_peercred(&stream)?;
    let pid = entry.pid.as_raw_nonzero().get();
    refuse_own_namespaces(pid)?;
    let user = if entry.uid.as_raw() == user { user } else { 0 };
    if user != 0 {
        wait_for_namespace(&stream)?;
        sys::map_all_users(pid).map_err(cannot("map the users of the container"))?;
    }
    let capabilities = effective_capabilities(launch.capabilities, user);
    let programs = match (capabilities, launch.programs) {
        (SandboxCapabilities::Root, ImagePrograms::Machine) => Some(ContainerPrograms::open()?),
        _ => None,
    };
    let users = user_namespace(pid)?;
    let users = users.as_ref().map(AsFd::as_fd);
    let names = [("hosts", hosts.as_str()), ("resolv.conf", resolv.as_str())];
    let root = ContainerRoot {
        pid,
        disk: &launch.disk,
        shown: &launch.shown,
        users,
        names,
        capabilities,
        programs: programs.as_ref(),
    };
    root.mount()?;
    let files = MountAccess { write: true, execute: false };
    let terminals = sys::clone_tree(&dir.join(TERMINALS), files, users)
        .map_err(cannot("map the directory of terminals"))?;
    let group = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    if let Some(path) = cgroup::path(&group) {
        fs::write(dir.join(CGROUP_FILE), path)?;
    }
    let machine = sys::network_namespace()?;
    let theirs = File::open(format!("/proc/{pid}/ns/net"))?;
    sys::enter(theirs.as_fd(), LinkNameSpaceType::Network)?;
    connect::connect(dir, &launch.egress, &resolved, slot, machine.as_fd())
        .map_err(cannot("connect the container's network"))?;
    let (socket, terminals, slot) = (socket.as_fd(), terminals.as_fd(), slot_lock.as_fd());
    match capabilities {
        SandboxCapabilities::Root => {
            connect::open_ports(0..=i32::MAX as u32);
            hand_over(&stream, capabilities, &[socket, terminals, slot])
        }
        SandboxCapabilities::None => {
            hand_over(&stream, capabilities, &[socket, terminals, filters()?.as_fd(), slot])
        }
    }
}

/// Waits until the container connects. The server holds the other end of our standard input: once that is
/// closed, no container will start.
fn accept(handoff: &OwnedFd) -> io::Result<OwnedFd> {
    let limit = Timespec { tv_sec: START_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let stdin = io::stdin();
    let mut either = [
        PollFd::new(handoff, PollFlags::IN),
        PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
    ];
    poll(&mut either, Some(&limit))?;
    if either[0].revents().contains(PollFlags::IN) {
        return Ok(rustix::net::accept_with(handoff, rustix::net::SocketFlags::CLOEXEC)?);
    }
    Err(io::Error::other("the container did not connect to the hand-off socket"))
}

/// Waits until the entry is in a user namespace of its own.
fn wait_for_namespace(stream: &OwnedFd) -> io::Result<()> {
    match rustix::io::read(stream, &mut [0u8])? {
        0 => Err(io::Error::other("the container cannot create a user namespace")),
        _ => Ok(()),
    }
}

/// Refuses a process in our own namespaces: the next steps would change the machine itself.
fn refuse_own_namespaces(pid: i32) -> io::Result<()> {
    for kind in ["net", "mnt", "pid"] {
        let theirs = fs::read_link(format!("/proc/{pid}/ns/{kind}"))?;
        if theirs == fs::read_link(format!("/proc/self/ns/{kind}"))? {
            return Err(io::Error::other(format!(
                "the engine gave the container no {kind} namespace of its own"
            )));
        }
    }
    Ok(())
}

/// The user namespace of a process; `None` if its user 0 is the machine's.
fn user_namespace(pid: i32) -> io::Result<Option<File>> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    let first = map.split_ascii_whitespace().nth(1);
    if first == Some("0") {
        return Ok(None);
    }
    Ok(Some(File::open(format!("/proc/{pid}/ns/user"))?))
}

/// Hands over descriptors, and tells process 1 what it keeps.
fn hand_over(
    stream: &OwnedFd,
    capabilities: SandboxCapabilities,
    handed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDED_OVER))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(handed)) {
        return Err(io::Error::other("the descriptors do not fit into the message"));
    }
    let kept = [u8::from(capabilities == SandboxCapabilities::Root)];
    sendmsg(stream, &[IoSlice::new(&kept)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Process 1 of a container: receives the descriptors from the launcher, and becomes the host. Returns only
/// on failure.
pub(super) fn enter(socket: &Path, arguments: &[OsString]) -> io::Error {
    let handed = match UnixStream::connect(socket).and_then(prepare) {
        Ok(handed) => handed,
        Err(error) => return cannot("receive the descriptors of the launcher")(error),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    sys::exec_with(Command::new(program).args(arguments), &handed)
}

/// Enters a user namespace of its own, receives the descriptors, and becomes user 0 with the capabilities of its settings.
/// Where users cannot create namespaces, or the engine maps users, it is user 0 without capabilities already.
fn prepare(mut launcher: UnixStream) -> io::Result<Vec<OwnedFd>> {
    if rustix::process::getuid().is_root() {
        return receive(&launcher).map(|(_, handed)| handed);
    }
    sys::unshare(UnshareFlags::NEWUSER).map_err(cannot("create a user namespace"))?;
    launcher.write_all(&[1])?;
    let (capabilities, handed) = receive(&launcher)?;
    sys::become_first_user()?;
    match capabilities {
        SandboxCapabilities::Root => {
            // Without `no_new_privs`, this needs a capability that it does not keep.
            for program in bpf::programs(capabilities)? {
                sys::filter_calls(&program).map_err(cannot("filter its system calls"))?;
            }
            sys::keep_capabilities(capabilities::in_kernel(capabilities))?;
        }
        SandboxCapabilities::None => sys::drop_capabilities()?,
    }
    Ok(handed)
}

fn receive(stream: &UnixStream) -> io::Result<(SandboxCapabilities, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDED_OVER))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut kept = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut kept)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut handed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed.extend(descriptors);
        }
    }
    if handed.is_empty() {
        return Err(io::Error::other("the launcher ended early"));
    }
    let capabilities =
        if kept == [0] { SandboxCapabilities::None } else { SandboxCapabilities::Root };
    Ok((capabilities, handed))
}
