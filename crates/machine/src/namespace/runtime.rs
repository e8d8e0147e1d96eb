//! An OCI runtime of our own: what of `runc` the bundles of [`bundle`](super::bundle) need, in the
//! launcher itself.
//!
//! A runtime written in Go starts itself twice before it does anything, which takes as long as all
//! else that a sandbox needs. This one is a function: the launcher has made the root, the network and
//! the users, and is in the cgroups; here it leaves the rest of the machine's namespaces, and a child
//! becomes process 1 of the new ones.
//!
//! Nothing in the root is trusted: it may hold what an earlier instance of the lease left. No link in
//! it is followed, and nothing of it is run before every right is given up.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::Command;

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::launch::{ABOVE, Inside, doing, open_dir};
use super::sys;

/// The devices that every sandbox has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links that programs expect beside them.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Runs a bundle in the user namespace `users`, or in the one this process made for itself, with
/// descriptors handed over from number 3 on. For a process of one thread, which is in no namespace of
/// the machine afterwards and should end; returns when the program of the bundle runs.
pub(super) fn run(
    spec: &Spec,
    users: Option<BorrowedFd<'_>>,
    handed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let (hear, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Out of the way of what is handed over.
    let tell = {
        let low = tell;
        rustix::io::fcntl_dupfd_cloexec(&low, ABOVE)?
    };
    if let Some(users) = users {
        sys::enter(users, LinkNameSpaceType::User).map_err(doing("join its users"))?;
        sys::become_first_user().map_err(doing("become its first user"))?;
    }
    let namespaces = UnshareFlags::NEWNS
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWCGROUP;
    sys::leave(namespaces).map_err(doing("leave the machine's namespaces"))?;
    sys::beside(|| {
        let error = match become_process_1(spec, handed) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        // The other side hears the end of the program, too, if this says nothing.
        File::from(tell.try_clone()?).write_all(error.to_string().as_bytes())
    })?;
    drop(tell);
    let mut said = String::new();
    File::from(hear).read_to_string(&mut said)?;
    if said.is_empty() { Ok(()) } else { Err(io::Error::other(said)) }
}

/// What there is no value of.
enum Never {}

fn become_process_1(spec: &Spec, handed: &[BorrowedFd<'_>]) -> io::Result<Never> {
    let missing = |what: &str| io::Error::other(format!("the bundle has no {what}"));
    let root = spec.root().as_ref().ok_or_else(|| missing("root"))?.path();
    let process = spec.process().as_ref().ok_or_else(|| missing("process"))?;
    let linux = spec.linux().as_ref().ok_or_else(|| missing("linux"))?;
    // Of no session that anybody outside is in.
    let _ = rustix::process::setsid();
    if let Some(name) = spec.hostname() {
        rustix::system::sethostname(name.as_bytes())?;
    }
    // A mount of this namespace's own, that can be its root.
    rustix::mount::mount_bind_recursive(root, root)?;
    let inside = open_dir(root)?;
    for mount in spec.mounts().iter().flatten() {
        add(Inside(inside.as_fd()), mount).map_err(doing("mount what every sandbox has"))?;
    }
    devices(Inside(inside.as_fd())).map_err(doing("show devices"))?;
    change_root(inside.as_fd()).map_err(doing("change its root"))?;
    for (name, value) in linux.sysctl().iter().flatten() {
        fs::write(Path::new("/proc/sys").join(name.replace('.', "/")), value)
            .map_err(doing("set a limit of its namespaces"))?;
    }
    for path in linux.readonly_paths().iter().flatten() {
        read_only(path).map_err(doing("make a path read-only"))?;
    }
    for path in linux.masked_paths().iter().flatten() {
        mask(path).map_err(doing("mask a path"))?;
    }
    sys::own_keyring().map_err(doing("take a keyring of its own"))?;
    sys::give_up_rights().map_err(doing("give up its rights"))?;

    let args = process.args().as_deref().unwrap_or_default();
    let [program, args @ ..] = args else { return Err(missing("program")) };
    let mut command = Command::new(program);
    command.args(args).env_clear().current_dir(process.cwd());
    for (name, value) in process.env().iter().flatten().filter_map(|pair| pair.split_once('=')) {
        command.env(name, value);
    }
    sys::keep_no_more(3 + handed.len())?;
    Err(doing("run its program")(sys::become_with(&mut command, handed)))
}

/// Makes one mount of the bundle.
fn add(inside: Inside<'_>, mount: &Mount) -> io::Result<()> {
    let at = inside.make(mount.destination())?;
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

/// A name of what a descriptor is open on, for calls that take none.
fn by_descriptor(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Shows the machine's harmless devices in a fresh `/dev`.
fn devices(inside: Inside<'_>) -> io::Result<()> {
    let dev = inside.make(Path::new("dev"))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for name in DEVICES {
        let place =
            rustix::fs::openat(&dev, name, flags | OFlags::WRONLY, Mode::from_raw_mode(0o666))?;
        rustix::mount::mount_bind(Path::new("/dev").join(name), by_descriptor(place.as_fd()))?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(target, &dev, name)?;
    }
    Ok(())
}

/// Makes a directory the root, and lets go of all that is outside of it.
pub(crate) fn change_root(root: BorrowedFd<'_>) -> io::Result<()> {
    let outside = open_dir(Path::new("/"))?;
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    // What was the root is now over the new one.
    rustix::process::fchdir(outside)?;
    let alone = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(".", alone)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Makes a path of the kernel's files read-only, if it is there.
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

/// Covers a path of the kernel's files, if it is there.
fn mask(path: &str) -> io::Result<()> {
    match rustix::mount::mount_bind("/dev/null", path) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::NOTDIR) => {
            Ok(rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::RDONLY, None)?)
        }
        bound => Ok(bound?),
    }
}
