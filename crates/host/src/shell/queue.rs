//! What waits for the shell, and when it may begin.

use std::io;
use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, Termios, tcgetattr};

use super::driver::{Driver, Phase};
use super::pipes::Pipe;
use super::run::Job;
use super::{At, Effect, Happened, Spec, prompt};
use crate::wire::Outcome;

/// After typed input the line discipline may still hold bytes the shell has not seen.
pub(super) const SETTLE: Duration = Duration::from_millis(20);

/// How long a command waits for what the shell drew before it to be read.
const UNREAD: Duration = Duration::from_millis(20);

/// What a person did at the keyboard.
#[derive(Debug, Default)]
pub(super) struct Person {
    pub(super) typed: Option<Instant>,
    /// A command of theirs may have run since the state was last read.
    pub(super) entered: Option<Instant>,
    pub(super) half_typed: bool,
    /// The line begins with a blank: it may be meant to be in no history.
    pub(super) hides: bool,
}

/// When to look again whether the shell is at its prompt.
#[derive(Debug, Default)]
pub(super) struct Poll {
    pub(super) at: Option<Instant>,
    pub(super) step: Duration,
    /// Since when the prompt is there with something that nobody has read.
    pub(super) unread: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Waiting {
    Command { spec: Box<Spec>, until: Option<Instant> },
    Quiet { token: u64, script: Vec<u8> },
}

impl Driver {
    pub(super) fn poll_soon(&mut self, due: Instant) {
        self.poll.step = Duration::from_micros(500);
        self.poll.at = Some(self.poll.at.map_or(due, |at| at.min(due)));
    }

    /// Whether the shell waits for its next command, and nothing was typed towards it where a key of
    /// ours would mix with that.
    pub(super) fn prompt_shown(&self, at: At) -> bool {
        if self.setup.kind.edits_lines() {
            prompt::at_prompt(self.pid, at.master)
        } else {
            !self.person.half_typed && prompt::at_plain_prompt(self.pid, at.master)
        }
    }

    /// Gives a shell whose line editor has no keys to bind its modes back: a look at a command that took
    /// its time may have set a command's when the shell was at its prompt again. Nobody has given it a
    /// line since, so when it polls it edits.
    fn mend_modes(&self, at: At) {
        let canonical = |modes: &Termios| modes.local_modes.contains(LocalModes::ICANON);
        if !self.setup.kind.edits_lines()
            && self.person.entered.is_none()
            && let Some(own) = self.raw.as_ref().filter(|own| !canonical(own))
            && tcgetattr(at.master).is_ok_and(|modes| canonical(&modes))
            && prompt::polls_in_foreground(self.pid, at.master)
        {
            super::ending::restore_modes(at.master, own);
        }
    }

    /// Starts what waits, when the shell is at its prompt.
    pub(super) fn advance(&mut self, at: At, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let capture = self.person.entered.is_some();
        if self.queue.is_empty() && !capture {
            return;
        }
        if !self.paths.are_there() {
            // Somebody removed the files that this shell is driven by; the next has others.
            if self.replacement.is_none() {
                self.replace(self.state.clone());
            }
            return;
        }
        if !self.at_prompt {
            self.mend_modes(at);
            let settled = self.person.typed.is_none_or(|typed| at.now >= typed + SETTLE);
            if !settled || !self.prompt_shown(at) {
                let most = if self.queue.is_empty() {
                    Duration::from_secs(1)
                } else {
                    Duration::from_millis(20)
                };
                self.poll.step = (self.poll.step * 2).clamp(Duration::from_micros(100), most);
                self.poll.at = Some(at.now + self.poll.step);
                return;
            }
            // What the shell has drawn comes before the command; a job that prints for ever does not.
            if prompt::has_unread(at.master)
                && at.now < *self.poll.unread.get_or_insert(at.now) + UNREAD
            {
                self.poll.at = Some(at.now);
                return;
            }
            self.poll.unread = None;
            self.at_prompt = true;
            self.raw = tcgetattr(at.master).ok();
        }
        if capture {
            let _ = self.begin(Job::Capture, at, effects);
            return;
        }
        match self.queue.pop_front() {
            Some(Waiting::Command { spec, .. }) => {
                let id = spec.command.clone();
                if self.begin(Job::Command { id: id.clone(), spec }, at, effects).is_err() {
                    self.finish_command(
                        &id,
                        (Outcome::NotStarted, None, None),
                        Duration::ZERO,
                        false,
                        None,
                        effects,
                    );
                }
            }
            Some(Waiting::Quiet { token, script }) => {
                let begun = self.pair().and_then(|pipes| {
                    self.paths.write("command", &script)?;
                    self.begin(Job::Quiet { token, pipes }, at, effects)
                });
                if begun.is_err() {
                    effects.push(Effect::Emit(Happened::Applied { token, exit_code: None }));
                }
            }
            None => {}
        }
    }

    /// Ends those that waited too long for others. How long a shell takes to start is not their time.
    pub(super) fn expire_queued(&mut self, at: At, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        let expired = |waiting: &Waiting| match waiting {
            Waiting::Command { until, .. } => until.is_some_and(|until| until <= at.now),
            Waiting::Quiet { .. } => false,
        };
        while let Some(nth) = self.queue.iter().position(expired) {
            if let Some(waiting) = self.queue.remove(nth) {
                self.never_started(waiting, effects);
            }
        }
    }

    pub(super) fn never_started(&mut self, waiting: Waiting, effects: &mut Vec<Effect>) {
        match waiting {
            Waiting::Command { spec, .. } => {
                let end = (Outcome::NotStarted, None, None);
                self.finish_command(&spec.command, end, Duration::ZERO, false, None, effects);
            }
            Waiting::Quiet { token, .. } => {
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: None }));
            }
        }
    }

    /// Takes a queued command out; false when it is not queued.
    pub(super) fn unqueue(
        &mut self,
        command: &str,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let found = self.queue.iter().position(
            |waiting| matches!(waiting, Waiting::Command { spec, .. } if spec.command == command),
        );
        let Some(nth) = found else { return false };
        self.queue.remove(nth);
        let end = (outcome, None, None);
        self.finish_command(command, end, Duration::ZERO, false, None, effects);
        true
    }

    pub(super) fn pair(&mut self) -> io::Result<[Pipe; 2]> {
        if let Some(pipes) = self.spare.take() {
            return Ok(pipes);
        }
        self.pipe_number += 1;
        let number = self.pipe_number;
        let out = Pipe::make(self.paths.run.join(format!("o{number}")))?;
        let err = Pipe::make(self.paths.run.join(format!("e{number}")))?;
        Ok([out, err])
    }
}
