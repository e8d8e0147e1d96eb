//! The processes of an instance, where no cgroup holds them together.
//!
//! All are descendants of the host, because orphans come to it. Stopping goes from the shell to its
//! children and continuing from the children to the shell: in any other order an interactive shell
//! sees a child of its stop and takes the terminal back from it.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
    time::Duration,
};

use rustix::process::{Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::{LOOK, host::pid};
use base::durable::replace_volatile;
use model::TerminalId;

/// A process, told from a later one with the same number by when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) started: u64,
}

/// What `/proc/PID/stat` says that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) process: Process,
    pub(super) parent: i32,
    pub(super) state: State,
    /// Processor time of it and of its children that were waited for, in ticks.
    pub(super) ticks: u64,
}

/// How a process is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Alive,
    Stopped,
    Zombie,
}

/// What was stopped, in the order of stopping; kept beside the host so that whoever resumes it knows
/// what had been stopped before by somebody else.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stopped {
    #[serde(default)]
    processes: Vec<Process>,
}

/// Stops the host's descendants that `which` names, parents first, and writes down which.
pub(super) async fn stop(host: i32, record: &Path, which: impl Fn(i32) -> bool) -> io::Result<()> {
    let mut stopped = read_record(record)?;
    let mut known: HashSet<Process> = stopped.processes.iter().copied().collect();
    // A process that was just forked is found in the next round.
    for _ in 0..1000 {
        let fresh: Vec<Process> = descendants(host)
            .into_iter()
            .filter(|stat| stat.state == State::Alive && which(stat.process.pid))
            .map(|stat| stat.process)
            .filter(|process| !is_about_to_stop(process.pid))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        // Written before it is done: after a crash in between, resuming one that was not stopped
        // does no harm, and forgetting one that was would.
        stopped.processes.extend(fresh.iter().filter(|process| known.insert(**process)));
        write_record(record, &stopped)?;
        for process in &fresh {
            signal(*process, Signal::STOP);
        }
        sleep(LOOK).await;
    }
    Err(io::Error::other("processes appear faster than they can be stopped"))
}

/// Lets go on what was stopped, children first, and forgets it.
pub(super) fn go_on(record: &Path) -> io::Result<()> {
    for process in read_record(record)?.processes.iter().rev() {
        signal(*process, Signal::CONT);
    }
    match fs::remove_file(record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Ends these processes.
pub(super) fn kill_all(processes: &[Stat]) {
    for stat in processes {
        signal(stat.process, Signal::KILL);
    }
}

/// Ends every process that carries the mark of one of our terminals and descends from no living host.
/// `hosts` tells which live; it is asked after the processes were listed, so that none of a host that
/// has just come up is taken for an orphan.
pub(super) async fn kill_orphans<F: Future<Output = Vec<i32>>>(
    terminals: &Path,
    patience: Duration,
    hosts: impl Fn() -> F,
) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let all = all();
        let held: HashSet<i32> = hosts()
            .await
            .into_iter()
            .flat_map(|host| below(&all, host))
            .map(|stat| stat.process.pid)
            .collect();
        let orphans: Vec<Process> = all
            .iter()
            .filter(|stat| stat.state != State::Zombie && !held.contains(&stat.process.pid))
            .filter(|stat| is_of(terminals, stat.process.pid))
            .map(|stat| stat.process)
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("{} processes do not end", orphans.len())));
        }
        for process in orphans {
            signal(process, Signal::KILL);
        }
        sleep(LOOK).await;
    }
}

/// The descendants of a process, parents before children.
pub(super) fn descendants(of: i32) -> Vec<Stat> {
    below(&all(), of)
}

/// What the kernel says of a process.
pub(super) fn stat(number: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn below(all: &[Stat], of: i32) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(*stat);
    }
    let mut found: Vec<Stat> = children.remove(&of).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        if let Some(more) = children.remove(&found[next].process.pid) {
            found.extend(more);
        }
        next += 1;
    }
    found
}

/// Sends a signal to a process if it is still the same.
fn signal(process: Process, signal: Signal) {
    let same = stat(process.pid).is_some_and(|stat| stat.process == process);
    if let (true, Some(pid)) = (same, pid(process.pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process stops before it does anything more. One that waits in the kernel does not stop
/// there: a shell that has forked by `vfork` waits until its child, which is stopped too, goes on.
fn is_about_to_stop(pid: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = |name: &str| {
        let hex = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(hex.trim(), 16).ok()
    };
    let stop = 1 << (Signal::STOP.as_raw() - 1);
    ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending).any(|signals| signals & stop != 0)
}

/// Whether a process was started in a terminal whose directory is among these. A link there is a terminal
/// of a sandbox, whose processes are not ours to end.
fn is_of(terminals: &Path, pid: i32) -> bool {
    let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"STEAD_TERMINAL="))
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse::<TerminalId>().ok())
        .filter_map(|id| fs::symlink_metadata(terminals.join(id.as_str())).ok())
        .any(|kind| kind.is_dir())
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(stat)
        .collect()
}

/// The name in a stat line may hold anything, so what follows is counted from its last parenthesis.
fn parse(line: &str) -> Option<Stat> {
    let (head, tail) = line.rsplit_once(')')?;
    let pid = head.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        process: Process { pid, started: number(19)? },
        parent: fields.get(1)?.parse().ok()?,
        state: match *fields.first()? {
            "T" | "t" => State::Stopped,
            "Z" | "X" => State::Zombie,
            _ => State::Alive,
        },
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

fn read_record(record: &Path) -> io::Result<Stopped> {
    match fs::read(record) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stopped::default()),
        Err(error) => Err(error),
    }
}

fn write_record(record: &Path, stopped: &Stopped) -> io::Result<()> {
    replace_volatile(record, &serde_json::to_vec(stopped)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "42 (a) b (c) T 7 41 40 34816 42 4194304 1 2 3 4 10 20 30 40 20 0 1 0 12345 9 9";
        let expected = Stat {
            process: Process { pid: 42, started: 12345 },
            parent: 7,
            state: State::Stopped,
            ticks: 100,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("42 (x"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(stat(own).unwrap().state, State::Alive);
    }

    #[test]
    fn parents_come_before_their_children() {
        let stat = |pid, parent| Stat {
            process: Process { pid, started: 0 },
            parent,
            state: State::Alive,
            ticks: 0,
        };
        let all = [stat(13, 12), stat(12, 10), stat(99, 1), stat(10, 5), stat(11, 10)];
        let pids: Vec<i32> = below(&all, 5).iter().map(|stat| stat.process.pid).collect();
        assert_eq!(pids, [10, 12, 11, 13]);
    }
}
