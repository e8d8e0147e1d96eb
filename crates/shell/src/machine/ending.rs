//! A run that is being ended together with its shell.

use std::time::{Duration, Instant};

use super::event::{Action, SweepResult, SweepSignal};
use super::run::Run;
use crate::status::End;

/// How often the processes of an ended run are swept.
const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
/// After this many sweeps the shell is killed even if processes are left: one of them forks faster
/// than we sweep.
const MAX_SWEEPS: u32 = 2000;
/// How often SIGKILL is repeated until the shell has exited.
const KILL_INTERVAL: Duration = Duration::from_millis(100);

/// A run that is being ended together with its shell. All its processes are stopped first, so that none
/// forks during the search for others; then all are killed, and the shell last.
#[derive(Debug)]
pub struct Ending {
    pub run: Run,
    pub end: End,
    pub ended: Instant,
    signal: SweepSignal,
    sweeps: u32,
    pub next: Instant,
}

/// The action that is due while a run is ended.
#[derive(Debug, PartialEq, Eq)]
pub enum EndingDue {
    Nothing,
    Sweep(SweepSignal),
    KillShell,
    KillSwept,
}

impl EndingDue {
    /// Returns the action to carry out.
    pub fn action(self) -> Option<Action> {
        match self {
            Self::Nothing => None,
            Self::Sweep(signal) => Some(Action::Sweep(signal)),
            Self::KillShell => Some(Action::KillShell),
            Self::KillSwept => Some(Action::KillSwept),
        }
    }
}

impl Ending {
    pub fn new(run: Run, end: End, now: Instant) -> Self {
        let ended = run.ended().unwrap_or(now);
        Self { run, end, ended, signal: SweepSignal::Stop, sweeps: 0, next: now }
    }

    /// An ending that spares the processes of the run: the command has its exit code, and only the
    /// shell is replaced.
    pub fn of_shell_alone(run: Run, end: End, now: Instant) -> Self {
        Self { signal: SweepSignal::Kill, sweeps: MAX_SWEEPS, ..Self::new(run, end, now) }
    }

    /// Returns what is due, and schedules the next step.
    pub fn due(&mut self, now: Instant) -> EndingDue {
        if now < self.next {
            return EndingDue::Nothing;
        }
        self.next = now + SWEEP_INTERVAL;
        self.sweeps += 1;
        if self.sweeps > MAX_SWEEPS {
            self.next = now + KILL_INTERVAL;
            return EndingDue::KillShell;
        }
        EndingDue::Sweep(self.signal)
    }

    /// Returns what follows from the result of a sweep.
    pub fn swept(&mut self, result: SweepResult) -> EndingDue {
        match result {
            SweepResult::None => {
                self.sweeps = MAX_SWEEPS;
                EndingDue::KillShell
            }
            SweepResult::Known if self.signal == SweepSignal::Stop => {
                self.signal = SweepSignal::Kill;
                EndingDue::KillSwept
            }
            SweepResult::Known | SweepResult::New => EndingDue::Nothing,
        }
    }
}
