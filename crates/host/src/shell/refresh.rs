//! Drawing the prompt again when a command changed what it shows.
//!
//! bash expands its prompt when it begins to read a line, and a key of ours does not begin one: after
//! an exec that went elsewhere the old directory would stand there until somebody presses Enter. So
//! when nothing has run for a moment a key is typed that puts away what is half typed, ends the empty
//! line, and lets bash draw; then what was half typed is put back. Both steps of the key are one to
//! the line editor: nothing a person types can get between them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use super::driver::{Driver, Phase, Trust};
use super::state::Changes;
use super::{At, Effect, Kind, bash, prompt, screen};

/// Commands that follow one another closely need no prompt between them.
const AFTER: Duration = Duration::from_millis(25);
/// A person who typed this lately is not interrupted for the sake of looks.
const TYPING: Duration = Duration::from_millis(300);
/// The prompt is drawn when nothing has come for so long.
const STILL: Duration = Duration::from_millis(3);
/// A prompt that is not there after this is not waited for.
const GIVE_UP: Duration = Duration::from_secs(1);
/// How much of what is drawn is looked at.
const MOST: usize = 8 << 10;

/// A prompt that is to be drawn again.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// When to look.
    pub(super) at: Option<Instant>,
    /// Something changed that a prompt may show.
    stale: bool,
}

/// A prompt that is being drawn.
#[derive(Debug)]
pub(super) struct Refresh {
    since: Instant,
    /// What was half typed has been put away.
    stashed: bool,
    drawn: Vec<u8>,
    last: Instant,
}

impl Due {
    /// A command has ended and changed this.
    pub(super) fn note(&mut self, changes: &Changes, now: Instant) {
        let shown = |name: &str| !matches!(name, "status" | "limits" | "traps" | "umask");
        self.stale |= changes.0.iter().any(|(name, _)| shown(name));
        self.at = Some(now + AFTER);
    }

    /// The shell has drawn its prompt by itself.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Refresh {
    pub(super) fn next(&self) -> Instant {
        self.last + STILL
    }

    /// The shell recorded that the line is put away.
    pub(super) fn stashed(&mut self, now: Instant) {
        self.stashed = true;
        self.last = now;
    }

    pub(super) fn see(&mut self, bytes: &[u8], now: Instant) {
        self.last = now;
        if self.drawn.len() + bytes.len() <= MOST {
            self.drawn.extend_from_slice(bytes);
        }
    }
}

impl Driver {
    /// Begins to draw the prompt again, if it is time and that would change anything.
    pub(super) fn refresh(&mut self, at: At, effects: &mut Vec<Effect>) {
        if self.due.at.is_none_or(|due| due > at.now) {
            return;
        }
        if let Some(later) = self.person.typed.map(|typed| typed + TYPING)
            && later > at.now
        {
            self.due.at = Some(later);
            return;
        }
        let wanted = self.setup.kind == Kind::Bash
            && self.key == 0
            && (self.due.stale || bash::asks_others(&self.state))
            && bash::may_refresh(&self.state)
            && self.queue.is_empty()
            && self.person.entered.is_none()
            && self.prompt_shown(at);
        self.due.clear();
        if wanted {
            effects.push(Effect::Type(bash::REFRESH.to_vec()));
            self.at_prompt = false;
            // The hooks of the prompt run.
            self.trust = Trust::None;
            let (since, last) = (at.now, at.now);
            let refresh = Refresh { since, stashed: false, drawn: Vec::new(), last };
            self.phase = Phase::Refreshing(Box::new(refresh));
        }
    }

    /// Looks whether the prompt is drawn.
    pub(super) fn tick_refresh(&mut self, at: At, effects: &mut Vec<Effect>) {
        let shown = self.prompt_shown(at);
        let Phase::Refreshing(refresh) = &mut self.phase else { return };
        if at.now < refresh.next() {
            return;
        }
        // What is drawn may be there and not read yet.
        let drawn = refresh.stashed && shown && !prompt::has_unread(at.master);
        if !drawn && at.now < refresh.since + GIVE_UP {
            refresh.last = at.now;
            return;
        }
        let (stashed, drawn) = (refresh.stashed, std::mem::take(&mut refresh.drawn));
        self.phase = Phase::Idle;
        self.at_prompt = shown && stashed && self.person.typed.is_none_or(|it| it < at.now - STILL);
        if stashed {
            let columns = tcgetwinsize(at.master).map_or(80, |size| usize::from(size.ws_col));
            effects.push(Effect::Show(screen::without_old_prompt(&drawn, columns)));
            self.prompt.drawn(&drawn);
            self.put_back(effects);
        }
        self.poll_soon(at.now);
        self.advance(at, effects);
    }

    /// Gives the line editor back what was half typed, before whatever was typed since.
    fn put_back(&mut self, effects: &mut Vec<Effect>) {
        let text = fs::read(self.paths.run.join("stash")).unwrap_or_default();
        let Some(script) = bash::unstash(&text) else { return };
        if self.paths.write("unstash", &script).is_ok() {
            effects.push(Effect::Type(bash::UNSTASH.to_vec()));
        }
    }
}
