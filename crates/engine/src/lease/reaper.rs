//! Finding and ending what no lease knows.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{LeaseError, Leases, keeper::chain};
use base::event::Happened;
use model::{Lease, LeaseState};
use provider::{Found, Observed, Provider};

/// How many leases are looked at at once.
const AT_ONCE: usize = 64;
/// How long the others wait for one lease.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

impl Leases {
    /// What a server that starts does: every lease that may have been interrupted is brought in line,
    /// then what no lease knows is ended. A provider that does not answer delays only its own.
    pub async fn recover(&self) -> Result<(), LeaseError> {
        let unsettled = self.shared.store.unsettled_leases().await?;
        self.reconcile_all(unsettled).await;
        self.reap().await;
        Ok(())
    }

    /// Ends and pauses whatever was asked to be and is not, because a provider did not answer then or a
    /// caller was cut short.
    pub async fn reconcile_unfinished(&self) -> Result<(), LeaseError> {
        let mut unfinished = self.shared.store.unfinished_leases().await?;
        let forking = self.shared.forking();
        // A fork is wanted gone until its files are copied.
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
                // Its worker goes on; only the others need not wait for it.
                Err(_) => warn!(lease = %id, "a provider takes long to reconcile a lease"),
            }
        });
        checks.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Ends everything that carries our label and that no lease knows; answers how many there were.
    pub async fn reap(&self) -> usize {
        let mut ended = 0;
        for provider in self.shared.providers.all() {
            self.forget_kept(&**provider).await;
            let found = match provider.find_by_label(None).await {
                Ok(found) => found,
                Err(error) => {
                    let name = provider.name();
                    warn!(provider = name, error = chain(&error), "cannot look for orphans");
                    continue;
                }
            };
            for found in found {
                // Read after it was found: what a keeper is making was recorded before it was made.
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
                let Some(reason) = orphaned(lease.as_ref(), &found) else { continue };
                let instance = found.instance(self.shared.clock.wall());
                match provider.destroy(&instance).await {
                    Ok(()) => ended += 1,
                    Err(error) => {
                        let id = &found.instance_id;
                        warn!(instance = %id, error = chain(&error), "cannot end an orphan");
                        continue;
                    }
                }
                self.write_down(&found, reason).await;
            }
        }
        ended
    }

    /// Removes what a provider keeps for leases that are over.
    async fn forget_kept(&self, provider: &dyn Provider) {
        let Some(disks) = provider.disks() else { return };
        let kept = match disks.kept().await {
            Ok(kept) => kept,
            Err(error) => {
                let name = provider.name();
                warn!(provider = name, error = chain(&error), "cannot look for what is kept");
                return;
            }
        };
        for lease_id in kept {
            let over = match self.shared.store.lease(&lease_id).await {
                Ok(lease) => lease.is_none_or(|lease| lease.state == LeaseState::Destroyed),
                Err(_) => false,
            };
            if over && let Err(error) = disks.forget(&lease_id).await {
                warn!(lease = %lease_id, error = chain(&error), "cannot remove what was kept");
            }
        }
    }

    async fn write_down(&self, found: &Found, reason: &'static str) {
        info!(instance = %found.instance_id, lease = %found.lease_id, reason, "ended an orphan");
        self.shared.events.tell(Happened::OrphanEnded {
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
            warn!(error = chain(&error), "cannot write down that an orphan was ended");
        }
    }
}

/// Why something that was found belongs to nobody; `None` if it belongs to its lease.
fn orphaned(lease: Option<&Lease>, found: &Found) -> Option<&'static str> {
    let Some(lease) = lease else { return Some("no lease has its label") };
    let current = match &lease.state {
        LeaseState::Idle | LeaseState::Destroyed => {
            return Some("its lease holds no instance");
        }
        LeaseState::Creating { instance_id, .. } => instance_id,
        LeaseState::Running(instance) | LeaseState::Paused(instance) => &instance.instance_id,
        LeaseState::Dead { instance, .. } => {
            if instance.instance_id == found.instance_id && found.observed == Observed::Gone {
                return Some("it is dead");
            }
            return Some("its lease gave it up");
        }
    };
    (*current != found.instance_id).then_some("its lease has another instance")
}
