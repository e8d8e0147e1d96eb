//! The decisions of a driver: what to do next with one shell.
//!
//! [`Machine::step`] takes an event and returns actions. It does no I/O and reads no clock, so that
//! random histories can be tested against a model. When it needs to know something about the shell, it
//! returns a probe as an action, which the executor answers at once.
//!
//! ```text
//!           Launched           Ready + dump             prompt shown
//!   Absent ─────────▶ Starting ───────────▶ Idle ─────────────────▶ Running
//!     ▲                                     ▲  ▲   status + dump       │
//!     │ Exited                              │  └───────────────────────┤
//!     │                           Redrawing ┘                          │
//!     └─────────────────────────── Ending ◀── time-out, cancel, no dump┘
//! ```
//! `Over` follows `Absent` when the terminal ends with its shell, or when no shell reaches its prompt.

mod answers;
mod ending;
mod event;
mod handover;
mod idle;
mod inspect;
mod job;
mod keyboard;
mod life;
mod phase;
mod queue;
mod redraw;
mod run;
mod running;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;

use std::time::{Duration, Instant};

pub use event::{
    Action, Answer, Completion, HistoryUse, MachineEvent, ProbeScope, PromptProbe, Replacement,
    RunProbe, SnapshotAge, StateSource, SweepResult, SweepSignal,
};
pub use handover::{HandedRun, Handover};
pub use inspect::{Availability, CommandPosition};
pub use job::Job;
pub use queue::QueuedJob;
pub use run::Run;

use super::screen::Prompt;
use super::status::End;
use idle::PromptState;
use keyboard::{Keyboard, SETTLE_TIME};
use phase::{MachinePhase, START_TIMEOUT, Starting};
use queue::Queue;
use run::RunDue;
use wire::Outcome;

/// How a kind of shell can be driven.
#[derive(Debug, Clone, Copy)]
pub struct ShellCapabilities {
    /// The shell reads its commands with a line editor in which a key can be bound.
    pub edits_lines: bool,
    /// The number of keys that are bound to the drive file.
    pub keys: usize,
    /// A key can redraw the prompt.
    pub redraws: bool,
}

/// How many printed bytes are withheld while the prompt is redrawn.
const MAX_WITHHELD_BYTES: usize = 4 << 10;

/// The state machine of one terminal's shells.
#[derive(Debug)]
pub struct Machine {
    capabilities: ShellCapabilities,
    phase: MachinePhase,
    queue: Queue,
    keyboard: Keyboard,
    prompt: Prompt,
    /// What the shell has printed since the redraw of its prompt began.
    withheld: Vec<u8>,
    /// The number of the last run.
    number: u64,
    /// The key that is typed for a command.
    key: usize,
    /// How many shells in a row did not reach their prompt.
    failures: u32,
    /// The deadline of the first prompt of a shell that has read its rc file; `None` once it was drawn.
    prompt_due: Option<Instant>,
    /// The shell to start after the one that the driver has killed.
    replacement: Option<Replacement>,
    /// The terminal ends when its shell exits.
    ends_with_shell: bool,
}

type Actions = Vec<Action>;

impl Machine {
    pub fn new(capabilities: ShellCapabilities) -> Self {
        Self {
            capabilities,
            phase: MachinePhase::Absent,
            queue: Queue::default(),
            keyboard: Keyboard::default(),
            prompt: Prompt::default(),
            withheld: Vec::new(),
            number: 0,
            key: 0,
            failures: 0,
            prompt_due: None,
            replacement: None,
            ends_with_shell: false,
        }
    }

    /// Makes the terminal end when its shell exits, unless the driver ended the shell.
    pub fn end_with_shell(&mut self) {
        self.ends_with_shell = true;
    }

    /// Removes what would erase a command that was shown as if it had been typed.
    pub fn keep_shown(&mut self, printed: &mut Vec<u8>) {
        self.prompt.keep_shown(printed);
    }

    /// Withholds printed bytes until it is known whether the prompt has changed. Much output is not only a prompt.
    pub fn withhold(&mut self, printed: &mut Vec<u8>) {
        if !matches!(self.phase, MachinePhase::Redrawing(_)) {
            return;
        }
        self.withheld.append(printed);
        if self.withheld.len() > MAX_WITHHELD_BYTES {
            std::mem::swap(&mut self.withheld, printed);
        }
    }

    /// Notes that the shell was started.
    pub fn launched(&mut self, now: Instant) {
        self.phase = MachinePhase::Starting(Starting { since: now, ready: false, dumped: false });
    }

    /// Applies an event. Returns the actions to carry out.
    pub fn step(&mut self, now: Instant, event: MachineEvent<'_>) -> Actions {
        let mut actions = Vec::new();
        self.apply(now, event, &mut actions);
        if !self.withheld.is_empty() && !matches!(self.phase, MachinePhase::Redrawing(_)) {
            // The shell has ended, or was killed.
            actions.insert(0, Action::Show(std::mem::take(&mut self.withheld)));
        }
        actions
    }

    fn apply(&mut self, now: Instant, event: MachineEvent<'_>, actions: &mut Actions) {
        match event {
            MachineEvent::Ready => {
                if let MachinePhase::Starting(starting) = &mut self.phase {
                    starting.ready = true;
                    actions.push(Action::ReadDump);
                }
            }
            MachineEvent::Record { number, status } => self.record(number, status, now, actions),
            MachineEvent::Stashed => {
                if let MachinePhase::Redrawing(redrawing) = &mut self.phase {
                    redrawing.stashed(now);
                }
            }
            MachineEvent::Begun => match &mut self.phase {
                MachinePhase::Running(run) => run.begin(),
                MachinePhase::Ending(ending) => ending.run.begin(),
                MachinePhase::Absent
                | MachinePhase::Starting(_)
                | MachinePhase::Idle(_)
                | MachinePhase::Redrawing(_)
                | MachinePhase::Over => {}
            },
            MachineEvent::DumpRead { complete } => {
                if complete {
                    self.note_dump();
                }
                self.dump_read(now, actions);
            }
            MachineEvent::Exited { code, signal } => self.exited(code, signal, now, actions),
            MachineEvent::LaunchFailed => self.end(None, None, actions),
            MachineEvent::Typed(bytes) => self.typed(bytes, now),
            MachineEvent::Printed(bytes) => self.printed(bytes, now, actions),
            MachineEvent::Tick => self.tick(now, actions),
            MachineEvent::Exec(spec) => {
                let until = spec.timeout.map(|timeout| now + timeout);
                self.enqueue(QueuedJob::Command { spec, until, attempts: 0 }, now, actions);
            }
            MachineEvent::Apply { token, script } => {
                self.enqueue(QueuedJob::Script { token, script }, now, actions);
            }
            MachineEvent::Cancel(command) => self.cancel(command, now, actions),
            MachineEvent::Withdraw(command) => self.unqueue(command, Outcome::NotStarted, actions),
            MachineEvent::Signal(signal) => self.signal(signal, now, actions),
            MachineEvent::Replace(state) => {
                self.replacement = Some(Replacement::With(state));
                match &self.phase {
                    MachinePhase::Running(_) => {
                        self.end_run(End::of(Outcome::Cancelled), now, actions);
                    }
                    MachinePhase::Starting(_)
                    | MachinePhase::Idle(_)
                    | MachinePhase::Redrawing(_) => {
                        actions.push(Action::KillShell);
                    }
                    MachinePhase::Absent | MachinePhase::Ending(_) | MachinePhase::Over => {}
                }
            }
            MachineEvent::Answer(answer) => self.answer(answer, now, actions),
        }
    }

    fn typed(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        self.keyboard.note(bytes, now);
        if self.keyboard.entered.is_some() {
            self.note_prompt(now);
        }
        match &mut self.phase {
            MachinePhase::Idle(idle) => {
                idle.prompt = PromptState::Unknown;
                idle.poll.by(now + SETTLE_TIME);
            }
            MachinePhase::Running(run) => run.typed_during = true,
            MachinePhase::Absent
            | MachinePhase::Starting(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    fn printed(&mut self, bytes: &[u8], now: Instant, actions: &mut Actions) {
        self.keyboard.echoed = true;
        if let MachinePhase::Idle(idle) = &mut self.phase {
            idle.poll.read();
        }
        match &mut self.phase {
            MachinePhase::Running(run) => {
                run.check = run.check.min(now + Duration::from_millis(2));
                // Output that the command wrote earlier comes first.
                actions.push(Action::Drain);
            }
            MachinePhase::Idle(idle)
                if idle.prompt != PromptState::Unknown || self.keyboard.typed.is_none() =>
            {
                self.prompt.see(bytes);
            }
            MachinePhase::Idle(idle) if self.keyboard.entered.is_some() => {
                let settled = self.keyboard.typed.map_or(now, |typed| typed + SETTLE_TIME).max(now);
                idle.poll.by(settled + Duration::from_millis(2));
            }
            MachinePhase::Redrawing(redrawing) => redrawing.note(bytes, now),
            MachinePhase::Idle(_)
            | MachinePhase::Absent
            | MachinePhase::Starting(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    fn tick(&mut self, now: Instant, actions: &mut Actions) {
        if self.prompt_due.is_some_and(|due| due <= now) {
            self.note_prompt(now);
        }
        if !self.awaits_prompt() {
            self.expire_queued(now, actions);
        }
        match &mut self.phase {
            MachinePhase::Starting(starting) => {
                if now >= starting.since + START_TIMEOUT {
                    // The rc file hangs, or it executed another program.
                    actions.push(Action::KillShell);
                    starting.since = now;
                }
            }
            MachinePhase::Idle(idle) => {
                if idle.poll.at.is_some_and(|due| due <= now) {
                    idle.poll.at = None;
                    self.advance(now, actions);
                }
                self.redraw_if_due(now, actions);
            }
            MachinePhase::Redrawing(redrawing) => {
                if now >= redrawing.next() {
                    actions.push(Action::ProbePrompt(ProbeScope::ReadOnly));
                }
            }
            MachinePhase::Running(run) => match run.due(now) {
                RunDue::Nothing => {}
                RunDue::TimeOut => self.end_run(End::of(Outcome::TimedOut), now, actions),
                RunDue::GiveUpDump { status } => {
                    self.end_run(End::finished(status), now, actions);
                }
                RunDue::ProbeDump => actions.push(Action::ProbeDump),
                RunDue::Retype => actions.push(Action::ProbePrompt(ProbeScope::ReadOnly)),
                RunDue::Signal(signal) => self.signal(signal, now, actions),
                RunDue::ProbeRun => actions.push(Action::ProbeRun),
            },
            MachinePhase::Ending(ending) => {
                actions.extend(ending.due(now).action());
            }
            MachinePhase::Absent | MachinePhase::Over => {}
        }
    }

    /// Returns when the next [`MachineEvent::Tick`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            MachinePhase::Starting(starting) => return Some(starting.since + START_TIMEOUT),
            MachinePhase::Running(run) => Some(run.next()),
            MachinePhase::Ending(ending) => Some(ending.next),
            MachinePhase::Redrawing(redrawing) => Some(redrawing.next()),
            MachinePhase::Idle(idle) => idle.redraw.at.into_iter().chain(idle.poll.at).min(),
            MachinePhase::Absent | MachinePhase::Over => None,
        };
        let expiry = if self.awaits_prompt() { self.prompt_due } else { self.queue.next_expiry() };
        own.into_iter().chain(expiry).min()
    }

    /// Returns whether queued commands wait for nothing but the shell itself.
    fn awaits_prompt(&self) -> bool {
        self.prompt_due.is_some()
            || matches!(self.phase, MachinePhase::Absent | MachinePhase::Starting(_))
    }

    /// Notes that queued commands wait for the shell itself, so that their timeouts do not run.
    fn await_prompt(&mut self, now: Instant) {
        if !self.queue.is_empty() {
            self.prompt_due.get_or_insert(now + START_TIMEOUT);
        }
    }

    /// Notes that the shell is at its prompt, or that a person uses it. The timeouts of queued commands begin here.
    fn note_prompt(&mut self, now: Instant) {
        if self.prompt_due.take().is_some() {
            self.queue.restart_timeouts(now);
        }
    }

    fn enqueue(&mut self, queued: QueuedJob, now: Instant, actions: &mut Actions) {
        if matches!(self.phase, MachinePhase::Over) {
            actions.push(queued.never_starts(Outcome::NotStarted));
            return;
        }
        let is_next = self.queue.is_empty() && self.keyboard.entered.is_none();
        self.queue.push(queued);
        if is_next && matches!(self.phase, MachinePhase::Idle(_) | MachinePhase::Redrawing(_)) {
            self.await_prompt(now);
        }
        self.advance(now, actions);
    }

    /// Drops the commands whose timeout has passed. The time that the shell itself needs does not count.
    fn expire_queued(&mut self, now: Instant, actions: &mut Actions) {
        for queued in self.queue.take_expired(now) {
            actions.push(queued.never_starts(Outcome::NotStarted));
        }
    }

    fn unqueue(&mut self, command: &str, outcome: Outcome, actions: &mut Actions) {
        if let Some(queued) = self.queue.remove(command) {
            actions.push(queued.never_starts(outcome));
        }
    }

    fn cancel(&mut self, command: &str, now: Instant, actions: &mut Actions) {
        match self.position_of(command) {
            CommandPosition::Queued => self.unqueue(command, Outcome::Cancelled, actions),
            CommandPosition::Running => self.end_run(End::of(Outcome::Cancelled), now, actions),
            CommandPosition::Absent => {}
        }
    }
}
