//! How a command ended.

use std::time::Duration;

use super::state::Changes;
use wire::{Event, Outcome};

/// The outcome of a command, with its exit code and the signal that ended it, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub outcome: Outcome,
    /// The exit code, if there is one.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
}

impl End {
    /// An end without an exit code.
    pub fn of(outcome: Outcome) -> Self {
        Self { outcome, exit_code: None, signal: None }
    }

    /// The end of a command that ran to its end.
    pub fn finished(exit_code: i32) -> Self {
        Self { outcome: Outcome::Finished, exit_code: Some(exit_code), signal: None }
    }
}

/// The full report of a command that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub outcome: Outcome,
    /// The exit code, if there is one.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// The time from the command's start to its end.
    pub duration: Duration,
    /// Bytes written to standard output so far.
    pub stdout_bytes: u64,
    /// Bytes written to standard error so far.
    pub stderr_bytes: u64,
    /// The shell had to be replaced.
    pub shell_restarted: bool,
    /// The changes that the command made to the state.
    pub changes: Changes,
}

impl Status {
    /// Returns the event that reports this status.
    pub fn event(self, command: String, terminal: String, offset: u64) -> Event {
        let (changed, removed) = self.changes;
        Event::Done {
            command,
            terminal,
            outcome: self.outcome,
            exit_code: self.exit_code,
            signal: self.signal,
            duration_us: self.duration.as_micros() as u64,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            shell_restarted: self.shell_restarted,
            offset,
            changed,
            removed,
        }
    }
}
