//! The outputs of a driver: steps for the host's loop, and events for the clients.

use std::path::PathBuf;
use std::time::Duration;

use super::state::Changes;
use super::status::Status;

/// How to start a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment, except for the variables that the host adds for every terminal.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub cwd: PathBuf,
}

/// A step for the loop to carry out. Effects are carried out in order.
#[derive(Debug)]
pub enum Effect {
    /// Write to the PTY, as if typed.
    Type(Vec<u8>),
    /// Append to the terminal's output, as if printed.
    Show(Vec<u8>),
    /// Start a shell on a PTY, then call [`Driver::launched`](super::Driver::launched).
    Respawn(Launch),
    /// Report to the clients.
    Emit(DriverEvent),
}

/// An event for the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEvent {
    /// A command has begun.
    Started { command: String },
    /// A command has more output to read.
    Grew { command: String },
    /// A command has ended.
    Done { command: String, status: Status },
    /// No process has the command's streams open any more.
    Sealed {
        command: String,
        /// Final length of standard output.
        stdout_bytes: u64,
        /// Final length of standard error.
        stderr_bytes: u64,
    },
    /// The command began or stopped waiting for input from the terminal.
    Waiting { command: String, waiting: bool },
    /// A command that a person typed has ended.
    Typed {
        /// The command as it is in the shell's history.
        text: Vec<u8>,
        exit_code: Option<i32>,
        /// How long it took.
        duration: Duration,
        /// The changes that the command made to the state.
        changes: Changes,
    },
    /// The state changed outside of any command.
    StateChanged { changes: Changes },
    /// A script given to [`Driver::apply`](super::Driver::apply) has ended.
    Applied {
        /// The token that `apply` was called with.
        token: u64,
        /// Its exit code; `None` if it did not run to its end.
        exit_code: Option<i32>,
    },
    /// The last shell has exited, and no other will be started.
    Ended {
        /// The exit code of the last shell; `None` if none could be started or a signal ended it.
        code: Option<i32>,
        /// The signal that ended the last shell.
        signal: Option<i32>,
    },
}
