//! Ending the processes of a run: all are stopped before any is killed, so that none forks while
//! others are looked for.

use std::collections::HashSet;

use rustix::process::Signal;

use super::machine::Swept;
use super::procs::{self, Family};

/// The processes that were found so far.
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
