//! The launcher: a single-threaded process that creates a sandbox's namespaces and mounts, and then acts as
//! the OCI runtime or executes an external one.
//!
//! Everything it creates belongs to namespaces that only the launcher and the sandbox are in: when both
//! have
//! ended, the kernel has removed every mount, loop device and network interface. So a server that is killed
//! at any moment leaves only a directory, a disk and a cgroup, which can be found by name.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use oci_spec::runtime::Spec;
use rustix::fs::Mode;
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

use super::bundle::{self, BundlePlan, TerminalGroup};
use super::launch_file::SandboxLaunch;
use super::root::{self, DEVICES, MachinePrograms, ROOT};
use super::{devices, rlimit, runtime};
use crate::files::{cannot, open_dir};
use crate::layout::{CGROUP, LOCK, TERMINALS, filters};
use crate::lock::lock;
use crate::network::connect::{self, ResolvedEgress};
use crate::slot;
use crate::spec::SandboxCapabilities;
use crate::sys::{self, MountAccess};
use crate::tools::PATH;
use cgroup::Cgroups;

/// Launches the sandbox of a directory. With an external runtime, returns only on failure.
pub(super) fn launch(dir: &Path) -> io::Result<()> {
    let PreparedLaunch { launch, bundle, devices, users, handed } = prepare(dir)?;
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    let Some(runtime) = &launch.runtime else {
        let capabilities = launch.spec.capabilities;
        return runtime::run(&bundle, capabilities, &devices, Some(users.as_fd()), &handed);
    };
    let files = dir.join("bundle");
    fs::create_dir_all(&files)?;
    fs::write(files.join("config.json"), serde_json::to_vec(&bundle)?)?;
    let mut runtime = Command::new(runtime);
    runtime
        .arg("--root")
        .arg(dir.join("state"))
        .args(["run", "--detach", "--preserve-fds", &handed.len().to_string(), "--bundle"])
        .arg(&files)
        .arg(&launch.name)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/");
    Err(sys::exec_with(&mut runtime, &handed))
}

/// Duplicates a descriptor so that it stays open across `exec`, with a number above those that are handed
/// over.
fn keep_open(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(fd, runtime::FREE_FDS)?;
    sys::keep_on_exec(&duplicate)?;
    Ok(duplicate)
}

struct PreparedLaunch {
    launch: SandboxLaunch,
    bundle: Spec,
    /// The directory with its device files, in the launcher's mount namespace.
    devices: PathBuf,
    users: OwnedFd,
    handed: Vec<OwnedFd>,
}

fn prepare(dir: &Path) -> io::Result<PreparedLaunch> {
    let launch = SandboxLaunch::read(dir)?;
    // Before this process enters the sandbox's cgroup, which would be charged for it.
    let programs = MachinePrograms::of(&launch).map_err(cannot("find private programs"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Its own session: signals to the server's process group do not reach it.
    let _ = rustix::process::setsid();
    // Locked until this process exits, even after `exec`.
    std::mem::forget(keep_open(lock(&dir.join(LOCK))?.as_fd())?);

    let (slot, slot_lock) = slot::take(dir, &launch.name).map_err(cannot("take a slot"))?;
    let first_user = slot::first_user(slot);
    let users = sys::user_namespace(first_user, slot::USERS).map_err(cannot("map users"))?;

    let here = open_dir(dir)?;
    let socket =
        sys::bound_socket(here.as_fd(), "host.sock").map_err(cannot("bind the host's socket"))?;
    let files = MountAccess { write: true, execute: false };
    let terminals = sys::clone_tree(&dir.join(TERMINALS), files, Some(users.as_fd()))
        .map_err(cannot("map the directory of terminals"))?;

    // Names are resolved while this process is in the machine's network.
    let resolved = ResolvedEgress::new(&launch.spec.egress);
    let machine = sys::network_namespace()?;
    sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET)
        .map_err(cannot("leave the machine's namespaces"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    if launch.spec.capabilities == SandboxCapabilities::Root {
        connect::open_ports(first_user..=first_user + slot::USERS - 1);
    }
    let stage = root::stage(dir, &launch)?;
    let disk =
        sys::loop_device(&launch.disk).map_err(cannot("attach the disk to a loop device"))?;
    // An external runtime opens it by its path.
    let users = keep_open(users.as_fd())?;
    let root = stage.join(ROOT);
    let cgroup = format!("{CGROUP}/{}", launch.name);
    let bundle = bundle::config(&BundlePlan {
        root: &root,
        spec: &launch.spec,
        first_user,
        terminals: TerminalGroup::Tty,
        users: Path::new(&format!("/proc/{}/fd/{}", std::process::id(), users.as_raw_fd())),
        cgroup: &cgroup,
        program: &launch.program,
        label: &launch.label,
    })
    .map_err(io::Error::other)?;
    // In parallel, because it takes as long as the disk and the runtime. The server waits for both.
    sys::fork(|| {
        connect::connect_and_report(dir, &launch.spec.egress, &resolved, slot, machine.as_fd())
    })?;
    drop(machine);
    let devices = devices::create().map_err(cannot("create its devices"))?;
    let cgroups = match &launch.runtime {
        None => Some(enter_cgroups(&cgroup, &bundle)?),
        Some(_) => None,
    };
    let mounted = root::MountedParts { disk, devices };
    root::mount_root(&launch, &programs, &resolved, stage, mounted, (users.as_fd(), first_user))?;
    rlimit::limit(launch.spec.disk).map_err(cannot("lower its limits"))?;
    let handed = match launch.spec.capabilities {
        SandboxCapabilities::Root => vec![socket, terminals, slot_lock],
        SandboxCapabilities::None => vec![socket, terminals, filters()?, slot_lock],
    };
    if let Some((cgroups, entered)) = cgroups {
        entered.join().map_err(cannot("enter its cgroups"))?;
        cgroups.deny_devices().map_err(cannot("deny it devices"))?;
    }
    Ok(PreparedLaunch { launch, bundle, devices: stage.join(DEVICES), users, handed })
}

/// Creates the cgroups with the limits of a bundle, and moves this process into them. The move runs in
/// parallel, because the kernel waits for all CPUs before it moves a process.
fn enter_cgroups(path: &str, bundle: &Spec) -> io::Result<(Cgroups, sys::ForkedTask)> {
    let cgroups = Cgroups::new(path)?;
    let limits = bundle.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let limits = limits.ok_or_else(|| io::Error::other("the bundle has no limits"))?;
    cgroups.create(limits).map_err(cannot("create its cgroups"))?;
    let own = std::process::id();
    let entered = sys::fork(|| cgroups.add(own))?;
    Ok((cgroups, entered))
}
