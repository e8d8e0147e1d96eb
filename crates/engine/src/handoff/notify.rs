//! Notifies the webhook of open hand-offs, until each is accepted or settled.
//!
//! Which notifications are pending is in the rows, so none is lost if the server is killed. A notification may be
//! repeated if the server is killed after the webhook accepted it.

use std::{
    collections::HashMap,
    pin::Pin,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::Handoffs;
use base::backoff::Backoff;
use model::{Handoff, HandoffEvent, HandoffId, Notice};
use store::StoreError;

/// Notifications that are sent at the same time.
const CONCURRENT_NOTIFICATIONS: usize = 4;
/// The waits after failed attempts.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// How often the store is asked although nothing is known to be pending.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Sends one notification, with a deadline of its own.
pub trait HandoffNotifier: Send + Sync {
    fn notify<'a>(&'a self, handoff: &'a Handoff) -> Notifying<'a>;
}

/// The outcome of a notification.
pub type Notifying<'a> = Pin<Box<dyn Future<Output = Result<(), NotifyError>> + Send + 'a>>;

/// The webhook did not accept a notification.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NotifyError {
    pub reason: String,
}

/// The failed attempts of one notification.
pub(super) struct Attempts {
    backoff: Backoff,
    retry_at: Instant,
}

impl Handoffs {
    /// Sends notifications until `stop` is cancelled. Returns at once if there is no webhook.
    pub async fn notify(&self, stop: CancellationToken) {
        if self.shared.notifier.is_none() {
            return;
        }
        let mut changed = self.shared.changed.subscribe();
        let mut failed = HashMap::new();
        loop {
            changed.mark_unchanged();
            let wait = tokio::select! {
                () = stop.cancelled() => return,
                wait = self.notify_pending(&mut failed) => wait,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changed.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Attempts every notification that is due; returns when to try again.
    pub(super) async fn notify_pending(
        &self,
        failed: &mut HashMap<HandoffId, Attempts>,
    ) -> Duration {
        let open = match self.shared.store.open_handoffs().await {
            Ok(open) => open,
            Err(error) => {
                tracing::warn!(%error, "cannot find the pending notifications yet");
                return RETRY.after(1);
            }
        };
        let pending: Vec<Handoff> =
            open.into_iter().filter(|handoff| handoff.notice == Notice::Pending).collect();
        failed.retain(|id, _| pending.iter().any(|handoff| handoff.handoff_id == *id));
        let now = Instant::now();
        let is_due = |handoff: &Handoff| {
            failed.get(&handoff.handoff_id).is_none_or(|attempts| attempts.retry_at <= now)
        };
        let due: Vec<Handoff> = pending.into_iter().filter(is_due).collect();
        let outcomes: Vec<(HandoffId, bool)> = stream::iter(due)
            .map(|handoff| async move {
                let accepted = self.deliver(&handoff).await;
                (handoff.handoff_id, accepted)
            })
            .buffer_unordered(CONCURRENT_NOTIFICATIONS)
            .collect()
            .await;
        for (id, accepted) in outcomes {
            if accepted {
                failed.remove(&id);
                continue;
            }
            let attempts = failed.entry(id).or_insert(Attempts { backoff: RETRY, retry_at: now });
            attempts.retry_at = Instant::now() + attempts.backoff.next_wait();
        }
        let next = failed.values().map(|attempts| attempts.retry_at).min();
        let until_retry = next.map(|at| at.saturating_duration_since(Instant::now()));
        until_retry.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)
    }

    /// Sends one notification; returns whether it need not be sent again.
    async fn deliver(&self, handoff: &Handoff) -> bool {
        let id = &handoff.handoff_id;
        let Some(notifier) = &self.shared.notifier else { return true };
        if let Err(error) = notifier.notify(handoff).await {
            tracing::warn!(handoff = %id, %error, "the webhook was not notified yet");
            return false;
        }
        match self.shared.store.apply_handoff(id, HandoffEvent::Notified).await {
            // Settled or deleted in the meantime.
            Ok(_) | Err(StoreError::Refused(_) | StoreError::Missing { .. }) => true,
            Err(error) => {
                tracing::warn!(handoff = %id, %error, "cannot record a notification yet");
                false
            }
        }
    }
}
