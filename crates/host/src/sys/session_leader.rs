//! The leader of a shell's session. The kernel sends a hang-up to a terminal's foreground processes when
//! the session leader exits; a shell that leads its own session would end the background processes of
//! older commands each time it is replaced. So the session has a separate leader, which does nothing
//! while shells start and exit in its session.
//!
//! The leader waits for SIGUSR1, moves itself to the terminal's foreground, and exits. The kernel sends the
//! same signal when the host exits.

use std::ffi::c_int;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// Signals of a terminal or an accidental `kill` that would end the leader.
const IGNORED: [c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Returns the descriptor of the leader's executable, which is created once. Without an executable the
/// leader stays a forked copy of the host, which needs more memory.
pub(super) fn executable() -> Option<RawFd> {
    static EXECUTABLE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    EXECUTABLE.get_or_init(create).as_ref().map(AsRawFd::as_raw_fd)
}

#[cfg(target_arch = "x86_64")]
fn create() -> Option<OwnedFd> {
    let fd = rustix::fs::memfd_create("stead-leader", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = std::fs::File::from(fd);
    file.write_all(&elf_file(&CODE)).ok()?;
    Some(file.into())
}

#[cfg(not(target_arch = "x86_64"))]
fn create() -> Option<OwnedFd> {
    None
}

/// The program of the leader, in machine code.
///
/// ```text
/// wait:  if (rt_sigtimedwait({SIGUSR1}, 0, 0, 8) < 0) goto wait
///        ioctl(0, TIOCSPGRP, &getpid())
///        exit(0)
/// ```
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 70] = [
    0xb8, 0x80, 0x00, 0x00, 0x00, // mov   eax, 128 (rt_sigtimedwait)
    0x48, 0x8d, 0x3d, 0x32, 0x00, 0x00, 0x00, // lea   rdi, [the set at the end]
    0x31, 0xf6, // xor   esi, esi
    0x31, 0xd2, // xor   edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov   r10d, 8
    0x0f, 0x05, // syscall
    0x85, 0xc0, // test  eax, eax
    0x78, 0xe4, // js    the beginning
    0xb8, 0x27, 0x00, 0x00, 0x00, // mov   eax, 39 (getpid)
    0x0f, 0x05, // syscall
    0x50, // push  rax
    0xb8, 0x10, 0x00, 0x00, 0x00, // mov   eax, 16 (ioctl)
    0x31, 0xff, // xor   edi, edi
    0xbe, 0x10, 0x54, 0x00, 0x00, // mov   esi, TIOCSPGRP
    0x48, 0x89, 0xe2, // mov   rdx, rsp
    0x0f, 0x05, // syscall
    0xb8, 0x3c, 0x00, 0x00, 0x00, // mov   eax, 60 (exit)
    0x31, 0xff, // xor   edi, edi
    0x0f, 0x05, // syscall
    0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // the set: SIGUSR1
];

/// The smallest ELF file around some code: a header, one readable and executable segment.
#[cfg(target_arch = "x86_64")]
fn elf_file(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = HEADERS + code.len() as u64;
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |file: &mut Vec<u8>, value: u16| file.extend_from_slice(&value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend_from_slice(&value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend_from_slice(&value.to_le_bytes());
    half(&mut file, 2); // executable
    half(&mut file, 62); // x86-64
    word(&mut file, 1);
    long(&mut file, BASE + HEADERS); // entry point
    long(&mut file, 64); // program headers
    long(&mut file, 0); // no sections
    word(&mut file, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    word(&mut file, 1); // loadable segment
    word(&mut file, 5); // readable and executable
    for value in [0, BASE, BASE, length, length, 0x1000] {
        long(&mut file, value);
    }
    file.extend_from_slice(code);
    file
}

/// Leads this session until SIGUSR1, or until the parent `host` exits. Standard input is the terminal.
///
/// # Safety
/// Must be called in a forked child; the function does not return.
pub(super) unsafe fn lead(executable: Option<RawFd>, host: libc::pid_t) -> ! {
    // SAFETY: only async-signal-safe calls, on memory of this frame.
    unsafe {
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1);
        if libc::getppid() != host {
            libc::_exit(0);
        }
        libc::chdir(c"/".as_ptr());
        let all = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, all);
        if let Some(executable) = executable {
            let argv = [c"stead-leader".as_ptr(), std::ptr::null()];
            let env = [std::ptr::null::<std::ffi::c_char>()];
            let here = libc::AT_EMPTY_PATH;
            let (argv, env) = (argv.as_ptr(), env.as_ptr());
            libc::syscall(libc::SYS_execveat, executable, c"".as_ptr(), argv, env, here);
        }
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, 0);
        let mut caught = 0;
        while libc::sigwait(&raw const set, &raw mut caught) != 0 {}
        let group = libc::getpid();
        libc::ioctl(0, libc::TIOCSPGRP, &raw const group);
        libc::_exit(0)
    }
}

/// Makes this process the leader of the terminal's foreground process group.
///
/// # Safety
/// Must be called in a forked child, before it executes its program.
pub(super) unsafe fn to_foreground() {
    // SAFETY: only async-signal-safe calls, on memory of this frame.
    unsafe {
        libc::setpgid(0, 0);
        // A background process that sets the foreground group is stopped unless it ignores SIGTTOU.
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        let group = libc::getpid();
        libc::ioctl(0, libc::TIOCSPGRP, &raw const group);
        libc::signal(libc::SIGTTOU, libc::SIG_DFL);
    }
}
