//! The requests that wait for a hand-off to be settled.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use model::HandoffId;

/// A channel per awaited hand-off. It carries nothing: a waiter reads the row when it closes.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<HandoffId, watch::Sender<()>>>);

/// A request that waits. Its channel is released when the last one is dropped, also by a client that disconnects.
pub(super) struct HandoffWaiter<'a> {
    waiters: &'a Waiters,
    id: &'a HandoffId,
    channel: Option<watch::Receiver<()>>,
}

impl HandoffWaiter<'_> {
    /// Waits until the hand-off is settled.
    pub(super) async fn settled(&mut self) {
        if let Some(channel) = &mut self.channel {
            // Fails when the sender is dropped.
            let _ = channel.changed().await;
        }
    }
}

impl Drop for HandoffWaiter<'_> {
    fn drop(&mut self) {
        self.channel = None;
        let mut waiting = self.waiters.0.lock();
        if waiting.get(self.id).is_some_and(|sender| sender.receiver_count() == 0) {
            waiting.remove(self.id);
        }
    }
}

impl Waiters {
    /// Subscribes before the row is read, so that no change in between is missed.
    pub(super) fn subscribe<'a>(&'a self, id: &'a HandoffId) -> HandoffWaiter<'a> {
        let mut waiting = self.0.lock();
        let sender = waiting.entry(id.clone()).or_insert_with(|| watch::Sender::new(()));
        HandoffWaiter { waiters: self, id, channel: Some(sender.subscribe()) }
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
