//! Timers of the loop.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A kind of timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Pass written logs to the syncer.
    Sync,
    /// Check whether the processes of closed terminals have exited.
    Closing,
    /// Poll the records of shells that have no inotify watch.
    Records,
    /// Wake programs that wait to write to a terminal.
    Writers,
    /// Accept connections again after a pause.
    Listen,
    /// Kill the executable that is being checked.
    Check,
    /// Shut down if no server has connected.
    Greeting,
}

/// The pending timers, soonest first, at most one of each kind.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Due)>);

impl Timers {
    /// Sets a timer unless one of its kind is set already.
    pub(super) fn arm(&mut self, due: Due, after: Duration) {
        if !self.0.iter().any(|(_, set)| *set == due) {
            self.0.insert((Instant::now() + after, due));
        }
    }

    /// Removes and returns a timer that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        let (at, due) = *self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            due
        })
    }

    /// Returns the time until the next timer.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.0.first().map(|(at, _)| at.saturating_duration_since(now))
    }
}
