//! Finding every process of a terminal that has no cgroup.
//!
//! All of them are our descendants, because we are their subreaper. A process belongs to the terminal if
//! it is in the session of one of its shells, has the terminal's id in its environment, or descends from
//! such a process.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal};

use shell::Process;

/// A snapshot of all processes.
#[derive(Debug)]
pub(super) struct Processes {
    all: Vec<Process>,
    own: i32,
    /// The terminal ids in the environments of orphans.
    marks: HashMap<i32, Vec<u8>>,
}

impl Processes {
    /// Reads the list of processes.
    pub(super) fn read() -> Self {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let all = shell::all_processes();
        let marks = all
            .iter()
            .filter(|process| process.parent == own && process.alive())
            .filter_map(|process| Some((process.pid, mark(process.pid)?)))
            .collect();
        Self { all, own, marks }
    }

    /// Kills every living process of a terminal. Returns how many there were.
    pub(super) fn kill(&self, terminal: &str, sessions: &[Pid]) -> usize {
        let sessions: Vec<i32> = sessions.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        let belongs = |process: &Process| {
            sessions.contains(&process.session)
                || self.marks.get(&process.pid).is_some_and(|mark| mark == terminal.as_bytes())
        };
        let found = closure(&self.all, self.own, belongs);
        for pid in found.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        found.len()
    }
}

/// Returns our living descendants for which `belongs` is true, and all their descendants.
fn closure(all: &[Process], own: i32, belongs: impl Fn(&Process) -> bool) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open = vec![(own, false)];
    while let Some((parent, inherited)) = open.pop() {
        for process in children.get(&parent).into_iter().flatten() {
            if !seen.insert(process.pid) {
                continue;
            }
            let ours = inherited || belongs(process);
            if ours && process.alive() {
                found.push(process.pid);
            }
            open.push((process.pid, ours));
        }
    }
    found
}

/// Returns the terminal id in a process's environment.
fn mark(pid: i32) -> Option<Vec<u8>> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"STEAD_TERMINAL="))
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_in_other_sessions_are_found() {
        let process = |pid, parent, session| Process {
            pid,
            state: b'S',
            parent,
            group: session,
            session,
            start: 0,
            cpu_ticks: 0,
        };
        let all = [
            process(10, 1, 10),  // the terminal's shell
            process(11, 10, 10), // its child
            process(12, 11, 12), // a grandchild in its own session
            process(13, 12, 13), // the child of the grandchild
            process(20, 1, 20),  // another terminal's shell
            process(30, 2, 10),  // not our descendant, in a session of the same number
        ];
        let mut found = closure(&all, 1, |process| process.session == 10);
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12, 13]);
    }
}
