//! The calls that need `unsafe`: starting a process on a terminal, signals, and replacing our own
//! executable. Everything else goes through `rustix`.

mod session_leader;
mod spawn;

pub use spawn::{Session, Spawn, SpawnError, Spawned, end_session_leader, spawn};

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use shell::is_first_process;

/// Installs a seccomp filter, given as BPF instructions, for this thread and its children. The process
/// must already have `no_new_privs`.
///
/// # Errors
/// If the kernel refuses the filter.
pub fn install_seccomp_filter(program: &[u8]) -> io::Result<()> {
    let (instructions, rest) = program.as_chunks::<8>();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    if !rest.is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut aligned: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|[c0, c1, jt, jf, k @ ..]| libc::sock_filter {
            code: u16::from_ne_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes(*k),
        })
        .collect();
    let program = libc::sock_fprog { len: length, filter: aligned.as_mut_ptr() };
    // SAFETY: the program and its instructions outlive the call, which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            std::ptr::from_ref(&program),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ignores signals that would end the host. A closed connection, a lost terminal or a file at its limit is
/// reported by the failing call instead.
pub fn ignore_signals() {
    for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ignores SIGXFSZ, so that a write beyond the file size limit fails with `EFBIG` instead of ending the
/// process. Child processes inherit this unless it is reset for them.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Returns a descriptor that is readable when a child has exited or SIGTERM was received.
///
/// # Errors
/// If the kernel has no descriptor left.
pub fn signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset` before use, and the descriptor is new and has
    // no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == -1 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Drains the descriptor that [`signals`] returned. Returns whether SIGTERM was received. The first process
/// of a sandbox accepts SIGTERM only from outside the sandbox, where the sender has no process id that is
/// visible inside.
pub fn received_termination(signals: BorrowedFd<'_>) -> bool {
    let mut terminate = false;
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    while let Ok(count) = rustix::io::read(signals, &mut info) {
        if count != info.len() {
            break;
        }
        // The signal's number is the first field.
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        let sender = u32::from_ne_bytes([info[12], info[13], info[14], info[15]]);
        terminate |= number == libc::SIGTERM as u32 && (sender == 0 || !is_first_process());
    }
    terminate
}

/// Configures the allocator for a small process that runs for long: large buffers are mapped directly, use
/// no memory until they are touched, and are unmapped when they are dropped.
pub fn configure_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; called before any other thread is started.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 10);
        libc::mallopt(libc::M_TOP_PAD, 16 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    // Otherwise free memory left by the start would be used for the first of those buffers.
    give_back_memory();
}

/// Returns free pages to the system. The allocator itself keeps free pages between used ones, so that the
/// memory of a thousand closed screens would stay allocated.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and the allocator holds its own locks meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Continues in a child process with a new session. The original process exits, so that its starter
/// continues.
///
/// # Errors
/// If the fork fails.
pub fn detach() -> io::Result<()> {
    // SAFETY: called before any thread is started, so the child may continue as a normal process.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: exits without running the exit handlers, which the child will run.
        _ => unsafe { libc::_exit(0) },
    }
    rustix::process::setsid()?;
    Ok(())
}

/// Replaces this process's executable, with the same environment. Returns only on failure.
pub fn replace_executable(path: &CStr, argv: &[CString]) -> io::Error {
    let argv: Vec<*const c_char> =
        argv.iter().map(|argument| argument.as_ptr()).chain([std::ptr::null()]).collect();
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: `path` and each argument are terminated, the array ends with a null, and nothing
    // changes the environment at the same time.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environ) };
    io::Error::last_os_error()
}

/// Takes ownership of a descriptor that another executable of this process left open.
///
/// # Errors
/// If the descriptor is not open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call only queries the descriptor, which need not be open.
    let open = fd > 2 && unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
    if !open {
        return Err(io::Error::other(format!("descriptor {fd} was not handed over")));
    }
    // SAFETY: the descriptor is open, and the other executable left it to this caller alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}
