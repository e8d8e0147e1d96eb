//! A program of a sandbox: how it is started, its output and its end.

use std::{
    sync::atomic::{AtomicI32, Ordering},
    time::Duration,
};

use bytes::Bytes;

use crate::wrap::Config;
use model::{Command, CommandId, CommandStatus, Terminal};

/// The signals that usually terminate a program.
const FATAL_SIGNALS: std::ops::RangeInclusive<i32> = 1..=15;
const SIGKILL: i32 = 9;

/// A program, running or ended.
#[derive(Debug)]
pub struct SandboxProcess {
    pub pid: u32,
    /// The command line as the client requested it.
    pub config: Config,
    /// The client's name for the program.
    pub tag: Option<String>,
    pub terminal: Terminal,
    pub(super) kind: ProcessKind,
    /// The last signal that a client sent; 0 if there was none.
    pub(super) signalled: AtomicI32,
}

#[derive(Debug, Clone)]
pub(super) enum ProcessKind {
    Pty,
    Command {
        id: CommandId,
        /// The offset where the program's own standard error starts.
        stderr_start: u64,
    },
}

impl SandboxProcess {
    /// How a finished command ended.
    pub(super) fn end_of(&self, command: &Command) -> ProcessEnd {
        let sent = self.signalled.load(Ordering::Relaxed);
        match (command.status, command.exit_code, command.signal) {
            (CommandStatus::TimedOut, ..) => ProcessEnd::TimedOut,
            (CommandStatus::Cancelled, ..) => ProcessEnd::Signal(SIGKILL),
            (CommandStatus::Finished, _, Some(signal)) if signal != 0 => ProcessEnd::Signal(signal),
            // The shell reports termination by a signal as the exit code 128 + signal.
            (CommandStatus::Finished, Some(code), _) if sent != 0 && code == 128 + sent => {
                ProcessEnd::Signal(sent)
            }
            (CommandStatus::Finished, Some(code), _) => ProcessEnd::Exit(code),
            _ => ProcessEnd::Lost,
        }
    }

    /// The end as the program's own parent process would see it. The shell in between reports termination by
    /// a signal as an exit code. A program may also exit with such a code by itself: that is assumed if the code
    /// occurs in its arguments.
    pub fn end_seen_by_parent(&self, end: ProcessEnd) -> ProcessEnd {
        let ProcessEnd::Exit(code) = end else { return end };
        let is_explicit = || self.config.args.iter().any(|word| word.contains(&code.to_string()));
        match code.checked_sub(128) {
            Some(signal) if FATAL_SIGNALS.contains(&signal) && !self.is_pty() && !is_explicit() => {
                ProcessEnd::Signal(signal)
            }
            _ => end,
        }
    }

    /// Whether a client sent SIGKILL.
    pub fn is_killed(&self) -> bool {
        self.signalled.load(Ordering::Relaxed) == SIGKILL
    }

    /// Whether the program runs on a PTY of its own.
    pub fn is_pty(&self) -> bool {
        matches!(self.kind, ProcessKind::Pty)
    }
}

/// A request to start a program.
#[derive(Debug, Clone)]
pub struct Start {
    pub config: Config,
    /// The client's name for the program.
    pub tag: Option<String>,
    /// Whether standard input is open for [`Adapter::write_stdin`](crate::Adapter::write_stdin); else it is empty.
    pub stdin: bool,
    pub timeout: Option<Duration>,
    /// Columns and rows of the PTY, if the program gets one.
    pub pty: Option<(u16, u16)>,
}

/// A chunk of a program's output, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessOutput {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Pty(Bytes),
    End(ProcessEnd),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    Exit(i32),
    Signal(i32),
    TimedOut,
    Lost,
}

/// The end and the output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessResult {
    pub end: ProcessEnd,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}
