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
mod job;
mod keyboard;
mod phase;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub use event::{
    Action, Answer, Completion, Event, Look, PromptProbe, Replacement, RunProbe, StateSource, Swept,
};
pub use job::{Job, Waiting};
pub use phase::{Run, Stage};

use super::effect::Happened;
use super::screen::{self, Prompt};
use super::spec::Spec;
use super::status::End;
use crate::wire::Outcome;
use keyboard::Keyboard;
use phase::{
    Ending, EndingDue, Idle, Phase, Poll, PromptState, Redraw, Redrawing, RunDue, SETTLE,
    START_TIMEOUT, Starting,
};

/// After this many shells in a row that did not come to their prompt, no other is started.
const MAX_FAILURES: u32 = 3;
/// How often a command is typed whose shell never ran it.
const MAX_ATTEMPTS: u32 = 2;
/// How often the prompt is looked for while nothing waits for it.
const UNHURRIED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the prompt is looked for while a command waits for it.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a kind of shell is driven.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// It reads its commands with a line editor, which a key of ours can interrupt.
    pub edits_lines: bool,
    /// How many keys there are to try.
    pub keys: usize,
    /// Its prompt can be redrawn by a key.
    pub redraws: bool,
}

/// Whether a command would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Free,
    Busy,
    /// Busy if a program has the terminal, or if a line was `entered` and there is no prompt.
    DependsOnTerminal {
        entered: bool,
    },
}

/// Where a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    Queued,
    Running,
    Neither,
}

/// The state machine of one terminal's shells.
#[derive(Debug)]
pub struct Machine {
    capabilities: Capabilities,
    phase: Phase,
    queue: VecDeque<Waiting>,
    keyboard: Keyboard,
    prompt: Prompt,
    /// The number of the last run.
    number: u64,
    /// The key that is typed for a command.
    key: usize,
    /// How many shells in a row did not come to their prompt.
    failures: u32,
    /// The driver has killed the shell, and wants this one instead.
    replacement: Option<Replacement>,
    /// The terminal ends when its shell exits.
    ends_with_shell: bool,
}

/// The part of a machine that is handed over to the next executable.
#[derive(Debug)]
pub struct Handover {
    pub number: u64,
    pub key: usize,
    pub ends_with_shell: bool,
    pub queue: Vec<Spec>,
    pub running: Option<HandedRun>,
}

/// A running command that is handed over.
#[derive(Debug)]
pub struct HandedRun {
    pub number: u64,
    pub spec: Box<Spec>,
    pub started: Instant,
    pub begun: bool,
    pub harmless: bool,
    pub status: Option<i32>,
}

type Actions = Vec<Action>;

impl Machine {
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            phase: Phase::Absent,
            queue: VecDeque::new(),
            keyboard: Keyboard::default(),
            prompt: Prompt::default(),
            number: 0,
            key: 0,
            failures: 0,
            replacement: None,
            ends_with_shell: false,
        }
    }

    /// Continues where the machine of another executable stopped.
    pub fn resume(capabilities: Capabilities, handover: Handover, now: Instant) -> Self {
        let mut machine = Self::new(capabilities);
        machine.number = handover.number;
        machine.key = handover.key % capabilities.keys;
        machine.ends_with_shell = handover.ends_with_shell;
        machine.queue = handover
            .queue
            .into_iter()
            .map(|spec| {
                let until = spec.timeout.map(|timeout| now + timeout);
                Waiting::Command { spec: Box::new(spec), until, attempts: 0 }
            })
            .collect();
        machine.phase = match handover.running {
            Some(handed) => {
                let job = Job::Command { spec: handed.spec, attempt: 1 };
                let mut run = Run::new(handed.number, job, handed.started, Redraw::default());
                run.harmless = handed.harmless;
                if handed.begun {
                    run.begin();
                }
                if let Some(status) = handed.status {
                    run.stage = Stage::Ended { at: now, status };
                }
                Phase::Running(Box::new(run))
            }
            None => Phase::Idle(Idle {
                prompt: PromptState::Unknown,
                poll: Poll::soon(now),
                redraw: Redraw::default(),
            }),
        };
        machine
    }

    /// Makes the terminal end when its shell exits by itself.
    pub fn end_with_shell(&mut self) {
        self.ends_with_shell = true;
    }

    /// Takes note that the shell was started.
    pub fn launched(&mut self, now: Instant) {
        self.phase = Phase::Starting(Starting { since: now, ready: false, dumped: false });
    }

    /// Returns what to do about an event.
    pub fn step(&mut self, now: Instant, event: Event<'_>) -> Actions {
        let mut actions = Vec::new();
        self.apply(now, event, &mut actions);
        actions
    }

    fn apply(&mut self, now: Instant, event: Event<'_>, actions: &mut Actions) {
        match event {
            Event::Ready => {
                if let Phase::Starting(starting) = &mut self.phase {
                    starting.ready = true;
                    actions.push(Action::ReadDump);
                }
            }
            Event::Record { number, status } => self.record(number, status, now, actions),
            Event::Stashed => {
                if let Phase::Redrawing(redrawing) = &mut self.phase {
                    redrawing.stashed(now);
                }
            }
            Event::Begun => {
                if let Phase::Running(run) = &mut self.phase {
                    run.begin();
                }
            }
            Event::DumpRead { complete } => self.dump_read(complete, now, actions),
            Event::Exited { code, signal } => self.exited(code, signal, now, actions),
            Event::LaunchFailed => self.end(None, None, actions),
            Event::Typed(bytes) => self.typed(bytes, now),
            Event::Printed(bytes) => self.printed(bytes, now, actions),
            Event::Tick => self.tick(now, actions),
            Event::Exec(spec) => {
                let until = spec.timeout.map(|timeout| now + timeout);
                self.enqueue(Waiting::Command { spec, until, attempts: 0 }, now, actions);
            }
            Event::Apply { token, script } => {
                self.enqueue(Waiting::Script { token, script }, now, actions);
            }
            Event::Cancel(command) => self.cancel(command, now, actions),
            Event::Withdraw(command) => self.unqueue(command, Outcome::NotStarted, actions),
            Event::Signal(signal) => self.signal(signal, now, actions),
            Event::Replace(state) => {
                self.replacement = Some(Replacement::With(state));
                match &self.phase {
                    Phase::Running(_) => {
                        self.end_run(End::of(Outcome::Cancelled), now, actions);
                    }
                    Phase::Starting(_) | Phase::Idle(_) | Phase::Redrawing(_) => {
                        actions.push(Action::KillShell);
                    }
                    Phase::Absent | Phase::Ending(_) | Phase::Over => {}
                }
            }
            Event::Answer(answer) => self.answer(answer, now, actions),
        }
    }

    fn answer(&mut self, answer: Answer, now: Instant, actions: &mut Actions) {
        match (answer, &mut self.phase) {
            (Answer::Prompt(probe), Phase::Idle(_)) => self.idle_probed(probe, now, actions),
            (Answer::Prompt(probe), Phase::Redrawing(_)) => self.redrawn(probe, now, actions),
            (Answer::Prompt(probe), Phase::Running(_)) => {
                self.key_overdue(probe.shown, now, actions);
            }
            (Answer::Redraw(true), Phase::Idle(_)) => {
                self.phase = Phase::Redrawing(Redrawing::new(now));
                actions.push(Action::TypeRedraw);
            }
            (Answer::Run(probe), Phase::Running(_)) => self.run_probed(probe, now, actions),
            (Answer::Dump { complete, left }, Phase::Running(run)) => {
                run.dumped |= complete;
                match (run.dumped, run.status()) {
                    (false, Some(status)) if left => {
                        self.reread(End::finished(status), now, actions);
                    }
                    (true | false, Some(_) | None) => self.try_finish(now, actions),
                }
            }
            (Answer::KeyWithdrawn { begun, at_prompt }, Phase::Running(run)) => {
                if begun {
                    run.begin();
                }
                if at_prompt {
                    self.retype(actions);
                }
            }
            (Answer::Started { harmless }, Phase::Running(run)) => run.harmless = harmless,
            (Answer::NotStarted, Phase::Running(_)) => self.not_started(now, actions),
            (Answer::NotRetyped, Phase::Running(_)) => {
                self.end_run(End::of(Outcome::NotStarted), now, actions);
            }
            (Answer::Swept(swept), Phase::Ending(ending)) => {
                let due = ending.swept(swept);
                act_on_ending(due, actions);
            }
            (Answer::NotSignalled(signal), Phase::Running(run)) => run.defer(signal, now),
            (Answer::Completed { prompt_changed }, Phase::Idle(idle)) => {
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

    // The shell's life.

    fn dump_read(&mut self, complete: bool, now: Instant, actions: &mut Actions) {
        match &mut self.phase {
            Phase::Starting(starting) => {
                starting.dumped |= complete;
                if starting.ready && starting.dumped {
                    self.started(now, actions);
                }
            }
            Phase::Running(run) => {
                run.dumped |= complete;
                self.try_finish(now, actions);
            }
            Phase::Absent
            | Phase::Idle(_)
            | Phase::Redrawing(_)
            | Phase::Ending(_)
            | Phase::Over => {}
        }
    }

    /// The rc file is read and its dump is there: the shell is on its way to the prompt.
    fn started(&mut self, now: Instant, actions: &mut Actions) {
        actions.push(Action::TakeFirstDump);
        self.failures = 0;
        for waiting in &mut self.queue {
            if let Waiting::Command { spec, until, .. } = waiting {
                *until = spec.timeout.map(|timeout| now + timeout);
            }
        }
        self.phase = Phase::Idle(Idle {
            prompt: PromptState::Unknown,
            poll: Poll::starting(now),
            redraw: Redraw::default(),
        });
        self.advance(now, actions);
    }

    fn exited(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        now: Instant,
        actions: &mut Actions,
    ) {
        let status = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let mut after_death = false;
        let by_itself = match std::mem::replace(&mut self.phase, Phase::Absent) {
            Phase::Running(run) if !run.has_begun() => {
                // It was exiting when the key was typed, and never read it.
                self.forget_auto_exit(actions);
                let started = run.started;
                self.ended_early(*run, End::of(Outcome::NotStarted), started, actions);
                true
            }
            Phase::Running(run) => {
                after_death = true;
                actions.push(Action::TrimGoodbye);
                let recorded = run.status();
                let end = End {
                    outcome: Outcome::Finished,
                    exit_code: Some(recorded.unwrap_or(status)),
                    signal: if recorded.is_some() { None } else { signal },
                };
                let ended = run.ended().unwrap_or(now);
                let status = end.exit_code;
                complete(*run, end, status, ended, StateSource::ShellGone, actions);
                true
            }
            Phase::Ending(ending) => {
                let Ending { run, end, ended, .. } = *ending;
                self.ended_early(run, end, ended, actions);
                false
            }
            Phase::Starting(_) => {
                self.failures += 1;
                false
            }
            Phase::Idle(_) | Phase::Redrawing(_) => {
                self.forget_auto_exit(actions);
                true
            }
            Phase::Over => {
                self.phase = Phase::Over;
                return;
            }
            Phase::Absent => false,
        };
        if by_itself && self.replacement.is_none() {
            if self.ends_with_shell {
                self.end(code, signal, actions);
                return;
            }
            actions.push(Action::Show(screen::restarted(code, signal)));
        }
        self.keyboard = Keyboard::default();
        actions.push(Action::Reset(self.replacement.take()));
        if self.failures > MAX_FAILURES {
            self.end(None, None, actions);
        } else {
            actions.push(Action::Launch { failures: self.failures, after_death });
        }
    }

    fn forget_auto_exit(&self, actions: &mut Actions) {
        if self.replacement.is_none() {
            actions.push(Action::ForgetAutoExit);
        }
    }

    /// Ends for good, with the exit code or the signal of the last shell.
    fn end(&mut self, code: Option<i32>, signal: Option<i32>, actions: &mut Actions) {
        self.phase = Phase::Over;
        for waiting in std::mem::take(&mut self.queue) {
            drop_waiting(waiting, Outcome::NotStarted, actions);
        }
        actions.push(Action::CloseStreams);
        actions.push(Action::Emit(Happened::Ended { code, signal }));
    }

    // The terminal.

    fn typed(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        self.keyboard.note(bytes, now);
        match &mut self.phase {
            Phase::Idle(idle) => {
                idle.prompt = PromptState::Unknown;
                idle.poll.by(now + SETTLE);
            }
            Phase::Running(run) => run.touched = true,
            Phase::Absent
            | Phase::Starting(_)
            | Phase::Redrawing(_)
            | Phase::Ending(_)
            | Phase::Over => {}
        }
    }

    fn printed(&mut self, bytes: &[u8], now: Instant, actions: &mut Actions) {
        match &mut self.phase {
            Phase::Running(run) => {
                run.check = run.check.min(now + Duration::from_millis(2));
                // What the command wrote before its shell printed this comes before it.
                actions.push(Action::Drain);
            }
            Phase::Idle(idle)
                if idle.prompt != PromptState::Unknown || self.keyboard.typed.is_none() =>
            {
                self.prompt.see(bytes);
            }
            Phase::Idle(idle) if self.keyboard.entered.is_some() => {
                let settled = self.keyboard.typed.map_or(now, |typed| typed + SETTLE).max(now);
                idle.poll.by(settled + Duration::from_millis(2));
            }
            Phase::Redrawing(redrawing) => redrawing.note(bytes, now),
            Phase::Idle(_)
            | Phase::Absent
            | Phase::Starting(_)
            | Phase::Ending(_)
            | Phase::Over => {}
        }
    }

    fn tick(&mut self, now: Instant, actions: &mut Actions) {
        if !matches!(self.phase, Phase::Starting(_)) {
            self.expire_queued(now, actions);
        }
        match &mut self.phase {
            Phase::Starting(starting) => {
                if now >= starting.since + START_TIMEOUT {
                    // The rc file hangs, or became another program.
                    actions.push(Action::KillShell);
                    starting.since = now;
                }
            }
            Phase::Idle(idle) => {
                if idle.poll.at.is_some_and(|due| due <= now) {
                    idle.poll.at = None;
                    self.advance(now, actions);
                }
                self.redraw_if_due(now, actions);
            }
            Phase::Redrawing(redrawing) => {
                if now >= redrawing.next() {
                    actions.push(Action::ProbePrompt(Look::Passively));
                }
            }
            Phase::Running(run) => match run.due(now) {
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
            Phase::Ending(ending) => {
                let due = ending.due(now);
                act_on_ending(due, actions);
            }
            Phase::Absent | Phase::Over => {}
        }
    }

    /// Returns when [`Event::Tick`] is wanted.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            Phase::Starting(starting) => return Some(starting.since + START_TIMEOUT),
            Phase::Running(run) => Some(run.next()),
            Phase::Ending(ending) => Some(ending.next),
            Phase::Redrawing(redrawing) => Some(redrawing.next()),
            Phase::Idle(idle) => idle.redraw.at.into_iter().chain(idle.poll.at).min(),
            Phase::Absent | Phase::Over => None,
        };
        own.into_iter().chain(self.queue.iter().filter_map(Waiting::until)).min()
    }

    // The queue.

    fn enqueue(&mut self, waiting: Waiting, now: Instant, actions: &mut Actions) {
        if matches!(self.phase, Phase::Over) {
            drop_waiting(waiting, Outcome::NotStarted, actions);
            return;
        }
        self.queue.push_back(waiting);
        self.advance(now, actions);
    }

    /// Drops the commands that waited too long. The time a shell takes to start does not count.
    fn expire_queued(&mut self, now: Instant, actions: &mut Actions) {
        let expired = |waiting: &Waiting| waiting.until().is_some_and(|until| until <= now);
        while let Some(nth) = self.queue.iter().position(expired) {
            if let Some(waiting) = self.queue.remove(nth) {
                drop_waiting(waiting, Outcome::NotStarted, actions);
            }
        }
    }

    fn unqueue(&mut self, command: &str, outcome: Outcome, actions: &mut Actions) {
        let queued = self.queue.iter().position(|waiting| waiting.command() == Some(command));
        if let Some(waiting) = queued.and_then(|nth| self.queue.remove(nth)) {
            drop_waiting(waiting, outcome, actions);
        }
    }

    fn cancel(&mut self, command: &str, now: Instant, actions: &mut Actions) {
        match self.whereabouts(command) {
            Whereabouts::Queued => self.unqueue(command, Outcome::Cancelled, actions),
            Whereabouts::Running => self.end_run(End::of(Outcome::Cancelled), now, actions),
            Whereabouts::Neither => {}
        }
    }

    /// Looks whether the shell is at its prompt, if anything waits for that.
    fn advance(&self, now: Instant, actions: &mut Actions) {
        let Phase::Idle(idle) = &self.phase else { return };
        if self.queue.is_empty() && self.keyboard.entered.is_none() {
            return;
        }
        let settled = self.keyboard.typed.is_none_or(|typed| now >= typed + SETTLE);
        actions.push(Action::ProbePrompt(match idle.prompt {
            PromptState::Shown | PromptState::Unchanged => Look::FilesOnly,
            PromptState::Unknown if settled => Look::Everything,
            PromptState::Unknown => Look::Unsettled,
        }));
    }

    /// Starts what waits, if the shell is at its prompt.
    fn idle_probed(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let Phase::Idle(idle) = &mut self.phase else { return };
        if !probe.files {
            // The files that this shell is driven by were removed; the next shell gets others.
            if self.replacement.is_none() {
                self.replacement = Some(Replacement::Same);
                actions.push(Action::KillShell);
            }
            return;
        }
        if idle.prompt == PromptState::Unknown {
            if !probe.shown {
                idle.poll.back_off(now, poll_interval(&self.queue));
                return;
            }
            // What the shell has printed comes before the command.
            if idle.poll.await_reader(probe.unread, now) {
                return;
            }
            idle.prompt = PromptState::Shown;
            actions.push(Action::SaveModes);
        }
        let (unchanged, redraw) = (idle.prompt == PromptState::Unchanged, idle.redraw);
        let job = if self.keyboard.entered.is_some() {
            Job::Capture
        } else {
            match self.queue.pop_front() {
                Some(Waiting::Command { spec, attempts, .. }) => {
                    let shown = self.prompt.typed(&spec.text, self.keyboard.half_typed);
                    actions.push(Action::Show(shown));
                    Job::Command { spec, attempt: attempts + 1 }
                }
                Some(Waiting::Script { token, script }) => Job::Script { token, script },
                None => return,
            }
        };
        self.begin(job, redraw, now);
        actions.push(Action::Start { unchanged });
    }

    fn begin(&mut self, job: Job, redraw: Redraw, now: Instant) {
        self.number += 1;
        self.phase = Phase::Running(Box::new(Run::new(self.number, job, now, redraw)));
    }

    /// The files of a run could not be written: the shell was not touched.
    fn not_started(&mut self, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        let mut idle =
            Idle { prompt: PromptState::Shown, poll: Poll::default(), redraw: run.redraw };
        let mut goes_on = true;
        match run.job {
            Job::Command { spec, .. } => {
                let (command, end) = (spec.command, End::of(Outcome::NotStarted));
                actions.push(Action::Finish { command, end, duration: Duration::ZERO });
            }
            Job::Script { token, .. } => {
                actions.push(Action::Emit(Happened::Applied { token, exit_code: None }));
            }
            Job::Reread { command, started, end } => {
                let duration = now.saturating_duration_since(started);
                actions.push(Action::Finish { command, end, duration });
                idle.prompt = PromptState::Unknown;
                idle.poll.by(now + SETTLE);
                goes_on = false;
            }
            Job::Capture => {
                idle.poll.by(now + poll_interval(&self.queue));
                goes_on = false;
            }
        }
        self.phase = Phase::Idle(idle);
        if goes_on {
            self.advance(now, actions);
        }
    }

    // A run.

    fn record(&mut self, number: u64, status: Option<i32>, now: Instant, actions: &mut Actions) {
        let Phase::Running(run) = &mut self.phase else { return };
        if run.number != number || run.status().is_some() {
            return;
        }
        run.record(status, now);
        actions.push(Action::RestoreEcho);
        if status.is_some() {
            actions.push(Action::RestoreModes);
            if run.harmless {
                self.try_finish(now, actions);
            } else {
                actions.push(Action::ReadDump);
            }
        }
    }

    /// Ends the run if its status and its state are there.
    fn try_finish(&mut self, now: Instant, actions: &mut Actions) {
        let Phase::Running(run) = &self.phase else { return };
        let Some(status) = run.status().filter(|_| run.dumped || run.harmless) else { return };
        let Some(mut run) = self.take_run() else { return };
        actions.push(Action::Drain);
        self.prompt.expect();
        let mut idle =
            Idle { prompt: PromptState::Unchanged, poll: Poll::default(), redraw: run.redraw };
        if run.touched {
            idle.prompt = PromptState::Unknown;
            idle.poll.by(now + Duration::from_millis(1));
        }
        let source = if run.harmless { StateSource::Harmless } else { StateSource::Dump };
        let ended = run.ended().unwrap_or(now);
        match &mut run.job {
            Job::Capture => {
                idle.redraw = Redraw::default();
                let entered = self.keyboard.entered.take();
                if run.touched {
                    self.keyboard.entered = Some(now);
                }
                let duration = entered.map_or(Duration::ZERO, |entered| {
                    run.started.saturating_duration_since(entered)
                });
                let hidden = self.keyboard.hides;
                actions.push(Action::ReportTyped { status, duration, hidden });
            }
            Job::Command { .. } | Job::Script { .. } => {
                let end = End::finished(status);
                complete(run, end, Some(status), ended, source, actions);
            }
            Job::Reread { end, .. } => {
                if !self.capabilities.edits_lines {
                    // Any error takes such a shell to its prompt, and its status says which.
                    *end = End::finished(status);
                }
                let end = *end;
                complete(run, end, Some(end.exit_code.unwrap_or(0)), ended, source, actions);
            }
        }
        self.phase = Phase::Idle(idle);
        self.advance(now, actions);
    }

    /// Begins to end what runs, and its shell with it.
    fn end_run(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::StopShell);
        // A command that has its status has only lost its shell: what it left behind lives on.
        let ending = if end.outcome == Outcome::Finished {
            actions.push(Action::KillShell);
            Ending::of_shell_alone(run, end, now)
        } else {
            Ending::new(run, end, now)
        };
        self.phase = Phase::Ending(Box::new(ending));
    }

    /// A run was ended and its shell with it. A command that never began because its shell could not
    /// be driven is given another shell, which gets less of the state.
    fn ended_early(&mut self, run: Run, end: End, ended: Instant, actions: &mut Actions) {
        let never_began = end.outcome == Outcome::NotStarted;
        match run.job {
            Job::Command { spec, attempt } if never_began && attempt < MAX_ATTEMPTS => {
                self.failures = 1;
                actions.push(Action::Requeue { command: spec.command.clone() });
                let until = run.deadline;
                self.queue.push_front(Waiting::Command { spec, until, attempts: attempt });
            }
            Job::Command { .. } | Job::Capture | Job::Reread { .. } | Job::Script { .. } => {
                complete(run, end, None, ended, StateSource::ShellGone, actions);
            }
        }
    }

    fn signal(&mut self, signal: Signal, now: Instant, actions: &mut Actions) {
        let Phase::Running(run) = &mut self.phase else { return };
        if run.has_begun() {
            actions.push(Action::Signal(signal));
        } else {
            // It would reach the line editor.
            run.defer(signal, now);
        }
    }

    /// A command takes its time: does it still run?
    fn run_probed(&mut self, probe: RunProbe, now: Instant, actions: &mut Actions) {
        let Phase::Running(run) = &self.phase else { return };
        if probe.left && !probe.files {
            // It ran, and the directory in which it would have recorded its end was removed.
            self.end_run(End::of(Outcome::Lost), now, actions);
        } else if probe.left && probe.no_records {
            let end = End { outcome: Outcome::Finished, exit_code: Some(130), signal: Some(2) };
            self.reread(end, now, actions);
        } else if matches!(run.job, Job::Command { .. }) {
            actions.push(Action::Attend);
        }
    }

    /// The shell dropped the drive file, as it does on SIGINT, and is back at its prompt: another
    /// drive file reads the state.
    fn reread(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::Drain);
        actions.push(Action::RestoreModes);
        match run.job {
            Job::Command { spec, .. } => {
                actions.push(Action::EndCopy);
                let (command, started) = (spec.command, run.started);
                self.begin(Job::Reread { command, started, end }, run.redraw, now);
                actions.push(Action::Start { unchanged: false });
                return;
            }
            Job::Reread { command, started, end } => {
                let duration = now.saturating_duration_since(started);
                actions.push(Action::Finish { command, end, duration });
            }
            Job::Script { token, .. } => {
                let exit_code = end.exit_code;
                actions.push(Action::Emit(Happened::Applied { token, exit_code }));
            }
            Job::Capture => {}
        }
        let mut poll = Poll::default();
        poll.by(now + SETTLE);
        self.phase = Phase::Idle(Idle { prompt: PromptState::Unknown, poll, redraw: run.redraw });
    }

    /// The key had no effect: the line editor was in the middle of something, or a command redefined
    /// what the key runs. The other keys are tried, each once, as long as the shell is at its prompt.
    fn key_overdue(&mut self, shown: bool, now: Instant, actions: &mut Actions) {
        let Phase::Running(run) = &self.phase else { return };
        let Stage::Typed { retries, .. } = run.stage else { return };
        // Without a prompt the machine is busy, or the key went to a program: neither is helped by
        // another key.
        let give_up = if shown {
            retries > self.capabilities.keys
        } else {
            now >= run.started + START_TIMEOUT
        };
        if give_up {
            self.end_run(End::of(Outcome::NotStarted), now, actions);
        } else if shown {
            // Without the file the old key can do nothing any more; only if the shell is still at
            // its prompt then did it do nothing before.
            actions.push(Action::WithdrawKey);
        }
    }

    fn retype(&mut self, actions: &mut Actions) {
        let Phase::Running(run) = &mut self.phase else { return };
        let Stage::Typed { retries, .. } = &mut run.stage else { return };
        *retries += 1;
        if *retries > 1 {
            self.key = (self.key + 1) % self.capabilities.keys;
        }
        run.harmless = false;
        actions.push(Action::Retype);
    }

    /// Takes the run out of the machine. The caller sets the next phase.
    fn take_run(&mut self) -> Option<Run> {
        match std::mem::replace(&mut self.phase, Phase::Absent) {
            Phase::Running(run) => Some(*run),
            other => {
                self.phase = other;
                None
            }
        }
    }

    // The redrawing of the prompt.

    fn redraw_if_due(&mut self, now: Instant, actions: &mut Actions) {
        let Phase::Idle(idle) = &mut self.phase else { return };
        if !idle.redraw.is_due(self.keyboard.typed, now) {
            return;
        }
        if !self.queue.is_empty() || self.keyboard.entered.is_some() {
            idle.redraw.at = None;
            return;
        }
        let stale = std::mem::take(&mut idle.redraw).stale;
        if self.capabilities.redraws && self.key == 0 {
            actions.push(Action::ProbeRedraw { stale });
        }
    }

    /// Looks whether the prompt is drawn.
    fn redrawn(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let Phase::Redrawing(redrawing) = &mut self.phase else { return };
        let stashed = redrawing.stashed;
        // Parts of the prompt may be printed and not read yet.
        if redrawing.waits(stashed && probe.shown && !probe.unread, now) {
            return;
        }
        let drawn = std::mem::take(&mut redrawing.drawn);
        let untouched = Redrawing::untouched(self.keyboard.typed, now);
        let prompt = if probe.shown && stashed && untouched {
            PromptState::Shown
        } else {
            PromptState::Unknown
        };
        let poll = Poll::soon(now);
        self.phase = Phase::Idle(Idle { prompt, poll, redraw: Redraw::default() });
        if stashed {
            self.prompt.drawn(&drawn);
            actions.push(Action::EndRedraw { drawn });
        }
        self.advance(now, actions);
    }

    // What others may know.

    /// Returns whether the shell is about to leave a record.
    pub fn awaits_record(&self) -> bool {
        match self.phase {
            Phase::Starting(_) | Phase::Running(_) | Phase::Redrawing(_) => true,
            Phase::Absent | Phase::Idle(_) | Phase::Ending(_) | Phase::Over => false,
        }
    }

    /// Returns whether the machine can be handed over now. If it cannot, it soon can.
    pub fn can_hand_over(&self) -> bool {
        let script = |waiting: &Waiting| matches!(waiting, Waiting::Script { .. });
        !self.queue.iter().any(script)
            && match &self.phase {
                Phase::Idle(_) | Phase::Over => true,
                Phase::Running(run) => matches!(run.job, Job::Command { .. }),
                Phase::Absent | Phase::Starting(_) | Phase::Redrawing(_) | Phase::Ending(_) => {
                    false
                }
            }
    }

    pub fn availability(&self) -> Availability {
        match &self.phase {
            Phase::Absent | Phase::Running(_) | Phase::Ending(_) => Availability::Busy,
            Phase::Over => Availability::Free,
            Phase::Idle(_) | Phase::Starting(_) | Phase::Redrawing(_) if !self.queue.is_empty() => {
                Availability::Busy
            }
            Phase::Idle(_) => {
                Availability::DependsOnTerminal { entered: self.keyboard.entered.is_some() }
            }
            Phase::Starting(_) | Phase::Redrawing(_) => Availability::Free,
        }
    }

    pub fn whereabouts(&self, command: &str) -> Whereabouts {
        let runs =
            |run: &Run| matches!(&run.job, Job::Command { spec, .. } if spec.command == command);
        if self.queue.iter().any(|waiting| waiting.command() == Some(command)) {
            Whereabouts::Queued
        } else if self.run().is_some_and(runs) {
            Whereabouts::Running
        } else {
            Whereabouts::Neither
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Returns the current run.
    pub fn run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Running(run) => Some(run),
            Phase::Absent
            | Phase::Starting(_)
            | Phase::Idle(_)
            | Phase::Redrawing(_)
            | Phase::Ending(_)
            | Phase::Over => None,
        }
    }

    pub fn queue(&self) -> &VecDeque<Waiting> {
        &self.queue
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn key(&self) -> usize {
        self.key
    }

    pub fn ends_with_shell(&self) -> bool {
        self.ends_with_shell
    }

    /// Returns whether the line editor holds an unfinished line.
    pub fn has_half_typed(&self) -> bool {
        self.keyboard.half_typed
    }

    /// Returns whether a person may have run a command since the state was last read.
    pub fn has_entered(&self) -> bool {
        self.keyboard.entered.is_some()
    }
}

/// How often the prompt is looked for.
fn poll_interval(queue: &VecDeque<Waiting>) -> Duration {
    if queue.is_empty() { UNHURRIED_POLL_INTERVAL } else { MAX_POLL_INTERVAL }
}

fn act_on_ending(due: EndingDue, actions: &mut Actions) {
    match due {
        EndingDue::Nothing => {}
        EndingDue::Sweep { kill } => actions.push(Action::Sweep { kill }),
        EndingDue::KillShell => actions.push(Action::KillShell),
        EndingDue::KillSwept => actions.push(Action::KillSwept),
    }
}

/// Ends something that waited and will never start.
fn drop_waiting(waiting: Waiting, outcome: Outcome, actions: &mut Actions) {
    actions.push(match waiting {
        Waiting::Command { spec, .. } => {
            let (command, end) = (spec.command, End::of(outcome));
            Action::Finish { command, end, duration: Duration::ZERO }
        }
        Waiting::Script { token, .. } => Action::Emit(Happened::Applied { token, exit_code: None }),
    });
}

fn complete(
    run: Run,
    end: End,
    status: Option<i32>,
    ended: Instant,
    source: StateSource,
    actions: &mut Actions,
) {
    let Run { job, started, .. } = run;
    let completion = Completion { job, end, status, started, ended, source };
    actions.push(Action::Complete(Box::new(completion)));
}
