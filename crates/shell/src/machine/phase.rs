//! The phases of a shell, each with the data that only it has.

use std::time::{Duration, Instant};

use super::ending::Ending;
use super::idle::{Idle, Redrawing};
use super::run::Run;

/// A shell that is not at its prompt after this time is killed.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The phase of a terminal's shell.
#[derive(Debug)]
pub enum MachinePhase {
    /// There is no shell; one is about to be launched.
    Absent,
    /// The shell reads its rc file.
    Starting(Starting),
    /// No drive file runs in the shell.
    Idle(Idle),
    /// A drive file runs.
    Running(Box<Run>),
    /// The shell draws its prompt again.
    Redrawing(Redrawing),
    /// The shell and the processes of a run are being ended.
    Ending(Box<Ending>),
    /// No further shell will be started.
    Over,
}

/// A shell that reads its rc file.
#[derive(Debug)]
pub struct Starting {
    pub since: Instant,
    /// The rc file has been read.
    pub ready: bool,
    /// The first dump has been read.
    pub dumped: bool,
}
