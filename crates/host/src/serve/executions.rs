//! The loop's tables of commands and of the drivers that run them.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::slots::Key;

/// The commands of all terminals, and the schedule of their drivers.
#[derive(Debug, Default)]
pub(super) struct Executions {
    /// One inotify instance for all terminals: the kernel allows a user only a few instances, and another
    /// process of the user may have taken the last one.
    pub(super) records: Option<OwnedFd>,
    pub(super) directories: HashMap<i32, Key>,
    /// Terminals without a watch: their records are polled while one is awaited.
    pub(super) polled: BTreeSet<Key>,
    /// The deadlines of the drivers, soonest first.
    pub(super) due: BTreeSet<(Instant, Key)>,
    pub(super) due_of: HashMap<Key, Instant>,
    pub(super) commands: HashMap<String, Key>,
    pub(super) watches: HashMap<String, Vec<OutputWatch>>,
    /// The connection and request to answer at the end of a script, by its token.
    pub(super) scripts: HashMap<u64, (Key, u32)>,
    pub(super) tokens: u64,
}

/// A connection that receives a command's output as it is written.
#[derive(Debug)]
pub(super) struct OutputWatch {
    pub(super) connection: Key,
    /// The next offset of each stream.
    pub(super) next: [u64; 2],
}

impl Executions {
    /// Returns the time until the next deadline of a driver.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.first().map(|(at, _)| at.saturating_duration_since(now))
    }

    /// Removes the watches and the script requests of a closed connection.
    pub(super) fn forget_connection(&mut self, connection: Key) {
        self.watches.retain(|_, watches| {
            watches.retain(|watch| watch.connection != connection);
            !watches.is_empty()
        });
        self.scripts.retain(|_, (requester, _)| *requester != connection);
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
