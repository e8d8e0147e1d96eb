//! Checks open sessions, and expires those whose time or budget is used up.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{OpenSession, Sessions};
use base::event::EventKind;
use model::{ChatSession, EndReason, SessionEvent, SessionState, Timestamp};
use store::StoreError;

/// How often touches are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);
/// The bounds of the time between two checks of all sessions.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How many sessions are expired at the same time.
const CONCURRENT_EXPIRIES: usize = 16;

impl Sessions {
    /// Checks all sessions until `stop`, then writes pending touches.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changed = self.shared.changed.subscribe();
        let mut flushed = self.shared.clock.now();
        loop {
            changed.mark_unchanged();
            let wait = self.check().await;
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timeout(wait, changed.changed()) => {}
            }
            // Sessions that open at the same time share a check.
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(MIN_CHECK_INTERVAL) => {}
            }
            let now = self.shared.clock.now();
            if now.since(&flushed) >= FLUSH_INTERVAL {
                flushed = now;
                self.flush().await;
            }
        }
        self.flush().await;
    }

    /// Checks every open session. Returns the time until the next check.
    pub async fn check(&self) -> Duration {
        let now = self.shared.clock.now();
        let all: Vec<OpenSession> = self.lock().values().cloned().collect();
        let mut wait = MAX_CHECK_INTERVAL;
        let mut due = Vec::new();
        for open in all {
            let session = open.current();
            if let Some(ended) = self.spent(&session, now.at).await {
                due.push((open, SessionEvent::Spent(now, ended)));
                continue;
            }
            let (left, ended) = session.left(&now);
            let used = self.shared.runtimes.get().is_some_and(|r| r.in_use(&session.thread_id));
            if used && (ended == EndReason::IdleTimeout || !left.is_zero()) {
                self.touch(&session.session_id);
                continue;
            }
            if left.is_zero() {
                due.push((open, SessionEvent::Elapsed(now)));
                continue;
            }
            // A warning before the expiry needs a check, too.
            let to_warning = left.saturating_sub(session.warned(self.shared.warn_before));
            wait = wait.min(if to_warning.is_zero() { left } else { to_warning });
            self.announce(&session, left);
            let quiet = now.since(&session.last_active) >= session.quiet_after();
            if quiet && session.state == SessionState::Active {
                self.write_touch(&open).await;
                self.apply(&session.session_id, SessionEvent::Elapsed(now)).await;
            }
        }
        // In parallel: one slow pause must not delay the others.
        let expiries = stream::iter(due).map(|(open, event)| self.expire(open, event));
        expiries.buffer_unordered(CONCURRENT_EXPIRIES).collect::<()>().await;
        wait.max(MIN_CHECK_INTERVAL)
    }

    /// Returns the limit that the compute of a session has reached.
    async fn spent(&self, session: &ChatSession, at: Timestamp) -> Option<EndReason> {
        if !session.policy.counts() {
            return None;
        }
        let thread = self.shared.store.thread(&session.thread_id).await.ok()??;
        let lease = self.shared.store.lease(&thread.lease_id).await.ok()??;
        let ran = lease.ran_at(at).saturating_sub(session.ran_before);
        session.policy.spent(ran, self.shared.leases.price(&lease))
    }

    async fn expire(&self, open: OpenSession, event: SessionEvent) {
        self.write_touch(&open).await;
        let id = &open.session.session_id;
        match self.shared.store.apply_session(id, event).await {
            Ok(session) if session.is_open() => self.remember(session),
            Ok(expired) => {
                self.forget(id);
                self.publish_expired(&expired);
                self.settle(&expired).await;
                self.record_expiry(&expired).await;
            }
            // It was ended by another request, or its thread was deleted.
            Err(StoreError::Refused(_) | StoreError::Missing { .. }) => self.forget(id),
            Err(error) => warn!(session = %id, %error, "cannot expire a session yet"),
        }
    }

    fn announce(&self, session: &ChatSession, left: Duration) {
        let expires_at = session.expires_at();
        if left > session.warned(self.shared.warn_before) {
            return;
        }
        let mut open = self.lock();
        let Some(open) = open.get_mut(&session.session_id) else { return };
        if open.announced == Some(expires_at) {
            return;
        }
        open.announced = Some(expires_at);
        self.shared.events.publish(EventKind::SessionExpiring {
            thread_id: session.thread_id.clone(),
            session_id: session.session_id.clone(),
            expires_at,
        });
    }

    pub(super) fn publish_expired(&self, expired: &ChatSession) {
        if let SessionState::Expired { ended, .. } = expired.state {
            self.shared.events.publish(EventKind::SessionExpired {
                thread_id: expired.thread_id.clone(),
                session_id: expired.session_id.clone(),
                ended,
                on_expiry: expired.policy.on_expiry,
            });
        }
    }

    /// Records an expiry in the ledger.
    async fn record_expiry(&self, expired: &ChatSession) {
        let SessionState::Expired { ended, at } = &expired.state else { return };
        let detail = json!({
            "thread_id": expired.thread_id,
            "reason": ended,
            "on_expiry": expired.policy.on_expiry,
        });
        let subject = expired.session_id.as_str();
        if let Err(error) = self.shared.store.record(*at, "session_expired", subject, detail).await
        {
            warn!(session = %expired.session_id, %error, "cannot record an expiry");
        }
    }
}
