//! Starting what waits, following it while it runs, and ending it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::event::{Action, Look, PromptProbe, Replacement, RunProbe, StateSource};
use super::job::Job;
use super::phase::{
    Ending, Idle, MachinePhase, Poll, PromptState, Redraw, Run, SETTLE, START_TIMEOUT, Stage,
};
use super::queue::Waiting;
use super::{Actions, Machine};
use crate::effect::Happened;
use crate::status::End;
use wire::Outcome;

/// How often a command is typed whose shell never ran it.
const MAX_ATTEMPTS: u32 = 2;

impl Machine {
    /// Looks whether the shell is at its prompt, if anything waits for that.
    pub(super) fn advance(&self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &self.phase else { return };
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
    pub(super) fn idle_probed(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &mut self.phase else { return };
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
                idle.poll.back_off(now, self.queue.poll_interval());
                return;
            }
            // What the shell has printed comes before the command.
            if idle.poll.await_reader(probe.unread, now) {
                return;
            }
            idle.prompt = PromptState::Shown;
            actions.push(Action::SaveModes);
            self.prompt_is_there(now);
        }
        let MachinePhase::Idle(idle) = &self.phase else { return };
        let (unchanged, redraw) = (idle.prompt == PromptState::Unchanged, idle.redraw);
        let job = if self.keyboard.entered.is_some() {
            Job::Capture
        } else {
            match self.queue.pop() {
                Some(Waiting::Command { spec, attempts, .. }) => {
                    let shown = self.prompt.typed(&spec.text, self.keyboard.half_typed);
                    actions.push(Action::Show(shown));
                    Job::Command { spec, attempt: attempts + 1 }
                }
                Some(Waiting::Script { token, script }) => Job::Script { token, script },
                None => return,
            }
        };
        self.begin(job, redraw, false, now);
        actions.push(Action::Start { unchanged });
    }

    fn begin(&mut self, job: Job, redraw: Redraw, touched: bool, now: Instant) {
        self.number += 1;
        let mut run = Run::new(self.number, job, now, redraw);
        run.touched = touched;
        self.phase = MachinePhase::Running(Box::new(run));
    }

    /// The files of a run could not be written: the shell was not touched.
    pub(super) fn not_started(&mut self, now: Instant, actions: &mut Actions) {
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
                idle.poll.by(now + self.queue.poll_interval());
                goes_on = false;
            }
        }
        self.phase = MachinePhase::Idle(idle);
        if goes_on {
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

    /// Ends the run if its status and its state are there.
    pub(super) fn try_finish(&mut self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
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
                actions.push(run.complete(end, Some(status), ended, source));
            }
            Job::Reread { end, .. } => {
                if !self.capabilities.edits_lines {
                    // Any error takes such a shell to its prompt, and its status says which.
                    *end = End::finished(status);
                }
                let end = *end;
                actions.push(run.complete(end, Some(end.exit_code.unwrap_or(0)), ended, source));
            }
        }
        self.phase = MachinePhase::Idle(idle);
        self.advance(now, actions);
    }

    /// Begins to end what runs, and its shell with it.
    pub(super) fn end_run(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::StopShell);
        // A command that has its status has only lost its shell: what it left behind lives on.
        let ending = if end.outcome == Outcome::Finished {
            actions.push(Action::KillShell);
            Ending::of_shell_alone(run, end, now)
        } else {
            Ending::new(run, end, now)
        };
        self.phase = MachinePhase::Ending(Box::new(ending));
    }

    /// A run was ended and its shell with it. A command that never began because its shell could not
    /// be driven is given another shell, which gets less of the state.
    pub(super) fn ended_early(
        &mut self,
        run: Run,
        mut end: End,
        ended: Instant,
        actions: &mut Actions,
    ) {
        let never_began = end.outcome == Outcome::NotStarted && !run.has_begun();
        if end.outcome == Outcome::NotStarted && !never_began {
            // The shell read the key after all, just before it was stopped.
            end.outcome = Outcome::Lost;
        }
        match run.job {
            Job::Command { spec, attempt } if never_began && attempt < MAX_ATTEMPTS => {
                self.failures = 1;
                actions.push(Action::Requeue { command: spec.command.clone() });
                let until = run.deadline;
                self.queue.push_front(Waiting::Command { spec, until, attempts: attempt });
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
            // It would reach the line editor.
            run.defer(signal, now);
        }
    }

    /// A command takes its time: does it still run?
    pub(super) fn run_probed(&mut self, probe: RunProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
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
    pub(super) fn reread(&mut self, end: End, now: Instant, actions: &mut Actions) {
        let Some(run) = self.take_run() else { return };
        actions.push(Action::Drain);
        actions.push(Action::RestoreModes);
        match run.job {
            Job::Command { spec, .. } => {
                actions.push(Action::EndCopy);
                let (command, started) = (spec.command, run.started);
                let job = Job::Reread { command, started, end };
                self.begin(job, run.redraw, run.touched, now);
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
        self.phase =
            MachinePhase::Idle(Idle { prompt: PromptState::Unknown, poll, redraw: run.redraw });
    }

    /// The key had no effect: the line editor was in the middle of something, or a command redefined
    /// what the key runs. The other keys are tried, each once, as long as the shell is at its prompt.
    pub(super) fn key_overdue(&mut self, shown: bool, now: Instant, actions: &mut Actions) {
        let MachinePhase::Running(run) = &self.phase else { return };
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
