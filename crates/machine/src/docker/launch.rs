//! What is done in processes of one thread: the launcher beside a container that starts, and the
//! entry in it.
//!
//! ```text
//! server ──▶ launcher: names the host's socket, opens the door, says it is ready
//! server ──▶ engine:   makes and starts the container
//! entry  ──▶ door      process 1 asks for what it is to hold
//! launcher:            gives the container its root and its network, hands over socket, terminals,
//!                      filters and slot
//! entry:               becomes the host
//! ```
//! Nothing but process 1 runs inside until the door is closed for good, and what was handed over has
//! no path inside. Whenever the server or the launcher is gone, the entry ends, and with it the
//! container.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::LinkNameSpaceType;
use serde::{Deserialize, Serialize};

use super::root::Root;
use crate::namespace::Egress;
use crate::namespace::cgroup;
use crate::namespace::connect::{self, Reach};
use crate::namespace::launch::{self, LOCK, TERMINALS, doing, open_dir};
use crate::namespace::sys::{self, Allows};

/// What a launcher is told, as it stands in the instance's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The container's name.
    pub(super) name: String,
    /// What it may reach.
    pub(super) egress: Egress,
    /// The file of the lease's disk.
    pub(super) disk: PathBuf,
    /// Directories of this machine that are shown in it.
    pub(super) shown: Vec<PathBuf>,
}

/// The file in an instance's directory that [`Launch`] is in.
pub(super) const FILE: &str = "launch.json";

/// The directory with the door, and the door's name in it.
pub(super) const DOOR: &str = "door";

/// Where the door's directory is inside.
pub(super) const DOOR_INSIDE: &str = "/.stead-door";

/// The file with the path of the container's cgroup.
pub(super) const CGROUP: &str = "cgroup";

/// What a launcher says when the container may be started.
pub(super) const READY: &str = "ready";

/// How long a container has to come to the door.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many descriptors are handed over.
const HANDED: usize = 4;

/// What the launcher of a container was told.
pub(super) fn read(dir: &Path) -> io::Result<Launch> {
    Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
}

/// Waits at the door of an instance's container, and gives it what it needs.
pub(super) fn launch(dir: &Path) -> io::Result<()> {
    let launch = read(dir)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // What ends the server's group is no word to this; the end of the server is.
    let _ = rustix::process::setsid();
    let _lock = launch::lock(&dir.join(LOCK))?;
    let (slot, slot_lock) = launch::slot(dir, &launch.name).map_err(doing("take a slot"))?;

    let reach = Reach::of(&launch.egress);
    let (hosts, resolv) = reach.names(&launch.egress);
    let here = open_dir(dir)?;
    let socket = sys::bound_socket(here.as_fd(), "host.sock").map_err(doing("name a socket"))?;
    let door_dir = open_dir(&dir.join(DOOR))?;
    let door = sys::bound_socket(door_dir.as_fd(), DOOR).map_err(doing("name the door"))?;
    // Above it is a directory of the server's alone; inside, user 0 may be another than here.
    fs::set_permissions(dir.join(DOOR).join(DOOR), Permissions::from_mode(0o666))?;
    rustix::net::listen(&door, 1)?;
    println!("{READY}");
    io::stdout().flush()?;

    let stream = answer(&door)?;
    fs::remove_file(dir.join(DOOR).join(DOOR))?;
    let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid.as_raw_nonzero().get();
    apart(pid)?;
    let users = users(pid)?;
    let users = users.as_ref().map(AsFd::as_fd);
    let names = [("hosts", hosts.as_str()), ("resolv.conf", resolv.as_str())];
    Root { pid, disk: &launch.disk, shown: &launch.shown, users, names }.make()?;
    let files = Allows { writing: true, running: false };
    let terminals = sys::tree(&dir.join(TERMINALS), files, users)
        .map_err(doing("map the directory of terminals"))?;
    let group = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    if let Some(path) = cgroup::path(&group) {
        fs::write(dir.join(CGROUP), path)?;
    }
    let machine = sys::network()?;
    let theirs = File::open(format!("/proc/{pid}/ns/net"))?;
    sys::enter(theirs.as_fd(), LinkNameSpaceType::Network)?;
    connect::connect(dir, &launch.egress, &reach, slot, machine.as_fd())
        .map_err(doing("connect the container's network"))?;
    let filters = launch::filters()?;
    hand_over(&stream, &[socket.as_fd(), terminals.as_fd(), filters.as_fd(), slot_lock.as_fd()])
}

/// Waits until somebody comes to the door. The server holds the other end of our standard input: when
/// it is gone, nobody will start the container.
fn answer(door: &OwnedFd) -> io::Result<OwnedFd> {
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let stdin = io::stdin();
    let mut either =
        [PollFd::new(door, PollFlags::IN), PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    poll(&mut either, Some(&limit))?;
    if either[0].revents().contains(PollFlags::IN) {
        return Ok(rustix::net::accept_with(door, rustix::net::SocketFlags::CLOEXEC)?);
    }
    Err(io::Error::other("nobody came to the door"))
}

/// Refuses a process that sees what this one sees: what follows would change the machine itself.
fn apart(pid: i32) -> io::Result<()> {
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

/// The user namespace of a process whose user 0 is another than here.
fn users(pid: i32) -> io::Result<Option<File>> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    let first = map.split_ascii_whitespace().nth(1);
    if first == Some("0") {
        return Ok(None);
    }
    Ok(Some(File::open(format!("/proc/{pid}/ns/user"))?))
}

fn hand_over(stream: &OwnedFd, handed: &[BorrowedFd<'_>; HANDED]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(handed)) {
        return Err(io::Error::other("the descriptors do not fit"));
    }
    sendmsg(stream, &[IoSlice::new(&[HANDED as u8])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Process 1 of a container: comes to the door, takes what it is given, and becomes the host. Returns
/// only when that failed.
pub(super) fn enter(door: &Path, arguments: &[OsString]) -> io::Error {
    let handed = match take_over(door) {
        Ok(handed) => handed,
        Err(error) => return doing("come through the door")(error),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    sys::become_with(Command::new(program).args(arguments), &handed)
}

fn take_over(door: &Path) -> io::Result<Vec<OwnedFd>> {
    let stream = UnixStream::connect(door)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut count = [0];
    recvmsg(&stream, &mut [IoSliceMut::new(&mut count)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut handed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed.extend(descriptors);
        }
    }
    if handed.len() != HANDED {
        return Err(io::Error::other("the launcher went away"));
    }
    Ok(handed)
}
