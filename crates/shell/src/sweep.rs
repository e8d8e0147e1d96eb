//! Signalling and ending the processes of a run.

use std::collections::HashSet;
use std::path::Path;

use rustix::fd::BorrowedFd;
use rustix::process::{Signal, kill_process_group};
use rustix::termios::tcgetpgrp;

use super::machine::Swept;
use super::procs::{self, Family};
use super::prompt;

/// The processes of a run that is being ended. All are stopped before any is killed, so that none forks
/// while others are looked for.
#[derive(Debug, Default)]
pub struct Sweep {
    known: HashSet<i32>,
    last: Vec<i32>,
}

impl Sweep {
    /// Looks for the processes of a run, and stops or kills them.
    pub fn run(&mut self, family: &Family, kill: bool) -> Swept {
        let signal = if kill { Signal::KILL } else { Signal::STOP };
        let mut new = false;
        self.last = family.born(&self.known).iter().map(|process| process.pid).collect();
        for pid in &self.last {
            new |= self.known.insert(*pid);
            procs::signal(*pid, signal);
        }
        match (self.last.is_empty(), new) {
            (true, _) => Swept::None,
            (false, true) => Swept::New,
            (false, false) => Swept::Known,
        }
    }

    /// Kills the processes that the last sweep found.
    pub fn kill_last(&self) {
        for pid in &self.last {
            procs::signal(*pid, Signal::KILL);
        }
    }
}

/// Signals the processes of a run: the group that has the terminal, or all of them. An interrupt goes to
/// the shell too, and so does a signal for which there is no process. Returns `false` if the shell is not
/// within the command: the signal would reach the line editor, or what precedes and follows the command.
/// `run` is the directory of the shell's files.
pub fn signal(family: &Family, run: &Path, signal: Signal, master: BorrowedFd) -> bool {
    let shell = family.shell;
    if !prompt::in_command(shell, run) {
        return false;
    }
    if !prompt::in_foreground(shell, master)
        && let Ok(group) = tcgetpgrp(master)
    {
        let _ = kill_process_group(group, signal);
        return true;
    }
    let born = family.born(&HashSet::new());
    // As Ctrl-C would: the rest of the line must not run. The shell first, so that it knows when it sees
    // what the others died of.
    if born.is_empty() || signal == Signal::INT {
        procs::signal(shell, signal);
    }
    for process in &born {
        procs::signal(process.pid, signal);
    }
    true
}
