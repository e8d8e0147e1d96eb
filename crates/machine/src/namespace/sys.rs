//! The calls that need `unsafe`: mounts with a mapping of users, loop devices, namespaces.
//!
//! All but one are made by a launcher, a process of one thread that becomes the OCI runtime. The
//! server itself only takes a sandbox's rights for a moment, to write files in it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

/// What a mount allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allows {
    /// Whether it can be written to.
    pub(crate) writing: bool,
    /// Whether programs on it can be run.
    pub(crate) running: bool,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A copy of the mount that a path is on, from that path down, that nobody else sees. Set-id bits
/// and device files mean nothing on it. With a user namespace, what is owned by user N on disk is
/// owned by the namespace's user N on it.
pub(crate) fn tree(
    path: &Path,
    allows: Allows,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    restrict(tree.as_fd(), allows, users)?;
    Ok(tree)
}

/// The same for a mount that is nowhere yet.
pub(crate) fn restrict(
    tree: BorrowedFd<'_>,
    allows: Allows,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if !allows.writing {
        set |= MOUNT_ATTR_RDONLY;
    }
    if !allows.running {
        set |= MOUNT_ATTR_NOEXEC;
    }
    if users.is_some() {
        set |= MOUNT_ATTR_IDMAP;
    }
    let attr = MountAttr {
        set,
        clear: 0,
        propagation: 0,
        userns: users.map_or(0, |users| users.as_raw_fd() as u64),
    };
    // SAFETY: the path is terminated, and the kernel reads `attr` only as far as its given size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Puts a tree where `at` points.
pub(crate) fn attach(tree: BorrowedFd<'_>, at: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", at, "", flags)?)
}

/// A user namespace in which the users from 0 on are the machine's users from `first` on, made as the
/// user `first`. Nobody is in it; it lives as long as its descriptor.
pub(super) fn users(first: u32, count: u32) -> io::Result<OwnedFd> {
    let (ready, tell_ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (done, tell_done) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, and the child only makes system calls.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            drop((ready, tell_done));
            let made = become_user(first).and_then(|()| leave(UnshareFlags::NEWUSER)).is_ok();
            let _ = rustix::io::write(&tell_ready, &[u8::from(made)]);
            // Ends with the parent's word, or with the parent.
            let _ = rustix::io::read(&done, &mut [0u8]);
            // SAFETY: ends this process without running anything twice.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    drop((tell_ready, done));
    let mut made = [0u8];
    let heard = rustix::io::read(&ready, &mut made);
    let result = match heard {
        Ok(1) if made == [1] => map_users(child, first, count),
        _ => Err(io::Error::other("cannot make a user namespace")),
    };
    drop(tell_done);
    if let Some(pid) = rustix::process::Pid::from_raw(child) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    }
    result
}

/// Enters a user namespace of this process's own, in which the user it has is user 0.
pub(super) fn own_users() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    leave(UnshareFlags::NEWUSER)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// Is user and group 0 of the user namespace that was entered, and in no other group.
pub(super) fn become_first_user() -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Gives up every right for good, also those that running a program would give back.
pub(super) fn give_up_rights() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    for capability in 0..64 {
        // SAFETY: takes numbers alone.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == -1 {
            match io::Error::last_os_error() {
                // The kernel has no more of them.
                error if error.raw_os_error() == Some(libc::EINVAL) => break,
                error => return Err(error),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Has a session keyring that nobody else has, where the kernel has any.
pub(super) fn own_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: takes a number, and a name that may be absent.
    if unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, unnamed) } == -1 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOSYS) {
            return Err(error);
        }
    }
    Ok(())
}

/// Closes every descriptor from a number on when this process becomes another program.
pub(super) fn keep_no_more(from: usize) -> io::Result<()> {
    let (first, last) = (from as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: changes only what happens to descriptors when another program is run.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Has the rights of another user from now on, and all capabilities kept.
fn become_user(user: u32) -> io::Result<()> {
    use rustix::thread::CapabilitiesSecureBits;
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    // SAFETY: this process has one thread, so that there are no others to be told.
    match unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn map_users(of: i32, first: u32, count: u32) -> io::Result<OwnedFd> {
    let map = format!("0 {first} {count}");
    std::fs::write(format!("/proc/{of}/uid_map"), &map)?;
    std::fs::write(format!("/proc/{of}/gid_map"), &map)?;
    Ok(File::open(format!("/proc/{of}/ns/user"))?.into())
}

/// Another process of ours that does something meanwhile.
#[derive(Debug)]
pub(crate) struct Beside(rustix::process::Pid);

/// Does something in another process, for a process of one thread; what goes wrong there is said on
/// standard error.
pub(crate) fn beside(act: impl FnOnce() -> io::Result<()>) -> io::Result<Beside> {
    beside_without(&[], act)
}

/// The same, in a process that has not some of this one's descriptors: `act` must not use them.
pub(super) fn beside_without(
    closed: &[BorrowedFd<'_>],
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<Beside> {
    // SAFETY: this process has one thread, so that the child has all of it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            for fd in closed {
                // SAFETY: the child's copy; whoever owns it is never dropped there, as it ends below.
                unsafe { libc::close(fd.as_raw_fd()) };
            }
            let code = match act() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("stead sandbox: {error}");
                    1
                }
            };
            // SAFETY: ends this process without running anything twice.
            unsafe { libc::_exit(code) }
        }
        child => match rustix::process::Pid::from_raw(child) {
            Some(child) => Ok(Beside(child)),
            None => Err(io::Error::other("a process without a number")),
        },
    }
}

impl Beside {
    /// Waits until it is done.
    pub(crate) fn join(self) -> io::Result<()> {
        let options = rustix::process::WaitOptions::empty();
        match rustix::process::waitpid(Some(self.0), options)? {
            Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
            _ => Err(io::Error::other("what was done beside did not succeed")),
        }
    }
}

/// Leaves namespaces of the parent for fresh ones.
pub(crate) fn leave(what: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread, and no descriptor table is unshared.
    Ok(unsafe { rustix::thread::unshare_unsafe(what) }?)
}

/// The network namespace this process is in.
pub(crate) fn network() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/self/ns/net")?.into())
}

/// Enters a namespace of a process of one thread.
pub(crate) fn enter(
    namespace: BorrowedFd<'_>,
    kind: rustix::thread::LinkNameSpaceType,
) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(kind))?)
}

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How long a disk that was another sandbox's may still be in use; less than a launcher may take.
const IN_USE: Duration = Duration::from_secs(10);

/// The kernel's `loop_config`: a descriptor, a block size, `loop_info64`, and what is reserved.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    before_flags: [u64; 5],
    encrypt: [u32; 3],
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// Opens the file of a disk that is no device any more, and keeps it from becoming one as long as it is
/// open: by then everything that was written to the device is in it.
pub(crate) fn unused_image(image: &Path) -> io::Result<File> {
    let image = OpenOptions::new().read(true).write(true).open(image)?;
    let deadline = Instant::now() + IN_USE;
    while let Err(error) = rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK || Instant::now() > deadline {
            return Err(io::Error::new(error.kind(), "the disk is in use by another sandbox"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(image)
}

/// Makes a file be a block device, which is freed by the kernel when nobody uses it any more. The
/// device's descriptor has to be kept until it is mounted.
///
/// A file is one device at a time: two file systems on it would destroy each other. The lock is held by
/// the kernel's own use of the file, so that it ends with the device.
pub(crate) fn loop_device(image: &Path) -> io::Result<(File, String)> {
    let image = unused_image(image)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    // Somebody else may take the free one before we do.
    for _ in 0..100 {
        // SAFETY: this request has no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = format!("/dev/loop{number}");
        let device = match OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
        {
            Ok(device) => device,
            // The node of a fresh device comes a moment later where it is made by a daemon.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => return Err(error),
        };
        let config = LoopConfig {
            fd: image.as_raw_fd() as u32,
            block_size: 0,
            before_flags: [0; 5],
            encrypt: [0; 3],
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            names_and_key: [0; 160],
            init: [0; 2],
            reserved: [0; 8],
        };
        // SAFETY: `config` has the kernel's layout and lives through the call.
        let done =
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
        if done == 0 {
            return Ok((device, path));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
    }
    Err(io::Error::other("no loop device stays free long enough to be taken"))
}

/// Does something with the file rights of another user, and with all capabilities kept. An overlay
/// remembers whose rights it was mounted with and writes its upper layer with them.
pub(crate) fn as_user<T>(user: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    use rustix::thread::CapabilitiesSecureBits;
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    // SAFETY: only changes this thread's rights; there is no other thread.
    let set = |user: u32| unsafe {
        libc::setfsgid(user);
        libc::setfsuid(user);
    };
    set(user);
    let result = act();
    set(0);
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::empty())?;
    result
}

/// Does something with the file rights of another user and group and without any beyond theirs, on
/// this thread alone. Where the server may not take them, it is done with its own.
pub fn with_rights_of<T>((user, group): (u32, u32), act: impl FnOnce() -> T) -> T {
    /// Gives the server its own rights back, also when `act` panics.
    struct Own(u32, u32);
    impl Drop for Own {
        fn drop(&mut self) {
            // SAFETY: changes the rights of this thread alone; nothing else is touched.
            unsafe {
                libc::setfsuid(self.0);
                libc::setfsgid(self.1);
            }
        }
    }
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if own.0 != 0 || own == (user, group) {
        return act();
    }
    let _own = Own(own.0, own.1);
    // SAFETY: as above. The kernel takes the capabilities over files away with the user.
    unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
    }
    act()
}

/// Becomes a program to which descriptors are handed over from number 3 on. Returns only when that
/// failed.
pub(crate) fn become_with(command: &mut Command, handed: &[BorrowedFd<'_>]) -> io::Error {
    use std::os::unix::process::CommandExt;
    // First out of the way of the places they are to have.
    let mut moved = Vec::with_capacity(handed.len());
    for fd in handed {
        match rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 3 + handed.len() as RawFd) {
            Ok(fd) => moved.push(fd),
            Err(error) => return error.into(),
        }
    }
    for (at, fd) in moved.iter().enumerate() {
        // SAFETY: both are descriptors of this process. What had the target's number is not used
        // again, because this process becomes another program or ends.
        if unsafe { libc::dup2(fd.as_raw_fd(), 3 + at as RawFd) } == -1 {
            return io::Error::last_os_error();
        }
    }
    command.exec()
}

/// Keeps a descriptor open in whatever this process becomes.
pub(super) fn keep(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?)
}

/// A unix socket with a name, on which nobody listens yet.
pub(crate) fn bound_socket(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmodat(
        dir,
        name,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        AtFlags::empty(),
    )?;
    Ok(socket)
}
