//! Users, capabilities and file rights of processes.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use super::process::unshare;

/// Creates a user namespace that maps `count` users from 0 on to the machine's users from `first` on. It
/// is created as the user `first`, has no processes, and lives as long as its descriptor.
pub(crate) fn user_namespace(first: u32, count: u32) -> io::Result<OwnedFd> {
    mapping_namespace(first, 0, count)
}

/// Creates a user namespace that maps `count` users from `inside` on to the machine's users from `first` on.
/// As the mapping of a mount, it gives files of user `inside` on disk to the machine's user `first`.
pub(crate) fn mapping_namespace(first: u32, inside: u32, count: u32) -> io::Result<OwnedFd> {
    let (ready, tell_ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (done, tell_done) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, and the child only makes system calls.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            drop((ready, tell_done));
            let created = become_user(first).and_then(|()| unshare(UnshareFlags::NEWUSER)).is_ok();
            let _ = rustix::io::write(&tell_ready, &[u8::from(created)]);
            // Returns when the parent closes the pipe or ends.
            let _ = rustix::io::read(&done, &mut [0u8]);
            // SAFETY: ends this process without running anything twice.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    drop((tell_ready, done));
    let mut created = [0u8];
    let received = rustix::io::read(&ready, &mut created);
    let result = match received {
        Ok(1) if created == [1] => map_users(child, inside, first, count),
        _ => Err(io::Error::other("cannot create a user namespace")),
    };
    drop(tell_done);
    if let Some(pid) = rustix::process::Pid::from_raw(child) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    }
    result
}

/// Whether a user without capabilities may create user namespaces on this machine. Needs a process of one
/// thread.
pub(crate) fn may_create_user_namespace(user: u32) -> bool {
    let tried = super::process::fork(|| {
        // SAFETY: this process has one thread. Without user 0, it loses its capabilities.
        match unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } {
            0 => unshare(UnshareFlags::NEWUSER),
            _ => Err(io::Error::last_os_error()),
        }
    });
    tried.and_then(super::process::ForkedTask::join).is_ok()
}

/// Gives the user namespace of a process all users of the machine, each under its own number.
pub(crate) fn map_all_users(pid: i32) -> io::Result<()> {
    map_users(pid, 0, 0, u32::MAX).map(drop)
}

/// Enters a new user namespace in which this process's user is user 0.
pub(crate) fn enter_own_user_namespace() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    unshare(UnshareFlags::NEWUSER)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// Becomes user 0 and group 0 of the current user namespace, without supplementary groups.
pub(crate) fn become_first_user() -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Drops all capabilities for good, including those that `exec` would restore.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    keep_capabilities(CapabilitySet::empty())?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Drops all other capabilities for good, including those that `exec` would restore.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let is_kept = |capability: i32| kept.bits() & (1 << capability) != 0;
    for capability in (0..64).filter(|capability| !is_kept(*capability)) {
        // SAFETY: all arguments are integers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == -1 {
            match io::Error::last_os_error() {
                // This was the last capability that the kernel has.
                error if error.raw_os_error() == Some(libc::EINVAL) => break,
                error => return Err(error),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Installs a system call filter for this process and its children. Needs a capability, or `no_new_privs`.
pub(crate) fn filter_calls(program: &[seccompiler::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k })
        .collect();
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, 0);
    // SAFETY: the program and its instructions outlive the call, which only reads them.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Joins a new session keyring, if the kernel has keyrings.
pub(crate) fn join_own_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: takes an integer and a name, which may be null.
    if unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, unnamed) } == -1 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOSYS) {
            return Err(error);
        }
    }
    Ok(())
}

/// Changes the user of this process and keeps all capabilities.
fn become_user(user: u32) -> io::Result<()> {
    use rustix::thread::CapabilitiesSecureBits;
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    // SAFETY: this process has one thread, so no other thread keeps the old user.
    match unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn map_users(pid: i32, inside: u32, first: u32, count: u32) -> io::Result<OwnedFd> {
    let map = format!("{inside} {first} {count}");
    std::fs::write(format!("/proc/{pid}/uid_map"), &map)?;
    std::fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    Ok(File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// Runs `act` with the file system user of another user, and keeps all capabilities. An overlay writes its
/// upper layer with the credentials it was mounted with.
pub(crate) fn as_user<T>(user: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    use rustix::thread::CapabilitiesSecureBits;
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    // SAFETY: changes only this thread's credentials, and there is no other thread.
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

/// Runs `act` once as another file system user and group, on this thread, with the server's capabilities. A
/// server that is not root runs it as itself.
pub fn with_identity_of((user, group): (u32, u32), act: &mut dyn FnMut()) {
    use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};
    /// Restores the server's user, also if `act` panics.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: changes only this thread's credentials.
            unsafe {
                libc::setfsuid(0);
                libc::setfsgid(0);
            }
            let _ = set_capabilities_secure_bits(CapabilitiesSecureBits::empty());
        }
    }
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Otherwise the kernel drops the capabilities over files with the user.
    let keep = CapabilitiesSecureBits::NO_SETUID_FIXUP;
    if own != (0, 0) || own == (user, group) || set_capabilities_secure_bits(keep).is_err() {
        return act();
    }
    let _restore = Restore;
    // SAFETY: as above.
    unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
    }
    act();
}

/// Runs `act` with only the file permissions of another user and group, on this thread. A server that is
/// not root runs it with its own permissions.
pub fn with_rights_of<T>((user, group): (u32, u32), act: impl FnOnce() -> T) -> T {
    /// Restores the server's permissions, also if `act` panics.
    struct Restore(u32, u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: changes only this thread's credentials.
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
    let _restore = Restore(own.0, own.1);
    // SAFETY: as above. With the user, the kernel also drops the capabilities over files.
    unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
    }
    act()
}
