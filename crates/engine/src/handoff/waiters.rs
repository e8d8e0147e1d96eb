//! The requests that wait for a hand-off to be settled.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use model::HandoffId;

/// A channel per awaited hand-off. It carries nothing: a waiter reads the row when it closes.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<HandoffId, watch::Sender<()>>>);

impl Waiters {
    /// Subscribes before the row is read, so that no change in between is missed.
    pub(super) fn subscribe(&self, id: &HandoffId) -> watch::Receiver<()> {
        let mut waiting = self.0.lock();
        waiting.entry(id.clone()).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Releases the channel of a hand-off without waiters. The last waiter calls it when it leaves.
    pub(super) fn leave(&self, id: &HandoffId, waiter: watch::Receiver<()>) {
        drop(waiter);
        let mut waiting = self.0.lock();
        if waiting.get(id).is_some_and(|sender| sender.receiver_count() == 0) {
            waiting.remove(id);
        }
    }

    /// Wakes the waiters of a hand-off.
    pub(super) fn wake(&self, id: &HandoffId) {
        self.0.lock().remove(id);
    }

    /// Wakes all waiters: hand-offs were deleted with their terminal.
    pub(super) fn wake_all(&self) {
        self.0.lock().clear();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}
