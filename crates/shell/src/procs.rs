//! Processes: which of them a command started, and which system call they sleep in.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// The unit in which the kernel reports the start of a process (`USER_HZ`): a hundredth of a second.
const TICK_NANOSECONDS: i64 = 10_000_000;

/// Returns whether we are the first process of a sandbox.
#[must_use]
pub fn is_first_process() -> bool {
    std::process::id() == 1
}

/// A moment between two forks: every process was started before or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkMoment {
    /// Ticks since boot.
    pub tick: u64,
    /// The process id that was assigned last.
    pub last_pid: i32,
}

impl ForkMoment {
    /// Returns the current moment.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let ticks =
            time.tv_sec * (1_000_000_000 / TICK_NANOSECONDS) + time.tv_nsec / TICK_NANOSECONDS;
        let last_pid = read_short_file("/proc/loadavg")
            .and_then(|text| text.rsplit(' ').next()?.trim().parse().ok())
            .unwrap_or(0);
        Self { tick: u64::try_from(ticks).unwrap_or(0), last_pid }
    }

    /// Returns whether a process was started later. Within one tick the process ids are compared, which
    /// rise until they wrap.
    #[must_use]
    pub fn precedes(&self, process: &Process) -> bool {
        process.start > self.tick || (process.start == self.tick && process.pid > self.last_pid)
    }
}

/// A process as `/proc/PID/stat` describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// The letter of the state, such as `S` for sleeping.
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Ticks since boot.
    pub start: u64,
    /// CPU time of the process and of its reaped children, in ticks.
    pub cpu_ticks: u64,
}

impl Process {
    /// Returns the process with that id.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &text)
    }

    fn parse(pid: i32, text: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain any byte.
        let behind = text.iter().rposition(|byte| *byte == b')')? + 2;
        let rest = std::str::from_utf8(text.get(behind..)?).ok()?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start: number(19)?,
            cpu_ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        })
    }

    /// Returns whether the process has not exited.
    #[must_use]
    pub fn alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }

    /// Returns whether a signal or a debugger stopped the process.
    #[must_use]
    pub fn stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// Returns all processes that we can see.
#[must_use]
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

/// The criteria for the processes of a command.
#[derive(Debug)]
pub struct ProcessFilter<'a> {
    pub shell: i32,
    pub session: i32,
    /// The terminal's id, which is in the environment of its processes.
    pub terminal: &'a str,
    /// The terminal's cgroup, if there is one.
    pub cgroup: Option<&'a Path>,
    /// When the command began.
    pub since: ForkMoment,
}

impl ProcessFilter<'_> {
    /// Returns the living processes that the command started, without the shell. `known` are processes that
    /// were found before: their children belong to the command even if the parents have exited.
    #[must_use]
    pub fn find(&self, known: &HashSet<i32>) -> Vec<Process> {
        let processes = all();
        let inside = self.cgroup.map(members);
        let by_pid: HashMap<i32, &Process> =
            processes.iter().map(|found| (found.pid, found)).collect();
        let host = rustix::process::getpid().as_raw_nonzero().get();
        processes
            .iter()
            .filter(|found| found.alive() && found.pid != self.shell && self.since.precedes(found))
            .filter(|found| match &inside {
                Some(pids) => pids.contains(&found.pid),
                None => {
                    known.contains(&found.pid)
                        || found.session == self.session
                        || self.descends(found, &by_pid, known)
                        || (found.parent == host || found.parent == 1)
                            && has_terminal_id(found.pid, self.terminal)
                }
            })
            .copied()
            .collect()
    }

    fn descends(
        &self,
        process: &Process,
        by_pid: &HashMap<i32, &Process>,
        known: &HashSet<i32>,
    ) -> bool {
        let mut at = process.parent;
        for _ in 0..by_pid.len() {
            if at == self.shell || known.contains(&at) {
                return true;
            }
            match by_pid.get(&at) {
                Some(parent) if parent.pid > 1 => at = parent.parent,
                _ => return false,
            }
        }
        false
    }
}

fn members(cgroup: &Path) -> HashSet<i32> {
    fs::read_to_string(cgroup.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

/// Returns whether the environment of a process contains the terminal's id.
fn has_terminal_id(pid: i32, terminal: &str) -> bool {
    let wanted = format!("STEAD_TERMINAL={terminal}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|text| text.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()))
}

/// Sends a signal to a process, if it still exists.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns whether a process sleeps in a read of a terminal.
#[must_use]
pub fn reads_terminal(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall"));
    text.is_ok_and(|text| terminal_read(pid, &text).is_some())
}

/// Returns whether a process sleeps in a read of a terminal that it opened itself, as programs do that ask for a
/// password. A program that we may not inspect, such as `sudo`, counts while it sleeps.
#[must_use]
pub fn reads_own_terminal(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/syscall")) {
        Ok(text) => terminal_read(pid, &text).is_some_and(|descriptor| descriptor > 2),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Process::read(pid).is_some_and(|found| found.state == b'S')
        }
        Err(_) => false,
    }
}

/// Returns whether a process may be waiting for input from a terminal: in a read of one, a poll or a select, or in a
/// call that we may not inspect.
#[must_use]
pub fn waits_for_terminal(pid: i32) -> bool {
    if Process::read(pid).is_none_or(|found| found.state != b'S') {
        return false;
    }
    match fs::read_to_string(format!("/proc/{pid}/syscall")) {
        Ok(text) => match text.split(' ').next() {
            Some(READ) => terminal_read(pid, &text).is_some(),
            number => number.is_some_and(|number| WAITS.contains(&number)),
        },
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Returns the descriptor of the terminal that a process reads, from its `/proc/PID/syscall`.
fn terminal_read(pid: i32, text: &str) -> Option<u64> {
    let mut fields = text.split(' ');
    if fields.next() != Some(READ) {
        return None;
    }
    let field = fields.next()?;
    let descriptor = u64::from_str_radix(field.trim_start_matches("0x"), 16).ok()?;
    let target = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    (target.starts_with("/dev/pts") || target.starts_with("/dev/tty")).then_some(descriptor)
}

/// Returns whether a process sleeps as a line editor does: in a read or a select.
#[must_use]
pub fn waits_for_key(pid: i32) -> bool {
    if Process::read(pid).is_none_or(|found| found.state != b'S') {
        return false;
    }
    match fs::read_to_string(format!("/proc/{pid}/syscall")) {
        Ok(text) => text.split(' ').next().is_some_and(|number| WAITS.contains(&number)),
        // Without the permission to read the system call, the state has to suffice.
        Err(_) => true,
    }
}

/// Returns the text of a short kernel file. The kernel generates the text for each read, so the file is
/// read with one call.
#[must_use]
pub fn read_short_file(path: &str) -> Option<String> {
    use std::io::Read;
    let mut text = [0; 4 << 10];
    let length = fs::File::open(path).ok()?.read(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// The prefixes of the libraries that a shell is linked with.
const LINKED_LIBRARIES: [&str; 11] = [
    "ld-",
    "ld.",
    "libc.",
    "libc-",
    "libdl",
    "libhistory",
    "libintl",
    "libncurses",
    "libnss_",
    "libreadline",
    "libtinfo",
];

/// Returns whether the shell `pid` has loaded no library besides those it is linked with, as `enable -f`
/// would do.
#[must_use]
pub fn has_no_loaded_library(pid: i32) -> bool {
    let own = fs::read_link(format!("/proc/{pid}/exe"));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    let (Ok(own), Ok(maps)) = (own, maps) else { return false };
    maps.lines().all(|line| {
        let executable = line.split_ascii_whitespace().nth(1).is_some_and(|it| it.contains('x'));
        let Some(start) = line.find(['/', '[']).filter(|_| executable) else { return !executable };
        let file = Path::new(&line[start..]);
        let linked = |name: &str| LINKED_LIBRARIES.iter().any(|library| name.starts_with(library));
        line[start..].starts_with('[')
            || file == own
            || file.file_name().and_then(|name| name.to_str()).is_some_and(linked)
    })
}

/// Returns whether a process sleeps in a select.
#[must_use]
pub fn selects(pid: i32) -> bool {
    sleeps_in(pid, &[SELECT])
}

/// Returns whether a process sleeps in a poll.
#[must_use]
pub fn polls(pid: i32) -> bool {
    sleeps_in(pid, &POLLS)
}

fn sleeps_in(pid: i32, calls: &[&str]) -> bool {
    fs::read_to_string(format!("/proc/{pid}/syscall"))
        .is_ok_and(|text| text.split(' ').next().is_some_and(|number| calls.contains(&number)))
}

/// The numbers of the system calls poll and ppoll.
#[cfg(target_arch = "x86_64")]
const POLLS: [&str; 2] = ["7", "271"];
/// The number of the system call ppoll.
#[cfg(not(target_arch = "x86_64"))]
const POLLS: [&str; 1] = ["73"];

#[cfg(target_arch = "x86_64")]
const SELECT: &str = "270";
#[cfg(not(target_arch = "x86_64"))]
const SELECT: &str = "72";
#[cfg(target_arch = "x86_64")]
const READ: &str = "0";
/// The numbers of the system calls read, poll, select, pselect6 and ppoll.
#[cfg(target_arch = "x86_64")]
const WAITS: [&str; 5] = ["0", "7", "23", "270", "271"];
#[cfg(not(target_arch = "x86_64"))]
const READ: &str = "63";
/// The numbers of the system calls read, pselect6 and ppoll.
#[cfg(not(target_arch = "x86_64"))]
const WAITS: [&str; 3] = ["63", "72", "73"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_parentheses_blanks_and_any_byte() {
        let text = b"7 (a ) S \xff1) S 3 4 5 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 4242 1 1";
        let process = Process::parse(7, text).unwrap();
        assert_eq!(
            (process.state, process.parent, process.group, process.session),
            (b'S', 3, 4, 5)
        );
        assert_eq!((process.start, process.cpu_ticks), (4242, 100));
    }

    #[test]
    fn a_child_starts_after_the_moment_and_its_parent_before() {
        let moment = ForkMoment::now();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = Process::read(i32::try_from(child.id()).unwrap()).unwrap();
        let own = Process::read(rustix::process::getpid().as_raw_nonzero().get()).unwrap();
        assert!(moment.precedes(&found), "{moment:?} {found:?}");
        assert!(!moment.precedes(&own), "{moment:?} {own:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
