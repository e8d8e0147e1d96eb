//! The built-in OCI runtime: the part of `runc` that the bundles of [`bundle`](super::bundle) need, in the
//! launcher itself.
//!
//! `runc` executes itself twice before it starts a program, which takes as long as the rest of a sandbox's
//! setup. This runtime is a function: the launcher has set up the root, the network and the users, and is
//! in
//! the cgroups. It leaves the other namespaces of the machine, and a child becomes process 1.
//!
//! The content of the root is not trusted: an earlier instance of the lease may have written it. No link is
//! followed, and none of its programs run before the capabilities are dropped that it does not get.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::devices::DEVICES;
use crate::capabilities;
use crate::files::{cannot, open_dir};
use crate::seccomp::bpf;
use crate::spec::SandboxCapabilities;
use crate::sys;
use crate::untrusted_tree::{UntrustedTree, change_root};

/// Descriptors from this number on are not handed over.
pub(super) const FREE_FDS: i32 = 64;

/// The links in `/dev` that programs expect.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Runs a bundle with these capabilities and the device files of a directory, in the user namespace `users` or in the
/// current one, and hands over descriptors from number 3 on. Returns when the program of the bundle runs. Needs a process
/// of one thread, which has left the machine's namespaces afterwards and should end.
pub(super) fn run(
    spec: &Spec,
    capabilities: SandboxCapabilities,
    devices: &Path,
    users: Option<BorrowedFd<'_>>,
    handed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let (report, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Moved above the numbers of the descriptors that are handed over.
    let reporter = {
        let low = reporter;
        rustix::io::fcntl_dupfd_cloexec(&low, FREE_FDS)?
    };
    if let Some(users) = users {
        sys::enter(users, LinkNameSpaceType::User).map_err(cannot("enter its user namespace"))?;
        sys::become_first_user().map_err(cannot("become its first user"))?;
    }
    let namespaces = UnshareFlags::NEWNS
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWCGROUP;
    sys::unshare(namespaces).map_err(cannot("leave the machine's namespaces"))?;
    sys::fork(|| {
        let error = match become_process_1(spec, capabilities, devices, handed) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        // On success nothing is written: `exec` closes the pipe.
        File::from(reporter.try_clone()?).write_all(error.to_string().as_bytes())
    })?;
    drop(reporter);
    let mut error = String::new();
    File::from(report).read_to_string(&mut error)?;
    if error.is_empty() { Ok(()) } else { Err(io::Error::other(error)) }
}

/// A type without values, for a function that does not return on success.
enum Never {}

fn become_process_1(
    spec: &Spec,
    capabilities: SandboxCapabilities,
    devices: &Path,
    handed: &[BorrowedFd<'_>],
) -> io::Result<Never> {
    let missing = |what: &str| io::Error::other(format!("the bundle has no {what}"));
    let root = spec.root().as_ref().ok_or_else(|| missing("root"))?.path();
    let process = spec.process().as_ref().ok_or_else(|| missing("process"))?;
    let linux = spec.linux().as_ref().ok_or_else(|| missing("linux"))?;
    // Its own session, without any process outside.
    let _ = rustix::process::setsid();
    if let Some(name) = spec.hostname() {
        rustix::system::sethostname(name.as_bytes())?;
    }
    // `pivot_root` needs a mount of this namespace.
    rustix::mount::mount_bind_recursive(root, root)?;
    let inside = open_dir(root)?;
    for mount in spec.mounts().iter().flatten() {
        add(UntrustedTree(inside.as_fd()), mount).map_err(cannot("mount its own file systems"))?;
    }
    mount_devices(UntrustedTree(inside.as_fd()), devices).map_err(cannot("mount its devices"))?;
    change_root(inside.as_fd()).map_err(cannot("change its root"))?;
    for (name, value) in linux.sysctl().iter().flatten() {
        fs::write(Path::new("/proc/sys").join(name.replace('.', "/")), value)
            .map_err(cannot("set a sysctl"))?;
    }
    for path in linux.readonly_paths().iter().flatten() {
        read_only(path).map_err(cannot("make a path read-only"))?;
    }
    for path in linux.masked_paths().iter().flatten() {
        mask(path).map_err(cannot("mask a path"))?;
    }
    sys::join_own_keyring().map_err(cannot("join its own keyring"))?;
    match capabilities {
        SandboxCapabilities::Root => {
            // Services expect it. Their users cannot create it.
            let _ = fs::create_dir("/run/lock");
            let _ = fs::set_permissions("/run/lock", fs::Permissions::from_mode(0o1777));
            for program in bpf::programs(capabilities)? {
                sys::filter_calls(&program).map_err(cannot("filter its system calls"))?;
            }
            sys::keep_capabilities(capabilities::in_kernel(capabilities))
                .map_err(cannot("drop its other capabilities"))?;
        }
        SandboxCapabilities::None => {
            sys::drop_capabilities().map_err(cannot("drop its capabilities"))?;
        }
    }

    let args = process.args().as_deref().unwrap_or_default();
    let [program, args @ ..] = args else { return Err(missing("program")) };
    let mut command = Command::new(program);
    command.args(args).env_clear().current_dir(process.cwd());
    for (name, value) in process.env().iter().flatten().filter_map(|pair| pair.split_once('=')) {
        command.env(name, value);
    }
    sys::close_on_exec_from(3 + handed.len())?;
    Err(cannot("run its program")(sys::exec_with(&mut command, handed)))
}

/// Adds one mount of the bundle.
fn add(inside: UntrustedTree<'_>, mount: &Mount) -> io::Result<()> {
    let at = inside.make_dir(mount.destination())?;
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    for option in mount.options().iter().flatten() {
        match option.as_str() {
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "ro" => flags |= MountFlags::RDONLY,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            other => data.push(other),
        }
    }
    let kind = mount.typ().as_deref().unwrap_or_default();
    let data = std::ffi::CString::new(data.join(",")).map_err(io::Error::other)?;
    Ok(rustix::mount::mount(kind, by_descriptor(at.as_fd()), kind, flags, data.as_c_str())?)
}

/// The path of an open descriptor, for calls that do not take one.
fn by_descriptor(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Mounts the devices of a directory in the new `/dev`.
fn mount_devices(inside: UntrustedTree<'_>, devices: &Path) -> io::Result<()> {
    let dev = inside.make_dir(Path::new("dev"))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for (name, ..) in DEVICES {
        let node =
            rustix::fs::openat(&dev, name, flags | OFlags::WRONLY, Mode::from_raw_mode(0o666))?;
        rustix::mount::mount_bind(devices.join(name), by_descriptor(node.as_fd()))?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(target, &dev, name)?;
    }
    Ok(())
}

/// Makes a path of the kernel's files read-only, if it exists.
fn read_only(path: &str) -> io::Result<()> {
    match rustix::mount::mount_bind_recursive(path, path) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        bound => bound?,
    }
    let flags = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    Ok(rustix::mount::mount_remount(path, flags, "")?)
}

/// Hides a path of the kernel's files, if it exists.
fn mask(path: &str) -> io::Result<()> {
    match rustix::mount::mount_bind("/dev/null", path) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::NOTDIR) => {
            Ok(rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::RDONLY, None)?)
        }
        bound => Ok(bound?),
    }
}
