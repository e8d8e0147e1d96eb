//! Which limit of its instance a command met, as told by how often the kernel refused or killed.
//!
//! The counters are the instance's: what is counted while a command runs may be another's doing, so
//! only a command that failed is said to have met a limit. The screen is told either way.

use host::wire::Request;

use super::link::Link;
use crate::lease::Leases;
use model::{Command, LeaseId, Limit, TerminalId};
use provider::Exceeded;
use store::Outputs;

/// What programs say when a disk is full; no counter of the kernel tells it.
const NO_SPACE: &[u8] = b"No space left on device";

/// The counters of a terminal's instance, as they were last seen.
pub(super) struct Limits {
    leases: Leases,
    lease: LeaseId,
    seen: Option<Exceeded>,
}

impl Limits {
    /// The counters as they are now.
    pub(super) fn new(leases: Leases, lease: LeaseId) -> Self {
        let seen = leases.exceeded(&lease);
        Self { leases, lease, seen }
    }

    /// What was met since this was asked last.
    pub(super) fn met(&mut self) -> Option<Limit> {
        let now = self.leases.exceeded(&self.lease);
        let before = std::mem::replace(&mut self.seen, now).or(now)?;
        grown(before, now?)
    }

    /// Notes what a command that has ended met.
    pub(super) fn note(
        &mut self,
        command: &mut Command,
        output: Option<&Outputs>,
    ) -> Option<Limit> {
        let met = self.met();
        if command.exit_code == Some(0) {
            return met;
        }
        let says_full = |output: &Outputs| {
            output.stderr.windows(NO_SPACE.len()).any(|window| window == NO_SPACE)
        };
        let full = self.seen.is_some() && output.is_some_and(says_full);
        command.limit_reached = met.or(full.then_some(Limit::DiskFull));
        command.limit_reached
    }
}

fn grown(before: Exceeded, now: Exceeded) -> Option<Limit> {
    if now.out_of_memory > before.out_of_memory {
        Some(Limit::OutOfMemory)
    } else if now.processes > before.processes {
        Some(Limit::Processes)
    } else if now.disk > before.disk {
        Some(Limit::DiskFull)
    } else {
        None
    }
}

/// Writes on the screen which limit was met: on a line of its own above the one the cursor is on,
/// which may be a prompt with something half typed.
pub(super) fn show(link: &Link, terminal: &TerminalId, limit: Limit) {
    let why = match limit {
        Limit::OutOfMemory => "out of memory: a process was killed at the memory limit",
        Limit::Processes => "process limit: no more processes can be made",
        Limit::DiskFull => "disk full: no more may be written",
    };
    // A line is made below first, so that there is one to move the cursor's to.
    let text = format!("\n\x1b[A\x1b7\r\x1b[L\x1b[33m── {why} ──\x1b[0m\x1b8\x1b[B");
    let terminal = terminal.to_string();
    link.post(|seq| Request::Show { seq, terminal, data: text.into_bytes() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_met_is_the_one_whose_counter_rose() {
        let count = |out_of_memory, processes| Exceeded { out_of_memory, processes, disk: 0 };
        assert_eq!(grown(count(1, 5), count(1, 5)), None);
        assert_eq!(grown(count(1, 5), count(2, 9)), Some(Limit::OutOfMemory));
        assert_eq!(grown(count(1, 5), count(1, 6)), Some(Limit::Processes));
        // Another instance has taken its place.
        assert_eq!(grown(count(3, 5), count(0, 0)), None);
    }
}
