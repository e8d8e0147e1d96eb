//! Expires the hand-offs that no person settled in time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{HandoffError, Handoffs};
use base::event::{Delivery, EventKind, EventSubscription};
use model::{Handoff, HandoffEvent};

/// How often the store is asked although nothing is known to be due: the machine may have been suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// How long after a failure the store is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Handoffs {
    /// Expires hand-offs until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changed = self.shared.changed.subscribe();
        let mut events = self.shared.events.subscribe(None);
        loop {
            changed.mark_unchanged();
            let wait = self.expire_due().await;
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changed.changed() => {}
                () = terminal_deleted(&mut events) => self.shared.waiters.wake_all(),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Expires what is due; returns when to ask again.
    pub(super) async fn expire_due(&self) -> Duration {
        let open = match self.shared.store.open_handoffs().await {
            Ok(open) => open,
            Err(error) => {
                tracing::warn!(%error, "cannot find the hand-offs that have expired yet");
                return RETRY_INTERVAL;
            }
        };
        let mut wait = POLL_INTERVAL;
        for handoff in open {
            let left = handoff.left(&self.now());
            if !left.is_zero() {
                wait = wait.min(left);
                continue;
            }
            match self.expire(&handoff).await {
                // A person or the deletion of its terminal came first.
                Ok(_) | Err(HandoffError::Missing(_)) => {}
                Err(HandoffError::Store(store::StoreError::Refused(_))) => {}
                Err(error) => {
                    tracing::warn!(handoff = %handoff.handoff_id, %error, "cannot expire the hand-off yet");
                    wait = wait.min(RETRY_INTERVAL);
                }
            }
        }
        wait
    }

    async fn expire(&self, handoff: &Handoff) -> Result<Handoff, HandoffError> {
        let id = &handoff.handoff_id;
        let settle = self.settle(id, HandoffEvent::Elapsed(self.now()));
        self.shared.settling.with(id.as_str(), settle).await?
    }
}

/// Waits until a terminal was deleted, or until that may have been missed.
async fn terminal_deleted(events: &mut EventSubscription) {
    loop {
        match events.next().await {
            Some(Delivery::Missed(_)) => return,
            Some(Delivery::Event(event)) => {
                if matches!(event.kind, EventKind::TerminalDeleted { .. }) {
                    return;
                }
            }
            None => std::future::pending().await,
        }
    }
}
