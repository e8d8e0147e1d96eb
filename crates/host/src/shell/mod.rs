//! Commands inside a live shell: exact output and exit code, and state that outlives the shell.
//!
//! A [`Driver`] belongs to one terminal. It never blocks, starts nothing and writes to no terminal:
//! the host's loop tells it what happened and does the [`Effect`]s it answers with.
//!
//! ```text
//!  exec ─▶ queue ─▶ command file, drive file ─▶ Type(key) ─▶ the shell sources the drive file
//!                                                              ├─ out, err  FIFOs ─▶ Output
//!                                                              ├─ ctl/N.STATUS  (its name is the record)
//!                                                              └─ state  FIFO ─▶ sections
//! ```
//! The key is typed only while the shell's own line editor reads the terminal. Only the host types,
//! so a shell once seen there stays there: what is checked is a level, not a race.

mod asks;
mod bash;
mod commands;
mod defined;
mod dialect;
mod driver;
mod ending;
mod handover;
mod harmless;
mod options;
mod output;
mod overdue;
mod pipes;
pub mod place;
mod procs;
mod prompt;
mod queue;
pub mod quote;
mod reading;
mod refresh;
pub mod remote;
mod run;
mod screen;
mod sh;
mod start;
mod state;
mod unclosed;
mod zsh;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;

pub use commands::Status;
pub use dialect::Launch;
pub use driver::{BEGAN, Driver};
pub use output::{Keep, Output, Piece};
pub use screen::Copy;
pub use state::{Changes, State};

use crate::wire::{IfBusy, Outcome, Sections, StdinMode};

/// The shells that can be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// dash, busybox sh or any other POSIX shell.
    Sh,
}

/// What a driver is made for.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The terminal's id.
    pub terminal: String,
    /// The shell.
    pub kind: Kind,
    /// The shell's program, and what makes it a shell: `busybox` needs to be told.
    pub program: Vec<Vec<u8>>,
    /// The environment of a first start.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where a first start is.
    pub cwd: PathBuf,
    /// The terminal's directory; `run` and `commands` in it are the driver's.
    pub dir: PathBuf,
    /// The terminal's cgroup, where there is one.
    pub cgroup: Option<PathBuf>,
}

/// A command to run.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its id.
    pub command: String,
    /// The shell text.
    pub text: Vec<u8>,
    /// It is ended after so long.
    pub timeout: Option<Duration>,
    /// What it reads.
    pub stdin: StdinMode,
    /// The bytes given for it to read.
    pub stdin_data: Vec<u8>,
    /// Variables for this command alone.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directory for this command alone.
    pub cwd: Option<Vec<u8>>,
    /// What to do when the shell is busy.
    pub if_busy: IfBusy,
    /// How much of each stream is kept.
    pub keep: Keep,
}

/// When something happens, and the terminal it happens in.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The time.
    pub now: Instant,
    /// The master side of the shell's PTY.
    pub master: BorrowedFd<'a>,
}

/// What the loop is to do, in order.
#[derive(Debug)]
pub enum Effect {
    /// Write to the PTY, as if typed.
    Type(Vec<u8>),
    /// Append to the terminal's output, as if printed.
    Show(Vec<u8>),
    /// Start a shell on a PTY and say so with [`Driver::launched`].
    Respawn(Launch),
    /// Tell the clients.
    Emit(Happened),
}

/// What the clients are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A command has begun.
    Started {
        /// Which.
        command: String,
    },
    /// There is more to [`Driver::read`] of a command.
    Grew {
        /// Which.
        command: String,
    },
    /// A command has ended.
    Done {
        /// Which.
        command: String,
        /// How.
        status: Status,
    },
    /// Nobody holds the command's streams any more.
    Sealed {
        /// Which.
        command: String,
        /// Final length of standard output.
        stdout_bytes: u64,
        /// Final length of standard error.
        stderr_bytes: u64,
    },
    /// The command waits for input from the terminal, or does so no more.
    Waiting {
        /// Which.
        command: String,
        /// Whether it waits.
        waiting: bool,
    },
    /// A command that a person typed has ended.
    Typed {
        /// What was typed, as the shell's history has it.
        text: Vec<u8>,
        /// Its exit code.
        exit_code: Option<i32>,
        /// How long it took.
        duration: Duration,
        /// What it changed.
        changes: Changes,
    },
    /// The state changed outside of any command.
    StateChanged {
        /// What changed.
        changes: Changes,
    },
    /// A script given to [`Driver::apply`] has ended.
    Applied {
        /// What `apply` was called with.
        token: u64,
        /// Its exit code; `None` when it did not run to its end.
        exit_code: Option<i32>,
    },
    /// There is no shell any more, and none will be started.
    Ended {
        /// The exit code of the last shell; `None` when none could be started or a signal ended it.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

/// How many commands may wait for the shell.
pub const QUEUE: usize = 64;

/// How a command ended, in the terms of the wire.
type End = (Outcome, Option<i32>, Option<i32>);

/// The sections of a driver's state, for the wire.
#[must_use]
pub fn sections(state: &State) -> Sections {
    state.sections()
}
