//! What is to be done at a later time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Something that falls due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Hand written logs to the syncer.
    Sync,
    /// Look whether the processes of closed terminals are gone.
    Closing,
    /// Look for the records of shells that have no inotify watch.
    Records,
    /// Let connections in again.
    Listen,
    /// The executable under test had its time.
    Check,
    /// Whoever this host waits for had time to greet it.
    Greeting,
}

/// Times, soonest first. Each thing is due at one time only.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Due)>);

impl Timers {
    /// Sets a timer, unless it is set already.
    pub(super) fn arm(&mut self, due: Due, after: Duration) {
        if !self.0.iter().any(|(_, set)| *set == due) {
            self.0.insert((Instant::now() + after, due));
        }
    }

    /// Takes out one that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        let (at, due) = *self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            due
        })
    }

    /// How long until the next.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.0.first().map(|(at, _)| at.saturating_duration_since(now))
    }
}
