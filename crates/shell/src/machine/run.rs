//! One run of a drive file: how far it is, and what is due next.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::event::{Action, Completion, StateSource};
use super::idle::Redraw;
use super::job::Job;
use crate::status::End;

/// How long a command runs before its terminal is prepared for a person's input.
const SLOW_COMMAND: Duration = Duration::from_millis(30);

/// A typed key starts the drive file within this time, or it was lost.
const KEY_TIMEOUT: Duration = Duration::from_millis(300);
/// How soon a signal is retried that arrived before its command had begun.
const SIGNAL_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// How long the shell may take to dump its state after a command.
const DUMP_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One run of a drive file.
#[derive(Debug)]
pub struct Run {
    /// The number in the names of the run's records.
    pub number: u64,
    pub job: Job,
    pub started: Instant,
    pub stage: Stage,
    /// When the command times out.
    pub deadline: Option<Instant>,
    /// When to check the run again.
    pub check: Instant,
    /// The interval between the last two checks.
    step: Duration,
    /// The command does not change the shell's state, and the drive file does not dump it.
    pub harmless: bool,
    /// The shell's state after the command was dumped.
    pub dumped: bool,
    /// A person typed during the run.
    pub typed_during: bool,
    /// The redraw that was scheduled before the run.
    pub redraw: Redraw,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A key was typed that runs the drive file.
    Typed { at: Instant, retries: usize, signal: Option<Signal> },
    /// The drive file runs. `signal` is sent as soon as the shell runs the command.
    Begun { signal: Option<Signal> },
    /// The command has ended, and the dump of the state is awaited.
    Ended { at: Instant, status: i32 },
}

/// The action that is due in a run.
#[derive(Debug, PartialEq, Eq)]
pub enum RunDue {
    Nothing,
    /// The command has timed out.
    TimeOut,
    /// The shell did not dump its state in time.
    GiveUpDump {
        status: i32,
    },
    /// Probe for the dump.
    ProbeDump,
    /// The key was lost.
    Retype,
    /// Send the signal that was deferred until the command had begun.
    Signal(Signal),
    /// Probe the shell that runs the command.
    ProbeRun,
}

impl Run {
    pub fn new(number: u64, job: Job, started: Instant, redraw: Redraw) -> Self {
        let deadline = match &job {
            Job::Command { spec, .. } => spec.timeout.map(|timeout| started + timeout),
            Job::Capture | Job::Reread { .. } | Job::Script { .. } => None,
        };
        Self {
            number,
            job,
            started,
            stage: Stage::Typed { at: started, retries: 0, signal: None },
            deadline,
            check: started + SLOW_COMMAND,
            step: SLOW_COMMAND,
            harmless: false,
            dumped: false,
            typed_during: false,
            redraw,
        }
    }

    /// Returns whether the drive file is known to have begun.
    pub fn has_begun(&self) -> bool {
        match self.stage {
            Stage::Typed { .. } => false,
            Stage::Begun { .. } | Stage::Ended { .. } => true,
        }
    }

    /// Returns the exit code that the shell recorded.
    pub fn status(&self) -> Option<i32> {
        match self.stage {
            Stage::Ended { status, .. } => Some(status),
            Stage::Typed { .. } | Stage::Begun { .. } => None,
        }
    }

    /// Returns when the command ended, if it has.
    pub fn ended(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ended { at, .. } => Some(at),
            Stage::Typed { .. } | Stage::Begun { .. } => None,
        }
    }

    /// Returns whether the command has certainly opened its streams: it began [`SLOW_COMMAND`] ago.
    pub fn has_opened_streams(&self, now: Instant) -> bool {
        self.has_begun() && now >= self.started + SLOW_COMMAND
    }

    /// Notes that the drive file has begun.
    pub fn begin(&mut self) {
        if let Stage::Typed { signal, .. } = self.stage {
            self.stage = Stage::Begun { signal };
        }
    }

    /// Notes a record of the shell: the drive file has begun, and if there is a status, the command has
    /// ended.
    pub fn record(&mut self, status: Option<i32>, now: Instant) {
        self.begin();
        if let Stage::Begun { signal: Some(_) } = self.stage {
            self.check = now;
        }
        if let Some(status) = status {
            self.stage = Stage::Ended { at: now, status };
            self.step = Duration::from_millis(5);
            self.check = now + self.step;
        }
    }

    /// Defers a signal until the shell runs the command.
    pub fn defer(&mut self, deferred: Signal, now: Instant) {
        match &mut self.stage {
            Stage::Typed { signal, .. } | Stage::Begun { signal } => {
                *signal = Some(deferred);
                self.check = now + SIGNAL_RETRY_INTERVAL;
            }
            Stage::Ended { .. } => {}
        }
    }

    /// Returns what is due, and schedules the next check.
    pub fn due(&mut self, now: Instant) -> RunDue {
        if self.status().is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            return RunDue::TimeOut;
        }
        match &mut self.stage {
            Stage::Ended { at, status } if now >= *at + DUMP_TIMEOUT => {
                RunDue::GiveUpDump { status: *status }
            }
            Stage::Typed { at, .. } if now >= *at + KEY_TIMEOUT => {
                *at = now;
                RunDue::Retype
            }
            Stage::Ended { .. } | Stage::Typed { .. } | Stage::Begun { .. } if now < self.check => {
                RunDue::Nothing
            }
            Stage::Typed { signal, .. } => {
                self.check =
                    now + if signal.is_some() { SIGNAL_RETRY_INTERVAL } else { SLOW_COMMAND };
                RunDue::Nothing
            }
            Stage::Begun { signal } => {
                if let Some(signal) = signal.take() {
                    return RunDue::Signal(signal);
                }
                self.back_off(now);
                RunDue::ProbeRun
            }
            Stage::Ended { .. } => {
                self.back_off(now);
                RunDue::ProbeDump
            }
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.step = (self.step * 2).min(MAX_CHECK_INTERVAL);
        self.check = now + self.step;
    }

    /// Returns the action that completes the run.
    pub fn complete(
        self,
        end: End,
        status: Option<i32>,
        ended: Instant,
        source: StateSource,
    ) -> Action {
        let Self { job, started, .. } = self;
        Action::Complete(Box::new(Completion { job, end, status, started, ended, source }))
    }

    /// Returns when [`due`](Self::due) should be called.
    pub fn next(&self) -> Instant {
        let own = match self.stage {
            Stage::Ended { at, .. } => return (at + DUMP_TIMEOUT).min(self.check),
            Stage::Typed { at, .. } => (at + KEY_TIMEOUT).min(self.check),
            Stage::Begun { .. } => self.check,
        };
        self.deadline.map_or(own, |deadline| own.min(deadline))
    }
}
