//! Single-threaded processes: forking, namespaces, descriptors and `exec`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Command;

use rustix::fs::AtFlags;
use rustix::thread::UnshareFlags;

/// How long a program that changes or lists rules of the network may take.
const TOOL_SECONDS: u32 = 60;

/// A forked process that runs one function.
#[derive(Debug)]
pub(crate) struct ForkedTask(rustix::process::Pid);

/// Runs `act` in a forked process, and prints its error to standard error. Needs a single-threaded process.
pub(crate) fn fork(act: impl FnOnce() -> io::Result<()>) -> io::Result<ForkedTask> {
    fork_without(&[], act)
}

/// Like [`fork`], but closes some descriptors in the child: `act` must not use them.
pub(crate) fn fork_without(
    closed: &[BorrowedFd<'_>],
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<ForkedTask> {
    // SAFETY: this process has one thread, so the child is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            for fd in closed {
                // SAFETY: this is the child's copy, and its owner is never dropped: the child exits below.
                unsafe { libc::close(fd.as_raw_fd()) };
            }
            let code = match act() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("stead sandbox: {error}");
                    1
                }
            };
            // SAFETY: exits without running any destructor or exit handler.
            unsafe { libc::_exit(code) }
        }
        child => match rustix::process::Pid::from_raw(child) {
            Some(child) => Ok(ForkedTask(child)),
            None => Err(io::Error::other("fork returned no process id")),
        },
    }
}

impl ForkedTask {
    /// Waits for the process to end. A failed `act` is an error.
    pub(crate) fn join(self) -> io::Result<()> {
        let options = rustix::process::WaitOptions::empty();
        match rustix::process::waitpid(Some(self.0), options)? {
            Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
            _ => Err(io::Error::other("the forked process failed")),
        }
    }
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(what: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread, and no descriptor table is unshared.
    Ok(unsafe { rustix::thread::unshare_unsafe(what) }?)
}

/// The network namespace of this process.
pub(crate) fn network_namespace() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/self/ns/net")?.into())
}

/// Moves this single-threaded process into an existing namespace.
pub(crate) fn enter(
    namespace: BorrowedFd<'_>,
    kind: rustix::thread::LinkNameSpaceType,
) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(kind))?)
}

/// Marks every descriptor from `from` on to be closed by `exec`.
pub(crate) fn close_on_exec_from(from: usize) -> io::Result<()> {
    let (first, last) = (from as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: only sets flags of descriptors.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Replaces this process by a program that gets the descriptors from number 3 on. Returns only on failure.
pub(crate) fn exec_with(command: &mut Command, handed: &[BorrowedFd<'_>]) -> io::Error {
    use std::os::unix::process::CommandExt;
    // Move them out of the range of their target numbers first.
    let mut moved = Vec::with_capacity(handed.len());
    for fd in handed {
        match rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 3 + handed.len() as RawFd) {
            Ok(fd) => moved.push(fd),
            Err(error) => return error.into(),
        }
    }
    for (at, fd) in moved.iter().enumerate() {
        // SAFETY: both are descriptors of this process. The old owner of the target number does not use it
        // again, because this process becomes another program or ends.
        if unsafe { libc::dup2(fd.as_raw_fd(), 3 + at as RawFd) } == -1 {
            return io::Error::last_os_error();
        }
    }
    command.exec()
}

/// Lets the kernel end a program after [`TOOL_SECONDS`], whatever becomes of this process.
pub(crate) fn end_in_time(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: `alarm` is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(TOOL_SECONDS);
            Ok(())
        })
    }
}

/// Keeps a descriptor open across `exec`.
pub(crate) fn keep_on_exec(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?)
}

/// Binds a unix socket to a name, without listening.
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
