//! Starting a process on a terminal.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::process::Pid;

use super::session_leader;

/// A process to start. Everything is allocated before the fork, because nothing may be allocated after
/// it.
#[derive(Debug)]
pub struct Spawn<'a> {
    pub program: &'a CStr,
    /// The arguments, beginning with the program's name.
    pub argv: &'a [CString],
    /// The whole environment, as `K=V`.
    pub env: &'a [CString],
    /// The candidates for the working directory, of which the first accessible one is used.
    pub cwds: &'a [CString],
    /// Standard input, output and error; no descriptor may be below 3.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The session that the process joins.
    pub session: Session,
    /// The open `cgroup.procs` of the process's cgroup.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The soft limit of descriptors. Our own limit is raised and must not be inherited.
    pub descriptors: Option<u64>,
}

/// The session of a process to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// A new session, with standard input as controlling terminal.
    Terminal,
    /// A session with a separate leader process, with standard input as controlling terminal: when the
    /// program exits, its background processes neither lose the terminal nor get a hang-up.
    WithLeader,
    /// A new session without a terminal.
    NoTerminal,
}

/// A process that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spawned {
    /// The process id, which is also the id of the process group.
    pub pid: Pid,
    /// The session id: the id of the process, or of the separate session leader.
    pub session: Pid,
    /// Whether the process is in the given cgroup.
    pub in_cgroup: bool,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot fork")]
    Fork(#[source] io::Error),
    /// The terminal could not become the process's controlling terminal.
    #[error("cannot set up the terminal")]
    Terminal(#[source] io::Error),
    /// The program could not be executed.
    #[error("cannot execute the program")]
    Execute(#[source] io::Error),
}

/// The steps that a child reports if they fail.
const STEP_CGROUP: u32 = 1;
const STEP_TERMINAL: u32 = 2;
const STEP_EXECUTE: u32 = 3;
/// Not a failure: the value is the process id of the program in a session with a separate leader.
const STEP_CHILD_ID: u32 = 4;

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

    let executable = match spawn.session {
        Session::WithLeader => session_leader::executable(),
        Session::Terminal | Session::NoTerminal => None,
    };
    let host = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: between fork and exec the child only makes async-signal-safe calls (see `child`),
    // although other threads may have held locks at the time of the fork.
    let leader = match unsafe { libc::fork() } {
        -1 => return Err(SpawnError::Fork(io::Error::last_os_error())),
        0 => child(spawn, &argv, &env, reporter.as_raw_fd(), (executable, host)),
        pid => Pid::from_raw(pid)
            .ok_or_else(|| SpawnError::Fork(io::Error::other("fork returned no process id")))?,
    };
    drop(reporter);
    let mut pid = leader;
    let mut in_cgroup = spawn.cgroup.is_some();
    while let Some((step, errno)) = next_report(reports.as_fd()) {
        let error = io::Error::from_raw_os_error(errno);
        let error = match step {
            STEP_CGROUP => {
                in_cgroup = false;
                continue;
            }
            STEP_CHILD_ID => {
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

/// Ends a separate session leader. It takes the foreground of the terminal first, so that the hang-up on
/// its exit reaches no other process.
pub fn end_session_leader(leader: Pid) {
    let _ = rustix::process::kill_process(leader, rustix::process::Signal::USR1);
}

/// Returns the next failed step of a child, or `None` once it has executed its program.
fn next_report(reports: BorrowedFd<'_>) -> Option<(u32, i32)> {
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
    leader: (Option<RawFd>, libc::pid_t),
) -> ! {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let report = |step: u32, value: i32| {
        let mut word = [0u8; 8];
        word[..4].copy_from_slice(&step.to_le_bytes());
        word[4..].copy_from_slice(&value.to_le_bytes());
        // SAFETY: `word` is eight readable bytes and `reporter` an open pipe.
        unsafe { libc::write(reporter, word.as_ptr().cast(), word.len()) };
    };
    let report_error = |step: u32| report(step, errno());
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
            report_error(STEP_CGROUP);
        }
        if spawn.session != Session::NoTerminal && !take_terminal(spawn.stdio[0].as_raw_fd()) {
            report_error(STEP_TERMINAL);
            libc::_exit(126);
        }
        for (target, source) in spawn.stdio.iter().enumerate() {
            if libc::dup2(source.as_raw_fd(), target as c_int) == -1 {
                report_error(STEP_TERMINAL);
                libc::_exit(126);
            }
        }
        if spawn.session == Session::WithLeader {
            // The new process becomes a child of the host, which is thus notified of its exit.
            let flags = libc::CLONE_PARENT | libc::SIGCHLD;
            match libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0, 0, 0, 0) {
                -1 => {}
                0 => {
                    report(STEP_CHILD_ID, libc::getpid());
                    session_leader::to_foreground();
                }
                _ => session_leader::lead(leader.0, leader.1),
            }
        }
        // The descriptors are closed on exec, because `reporter` is needed until then.
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        // When a sandbox is out of memory, its first process, the host, must be killed last. No process
        // in the sandbox can lower its own score below that of the host.
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
        report_error(STEP_EXECUTE);
        libc::_exit(127)
    }
}

/// Makes the terminal the controlling terminal of this session. Retries, because the leader of the
/// terminal's previous session may not have exited yet.
fn take_terminal(terminal: RawFd) -> bool {
    for _ in 0..2500 {
        // SAFETY: the call takes an open descriptor and no pointer.
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
