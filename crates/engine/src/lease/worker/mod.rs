//! The task that owns a lease: handles its requests one after the other.

mod end;
mod reconcile;
mod run;
mod settings;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::info;

use super::{
    error::LeaseError,
    request::{Goal, LeaseRequest},
    retry::CreationBudget,
    shared::LeasesShared,
};
use base::event::EventKind;
use model::{Desired, Instance, Lease, LeaseEvent, LeaseId};
use provider::{Observed, Provider, ProviderError};
use store::StoreError;

/// How often a change is decided again because the lease changed in the meantime.
const MAX_CONFLICTS: u32 = 3;

/// How long a worker without requests keeps running.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Decides a change again, from the lease as it is stored, when another writer changed the lease. A macro,
/// because an async closure that borrows the worker is not `Send`.
macro_rules! retry_conflicts {
    ($attempt:expr) => {{
        let mut conflicts = 0;
        loop {
            match $attempt.await {
                Err(LeaseError::Store(StoreError::Conflict { .. }))
                    if conflicts < MAX_CONFLICTS =>
                {
                    conflicts += 1;
                }
                result => break result,
            }
        }
    }};
}

pub(super) struct LeaseWorker {
    id: LeaseId,
    shared: Arc<LeasesShared>,
    requests: mpsc::Receiver<LeaseRequest>,
    budget: CreationBudget,
}

impl LeaseWorker {
    pub(super) fn new(
        id: LeaseId,
        shared: Arc<LeasesShared>,
        requests: mpsc::Receiver<LeaseRequest>,
    ) -> Self {
        Self { id, shared, requests, budget: CreationBudget::default() }
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            let request = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                request = timeout(IDLE_TIMEOUT, self.requests.recv()) => request,
            };
            match request {
                Ok(Some(request)) => {
                    // A request that a shutdown interrupts is left as a crash would leave it; the next
                    // start completes it.
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        // Boxed, because a worker mostly waits.
                        () = Box::pin(self.handle(request)) => {}
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let mut workers = self.shared.workers.lock();
                    // Under this lock no caller gets another handle. A caller that has one and sends after
                    // this finds its request dropped, and sends it to the next worker.
                    if self.requests.is_empty() {
                        workers.remove(&self.id);
                        break;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, request: LeaseRequest) {
        match request {
            LeaseRequest::Run { if_paused, reply } => {
                let result = retry_conflicts!(self.run_instance(if_paused));
                // Callers that wait for the same result share a failure instead of each repeating the attempt.
                let mut waiting = Vec::new();
                if result.is_err() {
                    let mut rest = Vec::new();
                    while let Ok(request) = self.requests.try_recv() {
                        match request {
                            LeaseRequest::Run { if_paused: same, reply } if same == if_paused => {
                                waiting.push(reply);
                            }
                            other => rest.push(other),
                        }
                    }
                    for request in rest {
                        Box::pin(self.handle(request)).await;
                    }
                }
                for reply in waiting {
                    let _ = reply.send(result.clone());
                }
                let _ = reply.send(result);
            }
            LeaseRequest::Reach { goal, reply } => {
                let _ = reply.send(retry_conflicts!(self.reach(&goal)));
            }
            LeaseRequest::Copy { to, reply } => {
                let _ = reply.send(self.copy(&to).await);
            }
            LeaseRequest::Resize { settings, reply } => {
                let _ = reply.send(self.resize(settings).await);
            }
            LeaseRequest::SetEgress { spec, reply } => {
                let result = retry_conflicts!(self.set_egress(&spec));
                let _ = reply.send(result);
            }
        }
    }

    async fn reach(&mut self, goal: &Goal) -> Result<Lease, LeaseError> {
        match goal {
            Goal::Consistent { suspect } => self.reconcile(suspect.as_ref()).await,
            Goal::Paused => self.pause().await,
            Goal::Stopped => self.end_by_request(Desired::Stopped).await,
            Goal::Destroyed => self.end_by_request(Desired::Destroyed).await,
        }
    }

    async fn record_lost(
        &self,
        lease: &Lease,
        instance: &Instance,
        reason: &str,
    ) -> Result<Lease, LeaseError> {
        self.shared.forget_running(&self.id);
        let at = self.shared.clock.wall();
        let instance_id = instance.instance_id.clone();
        let lost =
            LeaseEvent::Lost { instance_id: instance_id.clone(), at, reason: reason.to_owned() };
        let next = self.save(lease.apply(lost)?).await?;
        info!(lease = %self.id, instance = %instance_id, reason, "an instance was lost");
        self.shared.events.publish(EventKind::InstanceLost {
            lease_id: self.id.clone(),
            instance_id,
            reason: reason.to_owned(),
        });
        Ok(next)
    }

    async fn inspect(
        &self,
        provider: &dyn Provider,
        instance: &Instance,
    ) -> Result<Observed, LeaseError> {
        let result = self.with_retries(|| provider.inspect(instance)).await;
        result.map_err(|source| LeaseError::provider(&self.id, "inspect", source))
    }

    /// Calls the provider, and retries errors that may be temporary.
    async fn with_retries<'a, T>(
        &self,
        act: impl Fn() -> provider::Reply<'a, T>,
    ) -> Result<T, ProviderError> {
        let mut failures = 0;
        loop {
            let error = match act().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failures += 1;
            let gone = matches!(error, ProviderError::Gone { .. });
            if gone || !error.may_pass() || failures >= self.shared.retry.attempts {
                return Err(error);
            }
            let retry_after = match &error {
                ProviderError::Busy { retry_after, .. } => *retry_after,
                ProviderError::Unknown { .. }
                | ProviderError::Unsupported { .. }
                | ProviderError::Gone { .. }
                | ProviderError::Refused { .. }
                | ProviderError::BadImage { .. }
                | ProviderError::TimedOut { .. }
                | ProviderError::Failed { .. } => None,
            };
            sleep(self.shared.retry.backoff(failures, retry_after)).await;
        }
    }

    async fn want(&self, lease: Lease, desired: Desired) -> Result<Lease, LeaseError> {
        if lease.desired == desired {
            return Ok(lease);
        }
        self.save(lease.apply(LeaseEvent::Wanted(desired))?).await
    }

    async fn save(&self, mut next: Lease) -> Result<Lease, LeaseError> {
        next.updated_at = self.shared.clock.wall();
        next.count(next.updated_at);
        Ok(self.shared.store.save_lease(&next).await?)
    }

    async fn load(&self) -> Result<Lease, LeaseError> {
        let lease = self.shared.store.lease(&self.id).await?;
        lease.ok_or_else(|| LeaseError::Missing { lease: self.id.clone() })
    }

    fn provider(&self, lease: &Lease) -> Result<Arc<dyn Provider>, LeaseError> {
        let named = self.shared.providers.named(&lease.provider);
        named.cloned().map_err(|source| LeaseError::provider(&self.id, "reach", source))
    }
}
