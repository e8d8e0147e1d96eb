//! A durable shell and its output.
//!
//! ```text
//!   Restorable ── a runtime was started ──▶ Live ── its program ended ──▶ Exited
//!       ▲                                    │                              │
//!       └──────── the runtime is gone ───────┘          started again ──▶ Live
//!   any but Closed ── closed ──▶ Closed
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommandId, Env, LeaseId, Refused, TerminalId, ThreadId};

/// A terminal as it is remembered, whether or not a process stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// Its id.
    pub terminal_id: TerminalId,
    /// The thread it belongs to.
    pub thread_id: ThreadId,
    /// The compute it stands on.
    pub lease_id: LeaseId,
    /// Whether it is the thread's default one.
    pub is_default: bool,
    /// The program to run; empty means the shell.
    pub argv: Vec<String>,
    /// Which kind of shell drives exec in it.
    pub shell: ShellKind,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// What its environment has from the start, beyond the thread's.
    pub env: Env,
    /// The shell's directory at `version`; empty if it never ran.
    pub cwd: String,
    /// What the shell's environment has beyond what it was started with, at `version`. A name that
    /// was removed maps to `None`.
    pub env_delta: BTreeMap<String, Option<String>>,
    /// The version of the shell's state; rises by exactly one.
    pub version: u64,
    /// What the program calls its window.
    pub title: String,
    /// Where it is in its life.
    pub status: TerminalStatus,
    /// When it was made.
    pub created_at: Timestamp,
    /// When the row was last changed.
    pub updated_at: Timestamp,
    /// When there was last input or output.
    pub last_activity_at: Timestamp,
    /// How often the row was changed, apart from the shell's state.
    pub revision: u64,
}

/// Which kind of shell a terminal has; it decides how exec is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellKind {
    /// bash.
    #[default]
    Bash,
    /// zsh.
    Zsh,
    /// A POSIX shell.
    Sh,
    /// A program that cannot be driven.
    Plain,
}

/// Where a terminal is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "status")]
pub enum TerminalStatus {
    /// No process; the next use starts one from the durable state.
    Restorable,
    /// A process stands behind it.
    Live,
    /// Its program ended.
    Exited(Exit),
    /// It was deleted.
    Closed,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its exit code, if it ended by itself.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// When it was seen.
    pub at: Timestamp,
}

/// What can happen to a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalEvent {
    /// A runtime was started for it, or found again.
    Started,
    /// Its runtime is gone, its state is not.
    RuntimeLost,
    /// Its program ended.
    Exited(Exit),
    /// It was deleted.
    Closed,
}

impl Terminal {
    /// The terminal after this happened.
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
            // What ended did end, whatever became of the place it ran in.
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

    /// Whether it ends with its program. A terminal that was created without one has a shell, and
    /// gets another when that exits.
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
    /// The word clients see.
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

/// Why a version of a terminal's state came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Cause {
    /// The terminal was made.
    Created,
    /// An exec.
    Exec {
        /// Which.
        command_id: CommandId,
    },
    /// A person typed a command.
    Typed,
    /// The environment was patched.
    Patch,
    /// An earlier version was taken up again.
    Rollback {
        /// Which.
        to: u64,
    },
    /// The state was taken from another terminal.
    Fork {
        /// Which terminal.
        from: TerminalId,
        /// At which of its versions.
        version: u64,
    },
}

/// One version of a terminal's state, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateVersion {
    /// The version.
    pub version: u64,
    /// The shell's directory.
    pub cwd: String,
    /// Why it came to be.
    pub cause: Cause,
    /// When.
    pub at: Timestamp,
    /// The names of the sections that differ from the version before.
    pub changed: Vec<String>,
}

/// A terminal's whole state at one version. What is in a section is the shell driver's own affair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalState {
    /// The version; 0 if the terminal never had any state.
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
        let at = Timestamp::UNIX_EPOCH;
        Terminal {
            terminal_id: TerminalId::fresh(),
            thread_id: "t".parse().unwrap(),
            lease_id: LeaseId::fresh(),
            is_default: true,
            argv: vec![],
            shell: ShellKind::Bash,
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

    proptest! {
        /// The reference: whether there is a process, whether it ended, whether all is over.
        #[test]
        fn it_lives_as_three_flags_say(events in prop::collection::vec(0u8..4, 0..30)) {
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
