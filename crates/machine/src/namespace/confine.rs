//! The launcher of a sandbox for a server that is not root.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::Resource;
use rustix::thread::UnshareFlags;

use super::bundle::{self, BundlePlan, TerminalGroup};
use super::launch_file::SandboxLaunch;
use super::root::{self, ROOT};
use super::{rlimit, runtime};
use crate::files::{cannot, open_dir};
use crate::layout::{
    CGROUP, LOCK, PROGRAMS, READ_ONLY_TREE, TERMINALS, filters, machine_directories,
};
use crate::lock::lock;
use crate::network::connect::{self, ResolvedEgress};
use crate::network::netlink::Netlink;
use crate::network::pasta::{self, PastaSupervisor};
use crate::spec::EgressPolicy;
use crate::sys::{self, MountAccess};
use crate::untrusted_tree::UntrustedTree;

/// Resources that the kernel also charges to the creator of a user namespace. A sandbox gets a share, so
/// that the user's other programs keep the rest.
const USER_LIMITS: [(&str, &str); 2] =
    [("max_inotify_instances", "16"), ("max_inotify_watches", "8192")];

/// Launches the sandbox of a directory as a user who is not root.
pub(super) fn confine(dir: &Path) -> io::Result<()> {
    let launch = SandboxLaunch::read(dir)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let _ = rustix::process::setsid();
    // Names are resolved, and pasta's supervisor is started, while this process is in the machine's network.
    let egress = &launch.spec.egress;
    let resolved = ResolvedEgress::new(egress);
    let connecting = match egress {
        EgressPolicy::None => None,
        EgressPolicy::Public
        | EgressPolicy::All
        | EgressPolicy::Only(_)
        | EgressPolicy::Ruled(_) => {
            let mut machine = connect::own_addresses()?;
            machine.push(pasta::GATEWAY);
            Some((machine, PastaSupervisor::fork(dir)?))
        }
    };
    let _lock = lock(&dir.join(LOCK))?;
    let here = open_dir(dir)?;
    let socket =
        sys::bound_socket(here.as_fd(), "host.sock").map_err(cannot("bind the host's socket"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let terminals = rustix::fs::open(dir.join(TERMINALS), flags, Mode::empty())?;
    let stage = root::stage(dir, &launch)?;
    let root = stage.join(ROOT);
    let bundle = bundle::config(&BundlePlan {
        root: &root,
        spec: &launch.spec,
        first_user: rustix::process::getuid().as_raw(),
        users: Path::new(""),
        terminals: TerminalGroup::Own,
        cgroup: &format!("{CGROUP}/{}", launch.name),
        program: &launch.program,
        label: &launch.label,
    })
    .map_err(io::Error::other)?;
    sys::enter_own_user_namespace()
        .map_err(cannot("create a user namespace; this machine may not allow that to users"))?;
    for (name, max) in USER_LIMITS {
        // May fail where `/proc/sys` is read-only. A host also works without inotify.
        let _ = fs::write(Path::new("/proc/sys/user").join(name), max);
    }
    sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET)
        .map_err(cannot("leave the machine's namespaces"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Netlink::routes()?.set_up("lo").map_err(cannot("set its loopback up"))?;
    let lifetime = match connecting {
        None => None,
        Some((machine, supervisor)) => {
            // The rules are loaded before the sandbox is connected.
            connect::load_rules(egress, &resolved, &machine).map_err(cannot("load its rules"))?;
            Some(supervisor.connect().map_err(cannot("connect it"))?)
        }
    };

    let files = launch.disk.join("root");
    let own = sys::clone_tree(&files, MountAccess { write: true, execute: true }, None)?;
    let mut mounts =
        vec![(PathBuf::from(PROGRAMS), sys::clone_tree(&launch.programs, READ_ONLY_TREE, None)?)];
    for path in machine_directories(&launch.shown) {
        mounts.push((path.clone(), sys::clone_tree(&path, READ_ONLY_TREE, None)?));
    }
    root::furnish(&launch, &resolved, &files)?;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k")?;
    fs::create_dir(&root)?;
    sys::move_mount(own.as_fd(), open_dir(&root)?.as_fd()).map_err(cannot("mount its files"))?;
    let inside = open_dir(&root)?;
    for (path, tree) in &mounts {
        let at = UntrustedTree(inside.as_fd()).open(path).map_err(cannot("open a mount point"))?;
        sys::move_mount(tree.as_fd(), at.as_fd()).map_err(cannot("mount into the sandbox"))?;
    }
    rlimit::limit(launch.spec.disk).map_err(cannot("lower its limits"))?;
    // Counted per user namespace, so this limits only the sandbox.
    rlimit::lower(Resource::Nproc, launch.spec.processes)?;
    let mut handed = vec![socket, terminals, filters()?];
    // Only process 1 has it open, so that the network ends with it.
    handed.extend(lifetime);
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    // Only root can create devices.
    runtime::run(&bundle, launch.spec.capabilities, Path::new("/dev"), None, &handed)
}
