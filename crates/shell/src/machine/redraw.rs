//! Redrawing the prompt when a command changed what it shows.
//!
//! bash expands its prompt when it begins to read a line, and a key that the driver types does not begin
//! one: after an exec that changed the directory, the prompt would show the old directory until a person
//! presses Enter. So after a short idle time a key is typed that saves the half-typed line, accepts the
//! empty line, and lets bash draw its prompt; then the half-typed line is restored. The line editor runs
//! both steps of the key as one macro, so that no typed byte comes between them.
//!
//! The line editor erases the row in which its prompt begins, and with it an output that has no line end. So nothing is
//! shown if the prompt is the same as before.

use std::time::Instant;

use super::event::{Action, PromptProbe};
use super::idle::{Idle, Poll, PromptState, Redraw, Redrawing};
use super::phase::MachinePhase;
use super::{Actions, Machine};

impl Machine {
    pub(super) fn redraw_if_due(&mut self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &mut self.phase else { return };
        if !idle.redraw.is_due(self.keyboard.typed, now) {
            return;
        }
        idle.redraw.at = None;
        if !self.queue.is_empty() || self.keyboard.entered.is_some() {
            return;
        }
        if self.capabilities.redraws && self.key == 0 {
            actions.push(Action::ProbeRedraw { stale: idle.redraw.stale });
        }
    }

    /// Begins the redraw if it is wanted and the shell is at its prompt.
    pub(super) fn redraw_probed(
        &mut self,
        wanted: bool,
        shown: bool,
        now: Instant,
        actions: &mut Actions,
    ) {
        let MachinePhase::Idle(idle) = &mut self.phase else { return };
        match (wanted, shown) {
            (true, true) => {
                self.phase = MachinePhase::Redrawing(Redrawing::new(now));
                actions.push(Action::TypeRedraw);
            }
            (true, false) => idle.redraw.postpone(now),
            (false, _) => idle.redraw = Redraw::default(),
        }
    }

    /// Ends the redraw if the prompt is drawn, or if it took too long.
    pub(super) fn redrawn(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Redrawing(redrawing) = &mut self.phase else { return };
        let stashed = redrawing.stashed;
        // Parts of the prompt may be printed and not read yet.
        let is_drawn = stashed && probe.shown && !probe.unread;
        if !is_drawn && redrawing.wait_longer(now) {
            return;
        }
        let drawn = std::mem::take(&mut redrawing.drawn);
        let untouched = Redrawing::untouched(self.keyboard.typed, now);
        let prompt = if probe.shown && stashed && untouched {
            PromptState::AtPrompt
        } else {
            PromptState::Unknown
        };
        let poll = Poll::soon(now);
        self.phase = MachinePhase::Idle(Idle { prompt, poll, redraw: Redraw::default() });
        let withheld = std::mem::take(&mut self.withheld);
        if stashed {
            self.prompt.drawn(&drawn);
            actions.push(Action::EndRedraw { withheld, drawn });
        } else if !withheld.is_empty() {
            actions.push(Action::Show(withheld));
        }
        self.advance(now, actions);
    }
}
