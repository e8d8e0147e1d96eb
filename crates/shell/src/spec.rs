//! The settings of a driver, and the specification of a command.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;

use super::kind::Kind;
use super::output::Keep;
use wire::{IfBusy, StdinMode};

/// How many commands may wait for the shell.
pub const MAX_QUEUED_COMMANDS: usize = 64;

/// The settings of a driver.
#[derive(Debug, Clone)]
pub struct Setup {
    pub terminal: String,
    /// The kind of shell.
    pub kind: Kind,
    /// The shell's program and its first arguments, such as `busybox sh`.
    pub program: Vec<Vec<u8>>,
    /// The environment of the first shell.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory of the first shell.
    pub cwd: PathBuf,
    /// The terminal's directory. The driver owns `run` and `commands` in it.
    pub dir: PathBuf,
    /// The terminal's cgroup, if it has one.
    pub cgroup: Option<PathBuf>,
}

/// A command to run.
#[derive(Debug, Clone)]
pub struct Spec {
    pub command: String,
    pub text: Vec<u8>,
    /// The time after which the command is ended.
    pub timeout: Option<Duration>,
    /// The source of standard input.
    pub stdin: StdinMode,
    /// The first bytes of standard input.
    pub stdin_data: Vec<u8>,
    /// Variables set for this command alone.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory of this command alone.
    pub cwd: Option<Vec<u8>>,
    /// What to do when the shell is busy.
    pub if_busy: IfBusy,
    /// How much of each stream is kept.
    pub keep: Keep,
}

/// The time of an event, and the terminal it happens in.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    pub now: Instant,
    /// The master side of the shell's PTY.
    pub master: BorrowedFd<'a>,
}
