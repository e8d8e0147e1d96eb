//! Compares a lease with its instance.

use super::LeaseWorker;
use crate::lease::error::LeaseError;
use model::{Desired, InstanceId, Lease, LeaseEvent, LeaseState};
use provider::Observed;

impl LeaseWorker {
    /// Brings the lease in line with what the provider reports and what was last requested.
    pub(super) async fn reconcile(
        &mut self,
        suspect: Option<&InstanceId>,
    ) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        let provider = self.provider(&lease)?;
        if let Some(suspect) = suspect
            && lease.instance().is_none_or(|(instance, _)| instance.instance_id != *suspect)
        {
            return Ok(lease);
        }
        match lease.desired {
            Desired::Destroyed if lease.state != LeaseState::Destroyed => {
                return self.end(lease, "an interrupted request is completed").await;
            }
            Desired::Stopped
                if !matches!(lease.state, LeaseState::Idle | LeaseState::Destroyed) =>
            {
                return self.end(lease, "an interrupted request is completed").await;
            }
            Desired::Destroyed | Desired::Stopped | Desired::Running | Desired::Paused => {}
        }
        match &lease.state {
            LeaseState::Idle | LeaseState::Dead { .. } | LeaseState::Destroyed => Ok(lease),
            LeaseState::Creating { instance_id, .. } => {
                let of = |source| LeaseError::provider(&self.id, "find", source);
                let found = provider.find_by_label(Some(&self.id)).await.map_err(of)?;
                let ours = found.into_iter().find(|found| {
                    found.instance_id == *instance_id && found.observed != Observed::Gone
                });
                let at = self.shared.clock.wall();
                let event = match ours {
                    Some(found) => LeaseEvent::Created { reference: found.reference, at },
                    None => {
                        let reason = "it was never created".to_owned();
                        LeaseEvent::Failed { at, reason }
                    }
                };
                self.save(lease.apply(event)?).await
            }
            LeaseState::Running(instance) | LeaseState::Paused(instance) => {
                let observed = self.inspect(&*provider, instance).await?;
                let id = instance.instance_id.clone();
                match (observed, lease.desired) {
                    (Observed::Gone, _) => {
                        self.record_lost(&lease, instance, "the provider no longer has it").await
                    }
                    (Observed::Running, Desired::Paused) => self.pause().await,
                    (Observed::Running, _) if matches!(lease.state, LeaseState::Running(_)) => {
                        Ok(lease)
                    }
                    (Observed::Running, _) => {
                        self.save(lease.apply(LeaseEvent::Resumed(id))?).await
                    }
                    (Observed::Paused, _) if matches!(lease.state, LeaseState::Paused(_)) => {
                        Ok(lease)
                    }
                    (Observed::Paused, _) => {
                        self.shared.forget_running(&self.id);
                        self.save(lease.apply(LeaseEvent::Paused(id))?).await
                    }
                }
            }
        }
    }
}
