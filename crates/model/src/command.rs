//! A command and its states.
//!
//! ```text
//!   Queued ──▶ Running ──▶ Finished | TimedOut | Cancelled | Lost
//!      └─────────────────▶ NotStarted | Cancelled | Lost
//! ```
//! An end is final: a command is never rerun, and its receipt never changes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommandId, Env, Refused, TerminalId};

/// A command and its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub command_id: CommandId,
    pub terminal_id: TerminalId,
    /// The command line.
    pub text: String,
    pub source: Source,
    pub status: CommandStatus,
    /// Set if the command ran to its end.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// When we noticed the end.
    pub finished_at: Option<Timestamp>,
    /// Running time by the host's clock.
    pub duration_us: Option<u64>,
    /// Bytes of standard output so far.
    pub stdout_bytes: u64,
    /// Bytes of standard error so far.
    pub stderr_bytes: u64,
    /// Whether some of its output was not kept.
    pub truncated: bool,
    /// The version of the terminal's state before the command.
    pub version_before: u64,
    /// The version of the terminal's state after the command.
    pub version_after: Option<u64>,
    /// The offset in the terminal's output at which the command starts.
    pub offset_start: Option<u64>,
    pub offset_end: Option<u64>,
    /// The shell's directory after the command.
    pub cwd: Option<String>,
    pub changes: Changes,
    /// Whether the shell had to be replaced.
    pub shell_restarted: bool,
    /// The limit of the instance that was reached while the command ran, if it failed.
    pub limit_reached: Option<Limit>,
    /// The client's idempotency key.
    pub idempotency_key: Option<String>,
}

/// A limit of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// A process was killed because memory was at its limit.
    OutOfMemory,
    /// The maximum number of processes was reached.
    Processes,
    DiskFull,
}

impl Limit {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::Processes => "processes",
            Self::DiskFull => "disk_full",
        }
    }
}

/// The origin of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Requested through exec.
    Agent,
    /// Typed into the terminal.
    Person,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandStatus {
    /// Waits for the shell.
    Queued,
    Running,
    /// Ended without a timeout or a request.
    Finished,
    TimedOut,
    /// Ended, or removed from the queue, by request.
    Cancelled,
    /// Its end is unknown.
    Lost,
    /// Certainly never ran.
    NotStarted,
}

impl CommandStatus {
    /// Returns whether the status is final.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Finished | Self::TimedOut | Self::Cancelled | Self::Lost | Self::NotStarted => {
                true
            }
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::NotStarted => "not_started",
        }
    }
}

/// The changes that a command made to its shell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<CwdChange>,
    /// The exported environment.
    #[serde(skip_serializing_if = "EnvChange::is_empty")]
    pub env: EnvChange,
}

/// A change of the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CwdChange {
    pub from: String,
    pub to: String,
}

/// A change of the exported environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvChange {
    /// Variables with a new value.
    pub set: Env,
    pub unset: Vec<String>,
}

impl EnvChange {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }
}

/// How a command ended: one of the five ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    Finished { exit_code: Option<i32>, signal: Option<i32> },
    TimedOut,
    Cancelled,
    Lost,
    NotStarted,
}

impl Command {
    /// Returns a queued command.
    #[must_use]
    pub fn queued(
        command_id: CommandId,
        terminal_id: TerminalId,
        text: String,
        source: Source,
        version_before: u64,
        at: Timestamp,
    ) -> Self {
        Self {
            command_id,
            terminal_id,
            text,
            source,
            status: CommandStatus::Queued,
            exit_code: None,
            signal: None,
            created_at: at,
            started_at: None,
            finished_at: None,
            duration_us: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            truncated: false,
            version_before,
            version_after: None,
            offset_start: None,
            offset_end: None,
            cwd: None,
            changes: Changes::default(),
            shell_restarted: false,
            limit_reached: None,
            idempotency_key: None,
        }
    }

    /// Returns the command in state `Running`.
    pub fn start(&self, at: Timestamp, offset: u64) -> Result<Self, Refused> {
        match self.status {
            CommandStatus::Queued => Ok(Self {
                status: CommandStatus::Running,
                started_at: Some(at),
                offset_start: Some(offset),
                ..self.clone()
            }),
            CommandStatus::Running
            | CommandStatus::Finished
            | CommandStatus::TimedOut
            | CommandStatus::Cancelled
            | CommandStatus::Lost
            | CommandStatus::NotStarted => Err(self.refused("start")),
        }
    }

    /// Returns the command in its final state.
    pub fn end(&self, end: CommandEnd, at: Timestamp) -> Result<Self, Refused> {
        let next = match (self.status, end) {
            (CommandStatus::Running, CommandEnd::Finished { exit_code, signal }) => {
                Self { status: CommandStatus::Finished, exit_code, signal, ..self.clone() }
            }
            (CommandStatus::Running, CommandEnd::TimedOut) => {
                Self { status: CommandStatus::TimedOut, ..self.clone() }
            }
            (CommandStatus::Queued | CommandStatus::Running, CommandEnd::Cancelled) => {
                Self { status: CommandStatus::Cancelled, ..self.clone() }
            }
            (CommandStatus::Queued | CommandStatus::Running, CommandEnd::Lost) => {
                Self { status: CommandStatus::Lost, ..self.clone() }
            }
            (CommandStatus::Queued, CommandEnd::NotStarted) => {
                Self { status: CommandStatus::NotStarted, ..self.clone() }
            }
            _ => {
                return Err(self.refused(match end {
                    CommandEnd::Finished { .. } => "finish",
                    CommandEnd::TimedOut => "time out",
                    CommandEnd::Cancelled => "be cancelled",
                    CommandEnd::Lost => "be lost",
                    CommandEnd::NotStarted => "be dropped before it starts",
                }));
            }
        };
        Ok(Self { finished_at: Some(at), ..next })
    }

    fn refused(&self, event: &'static str) -> Refused {
        Refused { noun: format!("command {}", self.command_id), state: self.status.word(), event }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference model: the words of the states, and which may follow each.
        #[test]
        fn an_end_is_final(events in prop::collection::vec(0u8..6, 0..8)) {
            let at = Timestamp::UNIX_EPOCH;
            let mut real = Command::queued(
                CommandId::fresh(), TerminalId::fresh(), "true".into(), Source::Agent, 0, at);
            let mut word = "queued";
            for event in events {
                let (result, then) = match event {
                    0 => (real.start(at, 0), [("queued", "running")].as_slice()),
                    1 => (
                        real.end(CommandEnd::Finished { exit_code: Some(1), signal: None }, at),
                        [("running", "finished")].as_slice(),
                    ),
                    2 => (real.end(CommandEnd::TimedOut, at), [("running", "timed_out")].as_slice()),
                    4 => (
                        real.end(CommandEnd::Cancelled, at),
                        [("queued", "cancelled"), ("running", "cancelled")].as_slice(),
                    ),
                    3 => (
                        real.end(CommandEnd::Lost, at),
                        [("queued", "lost"), ("running", "lost")].as_slice(),
                    ),
                    _ => (
                        real.end(CommandEnd::NotStarted, at),
                        [("queued", "not_started")].as_slice(),
                    ),
                };
                match then.iter().find(|(from, _)| *from == word) {
                    Some((_, to)) => { real = result.unwrap(); word = to; }
                    None => prop_assert!(result.is_err()),
                }
                prop_assert_eq!(real.status.word(), word);
                prop_assert_eq!(real.exit_code.is_some(), word == "finished");
                prop_assert_eq!(real.finished_at.is_some(), real.status.is_end());
            }
        }
    }
}
