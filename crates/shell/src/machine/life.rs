//! A shell starts and exits, and another takes its place.

use std::time::Instant;

use super::event::{Action, StateSource};
use super::keyboard::Keyboard;
use super::phase::{Ending, Idle, MachinePhase, Poll, PromptState, Redraw, START_TIMEOUT};
use super::{Actions, Machine};
use crate::effect::Happened;
use crate::screen;
use crate::status::End;
use wire::Outcome;

/// After this many shells in a row that did not come to their prompt, no other is started.
const MAX_FAILURES: u32 = 3;

impl Machine {
    pub(super) fn dump_read(&mut self, complete: bool, now: Instant, actions: &mut Actions) {
        match &mut self.phase {
            MachinePhase::Starting(starting) => {
                starting.dumped |= complete;
                if starting.ready && starting.dumped {
                    self.started(now, actions);
                }
            }
            MachinePhase::Running(run) => {
                run.dumped |= complete;
                self.try_finish(now, actions);
            }
            MachinePhase::Absent
            | MachinePhase::Idle(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    /// The rc file is read and its dump is there: the shell is on its way to the prompt.
    pub(super) fn started(&mut self, now: Instant, actions: &mut Actions) {
        actions.push(Action::TakeFirstDump);
        self.failures = 0;
        self.first_prompt = Some(now + START_TIMEOUT);
        self.phase = MachinePhase::Idle(Idle {
            prompt: PromptState::Unknown,
            poll: Poll::starting(now),
            redraw: Redraw::default(),
        });
        self.advance(now, actions);
    }

    pub(super) fn exited(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        now: Instant,
        actions: &mut Actions,
    ) {
        let status = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        self.first_prompt = None;
        let mut after_death = false;
        let by_itself = match std::mem::replace(&mut self.phase, MachinePhase::Absent) {
            MachinePhase::Running(run) if !run.has_begun() => {
                // It was exiting when the key was typed, and never read it.
                self.forget_auto_exit(actions);
                let started = run.started;
                self.ended_early(*run, End::of(Outcome::NotStarted), started, actions);
                true
            }
            MachinePhase::Running(run) => {
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
                actions.push(run.complete(end, status, ended, StateSource::ShellGone));
                true
            }
            MachinePhase::Ending(ending) => {
                let Ending { run, end, ended, .. } = *ending;
                self.ended_early(run, end, ended, actions);
                false
            }
            MachinePhase::Starting(_) => {
                self.failures += 1;
                false
            }
            MachinePhase::Idle(_) | MachinePhase::Redrawing(_) => {
                self.forget_auto_exit(actions);
                true
            }
            MachinePhase::Over => {
                self.phase = MachinePhase::Over;
                return;
            }
            MachinePhase::Absent => false,
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

    pub(super) fn forget_auto_exit(&self, actions: &mut Actions) {
        if self.replacement.is_none() {
            actions.push(Action::ForgetAutoExit);
        }
    }

    /// Ends for good, with the exit code or the signal of the last shell.
    pub(super) fn end(&mut self, code: Option<i32>, signal: Option<i32>, actions: &mut Actions) {
        self.phase = MachinePhase::Over;
        for waiting in self.queue.take_all() {
            actions.push(waiting.never_starts(Outcome::NotStarted));
        }
        actions.push(Action::CloseStreams);
        actions.push(Action::Emit(Happened::Ended { code, signal }));
    }
}
