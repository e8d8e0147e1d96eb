//! Which limit of its instance a command reached, by the kernel's counters of refusals and kills.
//!
//! The counters belong to the instance: another program may have caused an increment, so only a command
//! that failed gets a limit. The screen shows the message either way.

use wire::Request;

use super::link::HostLink;
use crate::lease::Leases;
use model::{Command, LeaseId, Limit, TerminalId};
use provider::Exceeded;
use store::Outputs;

/// The message of programs on a full disk, for which the kernel has no counter.
const NO_SPACE: &[u8] = b"No space left on device";

/// The counters of a terminal's instance at the last check.
pub(super) struct LimitCounters {
    leases: Leases,
    lease: LeaseId,
    seen: Option<Exceeded>,
}

impl LimitCounters {
    pub(super) fn new(leases: Leases, lease: LeaseId) -> Self {
        let seen = leases.exceeded(&lease);
        Self { leases, lease, seen }
    }

    /// Returns the limit that was reached since the last check.
    pub(super) fn reached(&mut self) -> Option<Limit> {
        let now = self.leases.exceeded(&self.lease);
        let before = std::mem::replace(&mut self.seen, now).or(now)?;
        grown(before, now?)
    }

    /// Sets the limit that an ended command reached.
    pub(super) fn note(
        &mut self,
        command: &mut Command,
        output: Option<&Outputs>,
    ) -> Option<Limit> {
        let reached = self.reached();
        if command.exit_code == Some(0) {
            return reached;
        }
        let says_full = |output: &Outputs| {
            output.stderr.windows(NO_SPACE.len()).any(|window| window == NO_SPACE)
        };
        let full = self.seen.is_some() && output.is_some_and(says_full);
        command.limit_reached = reached.or(full.then_some(Limit::DiskFull));
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

/// Prints which limit was reached, on a line of its own above the cursor's line, which may be a prompt with
/// unfinished input.
pub(super) fn show(link: &HostLink, terminal: &TerminalId, limit: Limit) {
    let why = match limit {
        Limit::OutOfMemory => "out of memory: a process was killed at the memory limit",
        Limit::Processes => "process limit: no more processes can be created",
        Limit::DiskFull => "disk full: no more can be written",
    };
    // Adds a line below first, so that the cursor's line can move down.
    let text = format!("\n\x1b[A\x1b7\r\x1b[L\x1b[33m── {why} ──\x1b[0m\x1b8\x1b[B");
    let terminal = terminal.to_string();
    link.post(|seq| Request::Show { seq, terminal, data: text.into_bytes() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reached_limit_is_the_one_whose_counter_rose() {
        let count = |out_of_memory, processes| Exceeded { out_of_memory, processes, disk: 0 };
        assert_eq!(grown(count(1, 5), count(1, 5)), None);
        assert_eq!(grown(count(1, 5), count(2, 9)), Some(Limit::OutOfMemory));
        assert_eq!(grown(count(1, 5), count(1, 6)), Some(Limit::Processes));
        // The counters are those of another instance.
        assert_eq!(grown(count(3, 5), count(0, 0)), None);
    }
}
