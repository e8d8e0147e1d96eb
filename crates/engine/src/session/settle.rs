//! Applies the policy of an ended session to its compute: keep, pause or stop.

use tracing::warn;

use super::Sessions;
use crate::lease::LeaseError;
use model::{ChatSession, LeaseId, LeaseState, OnExpiry};
use provider::ProviderError;
use store::StoreError;

impl Sessions {
    /// Applies the policy of ended sessions for which a killed server did not.
    pub async fn settle_ended(&self) {
        if let Err(error) = self.try_settle_ended().await {
            tracing::error!(%error, "cannot settle the sessions that have ended");
        }
    }

    async fn try_settle_ended(&self) -> Result<(), StoreError> {
        for lease in self.shared.store.unsettled_leases().await? {
            if !matches!(lease.state, LeaseState::Running(_)) {
                continue;
            }
            for thread in self.shared.store.lease_threads(&lease.lease_id).await? {
                if let Some(session) = self.shared.store.last_session(&thread).await? {
                    if session.is_open() {
                        break;
                    }
                    self.settle(&session).await;
                }
            }
        }
        Ok(())
    }

    /// Applies the policy of an ended session to its compute, unless another open session uses the lease.
    pub(super) async fn settle(&self, ended: &ChatSession) {
        if let Err(error) = self.try_settle(ended).await {
            warn!(session = %ended.session_id, %error, "cannot settle an ended session's compute");
        }
    }

    async fn try_settle(&self, ended: &ChatSession) -> Result<(), LeaseError> {
        let thread = &ended.thread_id;
        if ended.policy.on_expiry == OnExpiry::Keep {
            return Ok(());
        }
        if ended.policy.on_expiry == OnExpiry::Stop
            && let Some(runtimes) = self.shared.runtimes.get()
        {
            runtimes.end(thread).await;
        }
        let Some(thread) = self.shared.store.thread(thread).await? else { return Ok(()) };
        if self.is_shared(&thread.lease_id).await? {
            return Ok(());
        }
        let paused = match ended.policy.on_expiry {
            OnExpiry::Keep => return Ok(()),
            OnExpiry::Stop => None,
            OnExpiry::Pause => Some(self.shared.leases.pause(&thread.lease_id).await),
        };
        let result = match paused {
            Some(Err(LeaseError::Provider {
                source: ProviderError::Unsupported { .. }, ..
            })) => {
                if let Some(runtimes) = self.shared.runtimes.get() {
                    runtimes.end(&thread.thread_id).await;
                }
                self.shared.leases.stop(&thread.lease_id).await
            }
            Some(result) => result,
            None => self.shared.leases.stop(&thread.lease_id).await,
        };
        match result {
            Ok(_) | Err(LeaseError::NoInstance { .. } | LeaseError::Destroyed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a thread with an open session uses a lease.
    async fn is_shared(&self, lease: &LeaseId) -> Result<bool, StoreError> {
        let threads = self.shared.store.lease_threads(lease).await?;
        let open = self.lock();
        Ok(open.values().any(|open| threads.contains(&open.session.thread_id)))
    }
}
