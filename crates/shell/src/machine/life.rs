//! The start and the exit of a shell, and its replacement.

use std::time::Instant;

use super::ending::Ending;
use super::event::{Action, StateSource};
use super::idle::{Idle, Poll, PromptState, Redraw};
use super::keyboard::Keyboard;
use super::phase::{MachinePhase, START_TIMEOUT};
use super::{Actions, Machine};
use crate::effect::DriverEvent;
use crate::options::Errexit;
use crate::screen;
use crate::status::End;
use wire::Outcome;

/// After this many shells in a row that did not reach their prompt, no other is started.
const MAX_FAILURES: u32 = 3;

impl Machine {
    /// Notes that a whole dump was read.
    pub(super) fn note_dump(&mut self) {
        match &mut self.phase {
            MachinePhase::Starting(starting) => starting.dumped = true,
            MachinePhase::Running(run) => run.dumped = true,
            MachinePhase::Absent
            | MachinePhase::Idle(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    /// Continues after the state FIFO was read.
    pub(super) fn dump_read(&mut self, now: Instant, actions: &mut Actions) {
        match &self.phase {
            MachinePhase::Starting(starting) => {
                if starting.ready && starting.dumped {
                    self.started(now, actions);
                }
            }
            MachinePhase::Running(_) => self.try_finish(now, actions),
            MachinePhase::Absent
            | MachinePhase::Idle(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => {}
        }
    }

    /// Handles a shell that has read its rc file and dumped its state, and draws its first prompt.
    pub(super) fn started(&mut self, now: Instant, actions: &mut Actions) {
        actions.push(Action::TakeFirstDump);
        self.failures = 0;
        self.prompt_due = Some(now + START_TIMEOUT);
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
        self.prompt_due = None;
        let mut errexit = Errexit::Restore;
        let by_itself = match std::mem::replace(&mut self.phase, MachinePhase::Absent) {
            MachinePhase::Running(run) if !run.has_begun() => {
                // The shell was exiting when the key was typed, and never read it.
                self.forget_auto_exit(actions);
                let started = run.started;
                self.ended_early(*run, End::of(Outcome::NotStarted), started, actions);
                true
            }
            MachinePhase::Running(run) => {
                // The option may be the reason for the exit.
                errexit = Errexit::Off;
                actions.push(Action::TrimExitSequence);
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
            actions.push(Action::Launch { failures: self.failures, errexit });
        }
    }

    pub(super) fn forget_auto_exit(&self, actions: &mut Actions) {
        if self.replacement.is_none() {
            actions.push(Action::ForgetAutoExit);
        }
    }

    /// Ends the terminal's shells, with the exit code or the signal of the last one.
    pub(super) fn end(&mut self, code: Option<i32>, signal: Option<i32>, actions: &mut Actions) {
        self.phase = MachinePhase::Over;
        for waiting in self.queue.take_all() {
            actions.push(waiting.never_starts(Outcome::NotStarted));
        }
        actions.push(Action::CloseStreams);
        actions.push(Action::Emit(DriverEvent::Ended { code, signal }));
    }
}
