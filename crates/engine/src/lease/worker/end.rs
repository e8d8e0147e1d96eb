//! Pauses and ends the instance of a lease.

use super::LeaseWorker;
use crate::lease::error::LeaseError;
use base::event::EventKind;
use model::{Desired, Instance, Lease, LeaseEvent, LeaseState};
use provider::{Fidelity, ProviderError};

impl LeaseWorker {
    pub(super) async fn pause(&mut self) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        let provider = self.provider(&lease)?;
        let nothing = || LeaseError::NoInstance { lease: self.id.clone() };
        let (LeaseState::Running(instance) | LeaseState::Paused(instance)) = &lease.state else {
            return Err(nothing());
        };
        if provider.capabilities().pause == Fidelity::None {
            let provider = provider.name().to_owned();
            let source = ProviderError::Unsupported { provider, what: "pause an instance" };
            return Err(LeaseError::provider(&self.id, "pause", source));
        }
        if lease.desired == Desired::Destroyed {
            return Err(LeaseError::Destroyed { lease: self.id.clone() });
        }
        self.shared.forget_running(&self.id);
        let instance = instance.clone();
        let lease = self.want(lease, Desired::Paused).await?;
        match self.with_retries(|| provider.pause(&instance)).await {
            Ok(()) => {
                let id = instance.instance_id.clone();
                let lease = self.save(lease.apply(LeaseEvent::Paused(id.clone()))?).await?;
                let lease_id = self.id.clone();
                self.shared.events.publish(EventKind::InstancePaused { lease_id, instance_id: id });
                Ok(lease)
            }
            Err(ProviderError::Gone { .. }) => {
                self.record_lost(&lease, &instance, "it was gone when it should have been paused")
                    .await?;
                Err(nothing())
            }
            Err(source) => Err(LeaseError::provider(&self.id, "pause", source)),
        }
    }

    /// Ends the instance, and with [`Desired::Destroyed`] the lease too.
    pub(super) async fn end_by_request(&mut self, desired: Desired) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        if lease.state == LeaseState::Destroyed {
            return Ok(lease);
        }
        self.shared.forget_running(&self.id);
        let lease = match lease.desired {
            Desired::Destroyed => lease,
            Desired::Running | Desired::Paused | Desired::Stopped => {
                self.want(lease, desired).await?
            }
        };
        self.end(lease, "it was ended by a request").await
    }

    pub(super) async fn end(&self, lease: Lease, why: &str) -> Result<Lease, LeaseError> {
        if lease.state == LeaseState::Idle && lease.desired != Desired::Destroyed {
            return Ok(lease);
        }
        let provider = self.provider(&lease)?;
        let of = |source| LeaseError::provider(&self.id, "end", source);
        let known = match &lease.state {
            LeaseState::Idle | LeaseState::Destroyed => None,
            LeaseState::Running(instance)
            | LeaseState::Paused(instance)
            | LeaseState::Dead { instance, .. } => Some(instance.clone()),
            LeaseState::Creating { instance_id, since } => Some(Instance {
                instance_id: instance_id.clone(),
                generation: lease.generation,
                reference: String::new(),
                started_at: *since,
            }),
        };
        if let Some(instance) = &known {
            self.with_retries(|| provider.destroy(instance)).await.map_err(of)?;
        }
        // Other instances with the label of this lease were created by calls whose reply was lost.
        for found in
            self.with_retries(|| provider.find_by_label(Some(&self.id))).await.map_err(of)?
        {
            let instance = found.instance(lease.updated_at);
            self.with_retries(|| provider.destroy(&instance)).await.map_err(of)?;
        }
        if lease.desired == Desired::Destroyed
            && let Some(disks) = provider.disks()
        {
            self.with_retries(|| disks.forget(&self.id)).await.map_err(of)?;
        }
        let was_alive = matches!(lease.state, LeaseState::Running(_) | LeaseState::Paused(_));
        let lease = self.save(lease.apply(LeaseEvent::Ended)?).await?;
        if let Some(instance) = known.filter(|_| was_alive) {
            self.shared.events.publish(EventKind::InstanceEnded {
                lease_id: self.id.clone(),
                instance_id: instance.instance_id,
                reason: why.to_owned(),
            });
        }
        if lease.state == LeaseState::Destroyed {
            self.shared.events.publish(EventKind::LeaseDestroyed { lease_id: self.id.clone() });
        }
        Ok(lease)
    }
}
