//! Watched directories whose events clients poll for.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::AbortHandle;

use model::ThreadId;

/// The limit of queued events per watcher; the oldest are dropped first.
const MAX_QUEUED_EVENTS: usize = 10_000;

/// The watchers of all sandboxes, by name.
#[derive(Default)]
pub struct Watchers(Mutex<HashMap<String, PolledWatcher>>);

struct PolledWatcher {
    sandbox: ThreadId,
    events: EventQueue,
    task: AbortHandle,
}

impl Drop for PolledWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The events of a watcher that its client has not read.
#[derive(Debug, Clone, Default)]
pub struct EventQueue(Arc<Mutex<VecDeque<Value>>>);

impl EventQueue {
    pub fn extend(&self, events: Vec<Value>) {
        let mut queue = self.0.lock();
        queue.extend(events);
        while queue.len() > MAX_QUEUED_EVENTS {
            queue.pop_front();
        }
    }
}

impl Watchers {
    pub fn count(&self, sandbox: &ThreadId) -> usize {
        self.0.lock().values().filter(|watcher| watcher.sandbox == *sandbox).count()
    }

    /// Adds a watcher whose task fills the queue. The task ends with the watcher.
    pub fn add(&self, name: String, sandbox: ThreadId, events: EventQueue, task: AbortHandle) {
        self.0.lock().insert(name, PolledWatcher { sandbox, events, task });
    }

    /// Returns the events since the last call; `None` if the sandbox has no such watcher.
    pub fn take_events(&self, sandbox: &ThreadId, name: &str) -> Option<Vec<Value>> {
        let all = self.0.lock();
        let watcher = all.get(name).filter(|watcher| watcher.sandbox == *sandbox)?;
        Some(watcher.events.0.lock().drain(..).collect())
    }

    /// Removes a watcher; `false` if the sandbox has no such watcher.
    pub fn remove(&self, sandbox: &ThreadId, name: &str) -> bool {
        let mut all = self.0.lock();
        let found = all.get(name).is_some_and(|watcher| watcher.sandbox == *sandbox);
        if found {
            all.remove(name);
        }
        found
    }

    /// Removes the watchers of a deleted sandbox.
    pub fn forget(&self, sandbox: &ThreadId) {
        self.0.lock().retain(|_, watcher| watcher.sandbox != *sandbox);
    }
}
