//! The decisions of a driver: what to do next with one shell.
//!
//! [`Machine::step`] takes an event and returns actions. It does no I/O and reads no clock, so that
//! random histories can be tested against a model. What it has to know about the shell it asks for
//! with an action, and the executor answers at once.
//!
//! ```text
//!           Launched           Ready + dump             prompt shown
//!   Absent ─────────▶ Starting ───────────▶ Idle ─────────────────▶ Running
//!     ▲                                     ▲  ▲   status + dump       │
//!     │ Exited                              │  └───────────────────────┤
//!     │                           Redrawing ┘                          │
//!     └─────────────────────────── Ending ◀── time-out, cancel, no dump┘
//! ```
//! `Over` follows `Absent` when the terminal ends with its shell, or no shell comes to its prompt.

mod event;
mod handover;
mod inspect;
mod job;
mod keyboard;
mod life;
mod phase;
mod queue;
mod redraw;
mod running;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub use event::{
    Action, Answer, Completion, Look, MachineEvent, PromptProbe, Replacement, RunProbe,
    StateSource, Swept,
};
pub use handover::{HandedRun, Handover};
pub use inspect::{Availability, Whereabouts};
pub use job::Job;
pub use phase::Run;
pub use queue::Waiting;

use super::screen::Prompt;
use super::status::End;
use keyboard::Keyboard;
use phase::{
    EndingDue, MachinePhase, PromptState, Redrawing, RunDue, SETTLE, START_TIMEOUT, Starting,
};
use queue::Queue;
use wire::Outcome;

/// How a kind of shell is driven.
#[derive(Debug, Clone, Copy)]
pub struct ShellCapabilities {
    /// It reads its commands with a line editor, which a key of ours can interrupt.
    pub edits_lines: bool,
    /// How many keys there are to try.
    pub keys: usize,
    /// Its prompt can be redrawn by a key.
    pub redraws: bool,
}

/// The state machine of one terminal's shells.
#[derive(Debug)]
pub struct Machine {
    capabilities: ShellCapabilities,
    phase: MachinePhase,
    queue: Queue,
    keyboard: Keyboard,
    prompt: Prompt,
    /// The number of the last run.
    number: u64,
    /// The key that is typed for a command.
    key: usize,
    /// How many shells in a row did not come to their prompt.
    failures: u32,
    /// The shell has read its rc file and draws its first prompt, which takes until then at most.
    first_prompt: Option<Instant>,
    /// The driver has killed the shell, and wants this one instead.
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
            number: 0,
            key: 0,
            failures: 0,
            first_prompt: None,
            replacement: None,
            ends_with_shell: false,
        }
    }

    /// Makes the terminal end when its shell exits by itself.
    pub fn end_with_shell(&mut self) {
        self.ends_with_shell = true;
    }

    /// Takes note that the shell was started.
    pub fn launched(&mut self, now: Instant) {
        self.phase = MachinePhase::Starting(Starting { since: now, ready: false, dumped: false });
    }

    /// Returns what to do about an event.
    pub fn step(&mut self, now: Instant, event: MachineEvent<'_>) -> Actions {
        let mut actions = Vec::new();
        self.apply(now, event, &mut actions);
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
            MachineEvent::DumpRead { complete } => self.dump_read(complete, now, actions),
            MachineEvent::Exited { code, signal } => self.exited(code, signal, now, actions),
            MachineEvent::LaunchFailed => self.end(None, None, actions),
            MachineEvent::Typed(bytes) => self.typed(bytes, now),
            MachineEvent::Printed(bytes) => self.printed(bytes, now, actions),
            MachineEvent::Tick => self.tick(now, actions),
            MachineEvent::Exec(spec) => {
                let until = spec.timeout.map(|timeout| now + timeout);
                self.enqueue(Waiting::Command { spec, until, attempts: 0 }, now, actions);
            }
            MachineEvent::Apply { token, script } => {
                self.enqueue(Waiting::Script { token, script }, now, actions);
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

    fn answer(&mut self, answer: Answer, now: Instant, actions: &mut Actions) {
        match (answer, &mut self.phase) {
            (Answer::Prompt(probe), MachinePhase::Idle(_)) => self.idle_probed(probe, now, actions),
            (Answer::Prompt(probe), MachinePhase::Redrawing(_)) => {
                self.redrawn(probe, now, actions)
            }
            (Answer::Prompt(probe), MachinePhase::Running(_)) => {
                self.key_overdue(probe.shown, now, actions);
            }
            (Answer::Redraw(true), MachinePhase::Idle(_)) => {
                self.phase = MachinePhase::Redrawing(Redrawing::new(now));
                actions.push(Action::TypeRedraw);
            }
            (Answer::Run(probe), MachinePhase::Running(_)) => self.run_probed(probe, now, actions),
            (Answer::Dump { complete, left }, MachinePhase::Running(run)) => {
                run.dumped |= complete;
                match (run.dumped, run.status()) {
                    (false, Some(status)) if left => {
                        self.reread(End::finished(status), now, actions);
                    }
                    (true | false, Some(_) | None) => self.try_finish(now, actions),
                }
            }
            (Answer::KeyWithdrawn { begun, at_prompt }, MachinePhase::Running(run)) => {
                if begun {
                    run.begin();
                }
                if at_prompt {
                    self.retype(actions);
                }
            }
            (Answer::Started { harmless }, MachinePhase::Running(run)) => run.harmless = harmless,
            (Answer::NotStarted, MachinePhase::Running(_)) => self.not_started(now, actions),
            (Answer::NotRetyped, MachinePhase::Running(_)) => {
                self.end_run(End::of(Outcome::NotStarted), now, actions);
            }
            (Answer::Swept(swept), MachinePhase::Ending(ending)) => {
                let due = ending.swept(swept);
                act_on_ending(due, actions);
            }
            (Answer::NotSignalled(signal), MachinePhase::Running(run)) => {
                run.defer(signal, now);
                if run.has_opened_streams(now) {
                    // The shell may be back at its prompt, and never be within the command again.
                    actions.push(Action::ProbeRun);
                }
            }
            (Answer::Completed { prompt_changed }, MachinePhase::Idle(idle)) => {
                idle.redraw.note(prompt_changed, now);
            }
            // The answer to what has been overtaken by the end of the shell.
            (
                Answer::Prompt(_)
                | Answer::Redraw(_)
                | Answer::Run(_)
                | Answer::Dump { .. }
                | Answer::KeyWithdrawn { .. }
                | Answer::Started { .. }
                | Answer::NotStarted
                | Answer::NotRetyped
                | Answer::Swept(_)
                | Answer::NotSignalled(_)
                | Answer::Completed { .. },
                _,
            ) => {}
        }
    }

    fn typed(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        self.keyboard.note(bytes, now);
        if self.keyboard.entered.is_some() {
            self.prompt_is_there(now);
        }
        match &mut self.phase {
            MachinePhase::Idle(idle) => {
                idle.prompt = PromptState::Unknown;
                idle.poll.by(now + SETTLE);
            }
            MachinePhase::Running(run) => run.touched = true,
            MachinePhase::Absent
            | MachinePhase::Starting(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    fn printed(&mut self, bytes: &[u8], now: Instant, actions: &mut Actions) {
        match &mut self.phase {
            MachinePhase::Running(run) => {
                run.check = run.check.min(now + Duration::from_millis(2));
                // What the command wrote before its shell printed this comes before it.
                actions.push(Action::Drain);
            }
            MachinePhase::Idle(idle)
                if idle.prompt != PromptState::Unknown || self.keyboard.typed.is_none() =>
            {
                self.prompt.see(bytes);
            }
            MachinePhase::Idle(idle) if self.keyboard.entered.is_some() => {
                let settled = self.keyboard.typed.map_or(now, |typed| typed + SETTLE).max(now);
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
        if self.first_prompt.is_some_and(|due| due <= now) {
            self.prompt_is_there(now);
        }
        if !self.is_starting() {
            self.expire_queued(now, actions);
        }
        match &mut self.phase {
            MachinePhase::Starting(starting) => {
                if now >= starting.since + START_TIMEOUT {
                    // The rc file hangs, or became another program.
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
                    actions.push(Action::ProbePrompt(Look::Passively));
                }
            }
            MachinePhase::Running(run) => match run.due(now) {
                RunDue::Nothing => {}
                RunDue::TimeOut => self.end_run(End::of(Outcome::TimedOut), now, actions),
                RunDue::GiveUpDump { status } => {
                    self.end_run(End::finished(status), now, actions);
                }
                RunDue::ProbeDump => actions.push(Action::ProbeDump),
                RunDue::Retype => actions.push(Action::ProbePrompt(Look::Passively)),
                RunDue::Signal(signal) => self.signal(signal, now, actions),
                RunDue::ProbeRun => actions.push(Action::ProbeRun),
            },
            MachinePhase::Ending(ending) => {
                let due = ending.due(now);
                act_on_ending(due, actions);
            }
            MachinePhase::Absent | MachinePhase::Over => {}
        }
    }

    /// Returns when [`MachineEvent::Tick`] is wanted.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            MachinePhase::Starting(starting) => return Some(starting.since + START_TIMEOUT),
            MachinePhase::Running(run) => Some(run.next()),
            MachinePhase::Ending(ending) => Some(ending.next),
            MachinePhase::Redrawing(redrawing) => Some(redrawing.next()),
            MachinePhase::Idle(idle) => idle.redraw.at.into_iter().chain(idle.poll.at).min(),
            MachinePhase::Absent | MachinePhase::Over => None,
        };
        let expiry = if self.is_starting() { self.first_prompt } else { self.queue.next_expiry() };
        own.into_iter().chain(expiry).min()
    }

    /// Returns whether there is no shell yet that could run a command.
    fn is_starting(&self) -> bool {
        self.first_prompt.is_some()
            || matches!(self.phase, MachinePhase::Absent | MachinePhase::Starting(_))
    }

    /// The shell can run commands from now on, or a person or a program keeps it from that.
    fn prompt_is_there(&mut self, now: Instant) {
        if self.first_prompt.take().is_some() {
            self.queue.restart_timeouts(now);
        }
    }

    fn enqueue(&mut self, waiting: Waiting, now: Instant, actions: &mut Actions) {
        if matches!(self.phase, MachinePhase::Over) {
            actions.push(waiting.never_starts(Outcome::NotStarted));
            return;
        }
        self.queue.push(waiting);
        self.advance(now, actions);
    }

    /// Drops the commands that waited too long. The time a shell takes to start does not count.
    fn expire_queued(&mut self, now: Instant, actions: &mut Actions) {
        for waiting in self.queue.take_expired(now) {
            actions.push(waiting.never_starts(Outcome::NotStarted));
        }
    }

    fn unqueue(&mut self, command: &str, outcome: Outcome, actions: &mut Actions) {
        if let Some(waiting) = self.queue.remove(command) {
            actions.push(waiting.never_starts(outcome));
        }
    }

    fn cancel(&mut self, command: &str, now: Instant, actions: &mut Actions) {
        match self.whereabouts(command) {
            Whereabouts::Queued => self.unqueue(command, Outcome::Cancelled, actions),
            Whereabouts::Running => self.end_run(End::of(Outcome::Cancelled), now, actions),
            Whereabouts::Neither => {}
        }
    }
}

fn act_on_ending(due: EndingDue, actions: &mut Actions) {
    match due {
        EndingDue::Nothing => {}
        EndingDue::Sweep { kill } => actions.push(Action::Sweep { kill }),
        EndingDue::KillShell => actions.push(Action::KillShell),
        EndingDue::KillSwept => actions.push(Action::KillSwept),
    }
}
