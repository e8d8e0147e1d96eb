//! What takes longer than it should: a key that did nothing, a command that waits or was dropped, a
//! state that is not told.

use std::fs;
use std::time::Duration;

use rustix::termios::tcgetattr;

use super::dialect::Paths;
use super::driver::{Driver, Phase};
use super::output::Output;
use super::queue::SETTLE;
use super::run::{Job, SLOW};
use super::start::START;
use super::{At, Effect, End, Happened, prompt};
use crate::wire::Outcome;

/// A key that was typed starts the drive file within this, or it was lost.
pub(super) const CONFIRM: Duration = Duration::from_millis(300);
/// How soon a signal is tried again that came before its command.
pub(super) const SOON: Duration = Duration::from_millis(1);
/// A state that is not told within this never will be.
pub(super) const DUMP: Duration = Duration::from_secs(10);

impl Driver {
    pub(super) fn tick_run(&mut self, at: At, effects: &mut Vec<Effect>) {
        self.look_begun();
        let Phase::Running(run) = &mut self.phase else { return };
        if run.status.is_none() && run.deadline.is_some_and(|deadline| deadline <= at.now) {
            self.end_running((Outcome::TimedOut, None, None));
            return;
        }
        if let Some(ended) = run.ended {
            if at.now >= ended + DUMP {
                let end = (Outcome::Finished, run.status, None);
                self.end_running(end);
            } else if at.now >= run.check {
                run.step = (run.step * 2).min(Duration::from_secs(1));
                run.check = at.now + run.step;
                let end = (Outcome::Finished, run.status, None);
                // In this order: what a shell has told before it left is there to be read.
                let left = prompt::left_drive(self.pid, self.setup.kind, at.master);
                self.read_state();
                self.heed_pieces(true);
                if self.dumped {
                    self.try_finish(at, effects);
                } else if left {
                    self.reread(end, at, effects);
                }
            }
            return;
        }
        if !run.begun && at.now >= run.typed + CONFIRM {
            self.retype(at, effects);
            return;
        }
        if !run.begun && at.now >= run.check {
            run.check = at.now + if run.signal.is_some() { SOON } else { SLOW };
        }
        if run.begun && at.now >= run.check {
            if let (Some(signal), Some(id)) = (run.signal.take(), run.job.command().cloned()) {
                let _ = self.signal(&id, signal, at);
                return;
            }
            run.step = (run.step * 2).min(Duration::from_secs(1));
            run.check = at.now + run.step;
            self.check_run(at, effects);
        }
    }

    /// A command that takes its time: does it still run, and does it wait for a person?
    pub(super) fn check_run(&mut self, at: At, effects: &mut Vec<Effect>) {
        let Phase::Running(run) = &mut self.phase else { return };
        if !self.paths.are_there() && prompt::left_drive(self.pid, self.setup.kind, at.master) {
            // It ran, and what it would have recorded its end in was removed.
            self.end_running((Outcome::Lost, None, None));
            return;
        }
        let gone =
            prompt::left_drive(self.pid, self.setup.kind, at.master) && ctl_empty(&self.paths);
        if gone {
            self.reread((Outcome::Finished, Some(130), Some(2)), at, effects);
            return;
        }
        let Job::Command { id, .. } = &run.job else { return };
        let id = id.clone();
        if !run.cooked {
            // After an upgrade the modes to go back to are those that are set.
            if self.raw.is_none() {
                self.raw = tcgetattr(at.master).ok().filter(prompt::raw);
            }
            run.cooked = true;
            super::ending::cook_modes(at.master);
        }
        let waiting = super::ending::foreground_reads(at.master);
        if let Some(command) = self.commands.get_mut(&id) {
            // If this process is killed, what a command that takes its time has written is not lost.
            command.outputs.iter_mut().for_each(Output::persist);
            if command.waiting != waiting {
                command.waiting = waiting;
                effects.push(Effect::Emit(Happened::Waiting { command: id.clone(), waiting }));
            }
        }
        self.feed(&id, at.now);
    }

    /// The shell dropped the drive file, as it does on SIGINT, and is back at its prompt: the state
    /// is read by another one.
    pub(super) fn reread(&mut self, end: End, at: At, effects: &mut Vec<Effect>) {
        self.drain(effects);
        self.uncook(at);
        let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let run = *run;
        match run.job {
            Job::Command { id, .. } => {
                effects.push(Effect::Show(run.copy.end()));
                let job = Job::Reread { id: id.clone(), started: run.started, end };
                if self.begin(job, at, effects).is_err() {
                    self.finish_command(&id, end, at.now - run.started, false, None, effects);
                }
            }
            Job::Reread { id, started, end } => {
                self.finish_command(&id, end, at.now - started, false, None, effects);
            }
            Job::Quiet { token, .. } => {
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: end.1 }));
            }
            Job::Capture => {}
        }
        self.poll_soon(at.now + SETTLE);
    }

    /// The key did not do it: the line editor was in the middle of something, or a command redefined
    /// what the key runs. The other keys are tried, each once, as long as the shell is at its prompt.
    pub(super) fn retype(&mut self, at: At, effects: &mut Vec<Effect>) {
        let shown = self.prompt_shown(at);
        let Phase::Running(run) = &mut self.phase else { return };
        run.typed = at.now;
        if !shown {
            // A busy machine, or a program that the key went to: neither is helped by typing.
            if at.now >= run.started + START {
                self.end_running((Outcome::NotStarted, None, None));
            }
            return;
        }
        if run.retyped > self.setup.kind.keys() {
            self.end_running((Outcome::NotStarted, None, None));
            return;
        }
        // With the file gone the old key can do nothing any more; only if the shell is still at its
        // prompt then did it do nothing before.
        self.paths.remove("drive");
        self.look_begun();
        if !self.prompt_shown(at) || !ctl_empty(&self.paths) {
            return;
        }
        let Phase::Running(run) = &mut self.phase else { return };
        if run.begun {
            return;
        }
        run.retyped += 1;
        if run.retyped > 1 {
            self.key = (self.key + 1) % self.setup.kind.keys();
        }
        let Phase::Running(mut run) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        run.harmless = false;
        let written = self.write_drive(&run, true);
        self.phase = Phase::Running(run);
        match written {
            Ok(key) => effects.push(Effect::Type(key)),
            Err(_) => self.end_running((Outcome::NotStarted, None, None)),
        }
    }
}

fn ctl_empty(paths: &Paths) -> bool {
    fs::read_dir(paths.ctl_dir()).is_ok_and(|mut entries| entries.next().is_none())
}
