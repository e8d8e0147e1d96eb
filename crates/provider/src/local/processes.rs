//! The processes of an instance that has no cgroup.
//!
//! All of them descend from the host, which adopts orphaned processes. Parents are stopped before their
//! children and continued after them: in any other order, an interactive shell sees its child stop and
//! takes the terminal back from it.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::timing::POLL_INTERVAL;
use base::durable::replace_volatile;
use model::TerminalId;

/// A process. Its start time distinguishes it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    pub(super) started: u64,
}

/// The fields of `/proc/PID/stat` that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) process: ProcessId,
    pub(super) parent: i32,
    pub(super) state: ProcessState,
    /// CPU time of the process and of its reaped children, in clock ticks.
    pub(super) ticks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessState {
    Alive,
    Stopped,
    Zombie,
}

/// Rounds of stopping before a pause fails: a fork bomb would never be stopped.
const MAX_ROUNDS: u32 = 1000;

/// The processes that a pause stopped, in that order. The record is in the instance's directory, so that a
/// resume does not continue processes that were stopped for another reason.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoppedProcesses {
    #[serde(default)]
    processes: Vec<ProcessId>,
}

/// Stops the host's descendants that `which` selects, parents first, and records them.
pub(super) async fn stop(host: i32, record: &Path, which: impl Fn(i32) -> bool) -> io::Result<()> {
    let mut stopped = read_record(record)?;
    let mut known: HashSet<ProcessId> = stopped.processes.iter().copied().collect();
    // A process that was just forked is found in the next round.
    for _ in 0..MAX_ROUNDS {
        let fresh: Vec<ProcessId> = descendants(host)
            .into_iter()
            .filter(|stat| stat.state == ProcessState::Alive && which(stat.process.pid))
            .map(|stat| stat.process)
            .filter(|process| !is_about_to_stop(process.pid))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        // Recorded first: after a crash in between, continuing a process that was not stopped is
        // harmless, but a stopped process without a record would never continue.
        stopped.processes.extend(fresh.iter().filter(|process| known.insert(**process)));
        write_record(record, &stopped)?;
        for process in &fresh {
            signal(*process, Signal::STOP);
        }
        sleep(POLL_INTERVAL).await;
    }
    Err(io::Error::other("processes are created faster than they can be stopped"))
}

/// Continues the recorded processes, children first, and removes the record.
pub(super) fn resume(record: &Path) -> io::Result<()> {
    for process in read_record(record)?.processes.iter().rev() {
        signal(*process, Signal::CONT);
    }
    match fs::remove_file(record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn kill_all(processes: &[ProcessStat]) {
    for stat in processes {
        signal(stat.process, Signal::KILL);
    }
}

/// Kills every process that has the environment variable of one of our terminals and descends from no
/// living host. `hosts` is called after the processes were listed, so that a process of a host that has
/// just started is not taken for an orphan.
pub(super) async fn kill_orphans<F: Future<Output = Vec<i32>>>(
    terminals: &Path,
    timeout: Duration,
    hosts: impl Fn() -> F,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let all = all();
        let owned: HashSet<i32> = hosts()
            .await
            .into_iter()
            .flat_map(|host| below(&all, host))
            .map(|stat| stat.process.pid)
            .collect();
        let orphans: Vec<ProcessId> = all
            .iter()
            .filter(|stat| stat.state != ProcessState::Zombie && !owned.contains(&stat.process.pid))
            .filter(|stat| has_terminal_of(terminals, stat.process.pid))
            .map(|stat| stat.process)
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!(
                "{} orphaned processes did not end in time",
                orphans.len()
            )));
        }
        for process in orphans {
            signal(process, Signal::KILL);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The descendants of a process, parents before children.
pub(super) fn descendants(ancestor: i32) -> Vec<ProcessStat> {
    below(&all(), ancestor)
}

/// A process and its descendants at about this time. Reads only what belongs to them, where the kernel lists the
/// children of a process; a child that is born meanwhile may be missing.
pub(super) fn family(ancestor: i32) -> Vec<ProcessStat> {
    if !Path::new(&format!("/proc/{ancestor}/task/{ancestor}/children")).exists() {
        return stat(ancestor).into_iter().chain(descendants(ancestor)).collect();
    }
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            next.extend(children.split_ascii_whitespace().filter_map(|it| it.parse::<i32>().ok()));
        }
        found.extend(stat(pid));
    }
    found
}

pub(super) fn stat(number: i32) -> Option<ProcessStat> {
    parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn below(all: &[ProcessStat], ancestor: i32) -> Vec<ProcessStat> {
    let mut children: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(*stat);
    }
    let mut found: Vec<ProcessStat> = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        if let Some(more) = children.remove(&found[next].process.pid) {
            found.extend(more);
        }
        next += 1;
    }
    found
}

/// Sends a signal to a process, unless its id belongs to another process by now.
fn signal(process: ProcessId, signal: Signal) {
    let same = stat(process.pid).is_some_and(|stat| stat.process == process);
    if let (true, Some(pid)) = (same, Pid::from_raw(process.pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a stop signal is pending for a process. A process in an uninterruptible wait does not stop yet:
/// a shell in `vfork` waits until its child continues, which is stopped too.
fn is_about_to_stop(pid: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = |name: &str| {
        let hex = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(hex.trim(), 16).ok()
    };
    let stop = 1 << (Signal::STOP.as_raw() - 1);
    ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending).any(|signals| signals & stop != 0)
}

/// Whether a process was started in a terminal with a directory in `terminals`. A link there belongs to a
/// terminal of a sandbox, whose processes this provider does not own.
fn has_terminal_of(terminals: &Path, pid: i32) -> bool {
    let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"STEAD_TERMINAL="))
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse::<TerminalId>().ok())
        .filter_map(|id| fs::symlink_metadata(terminals.join(id.as_str())).ok())
        .any(|kind| kind.is_dir())
}

fn all() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(stat)
        .collect()
}

/// Parses a line of `/proc/PID/stat`. The command name may contain anything, so the fields are counted from
/// the last parenthesis.
fn parse(line: &str) -> Option<ProcessStat> {
    let (head, tail) = line.rsplit_once(')')?;
    let pid = head.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(ProcessStat {
        process: ProcessId { pid, started: number(19)? },
        parent: fields.get(1)?.parse().ok()?,
        state: match *fields.first()? {
            "T" | "t" => ProcessState::Stopped,
            "Z" | "X" => ProcessState::Zombie,
            _ => ProcessState::Alive,
        },
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

fn read_record(record: &Path) -> io::Result<StoppedProcesses> {
    match fs::read(record) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoppedProcesses::default()),
        Err(error) => Err(error),
    }
}

fn write_record(record: &Path, stopped: &StoppedProcesses) -> io::Result<()> {
    replace_volatile(record, &serde_json::to_vec(stopped)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_parsed_whatever_the_command_name() {
        let line = "42 (a) b (c) T 7 41 40 34816 42 4194304 1 2 3 4 10 20 30 40 20 0 1 0 12345 9 9";
        let expected = ProcessStat {
            process: ProcessId { pid: 42, started: 12345 },
            parent: 7,
            state: ProcessState::Stopped,
            ticks: 100,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("42 (x"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(stat(own).unwrap().state, ProcessState::Alive);
    }

    #[test]
    fn parents_come_before_their_children() {
        let stat = |pid, parent| ProcessStat {
            process: ProcessId { pid, started: 0 },
            parent,
            state: ProcessState::Alive,
            ticks: 0,
        };
        let all = [stat(13, 12), stat(12, 10), stat(99, 1), stat(10, 5), stat(11, 10)];
        let pids: Vec<i32> = below(&all, 5).iter().map(|stat| stat.process.pid).collect();
        assert_eq!(pids, [10, 12, 11, 13]);
    }
}
