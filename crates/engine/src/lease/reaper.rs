//! Recovery at start, and the removal of instances without a lease (orphans).

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{
    error::{LeaseError, chain},
    leases::Leases,
};
use base::event::EventKind;
use model::{Lease, LeaseState};
use provider::{Found, Observed, Provider};

/// How many leases are reconciled at the same time.
const CONCURRENT_LEASES: usize = 64;
/// How long one lease may delay the others.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

impl Leases {
    /// Recovers after a start: reconciles every lease that may have been interrupted, then ends orphans. A
    /// provider that does not answer delays only its own leases.
    pub async fn recover(&self) -> Result<(), LeaseError> {
        let unsettled = self.shared.store.unsettled_leases().await?;
        self.reconcile_all(unsettled).await;
        self.reap().await;
        Ok(())
    }

    /// Reconciles leases whose requested end or pause did not complete, because the provider did not answer
    /// or the request was interrupted.
    pub async fn reconcile_unfinished(&self) -> Result<(), LeaseError> {
        let mut unfinished = self.shared.store.unfinished_leases().await?;
        let forking = self.shared.forking();
        // A fork is marked for deletion until its files are copied.
        unfinished.retain(|lease| !forking.contains(&lease.lease_id));
        self.reconcile_all(unfinished).await;
        Ok(())
    }

    async fn reconcile_all(&self, leases: Vec<Lease>) {
        let checks = stream::iter(leases).map(|lease| async move {
            let id = &lease.lease_id;
            match timeout(RECONCILE_TIMEOUT, self.reconcile(id)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    warn!(lease = %id, error = chain(&error), "cannot reconcile a lease")
                }
                // The worker continues; only the other leases stop waiting for it.
                Err(_) => warn!(lease = %id, "a provider takes long to reconcile a lease"),
            }
        });
        checks.buffer_unordered(CONCURRENT_LEASES).collect::<()>().await;
    }

    /// Ends every instance that carries our label and belongs to no lease. Returns how many there were.
    pub async fn reap(&self) -> usize {
        let mut ended = 0;
        for provider in self.shared.providers.all() {
            self.forget_destroyed(&**provider).await;
            let found = match provider.find_by_label(None).await {
                Ok(found) => found,
                Err(error) => {
                    let name = provider.name();
                    warn!(
                        provider = name,
                        error = chain(&error),
                        "cannot list instances to find orphans"
                    );
                    continue;
                }
            };
            for found in found {
                // Read after it was found: an instance is recorded before it is created.
                let lease = match self.shared.store.lease(&found.lease_id).await {
                    Ok(lease) => lease,
                    Err(error) => {
                        warn!(
                            error = chain(&error),
                            "cannot tell whether an instance is an orphan"
                        );
                        continue;
                    }
                };
                let Some(reason) = orphan_reason(lease.as_ref(), &found) else { continue };
                let instance = found.instance(self.shared.clock.wall());
                match provider.destroy(&instance).await {
                    Ok(()) => ended += 1,
                    Err(error) => {
                        let id = &found.instance_id;
                        warn!(instance = %id, error = chain(&error), "cannot end an orphan");
                        continue;
                    }
                }
                self.record_orphan(&found, reason).await;
            }
        }
        ended
    }

    /// Removes the files that a provider keeps for destroyed leases.
    async fn forget_destroyed(&self, provider: &dyn Provider) {
        let Some(disks) = provider.disks() else { return };
        let kept = match disks.kept().await {
            Ok(kept) => kept,
            Err(error) => {
                let name = provider.name();
                warn!(
                    provider = name,
                    error = chain(&error),
                    "cannot list the leases that a provider keeps files for"
                );
                return;
            }
        };
        for lease_id in kept {
            let over = match self.shared.store.lease(&lease_id).await {
                Ok(lease) => lease.is_none_or(|lease| lease.state == LeaseState::Destroyed),
                Err(_) => false,
            };
            if over && let Err(error) = disks.forget(&lease_id).await {
                warn!(lease = %lease_id, error = chain(&error), "cannot remove the files of a destroyed lease");
            }
        }
    }

    async fn record_orphan(&self, found: &Found, reason: &'static str) {
        info!(instance = %found.instance_id, lease = %found.lease_id, reason, "ended an orphan");
        self.shared.events.publish(EventKind::OrphanEnded {
            lease_id: found.lease_id.clone(),
            instance_id: found.instance_id.clone(),
            reason: reason.to_owned(),
        });
        let detail = json!({
            "lease_id": found.lease_id,
            "generation": found.generation,
            "reason": reason,
        });
        let at = self.shared.clock.wall();
        let subject = found.instance_id.as_str();
        if let Err(error) = self.shared.store.record(at, "orphan_ended", subject, detail).await {
            warn!(error = chain(&error), "cannot record that an orphan was ended");
        }
    }
}

/// Returns why an instance is an orphan; `None` if it belongs to its lease.
fn orphan_reason(lease: Option<&Lease>, found: &Found) -> Option<&'static str> {
    let Some(lease) = lease else { return Some("no lease has its label") };
    let current = match &lease.state {
        LeaseState::Idle | LeaseState::Destroyed => {
            return Some("its lease has no instance");
        }
        LeaseState::Creating { instance_id, .. } => instance_id,
        LeaseState::Running(instance) | LeaseState::Paused(instance) => &instance.instance_id,
        LeaseState::Dead { instance, .. } => {
            if instance.instance_id == found.instance_id && found.observed == Observed::Gone {
                return Some("it is dead");
            }
            return Some("the instance of its lease is dead");
        }
    };
    (*current != found.instance_id).then_some("its lease has another instance")
}
