//! The states of a shell, each with what only it has.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::event::{Action, Completion, StateSource, Swept};
use super::job::Job;
use crate::status::End;

/// After a key press the line discipline may still hold bytes that the shell has not read.
pub const SETTLE: Duration = Duration::from_millis(20);
/// A shell that is not at its prompt after this time is killed.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a command runs before its terminal is prepared for a person's input.
pub const SLOW: Duration = Duration::from_millis(30);

/// A typed key starts the drive file within this time, or it was lost.
const KEY_TIMEOUT: Duration = Duration::from_millis(300);
/// How soon a signal is retried that arrived before its command had begun.
const SIGNAL_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// A state that is not dumped within this time never will be.
const DUMP_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a command waits for the host to read what the shell printed before it.
const UNREAD_TIMEOUT: Duration = Duration::from_millis(20);

/// Commands that follow one another within this time need no prompt between them.
const REDRAW_DELAY: Duration = Duration::from_millis(25);
/// A person who typed within this time is not interrupted by a redraw.
const TYPING_PAUSE: Duration = Duration::from_millis(300);
/// A prompt is taken as drawn when the shell has printed nothing for this long.
const DRAWN_PAUSE: Duration = Duration::from_millis(3);
/// A prompt that is not drawn after this time is not waited for.
const REDRAW_TIMEOUT: Duration = Duration::from_secs(1);
/// How much of a drawn prompt is remembered.
const MAX_DRAWN_BYTES: usize = 8 << 10;

/// How often the processes of an ended run are swept.
const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
/// After this many sweeps the shell is killed although processes are left: something forks faster
/// than we sweep.
const MAX_SWEEPS: u32 = 2000;
/// How often a shell is killed that does not go.
const KILL_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a shell.
#[derive(Debug)]
pub enum MachinePhase {
    /// There is no shell; one is about to be launched.
    Absent,
    /// The shell reads its rc file.
    Starting(Starting),
    /// Nothing of ours runs in the shell.
    Idle(Idle),
    /// A drive file runs.
    Running(Box<Run>),
    /// The shell draws its prompt again.
    Redrawing(Redrawing),
    /// The shell and the processes of a run are being ended.
    Ending(Box<Ending>),
    /// There will be no shell any more.
    Over,
}

/// A shell that reads its rc file.
#[derive(Debug)]
pub struct Starting {
    pub since: Instant,
    /// The rc file is read.
    pub ready: bool,
    /// The first dump is there.
    pub dumped: bool,
}

/// A shell in which nothing of ours runs.
#[derive(Debug)]
pub struct Idle {
    pub prompt: PromptState,
    pub poll: Poll,
    pub redraw: Redraw,
}

/// What is known about an idle shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptState {
    /// It may be in a person's program.
    Unknown,
    /// It is at its prompt, and no key was pressed since that was seen.
    Shown,
    /// In addition, its state is the one that was read last.
    Unchanged,
}

/// When to look at the prompt again.
#[derive(Debug)]
pub struct Poll {
    pub at: Option<Instant>,
    step: Duration,
    /// Since when the prompt is there together with bytes that the host has not read.
    unread: Option<Instant>,
}

impl Default for Poll {
    fn default() -> Self {
        Self { at: None, step: Duration::from_micros(500), unread: None }
    }
}

impl Poll {
    /// A poll for a shell that has just started.
    pub fn starting(now: Instant) -> Self {
        let step = Duration::from_micros(100);
        Self { at: Some(now + step), step, unread: None }
    }

    /// A poll that is due at `at`.
    pub fn soon(at: Instant) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// Polls at `due` at the latest, and frequently from then on.
    pub fn by(&mut self, due: Instant) {
        self.step = Duration::from_micros(500);
        self.at = Some(self.at.map_or(due, |at| at.min(due)));
    }

    /// Polls later, with a growing interval.
    pub fn back_off(&mut self, now: Instant, longest: Duration) {
        self.step = (self.step * 2).clamp(Duration::from_micros(100), longest);
        self.at = Some(now + self.step);
    }

    /// Returns whether unread output should still be waited for, and polls at once if so. A job that
    /// prints for ever is not waited for.
    pub fn await_reader(&mut self, unread: bool, now: Instant) -> bool {
        if unread && now < *self.unread.get_or_insert(now) + UNREAD_TIMEOUT {
            self.at = Some(now);
            return true;
        }
        self.unread = None;
        false
    }
}

/// Whether the prompt should be drawn again.
#[derive(Debug, Default, Clone, Copy)]
pub struct Redraw {
    pub at: Option<Instant>,
    /// Something changed that a prompt may show.
    pub stale: bool,
}

impl Redraw {
    /// Notes that a command has ended, and whether it changed what a prompt may show.
    pub fn note(&mut self, changed: bool, now: Instant) {
        self.stale |= changed;
        self.at = Some(now + REDRAW_DELAY);
    }

    /// Returns whether it is time to redraw. Postpones the redraw while a person types.
    pub fn is_due(&mut self, typed: Option<Instant>, now: Instant) -> bool {
        if self.at.is_none_or(|due| due > now) {
            return false;
        }
        if let Some(later) = typed.map(|typed| typed + TYPING_PAUSE)
            && later > now
        {
            self.at = Some(later);
            return false;
        }
        true
    }
}

/// A prompt that is being drawn again.
#[derive(Debug)]
pub struct Redrawing {
    since: Instant,
    /// The half-typed line has been put away.
    pub stashed: bool,
    pub drawn: Vec<u8>,
    last: Instant,
}

impl Redrawing {
    pub fn new(now: Instant) -> Self {
        Self { since: now, stashed: false, drawn: Vec::new(), last: now }
    }

    pub fn next(&self) -> Instant {
        self.last + DRAWN_PAUSE
    }

    pub fn stashed(&mut self, now: Instant) {
        self.stashed = true;
        self.last = now;
    }

    pub fn note(&mut self, bytes: &[u8], now: Instant) {
        self.last = now;
        if self.drawn.len() + bytes.len() <= MAX_DRAWN_BYTES {
            self.drawn.extend_from_slice(bytes);
        }
    }

    /// Returns whether to wait on: the prompt is not `drawn`, and there is time left.
    pub fn waits(&mut self, drawn: bool, now: Instant) -> bool {
        let waits = !drawn && now < self.since + REDRAW_TIMEOUT;
        if waits {
            self.last = now;
        }
        waits
    }

    /// Returns whether nothing was typed while the prompt was drawn.
    pub fn untouched(typed: Option<Instant>, now: Instant) -> bool {
        typed.is_none_or(|typed| typed + DRAWN_PAUSE < now)
    }
}

/// One run of a drive file.
#[derive(Debug)]
pub struct Run {
    /// The number that names the run's records.
    pub number: u64,
    pub job: Job,
    pub started: Instant,
    pub stage: Stage,
    /// When the command times out.
    pub deadline: Option<Instant>,
    /// When to look at the run again.
    pub check: Instant,
    /// The interval between the last two looks.
    step: Duration,
    /// The command leaves the shell's state alone, and the drive file does not dump it.
    pub harmless: bool,
    /// The shell's state after the command was dumped.
    pub dumped: bool,
    /// A person typed during the run.
    pub touched: bool,
    /// What was to be redrawn before the run.
    pub redraw: Redraw,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A key was typed that runs the drive file.
    Typed { at: Instant, retries: usize, signal: Option<Signal> },
    /// The drive file runs. `signal` is sent as soon as the shell is within the command.
    Begun { signal: Option<Signal> },
    /// The command has ended; its state is awaited.
    Ended { at: Instant, status: i32 },
}

/// What is due in a run.
#[derive(Debug, PartialEq, Eq)]
pub enum RunDue {
    Nothing,
    /// The command has timed out.
    TimeOut,
    /// The state was never dumped.
    GiveUpDump {
        status: i32,
    },
    /// Look for the dump.
    ProbeDump,
    /// The key was lost.
    Retype,
    /// Send the signal that waited for the command to begin.
    Signal(Signal),
    /// Look at the command.
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
            check: started + SLOW,
            step: SLOW,
            harmless: false,
            dumped: false,
            touched: false,
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

    /// Returns whether the command has opened its streams: it began, and that was a while ago.
    pub fn has_opened_streams(&self, now: Instant) -> bool {
        self.has_begun() && now >= self.started + SLOW
    }

    /// Notes that the drive file has begun.
    pub fn begin(&mut self) {
        if let Stage::Typed { signal, .. } = self.stage {
            self.stage = Stage::Begun { signal };
        }
    }

    /// Notes a record: the drive file has begun, and with a status the command has ended.
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

    /// Keeps a signal until the shell is within the command.
    pub fn defer(&mut self, deferred: Signal, now: Instant) {
        match &mut self.stage {
            Stage::Typed { signal, .. } | Stage::Begun { signal } => {
                *signal = Some(deferred);
                self.check = now + SIGNAL_RETRY_INTERVAL;
            }
            Stage::Ended { .. } => {}
        }
    }

    /// Returns what is due, and schedules the next look.
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
                self.check = now + if signal.is_some() { SIGNAL_RETRY_INTERVAL } else { SLOW };
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

    /// Returns the action that settles the run.
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

/// A run that is being ended together with its shell: all its processes are stopped first, so that
/// none forks while others are looked for, then all are killed, and the shell last.
#[derive(Debug)]
pub struct Ending {
    pub run: Run,
    pub end: End,
    pub ended: Instant,
    killing: bool,
    sweeps: u32,
    pub next: Instant,
}

/// What is due while a run is ended.
#[derive(Debug, PartialEq, Eq)]
pub enum EndingDue {
    Nothing,
    Sweep { kill: bool },
    KillShell,
    KillSwept,
}

impl Ending {
    pub fn new(run: Run, end: End, now: Instant) -> Self {
        let ended = run.ended().unwrap_or(now);
        Self { run, end, ended, killing: false, sweeps: 0, next: now }
    }

    /// An ending that spares the processes of the run: the command has its exit code, and only the
    /// shell is lost.
    pub fn of_shell_alone(run: Run, end: End, now: Instant) -> Self {
        Self { killing: true, sweeps: MAX_SWEEPS, ..Self::new(run, end, now) }
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
        EndingDue::Sweep { kill: self.killing }
    }

    /// Returns what follows from the result of a sweep.
    pub fn swept(&mut self, swept: Swept) -> EndingDue {
        match swept {
            Swept::None => {
                self.sweeps = MAX_SWEEPS;
                EndingDue::KillShell
            }
            Swept::Known if !self.killing => {
                self.killing = true;
                EndingDue::KillSwept
            }
            Swept::Known | Swept::New => EndingDue::Nothing,
        }
    }
}
