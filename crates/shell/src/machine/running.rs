//! Starting a queued job, following it while it runs, and ending it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ending::Ending;
use super::event::{
    Action, HistoryUse, ProbeScope, PromptProbe, Replacement, RunProbe, SnapshotAge, StateSource,
};
use super::idle::{Idle, Poll, PromptState, Redraw};
use super::job::Job;
use super::keyboard::SETTLE_TIME;
use super::phase::{MachinePhase, START_TIMEOUT};
use super::queue::QueuedJob;
use super::run::{Run, Stage};
use super::{Actions, Machine};
use crate::effect::DriverEvent;
use crate::status::End;
use wire::Outcome;

/// In how many shells a command is tried that never begins.
const MAX_ATTEMPTS: u32 = 2;

impl Machine {
    /// Probes the prompt if a queued job or a person's command needs it.
    pub(super) fn advance(&self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &self.phase else { return };
        if self.queue.is_empty() && self.keyboard.entered.is_none() {
            return;
        }
        let settled = self.keyboard.is_settled(now);
        actions.push(Action::ProbePrompt(match idle.prompt {
            PromptState::AtPrompt | PromptState::Unchanged => ProbeScope::FilesOnly,
            PromptState::Unknown if settled => ProbeScope::Full,
            PromptState::Unknown => ProbeScope::Unsettled,
        }));
    }

    /// Starts the next job, if the shell is at its prompt.
    pub(super) fn idle_probed(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &mut self.phase else { return };
        if !probe.files {
            // The run directory of this shell was removed; the next shell gets another one.
            if self.replacement.is_none() {
                self.replacement = Some(Replacement::Same);
                actions.push(Action::KillShell);
            }
            return;
        }
        if idle.prompt == PromptState::Unknown {
            if !probe.shown {
                idle.poll.back_off(now, self.queue.poll_interval());
                return;
            }
            // Output that the shell has printed comes before the command.
            if idle.poll.awaits_reader(probe, now) {
                return;
            }
            idle.prompt = PromptState::AtPrompt;
            actions.push(Action::SaveModes);
        }
        let MachinePhase::Idle(idle) = &self.phase else { return };
        let snapshot = match idle.prompt {
            PromptState::Unchanged => SnapshotAge::Current,
            PromptState::AtPrompt | PromptState::Unknown => SnapshotAge::Unknown,
        };
        let redraw = idle.redraw;
        let job = if self.keyboard.entered.is_some() {
            self.await_prompt(now);
            Job::Capture
        } else {
            self.note_prompt(now);
            match self.queue.pop() {
                Some(QueuedJob::Command { spec, attempts, .. }) => {
                    let shown = match self.keyboard.half_typed {
                        true => self.prompt.typed_over(&spec.text),
                        false => self.prompt.typed(&spec.text),
                    };
                    actions.push(Action::Show(shown));
                    Job::Command { spec, attempt: attempts + 1 }
                }
                Some(QueuedJob::Script { token, script }) => Job::Script { token, script },
                None => return,
            }
        };
        let run = self.next_run(job, redraw, now);
        self.phase = MachinePhase::Running(Box::new(run));
        actions.push(Action::Start { snapshot });
    }

    fn next_run(&mut self, job: Job, redraw: Redraw, now: Instant) -> Run {
        self.number += 1;
        Run::new(self.number, job, now, redraw)
    }

    /// Handles a run whose files could not be written. The shell has not changed.
    pub(super) fn not_started(&mut self, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        let mut idle =
            Idle { prompt: PromptState::AtPrompt, poll: Poll::default(), redraw: run.redraw };
        let starts_next = match run.job {
            Job::Command { spec, .. } => {
                let (command, end) = (spec.command, End::of(Outcome::NotStarted));
                actions.push(Action::Finish { command, end, duration: Duration::ZERO });
                true
            }
            Job::Script { token, .. } => {
                actions.push(Action::Emit(DriverEvent::Applied { token, exit_code: None }));
                true
            }
            Job::Reread { command, started, end } => {
                let duration = now.saturating_duration_since(started);
                actions.push(Action::Finish { command, end, duration });
                idle.prompt = PromptState::Unknown;
                idle.poll.by(now + SETTLE_TIME);
                false
            }
            Job::Capture => {
                idle.poll.by(now + self.queue.poll_interval());
                false
            }
        };
        self.phase = MachinePhase::Idle(idle);
        if starts_next {
            self.advance(now, actions);
        }
    }

    pub(super) fn record(
        &mut self,
        number: u64,
        status: Option<i32>,
        now: Instant,
        actions: &mut Actions,
    ) {
        let MachinePhase::Running(run) = &mut self.phase else { return };
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

    /// Completes the run if its exit code and its state have been read.
    pub(super) fn try_finish(&mut self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
        let Some(status) = run.status().filter(|_| run.dumped || run.harmless) else { return };
        let Some(mut run) = self.take_run() else { return };
        actions.push(Action::Drain);
        self.prompt.expect();
        let mut idle =
            Idle { prompt: PromptState::Unchanged, poll: Poll::default(), redraw: run.redraw };
        if run.typed_during {
            idle.prompt = PromptState::Unknown;
            idle.poll.by(now + Duration::from_millis(1));
        }
        let source = if run.harmless { StateSource::Harmless } else { StateSource::Dump };
        let ended = run.ended().unwrap_or(now);
        match &mut run.job {
            Job::Capture => {
                idle.redraw = Redraw::default();
                let entered = self.keyboard.entered.take();
                if run.typed_during {
                    self.keyboard.entered = Some(now);
                }
                let duration = entered.map_or(Duration::ZERO, |entered| {
                    run.started.saturating_duration_since(entered)
                });
                let history = match self.keyboard.starts_with_blank {
                    true => HistoryUse::MayBeSkipped,
                    false => HistoryUse::Recorded,
                };
                actions.push(Action::ReportTyped { status, duration, history });
            }
            Job::Command { .. } | Job::Script { .. } => {
                let end = End::finished(status);
                actions.push(run.complete(end, Some(status), ended, source));
            }
            Job::Reread { end, .. } => {
                if !self.capabilities.edits_lines {
                    // A syntax error returns such a shell to its prompt; the exit code is read there.
                    *end = End::finished(status);
                }
                let end = *end;
                actions.push(run.complete(end, Some(end.exit_code.unwrap_or(0)), ended, source));
            }
        }
        self.phase = MachinePhase::Idle(idle);
        self.advance(now, actions);
    }

    /// Begins to end the run, and its shell with it.
    pub(super) fn end_run(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::StopShell);
        // The command has its exit code and only its shell must be replaced: its background processes
        // survive.
        let ending = if end.outcome == Outcome::Finished {
            actions.push(Action::KillShell);
            Ending::of_shell_alone(run, end, now)
        } else {
            Ending::new(run, end, now)
        };
        self.phase = MachinePhase::Ending(Box::new(ending));
    }

    /// Completes a run that was ended together with its shell. A command that never began because its
    /// shell could not be driven is queued for another shell, in which less of the state is restored.
    pub(super) fn ended_early(
        &mut self,
        run: Run,
        mut end: End,
        ended: Instant,
        actions: &mut Actions,
    ) {
        let never_began = end.outcome == Outcome::NotStarted && !run.has_begun();
        if end.outcome == Outcome::NotStarted && !never_began {
            // The shell read the key just before it was stopped.
            end.outcome = Outcome::Lost;
        }
        match run.job {
            Job::Command { spec, attempt } if never_began && attempt < MAX_ATTEMPTS => {
                self.failures = 1;
                actions.push(Action::Requeue { command: spec.command.clone() });
                let until = run.deadline;
                self.queue.push_front(QueuedJob::Command { spec, until, attempts: attempt });
            }
            Job::Command { .. } | Job::Capture | Job::Reread { .. } | Job::Script { .. } => {
                actions.push(run.complete(end, None, ended, StateSource::ShellGone));
            }
        }
    }

    pub(super) fn signal(&mut self, signal: Signal, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &mut self.phase else { return };
        if run.has_begun() {
            actions.push(Action::Signal(signal));
        } else {
            // The signal would reach the line editor.
            run.defer(signal, now);
        }
    }

    /// Handles the probe of a long-running command: the shell may have left it.
    pub(super) fn run_probed(&mut self, probe: RunProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
        if probe.left && !probe.files {
            // The command ran, and the directory for the record of its end was removed.
            self.end_run(End::of(Outcome::Lost), now, actions);
        } else if probe.left && probe.no_records {
            let end = End { outcome: Outcome::Finished, exit_code: Some(130), signal: Some(2) };
            self.reread(end, now, actions);
        } else if matches!(run.job, Job::Command { .. }) {
            actions.push(Action::Attend);
        }
    }

    /// Starts another drive file to read the state, because the shell aborted the current one, as it does
    /// on SIGINT, and is back at its prompt.
    pub(super) fn reread(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::Drain);
        actions.push(Action::RestoreModes);
        match run.job {
            Job::Command { spec, .. } => {
                actions.push(Action::EndCopy);
                let (command, started) = (spec.command, run.started);
                let job = Job::Reread { command, started, end };
                let mut next = self.next_run(job, run.redraw, now);
                next.typed_during = run.typed_during;
                self.phase = MachinePhase::Running(Box::new(next));
                actions.push(Action::Start { snapshot: SnapshotAge::Unknown });
                return;
            }
            Job::Reread { command, started, end } => {
                let duration = now.saturating_duration_since(started);
                actions.push(Action::Finish { command, end, duration });
            }
            Job::Script { token, .. } => {
                let exit_code = end.exit_code;
                actions.push(Action::Emit(DriverEvent::Applied { token, exit_code }));
            }
            Job::Capture => {}
        }
        let mut poll = Poll::default();
        poll.by(now + SETTLE_TIME);
        self.phase =
            MachinePhase::Idle(Idle { prompt: PromptState::Unknown, poll, redraw: run.redraw });
    }

    /// Handles a key that had no effect: the line editor was reading another key sequence, or a command
    /// redefined the builtin that the key runs. The other keys are tried, each once, as long as the shell
    /// is at its prompt.
    pub(super) fn key_overdue(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
        let Stage::Typed { retries, .. } = run.stage else { return };
        // Without a prompt the computer is slow, or the key went to a program: another key would not
        // help.
        let give_up = if probe.shown {
            retries > self.capabilities.keys
        } else {
            now >= run.started + START_TIMEOUT
        };
        if give_up {
            self.end_run(End::of(Outcome::NotStarted), now, actions);
        } else if probe.shown {
            // The old key has no effect once the drive file is removed. If the shell is still at its
            // prompt then, the key had no effect before either.
            actions.push(Action::WithdrawKey);
        }
    }

    pub(super) fn retype(&mut self, actions: &mut Actions) {
        let MachinePhase::Running(run) = &mut self.phase else { return };
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
        match std::mem::replace(&mut self.phase, MachinePhase::Absent) {
            MachinePhase::Running(run) => Some(*run),
            other => {
                self.phase = other;
                None
            }
        }
    }
}
