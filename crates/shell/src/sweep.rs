//! Finding, signalling and ending the processes of a run.

use std::collections::HashSet;
use std::path::Path;

use rustix::fd::BorrowedFd;
use rustix::process::{Signal, kill_process_group};
use rustix::termios::tcgetpgrp;

use super::machine::{SweepResult, SweepSignal};
use super::procs::{self, ProcessFilter};
use super::prompt;

/// The processes of a run that is being ended. All are stopped before any is killed, so that none forks
/// during the search for others.
#[derive(Debug, Default)]
pub struct Sweep {
    known: HashSet<i32>,
    last: Vec<i32>,
}

impl Sweep {
    /// Finds the processes of a run, and stops or kills them.
    pub fn run(&mut self, filter: &ProcessFilter, signal: SweepSignal) -> SweepResult {
        let signal = match signal {
            SweepSignal::Stop => Signal::STOP,
            SweepSignal::Kill => Signal::KILL,
        };
        let mut new = false;
        self.last = filter.find(&self.known).iter().map(|process| process.pid).collect();
        for pid in &self.last {
            new |= self.known.insert(*pid);
            procs::signal(*pid, signal);
        }
        match (self.last.is_empty(), new) {
            (true, _) => SweepResult::None,
            (false, true) => SweepResult::New,
            (false, false) => SweepResult::Known,
        }
    }

    /// Kills the processes that the last sweep found.
    pub fn kill_last(&self) {
        for pid in &self.last {
            procs::signal(*pid, Signal::KILL);
        }
    }
}

/// Signals the processes of a run: the foreground process group, or all processes if the shell itself is
/// in the foreground. The shell is signalled, too, by an interrupt or if the run has no process. Returns
/// `false` if the shell does not run the command: the signal would reach the line editor or the rest of
/// the drive file. `run` is the shell's run directory.
pub fn signal(filter: &ProcessFilter, run: &Path, signal: Signal, master: BorrowedFd) -> bool {
    let shell = filter.shell;
    if !prompt::in_command(shell, run) {
        return false;
    }
    if !prompt::in_foreground(shell, master)
        && let Ok(group) = tcgetpgrp(master)
    {
        let _ = kill_process_group(group, signal);
        return true;
    }
    let found = filter.find(&HashSet::new());
    // As Ctrl-C does: the rest of the line must not run. The shell is signalled first, so that it has
    // received the interrupt when it learns that its children were interrupted.
    if found.is_empty() || signal == Signal::INT {
        procs::signal(shell, signal);
    }
    for process in &found {
        procs::signal(process.pid, signal);
    }
    true
}
