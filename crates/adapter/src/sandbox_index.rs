//! The ids of the sandboxes that exist.

use std::collections::HashSet;

use parking_lot::Mutex;

use model::ThreadId;

/// The ids of all sandboxes, for requests that identify a sandbox only by their signature.
#[derive(Default)]
pub struct SandboxIndex(Mutex<HashSet<ThreadId>>);

impl SandboxIndex {
    pub fn add(&self, id: ThreadId) {
        self.0.lock().insert(id);
    }

    pub fn remove(&self, id: &ThreadId) {
        self.0.lock().remove(id);
    }

    pub fn replace(&self, ids: HashSet<ThreadId>) {
        *self.0.lock() = ids;
    }

    pub fn ids(&self) -> Vec<ThreadId> {
        self.0.lock().iter().cloned().collect()
    }
}
