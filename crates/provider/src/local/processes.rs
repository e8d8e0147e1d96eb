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
use shell::{Process, all_processes};

/// A process. Its start time distinguishes it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    pub(super) started: u64,
}

impl ProcessId {
    fn of(process: &Process) -> Self {
        Self { pid: process.pid, started: process.start }
    }
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
            .filter(|process| process.alive() && !process.stopped() && which(process.pid))
            .map(|process| ProcessId::of(&process))
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

pub(super) fn kill_all(processes: &[Process]) {
    for process in processes {
        signal(ProcessId::of(process), Signal::KILL);
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
        let all = all_processes();
        let owned: HashSet<i32> = hosts()
            .await
            .into_iter()
            .flat_map(|host| below(&all, host))
            .map(|process| process.pid)
            .collect();
        let orphans: Vec<ProcessId> = all
            .iter()
            .filter(|process| process.alive() && !owned.contains(&process.pid))
            .filter(|process| has_terminal_of(terminals, process.pid))
            .map(ProcessId::of)
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
pub(super) fn descendants(ancestor: i32) -> Vec<Process> {
    below(&all_processes(), ancestor)
}

/// A process and its descendants at about this time. Reads only what belongs to them, where the kernel lists the
/// children of a process; a child that is born meanwhile may be missing.
pub(super) fn family(ancestor: i32) -> Vec<Process> {
    if !Path::new(&format!("/proc/{ancestor}/task/{ancestor}/children")).exists() {
        return Process::read(ancestor).into_iter().chain(descendants(ancestor)).collect();
    }
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            next.extend(children.split_ascii_whitespace().filter_map(|it| it.parse::<i32>().ok()));
        }
        found.extend(Process::read(pid));
    }
    found
}

fn below(all: &[Process], ancestor: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found: Vec<Process> = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        if let Some(more) = children.remove(&found[next].pid) {
            found.extend(more);
        }
        next += 1;
    }
    found
}

/// Sends a signal to a process, unless its id belongs to another process by now.
fn signal(process: ProcessId, signal: Signal) {
    let same = Process::read(process.pid).is_some_and(|found| ProcessId::of(&found) == process);
    if let (true, Some(pid)) = (same, Pid::from_raw(process.pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a stop signal is pending for a process. A process in an uninterruptible wait does not stop yet:
/// a shell in `vfork` waits until its child continues, which is stopped too.
fn is_about_to_stop(pid: i32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else { return false };
    // It contains the name of the process, which may be any bytes.
    let status = String::from_utf8_lossy(&status);
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
    use std::{
        ffi::OsStr,
        os::unix::{ffi::OsStrExt, fs::symlink},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_process_whose_name_is_not_text_is_a_descendant() {
        let dir = std::env::temp_dir().join(format!("stead-name-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = dir.join(OsStr::from_bytes(b"pause\xff"));
        symlink("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = descendants(own).iter().any(|process| process.pid as u32 == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(found);
    }

    #[test]
    fn parents_come_before_their_children() {
        let process = |pid, parent| Process {
            pid,
            state: b'S',
            parent,
            group: 1,
            session: 1,
            start: 0,
            cpu_ticks: 0,
        };
        let all =
            [process(13, 12), process(12, 10), process(99, 1), process(10, 5), process(11, 10)];
        let pids: Vec<i32> = below(&all, 5).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [10, 12, 11, 13]);
    }
}
