//! A durable shell and its output.
//!
//! ```text
//!   Restorable ── a runtime was started ──▶ Live ── its program ended ──▶ Exited
//!       ▲                                    │                              │
//!       └───────── the runtime is lost ──────┘              restarted ──▶ Live
//!   any but Closed ── closed ──▶ Closed
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommandId, Env, LeaseId, Refused, TerminalId, ThreadId};

/// A terminal, whether or not its program is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    pub terminal_id: TerminalId,
    pub thread_id: ThreadId,
    pub lease_id: LeaseId,
    /// Whether this is the thread's default terminal.
    pub is_default: bool,
    /// The program to run; empty means the shell.
    pub argv: Vec<String>,
    /// The kind of shell in which exec runs commands.
    pub shell: ShellKind,
    pub cols: u16,
    pub rows: u16,
    /// Initial variables in addition to the thread's.
    pub env: Env,
    /// The shell's directory at `version`; empty if it never ran.
    pub cwd: String,
    /// The changes of the shell's environment since its start, at `version`. A removed name maps to `None`.
    pub env_delta: BTreeMap<String, Option<String>>,
    /// The version of the shell's state; rises by exactly one.
    pub version: u64,
    /// The window title that the program set.
    pub title: String,
    pub status: TerminalStatus,
    pub created_at: Timestamp,
    /// When the row was last changed.
    pub updated_at: Timestamp,
    /// When there was last input or output.
    pub last_activity_at: Timestamp,
    /// The number of changes to the row, not counting the shell's state.
    pub revision: u64,
}

/// The kind of shell of a terminal, which decides how exec drives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellKind {
    #[default]
    Bash,
    Zsh,
    /// A POSIX shell.
    Sh,
    /// A program that exec cannot drive.
    Plain,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "status")]
pub enum TerminalStatus {
    /// No process; the next use starts one from the durable state.
    Restorable,
    /// Its program is running.
    Live,
    Exited(Exit),
    Closed,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, unless a signal ended the program.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// When this was noticed.
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Its shell was started, or found running.
    Started,
    /// Its shell is lost; its state is kept.
    RuntimeLost,
    Exited(Exit),
    Closed,
}

impl Terminal {
    /// Returns a terminal of a thread that never ran: the shell with its default environment.
    #[must_use]
    pub fn fresh(
        terminal_id: TerminalId,
        thread_id: ThreadId,
        lease_id: LeaseId,
        at: Timestamp,
    ) -> Self {
        Self {
            terminal_id,
            thread_id,
            lease_id,
            is_default: false,
            argv: vec![],
            shell: ShellKind::default(),
            cols: 80,
            rows: 24,
            env: Env::new(),
            cwd: String::new(),
            env_delta: BTreeMap::new(),
            version: 0,
            title: String::new(),
            status: TerminalStatus::Restorable,
            created_at: at,
            updated_at: at,
            last_activity_at: at,
            revision: 0,
        }
    }

    /// Returns the terminal after an event.
    pub fn apply(&self, event: TerminalEvent) -> Result<Self, Refused> {
        let status = match (&self.status, event) {
            (TerminalStatus::Closed, _) => return Err(self.refused(event)),
            (TerminalStatus::Restorable, TerminalEvent::Exited(_)) => {
                return Err(self.refused(event));
            }
            (
                TerminalStatus::Restorable | TerminalStatus::Live | TerminalStatus::Exited(_),
                TerminalEvent::Started,
            ) => TerminalStatus::Live,
            (TerminalStatus::Restorable | TerminalStatus::Live, TerminalEvent::RuntimeLost) => {
                TerminalStatus::Restorable
            }
            // A program that exited stays exited when its host is lost.
            (TerminalStatus::Exited(exit), TerminalEvent::RuntimeLost) => {
                TerminalStatus::Exited(*exit)
            }
            (TerminalStatus::Live | TerminalStatus::Exited(_), TerminalEvent::Exited(exit)) => {
                TerminalStatus::Exited(exit)
            }
            (_, TerminalEvent::Closed) => TerminalStatus::Closed,
        };
        Ok(Self { status, ..self.clone() })
    }

    /// Returns whether the terminal ends with its program. A terminal without a program has a shell, which
    /// is restarted when it exits.
    #[must_use]
    pub fn ends_with_program(&self) -> bool {
        !self.is_default && !self.argv.is_empty()
    }

    fn refused(&self, event: TerminalEvent) -> Refused {
        Refused {
            noun: format!("terminal {}", self.terminal_id),
            state: self.status.word(),
            event: match event {
                TerminalEvent::Started => "start",
                TerminalEvent::RuntimeLost => "lose its runtime",
                TerminalEvent::Exited(_) => "exit",
                TerminalEvent::Closed => "be closed",
            },
        }
    }
}

impl TerminalStatus {
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Restorable => "restorable",
            Self::Live => "live",
            Self::Exited(_) => "exited",
            Self::Closed => "closed",
        }
    }
}

/// The cause of a version of a terminal's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Cause {
    Created,
    /// An exec.
    Exec {
        command_id: CommandId,
    },
    /// A person typed a command.
    Typed,
    /// The environment was patched.
    Patch,
    /// The terminal returned to an earlier version.
    Rollback {
        to: u64,
    },
    /// The state was copied from another terminal.
    Fork {
        from: TerminalId,
        /// At which of its versions.
        version: u64,
    },
}

/// One version of a terminal's state, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateVersion {
    pub version: u64,
    /// The shell's directory.
    pub cwd: String,
    pub cause: Cause,
    pub at: Timestamp,
    /// The names of the sections that differ from the version before.
    pub changed: Vec<String>,
}

/// The whole state of a terminal at one version. Only the shell driver interprets the sections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalState {
    /// 0 if the terminal never had any state.
    pub version: u64,
    /// The shell's directory.
    pub cwd: String,
    /// The sections by name.
    pub sections: BTreeMap<String, Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terminal() -> Terminal {
        let thread = "t".parse().unwrap();
        Terminal::fresh(TerminalId::fresh(), thread, LeaseId::fresh(), Timestamp::UNIX_EPOCH)
    }

    proptest! {
        /// The reference model: three flags.
        #[test]
        fn a_terminal_matches_the_reference_model(events in prop::collection::vec(0u8..4, 0..30)) {
            let exit = Exit { code: Some(0), signal: None, at: Timestamp::UNIX_EPOCH };
            let mut real = terminal();
            let (mut live, mut exited, mut closed) = (false, false, false);
            for event in events {
                let (event, allowed) = match event {
                    0 => (TerminalEvent::Started, !closed),
                    1 => (TerminalEvent::RuntimeLost, !closed),
                    2 => (TerminalEvent::Exited(exit), !closed && (live || exited)),
                    _ => (TerminalEvent::Closed, !closed),
                };
                let result = real.apply(event);
                prop_assert_eq!(result.is_ok(), allowed);
                let Ok(next) = result else { continue };
                real = next;
                match event {
                    TerminalEvent::Started => (live, exited) = (true, false),
                    TerminalEvent::RuntimeLost => live = false,
                    TerminalEvent::Exited(_) => (live, exited) = (false, true),
                    TerminalEvent::Closed => (live, exited, closed) = (false, false, true),
                }
                let word = match (closed, live, exited) {
                    (true, ..) => "closed",
                    (_, true, _) => "live",
                    (_, _, true) => "exited",
                    _ => "restorable",
                };
                prop_assert_eq!(real.status.word(), word);
            }
        }
    }
}
