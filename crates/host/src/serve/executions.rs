//! What the loop keeps about commands and the drivers that run them.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::slots::Key;

/// What the loop keeps about commands.
#[derive(Debug, Default)]
pub(super) struct Executions {
    /// One inotify instance for all terminals: the kernel allows a user few of them, and any other
    /// process of that user may have taken the last one.
    pub(super) records: Option<OwnedFd>,
    pub(super) directories: HashMap<i32, Key>,
    /// Terminals without a watch: their records are polled while one is awaited.
    pub(super) polled: BTreeSet<Key>,
    /// When drivers want to be called, soonest first.
    pub(super) due: BTreeSet<(Instant, Key)>,
    pub(super) due_of: HashMap<Key, Instant>,
    pub(super) commands: HashMap<String, Key>,
    pub(super) watches: HashMap<String, Vec<Watch>>,
    /// Who waits for the end of a script, by its token.
    pub(super) scripts: HashMap<u64, (Key, u32)>,
    pub(super) tokens: u64,
}

/// A connection that gets a command's output as it comes.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) connection: Key,
    /// The next offset of each stream.
    pub(super) next: [u64; 2],
}

impl Executions {
    /// How long until a driver wants to be called.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.first().map(|(at, _)| at.saturating_duration_since(now))
    }

    /// A connection is gone.
    pub(super) fn forget_connection(&mut self, connection: Key) {
        self.watches.retain(|_, watches| {
            watches.retain(|watch| watch.connection != connection);
            !watches.is_empty()
        });
        self.scripts.retain(|_, (asked, _)| *asked != connection);
    }

    pub(super) fn set_due(&mut self, key: Key, at: Option<Instant>) {
        if self.due_of.get(&key).copied() == at {
            return;
        }
        if let Some(before) = self.due_of.remove(&key) {
            self.due.remove(&(before, key));
        }
        if let Some(at) = at {
            self.due.insert((at, key));
            self.due_of.insert(key, at);
        }
    }

    /// Stops sending a command's output to a connection.
    pub(super) fn unwatch(&mut self, connection: Key, command: &str) {
        if let Some(watches) = self.watches.get_mut(command) {
            watches.retain(|watch| watch.connection != connection);
            if watches.is_empty() {
                self.watches.remove(command);
            }
        }
    }
}
