//! Drawing the prompt again when a command changed what it shows.
//!
//! bash expands its prompt when it begins to read a line, and a key of ours does not begin one: after
//! an exec that changed the directory the old one would be shown until a person presses Enter. So when
//! nothing has run for a moment a key is typed that puts the half-typed line away, ends the empty line,
//! and lets bash draw; then the half-typed line is put back. Both steps of the key are one to the line
//! editor: nothing a person types can get between them.

use std::time::Instant;

use super::event::{Action, PromptProbe};
use super::phase::{Idle, MachinePhase, Poll, PromptState, Redraw, Redrawing};
use super::{Actions, Machine};

impl Machine {
    pub(super) fn redraw_if_due(&mut self, now: Instant, actions: &mut Actions) {
        let MachinePhase::Idle(idle) = &mut self.phase else { return };
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
    pub(super) fn redrawn(&mut self, probe: PromptProbe, now: Instant, actions: &mut Actions) {
        let MachinePhase::Redrawing(redrawing) = &mut self.phase else { return };
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
        self.phase = MachinePhase::Idle(Idle { prompt, poll, redraw: Redraw::default() });
        if stashed {
            self.prompt.drawn(&drawn);
            actions.push(Action::EndRedraw { drawn });
        }
        self.advance(now, actions);
    }
}
