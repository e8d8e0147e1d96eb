//! Constants that all sandboxes and containers share: paths, descriptor numbers, limits, and the names of
//! the files in an instance's directory.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use crate::disk::skeleton::TOP;
use crate::programs::program_name;
use crate::seccomp::bpf;
use crate::spec::SandboxCapabilities;
use crate::sys::MountAccess;
use crate::tools::PATH;
use model::{Env, TerminalId};

/// Locked by the launcher, and by the runtime it becomes, as long as they run.
pub(crate) const LOCK: &str = "launch.lock";

/// The directory with the directories of an instance's terminals.
pub(crate) const TERMINALS: &str = "t";

/// The file for errors of the launcher and the programs it starts.
pub(crate) const ERRORS: &str = "launch.err";

/// The part of [`ERRORS`] that is reported to a client.
const MAX_REASON_BYTES: usize = 4096;

/// The directory inside with the host's executable.
pub(crate) const PROGRAMS: &str = "/.stead";

/// The path inside of the executable that this process was started from, in sandboxes that it starts.
///
/// # Errors
/// If it cannot be examined.
pub fn program_inside() -> io::Result<PathBuf> {
    Ok(Path::new(PROGRAMS).join(program_name(Path::new("/proc/self/exe"))?))
}

/// The host's own directory inside. The short-lived files of its terminals are in it.
const RUN: &str = "/run/stead";

/// The descriptor of process 1's listening socket.
pub(crate) const SOCKET_FD: i32 = 3;

/// The descriptor of the directory with process 1's terminals, which has no path inside.
pub(crate) const TERMINALS_FD: i32 = 4;

/// The descriptor from which process 1 reads its system call filters.
pub(crate) const FILTER_FD: i32 = 5;

/// The parent cgroup of all sandboxes that are not containers.
pub(crate) const CGROUP: &str = "/stead-sandboxes";

/// The CPU shares of a sandbox; 1024 is usual on a machine, so a busy sandbox yields to the server.
pub(crate) const CPU_SHARES: u64 = 256;

/// Open files of one process.
pub(crate) const MAX_OPEN_FILES: u64 = 65_536;

/// Pending signals and timers of one user.
pub(crate) const MAX_PENDING_SIGNALS: u64 = 16_384;

/// The group `tty`, which owns terminals.
pub(crate) const TERMINALS_GROUP: u32 = 5;

/// Named shared memory outlives its processes. These limit it, and remove it with its last process.
pub(crate) const SYSCTLS: [(&str, &str); 2] =
    [("kernel.shm_rmid_forced", "1"), ("kernel.shmall", "16384")];

/// How this machine's programs are mounted.
pub(crate) const READ_ONLY_TREE: MountAccess = MountAccess { write: false, execute: true };

/// Files of the kernel that show or change something beyond the sandbox.
pub(crate) const MASKED: [&str; 22] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

pub(crate) const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/sys"];

/// The mount options of `/dev/pts`. The kernel counts terminals for the whole machine, so each sandbox
/// gets a share.
pub(crate) fn terminal_options(group: u32) -> String {
    format!("newinstance,ptmxmode=0666,mode=0620,gid={group},max=256")
}

/// The arguments with which our executable is the host of a sandbox. Without a label, it is the host of
/// a warm sandbox and ends with the server.
pub(crate) fn host_arguments(label: &str, capabilities: SandboxCapabilities) -> Vec<String> {
    let (socket, filter) = (SOCKET_FD.to_string(), FILTER_FD.to_string());
    let descriptors = ["--listen-fd", &socket, "--filter-fd", &filter];
    let descriptors = match capabilities {
        // The runtime has installed the filters.
        SandboxCapabilities::Root => &descriptors[..2],
        SandboxCapabilities::None => &descriptors,
    };
    let warm: &[&str] = if label.is_empty() { &["--leave-unused"] } else { &[] };
    let label = ["--no-cgroup", "--label", label];
    let arguments = [&["host", "--dir", RUN][..], descriptors, &label, warm];
    arguments.concat().into_iter().map(str::to_owned).collect()
}

/// The initial environment of a shell in a sandbox.
pub(crate) fn environment() -> Env {
    let pairs = [
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("SHELL", "/bin/bash"),
        ("PATH", PATH),
        ("LANG", "C.UTF-8"),
    ];
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// The path by which the host opens the directory of a terminal.
pub(crate) fn terminal_inside(terminal: &TerminalId) -> PathBuf {
    format!("/proc/self/fd/{TERMINALS_FD}/{terminal}").into()
}

/// The directories of this machine with its programs.
pub(crate) fn program_directories() -> Vec<PathBuf> {
    let mut list = vec![PathBuf::from("/usr")];
    let top = TOP.iter().map(|name| Path::new("/").join(name));
    list.extend(top.filter(|path| fs::symlink_metadata(path).is_ok_and(|kind| kind.is_dir())));
    list
}

/// The directories of this machine with its programs, and those that an operator adds.
pub(crate) fn machine_directories(shown: &[PathBuf]) -> Vec<PathBuf> {
    let mut list = program_directories();
    list.extend(shown_directories(shown).cloned());
    list
}

/// The directories that an operator adds.
pub(crate) fn shown_directories(shown: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    shown.iter().filter(|path| path.is_absolute() && path.is_dir())
}

/// A file in memory with the system call filters of a sandbox without capabilities, to be read from its start.
pub(crate) fn filters() -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("filters", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&bpf::encoded(SandboxCapabilities::None)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Describes a failed launch: how it ended, and the last lines of [`ERRORS`].
pub(crate) fn launch_failure(dir: &Path, how: &str) -> String {
    let text = fs::read_to_string(dir.join(ERRORS)).unwrap_or_default();
    let text = text.trim();
    let from = text.len().saturating_sub(MAX_REASON_BYTES);
    match text.get(from..) {
        Some(text) if !text.is_empty() => format!("{how}: {text}"),
        _ => how.to_owned(),
    }
}
