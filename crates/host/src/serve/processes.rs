//! Finding every process of a terminal that has no cgroup.
//!
//! All of them are our descendants, because we are their subreaper. A process belongs to the terminal if
//! it is in the session of one of its shells, has the terminal's id in its environment, or descends from
//! such a process.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal};

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    zombie: bool,
}

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
        let all = processes();
        let marks = all
            .iter()
            .filter(|process| process.parent == own && !process.zombie)
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
            if ours && !process.zombie {
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

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Parses a stat line. The name in it may contain any byte, so fields are counted from its last parenthesis.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let pid = head.split(' ').next()?.parse().ok()?;
    let mut fields = tail.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session, zombie: state == "Z" || state == "X" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_in_a_stat_line_may_contain_parentheses() {
        let line = "42 (a) b (c) S 7 41 40 34816 42 4194304 1 2";
        let expected = Process { pid: 42, parent: 7, session: 40, zombie: false };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("42 (x"), None);
    }

    #[test]
    fn descendants_in_other_sessions_are_found() {
        let process = |pid, parent, session| Process { pid, parent, session, zombie: false };
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
