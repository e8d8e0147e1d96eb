//! An idle shell: what is known about its prompt, when it is polled, and when it is redrawn.

use std::time::{Duration, Instant};

use super::event::PromptProbe;

/// How often the host reads what the shell has printed before a command no longer waits for the rest: a background job may
/// print without end.
const MAX_READS: u32 = 16;
/// How long a command waits for a host that does not read.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it is polled without a pause.
const UNREAD_BUSY_TIME: Duration = Duration::from_millis(20);

/// Commands that follow one another within this time need no prompt between them.
const REDRAW_DELAY: Duration = Duration::from_millis(25);
/// How often a redraw is tried again at least while the shell is not back at its prompt.
const MAX_REDRAW_DELAY: Duration = Duration::from_secs(1);
/// A person who typed within this time is not interrupted by a redraw.
const TYPING_PAUSE: Duration = Duration::from_millis(300);
/// A prompt counts as drawn when the shell has printed nothing for this long.
const DRAWN_PAUSE: Duration = Duration::from_millis(3);
/// A prompt that is not drawn after this time is no longer waited for.
const REDRAW_TIMEOUT: Duration = Duration::from_secs(1);
/// How many bytes of a drawn prompt are remembered.
const MAX_DRAWN_BYTES: usize = 8 << 10;

/// A shell in which no drive file runs.
#[derive(Debug)]
pub struct Idle {
    pub prompt: PromptState,
    pub poll: Poll,
    pub redraw: Redraw,
}

/// What is known about the prompt of an idle shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptState {
    /// The shell may be running a person's program.
    Unknown,
    /// The shell is at its prompt, and no key was pressed since the last probe.
    AtPrompt,
    /// As `AtPrompt`, and the state of the shell is the one of the last dump.
    Unchanged,
}

/// When to probe the prompt again.
#[derive(Debug)]
pub struct Poll {
    pub at: Option<Instant>,
    step: Duration,
    /// The shell is at its prompt, and the host has not read all of its output.
    unread: Option<Unread>,
}

#[derive(Debug)]
struct Unread {
    since: Instant,
    /// How often the host has read since then.
    reads: u32,
}

impl Default for Poll {
    fn default() -> Self {
        Self { at: None, step: Duration::from_micros(500), unread: None }
    }
}

impl Poll {
    /// A poll for a shell that has just started.
    pub fn starting(now: Instant) -> Self {
        let step = Duration::from_micros(100);
        Self { at: Some(now + step), step, unread: None }
    }

    /// A poll that is due at `at`.
    pub fn soon(at: Instant) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// Polls at `due` at the latest, and frequently from then on.
    pub fn by(&mut self, due: Instant) {
        self.step = Duration::from_micros(500);
        self.at = Some(self.at.map_or(due, |at| at.min(due)));
    }

    /// Polls later, with a growing interval.
    pub fn back_off(&mut self, now: Instant, max_interval: Duration) {
        self.step = (self.step * 2).clamp(Duration::from_micros(100), max_interval);
        self.at = Some(now + self.step);
    }

    /// Returns whether the host should read the shell's output first, and polls soon if so. A host that is not scheduled
    /// does not count as one that reads.
    pub fn awaits_reader(&mut self, probe: PromptProbe, now: Instant) -> bool {
        if !probe.unread {
            self.unread = None;
            return false;
        }
        let Unread { since, reads } = *self.unread.get_or_insert(Unread { since: now, reads: 0 });
        let waits = reads < MAX_READS && now < since + UNREAD_TIMEOUT;
        if waits {
            let is_early = now < since + UNREAD_BUSY_TIME;
            self.at = Some(if is_early { now } else { now + Duration::from_millis(1) });
        } else {
            self.unread = None;
        }
        waits
    }

    /// Notes that the host has read output of the shell.
    pub fn read(&mut self) {
        if let Some(unread) = &mut self.unread {
            unread.reads += 1;
        }
    }
}

/// Whether and when the prompt should be redrawn.
#[derive(Debug, Default, Clone, Copy)]
pub struct Redraw {
    pub at: Option<Instant>,
    /// Something changed that a prompt may show.
    pub stale: bool,
    /// How long the redraw was postponed last.
    delay: Duration,
}

impl Redraw {
    /// Schedules a redraw after a command has ended.
    pub fn schedule(&mut self, now: Instant) {
        self.delay = REDRAW_DELAY;
        self.at = Some(now + REDRAW_DELAY);
    }

    /// Postpones the redraw, because the shell is not back at its prompt.
    pub fn postpone(&mut self, now: Instant) {
        self.delay = (self.delay * 2).clamp(REDRAW_DELAY, MAX_REDRAW_DELAY);
        self.at = Some(now + self.delay);
    }

    /// Returns whether it is time to redraw. Postpones the redraw while a person types.
    pub fn is_due(&mut self, typed: Option<Instant>, now: Instant) -> bool {
        if self.at.is_none_or(|due| due > now) {
            return false;
        }
        if let Some(later) = typed.map(|typed| typed + TYPING_PAUSE)
            && later > now
        {
            self.at = Some(later);
            return false;
        }
        true
    }
}

/// A prompt that is being redrawn.
#[derive(Debug)]
pub struct Redrawing {
    since: Instant,
    /// The half-typed line has been saved.
    pub stashed: bool,
    pub drawn: Vec<u8>,
    last: Instant,
}

impl Redrawing {
    pub fn new(now: Instant) -> Self {
        Self { since: now, stashed: false, drawn: Vec::new(), last: now }
    }

    pub fn next(&self) -> Instant {
        self.last + DRAWN_PAUSE
    }

    pub fn stashed(&mut self, now: Instant) {
        self.stashed = true;
        self.last = now;
    }

    pub fn note(&mut self, bytes: &[u8], now: Instant) {
        self.last = now;
        if self.drawn.len() + bytes.len() <= MAX_DRAWN_BYTES {
            self.drawn.extend_from_slice(bytes);
        }
    }

    /// Returns whether there is time left to wait for the prompt, and schedules the next probe if so.
    pub fn wait_longer(&mut self, now: Instant) -> bool {
        let has_time = now < self.since + REDRAW_TIMEOUT;
        if has_time {
            self.last = now;
        }
        has_time
    }

    /// Returns whether nothing was typed while the prompt was drawn.
    pub fn untouched(typed: Option<Instant>, now: Instant) -> bool {
        typed.is_none_or(|typed| typed + DRAWN_PAUSE < now)
    }
}
