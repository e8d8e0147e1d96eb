//! A program of a sandbox: what it is started with, what it writes, and how it ends.

use std::{
    sync::atomic::{AtomicI32, Ordering},
    time::Duration,
};

use bytes::Bytes;

use crate::wrap::Config;
use model::{Command, CommandId, CommandStatus, Terminal};

/// The signals that programs die of.
const FATAL_SIGNALS: std::ops::RangeInclusive<i32> = 1..=15;
/// The number of SIGKILL.
const SIGKILL: i32 = 9;

/// A program, running or ended.
#[derive(Debug)]
pub struct SandboxProcess {
    pub pid: u32,
    /// What was asked for.
    pub config: Config,
    /// The client's name for it.
    pub tag: Option<String>,
    pub terminal: Terminal,
    pub(super) kind: ProcessKind,
    /// The last signal that was sent to it.
    pub(super) signalled: AtomicI32,
}

#[derive(Debug, Clone)]
pub(super) enum ProcessKind {
    Pty,
    Command {
        id: CommandId,
        /// Where its own standard error begins.
        begins: u64,
    },
}

impl SandboxProcess {
    /// How a command that is over ended.
    pub(super) fn end_of(&self, command: &Command) -> ProcessEnd {
        let sent = self.signalled.load(Ordering::Relaxed);
        match (command.status, command.exit_code, command.signal) {
            (CommandStatus::TimedOut, ..) => ProcessEnd::TimedOut,
            (CommandStatus::Cancelled, ..) => ProcessEnd::Signal(SIGKILL),
            (CommandStatus::Finished, _, Some(signal)) if signal != 0 => ProcessEnd::Signal(signal),
            // A shell reports the end by a signal as an exit code.
            (CommandStatus::Finished, Some(code), _) if sent != 0 && code == 128 + sent => {
                ProcessEnd::Signal(sent)
            }
            (CommandStatus::Finished, Some(code), _) => ProcessEnd::Exit(code),
            _ => ProcessEnd::Lost,
        }
    }

    /// The end as the parent of the program itself would see it. The shell that waits reports a death
    /// by a signal as an exit code, which a program may have chosen; one that does so names it.
    pub fn by_signal(&self, end: ProcessEnd) -> ProcessEnd {
        let ProcessEnd::Exit(code) = end else { return end };
        let chosen = || self.config.args.iter().any(|word| word.contains(&code.to_string()));
        match code.checked_sub(128) {
            Some(signal) if FATAL_SIGNALS.contains(&signal) && !self.is_pty() && !chosen() => {
                ProcessEnd::Signal(signal)
            }
            _ => end,
        }
    }

    /// Whether it was sent what ends it in any case.
    pub fn is_killed(&self) -> bool {
        self.signalled.load(Ordering::Relaxed) == 9
    }

    /// Whether it has a terminal.
    pub fn is_pty(&self) -> bool {
        matches!(self.kind, ProcessKind::Pty)
    }
}

/// What a program is started with.
#[derive(Debug, Clone)]
pub struct Start {
    pub config: Config,
    /// The client's name for it.
    pub tag: Option<String>,
    /// Whether it can be fed; else it reads nothing.
    pub stdin: bool,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Columns and rows, if it wants a terminal.
    pub pty: Option<(u16, u16)>,
}

/// An event of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessOutput {
    /// On its standard output.
    Stdout(Vec<u8>),
    /// On its standard error.
    Stderr(Vec<u8>),
    Pty(Bytes),
    End(ProcessEnd),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    Exit(i32),
    Signal(i32),
    /// Its time was over.
    TimedOut,
    Lost,
}

/// How a program went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessResult {
    pub end: ProcessEnd,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
}
