//! Makes the instance of a lease run: creates or resumes it.

use tokio::time::Instant;
use tracing::warn;

use super::LeaseWorker;
use crate::lease::{
    error::{LeaseError, chain},
    request::{IfPaused, RunningInstance},
};
use base::event::EventKind;
use model::{Desired, Instance, InstanceId, Lease, LeaseEvent, LeaseState};
use provider::{Intent, Observed, Provider, ProviderError};

impl LeaseWorker {
    pub(super) async fn run_instance(
        &mut self,
        if_paused: IfPaused,
    ) -> Result<RunningInstance, LeaseError> {
        if let Some(running) = self.shared.seen_running(&self.id) {
            return Ok(running);
        }
        let mut recreated = false;
        loop {
            let lease = self.load().await?;
            let provider = self.provider(&lease)?;
            if lease.desired == Desired::Destroyed {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
            match &lease.state {
                LeaseState::Destroyed => {
                    return Err(LeaseError::Destroyed { lease: self.id.clone() });
                }
                LeaseState::Running(instance) => match self.inspect(&*provider, instance).await? {
                    Observed::Running => {
                        let lease = self.want(lease, Desired::Running).await?;
                        return self.note_running(&lease, recreated);
                    }
                    Observed::Paused => {
                        if if_paused == IfPaused::Refuse {
                            return Err(LeaseError::Paused { lease: self.id.clone() });
                        }
                        let lease = self.want(lease, Desired::Running).await?;
                        self.resume(&*provider, lease).await?;
                    }
                    Observed::Gone => {
                        recreated = true;
                        self.record_lost(&lease, instance, "the provider no longer has it").await?;
                    }
                },
                LeaseState::Paused(_) => {
                    if if_paused == IfPaused::Refuse {
                        return Err(LeaseError::Paused { lease: self.id.clone() });
                    }
                    let lease = self.want(lease, Desired::Running).await?;
                    recreated |=
                        self.resume(&*provider, lease).await? == ResumeOutcome::InstanceGone;
                }
                LeaseState::Creating { .. } => {
                    let lease = self.create(&*provider, lease).await?;
                    return self.note_running(&lease, recreated);
                }
                LeaseState::Idle | LeaseState::Dead { .. } => {
                    recreated |= matches!(lease.state, LeaseState::Dead { .. });
                    if let Err(retry_after) = self.budget.take(&self.shared.retry, Instant::now()) {
                        return Err(LeaseError::Exhausted { lease: self.id.clone(), retry_after });
                    }
                    let at = self.shared.clock.wall();
                    let intended = lease
                        .apply(LeaseEvent::Wanted(Desired::Running))?
                        .apply(LeaseEvent::Intended(InstanceId::fresh(), at))?;
                    let intended = self.save(intended).await?;
                    let lease = self.create(&*provider, intended).await?;
                    return self.note_running(&lease, recreated);
                }
            }
        }
    }

    fn note_running(&self, lease: &Lease, recreated: bool) -> Result<RunningInstance, LeaseError> {
        let LeaseState::Running(instance) = &lease.state else {
            return Err(LeaseError::NoInstance { lease: self.id.clone() });
        };
        let running = RunningInstance {
            lease_id: self.id.clone(),
            provider: lease.provider.clone(),
            instance: instance.clone(),
            recreated,
        };
        self.shared.note_running(running.clone());
        Ok(running)
    }

    /// Creates the intended instance. Its name was recorded before, so that a second attempt finds what the
    /// first one left.
    async fn create(&self, provider: &dyn Provider, lease: Lease) -> Result<Lease, LeaseError> {
        let LeaseState::Creating { instance_id, since } = &lease.state else {
            return Ok(lease);
        };
        let intent = Intent {
            lease_id: self.id.clone(),
            generation: lease.generation,
            instance_id: instance_id.clone(),
            spec: lease.spec.clone(),
        };
        let error = match self.with_retries(|| provider.create(&intent)).await {
            Ok(created) => {
                let at = self.shared.clock.wall();
                let reference = created.reference;
                let next = lease.apply(LeaseEvent::Created { reference, at })?;
                let next = self.save(next).await?;
                self.shared.events.publish(EventKind::InstanceCreated {
                    lease_id: self.id.clone(),
                    instance_id: intent.instance_id,
                    generation: intent.generation,
                });
                return Ok(next);
            }
            Err(error) => error,
        };
        // The instance may exist in spite of the error. The intent is given up only once the instance certainly
        // does not exist; until then the next request tries again.
        let perhaps = Instance {
            instance_id: instance_id.clone(),
            generation: lease.generation,
            reference: String::new(),
            started_at: *since,
        };
        match self.with_retries(|| provider.destroy(&perhaps)).await {
            Ok(()) => {
                let at = self.shared.clock.wall();
                let reason = chain(&error);
                self.save(lease.apply(LeaseEvent::Failed { at, reason })?).await?;
            }
            Err(left) => warn!(
                lease = %self.id, instance = %perhaps.instance_id, error = chain(&left),
                "cannot destroy an instance whose creation failed"
            ),
        }
        Err(LeaseError::provider(&self.id, "create", error))
    }

    /// Resumes the instance and records it; one that is gone is recorded as lost.
    async fn resume(
        &self,
        provider: &dyn Provider,
        lease: Lease,
    ) -> Result<ResumeOutcome, LeaseError> {
        let (LeaseState::Paused(instance) | LeaseState::Running(instance)) = &lease.state else {
            return Ok(ResumeOutcome::Running);
        };
        match self.with_retries(|| provider.resume(instance)).await {
            Ok(()) => {
                let id = instance.instance_id.clone();
                self.save(lease.apply(LeaseEvent::Resumed(id.clone()))?).await?;
                let lease_id = self.id.clone();
                self.shared
                    .events
                    .publish(EventKind::InstanceResumed { lease_id, instance_id: id });
                Ok(ResumeOutcome::Running)
            }
            Err(ProviderError::Gone { .. }) => {
                self.record_lost(&lease, instance, "it was gone when it should have been resumed")
                    .await?;
                Ok(ResumeOutcome::InstanceGone)
            }
            Err(source) => Err(LeaseError::provider(&self.id, "resume", source)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ResumeOutcome {
    Running,
    InstanceGone,
}
