//! Handling the executor's answers.

use std::time::Instant;

use super::event::{Action, Answer};
use super::phase::MachinePhase;
use super::{Actions, Machine};
use crate::status::End;
use wire::Outcome;

impl Machine {
    /// Handles the executor's answer to an action.
    pub(super) fn answer(&mut self, answer: Answer, now: Instant, actions: &mut Actions) {
        match (answer, &mut self.phase) {
            (Answer::Prompt(probe), MachinePhase::Idle(_)) => self.idle_probed(probe, now, actions),
            (Answer::Prompt(probe), MachinePhase::Redrawing(_)) => {
                self.redrawn(probe, now, actions)
            }
            (Answer::Prompt(probe), MachinePhase::Running(_)) => {
                self.key_overdue(probe, now, actions);
            }
            (Answer::Redraw { wanted, shown }, MachinePhase::Idle(_)) => {
                self.redraw_probed(wanted, shown, now, actions);
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
            (Answer::Swept(result), MachinePhase::Ending(ending)) => {
                actions.extend(ending.swept(result).action());
            }
            (Answer::NotSignalled(signal), MachinePhase::Running(run)) => {
                run.defer(signal, now);
                if run.has_opened_streams(now) {
                    // The shell may have left the command and be back at its prompt.
                    actions.push(Action::ProbeRun);
                }
            }
            (Answer::Completed { prompt_changed }, MachinePhase::Idle(idle)) => {
                idle.redraw.stale |= prompt_changed;
                idle.redraw.schedule(now);
            }
            // The shell has ended since the action.
            (
                Answer::Prompt(_)
                | Answer::Redraw { .. }
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
}
