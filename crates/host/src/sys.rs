//! The calls that need `unsafe`: starting a process on a terminal, signals, and changing our own
//! executable. Everything else goes through `rustix`.

mod keeper;

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;
use shell::is_first_process;

/// Installs a seccomp filter, given as BPF instructions, for this thread and its children. The process
/// must already have `no_new_privs`.
///
/// # Errors
/// If the kernel refuses the filter.
pub fn filter_calls(program: &[u8]) -> io::Result<()> {
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

/// A process to start. Everything is allocated before the fork, because nothing may be allocated after
/// it.
#[derive(Debug)]
pub struct Spawn<'a> {
    pub program: &'a CStr,
    /// The arguments, beginning with the program's name.
    pub argv: &'a [CString],
    /// The whole environment, as `K=V`.
    pub env: &'a [CString],
    /// The candidates for the working directory: the first that can be entered is used.
    pub cwds: &'a [CString],
    /// Standard input, output and error; no descriptor may be below 3.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The session that the process joins.
    pub session: Session,
    /// The open `cgroup.procs` of the process's cgroup.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The soft limit of descriptors; ours is raised for ourselves alone.
    pub descriptors: Option<u64>,
}

/// The session of a process to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// A new session, with standard input as controlling terminal.
    Terminal,
    /// A session led by a keeper process, with standard input as controlling terminal: when the program
    /// exits, processes it left running neither lose the terminal nor get a hang-up.
    Kept,
    /// A new session without a terminal.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spawned {
    /// The process id, which is also the id of the process group.
    pub pid: Pid,
    /// The session id: the process's own id, or its keeper's.
    pub session: Pid,
    /// Whether the process is in the given cgroup.
    pub in_cgroup: bool,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot fork")]
    Fork(#[source] io::Error),
    /// The process could not be given its terminal.
    #[error("cannot set up the terminal")]
    Terminal(#[source] io::Error),
    /// The program could not be executed.
    #[error("cannot execute the program")]
    Execute(#[source] io::Error),
}

/// The steps that a child reports when they fail.
const STEP_CGROUP: u32 = 1;
const STEP_TERMINAL: u32 = 2;
const STEP_EXECUTE: u32 = 3;
/// Not a failure: the value is the id of the process that a keeper's session was created for.
const STEP_KEPT: u32 = 4;

/// How long the parent waits for the child to execute its program. A hanging file system must not
/// delay all other terminals, so a child that needs longer counts as started.
const EXEC_TIMEOUT_MS: i64 = 1000;

/// Starts a process and waits until it has executed its program.
///
/// # Errors
/// [`SpawnError`]; then no process is left.
pub fn spawn(spawn: &Spawn<'_>) -> Result<Spawned, SpawnError> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let argv = pointers(spawn.argv);
    let env = pointers(spawn.env);
    let (reports, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| SpawnError::Fork(error.into()))?;

    let keeper = if spawn.session == Session::Kept { keeper::image() } else { None };
    let host = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: between fork and exec the child only makes async-signal-safe calls (see `child`),
    // although other threads may have held locks at the time of the fork.
    let leader = match unsafe { libc::fork() } {
        -1 => return Err(SpawnError::Fork(io::Error::last_os_error())),
        0 => child(spawn, &argv, &env, reporter.as_raw_fd(), (keeper, host)),
        pid => Pid::from_raw(pid)
            .ok_or_else(|| SpawnError::Fork(io::Error::other("fork returned no process id")))?,
    };
    drop(reporter);
    let mut pid = leader;
    let mut in_cgroup = spawn.cgroup.is_some();
    while let Some((step, errno)) = report(reports.as_fd()) {
        let error = io::Error::from_raw_os_error(errno);
        let error = match step {
            STEP_CGROUP => {
                in_cgroup = false;
                continue;
            }
            STEP_KEPT => {
                pid = Pid::from_raw(errno).unwrap_or(leader);
                continue;
            }
            STEP_TERMINAL => SpawnError::Terminal(error),
            _ => SpawnError::Execute(error),
        };
        if pid != leader {
            let _ = rustix::process::kill_process(leader, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(leader), rustix::process::WaitOptions::empty());
        }
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        return Err(error);
    }
    Ok(Spawned { pid, session: leader, in_cgroup })
}

/// Ends a keeper. It takes the foreground of the terminal first, so that the hang-up on its exit
/// reaches no other process.
pub fn dismiss(keeper: Pid) {
    let _ = rustix::process::kill_process(keeper, rustix::process::Signal::USR1);
}

/// Returns the next failed step of a child, or `None` once it has executed its program.
fn report(reports: BorrowedFd<'_>) -> Option<(u32, i32)> {
    let timeout = rustix::event::Timespec { tv_sec: EXEC_TIMEOUT_MS / 1000, tv_nsec: 0 };
    let mut poll = [rustix::event::PollFd::new(&reports, rustix::event::PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, Some(&timeout))).ok()?;
    if poll[0].revents().is_empty() {
        return None;
    }
    let mut word = [0u8; 8];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(reports, &mut word)).ok()?;
    let [a, b, c, d, e, f, g, h] = word;
    (count == 8).then(|| (u32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])))
}

/// The child's side of [`spawn`].
fn child(
    spawn: &Spawn<'_>,
    argv: &[*const c_char],
    env: &[*const c_char],
    reporter: RawFd,
    keeper: (Option<RawFd>, libc::pid_t),
) -> ! {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let say = |step: u32, value: i32| {
        let mut word = [0u8; 8];
        word[..4].copy_from_slice(&step.to_le_bytes());
        word[4..].copy_from_slice(&value.to_le_bytes());
        // SAFETY: `word` is eight readable bytes and `reporter` an open pipe.
        unsafe { libc::write(reporter, word.as_ptr().cast(), word.len()) };
    };
    let tell = |step: u32| say(step, errno());
    // SAFETY: a child of fork with one thread. Only async-signal-safe calls follow, on memory that
    // the parent prepared and that is still mapped; every pointer array ends with a null.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        libc::setsid();
        if let Some(cgroup) = spawn.cgroup
            && libc::write(cgroup.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1
        {
            tell(STEP_CGROUP);
        }
        if spawn.session != Session::Own && !take_terminal(spawn.stdio[0].as_raw_fd()) {
            tell(STEP_TERMINAL);
            libc::_exit(126);
        }
        for (target, source) in spawn.stdio.iter().enumerate() {
            if libc::dup2(source.as_raw_fd(), target as c_int) == -1 {
                tell(STEP_TERMINAL);
                libc::_exit(126);
            }
        }
        if spawn.session == Session::Kept {
            // The new process becomes our child, so that we are notified of its exit.
            let flags = libc::CLONE_PARENT | libc::SIGCHLD;
            match libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0, 0, 0, 0) {
                -1 => {}
                0 => {
                    say(STEP_KEPT, libc::getpid());
                    keeper::to_foreground();
                }
                _ => keeper::keep(keeper.0, keeper.1),
            }
        }
        // On exec and not at once: `reporter` is still needed.
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        // When a sandbox is out of memory, its first process must be killed last. No process in it can
        // lower its own score below ours.
        if libc::getppid() == 1 {
            let file =
                libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, c"700".as_ptr().cast(), 3);
        }
        if let Some(soft) = spawn.descriptors {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
                limit.rlim_cur = soft.min(limit.rlim_max);
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
        for cwd in spawn.cwds {
            if libc::chdir(cwd.as_ptr()) == 0 {
                break;
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(spawn.program.as_ptr(), argv.as_ptr(), env.as_ptr());
        tell(STEP_EXECUTE);
        libc::_exit(127)
    }
}

/// Makes the terminal the controlling terminal of this session. The keeper of its former session may
/// not have exited yet.
fn take_terminal(terminal: RawFd) -> bool {
    for _ in 0..2500 {
        // SAFETY: asks the kernel about an open descriptor.
        if unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) } == 0 {
            return true;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EPERM) {
            return false;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
        // SAFETY: `pause` is readable, and the remaining time is not requested.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    false
}

/// Ignores signals that would end us. A closed connection, a lost terminal or a file at its limit is
/// reported by the failing call.
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

/// Returns a descriptor that is readable when a child has exited or we are asked to terminate.
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

/// Drains the descriptor that [`signals`] returned. Returns whether we are asked to terminate. The
/// first process of a sandbox accepts that only from outside, where senders have no pid that it could
/// see.
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

/// Configures the allocator for a small process that runs for long: large buffers are mapped directly,
/// cost nothing until they are touched, and are unmapped when they are dropped.
pub fn allocate_sparingly() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; called before any other thread is started.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 10);
        libc::mallopt(libc::M_TOP_PAD, 16 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    // Free memory left by the start would be used for the first of those buffers.
    give_back_memory();
}

/// Returns free pages to the system. The allocator by itself keeps free pages between used ones, so that
/// the memory of a thousand closed screens would stay allocated.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and the allocator holds its own locks meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Moves to a new session in a child process. The original process exits, so that its starter continues.
///
/// # Errors
/// If the fork fails.
pub fn detach() -> io::Result<()> {
    // SAFETY: called before any thread is started, so the child may continue as a normal process.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: ends this process without running anything twice.
        _ => unsafe { libc::_exit(0) },
    }
    rustix::process::setsid()?;
    Ok(())
}

/// Replaces this process's executable, with the same environment. Returns only on failure.
pub fn become_executable(path: &CStr, argv: &[CString]) -> io::Error {
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

/// Takes over a descriptor that another executable of this process left open.
///
/// # Errors
/// If there is no such descriptor.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only queried, and only while it is known to be open.
    let open = fd > 2 && unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
    if !open {
        return Err(io::Error::other(format!("descriptor {fd} was not handed over")));
    }
    // SAFETY: it is open, and the other executable handed it over to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}
