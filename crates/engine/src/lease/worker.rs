//! The task that owns a lease: handles its requests one after the other.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use super::{
    error::{LeaseError, chain},
    request::{Goal, IfPaused, LeaseRequest, RunningInstance},
    retry::CreationBudget,
    shared::LeasesShared,
};
use base::event::EventKind;
use model::{Desired, Instance, InstanceId, Lease, LeaseEvent, LeaseId, LeaseState};
use provider::{CopyTo, Fidelity, Intent, Observed, Provider, ProviderError};
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
                // Callers that wait for the same thing share a failure instead of each repeating it.
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

    /// Copies the files of the lease. No instance is created or ended meanwhile.
    async fn copy(&mut self, to: &CopyTo) -> Result<Lease, LeaseError> {
        let lease = self.reconcile(None).await?;
        let provider = self.provider(&lease)?;
        let instance = match &lease.state {
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
            LeaseState::Running(instance) | LeaseState::Paused(instance) => Some(instance),
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => None,
        };
        let copied = match provider.disks() {
            Some(disks) => self.with_retries(|| disks.copy(&self.id, instance, to)).await,
            None => Err(ProviderError::unsupported(provider.name(), "copy a lease's files")),
        };
        copied.map_err(|source| LeaseError::provider(&self.id, "copy", source))?;
        Ok(lease)
    }

    /// Applies other settings. A disk grows only while no instance uses it. The instance gets the settings
    /// before they are recorded, so that a repeated request starts from the old record.
    async fn resize(&mut self, settings: Map<String, Value>) -> Result<Lease, LeaseError> {
        let mut lease = self.reconcile(None).await?;
        let of = |source| LeaseError::provider(&self.id, "resize", source);
        let provider = self.provider(&lease)?;
        let mut spec = lease.spec.as_object().cloned().unwrap_or_default();
        spec.extend(settings);
        let spec = Value::Object(spec);
        provider.accepts(&spec).map_err(of)?;
        let disk = |spec: &Value| provider.limits()?.limits_of(spec, Some(&self.id))?.disk_bytes;
        let (has, wanted) = (disk(&lease.spec), disk(&spec));
        match &lease.state {
            LeaseState::Running(instance) | LeaseState::Paused(instance) => {
                if has != wanted {
                    let provider = provider.name().to_owned();
                    let what = "change the size of a disk that is in use; stop it first";
                    return Err(of(ProviderError::Unsupported { provider, what }));
                }
                let what = "change the limits of a running instance; stop it first";
                let unsupported = || of(ProviderError::unsupported(provider.name(), what));
                let limits = provider.limits().ok_or_else(unsupported)?;
                let changed = self.with_retries(|| limits.resize(&self.id, instance, &spec)).await;
                changed.map_err(of)?;
            }
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => {
                if let Some(bytes) = wanted.filter(|_| has != wanted) {
                    let what = "change the size of a disk";
                    let unsupported = || of(ProviderError::unsupported(provider.name(), what));
                    let disks = provider.disks().ok_or_else(unsupported)?;
                    self.with_retries(|| disks.grow(&self.id, bytes)).await.map_err(of)?;
                }
            }
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
        }
        lease.spec = spec;
        self.save(lease).await
    }

    /// Replaces the settings by others that differ only in egress rules, and applies them to the instance.
    /// Recorded first: later instances get them even if this one fails.
    async fn set_egress(&mut self, spec: &Value) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        let provider = self.provider(&lease)?;
        let of = |source| LeaseError::provider(&self.id, "change", source);
        provider.accepts(spec).map_err(of)?;
        if lease.desired == Desired::Destroyed || lease.state == LeaseState::Destroyed {
            return Err(LeaseError::Destroyed { lease: self.id.clone() });
        }
        let lease = self.save(Lease { spec: spec.clone(), ..lease }).await?;
        if let LeaseState::Running(instance) | LeaseState::Paused(instance) = &lease.state {
            let what = "change the egress of a running instance";
            let unsupported = || of(ProviderError::unsupported(provider.name(), what));
            let egress = provider.egress().ok_or_else(unsupported)?;
            match self.with_retries(|| egress.set_egress(instance, spec)).await {
                // The next instance is created with them.
                Ok(()) | Err(ProviderError::Gone { .. }) => {}
                Err(source) => return Err(of(source)),
            }
        }
        Ok(lease)
    }

    async fn reach(&mut self, goal: &Goal) -> Result<Lease, LeaseError> {
        match goal {
            Goal::Consistent { suspect } => self.reconcile(suspect.as_ref()).await,
            Goal::Paused => self.pause().await,
            Goal::Stopped => self.end_by_request(Desired::Stopped).await,
            Goal::Destroyed => self.end_by_request(Desired::Destroyed).await,
        }
    }

    async fn run_instance(&mut self, if_paused: IfPaused) -> Result<RunningInstance, LeaseError> {
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
                        self.record_lost(&lease, instance, "the provider has it no more").await?;
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
        // The instance may exist in spite of the error. Another may be intended only when it certainly does
        // not; until then the intent stands, and the next request tries again.
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
                self.record_lost(&lease, instance, "it was gone when it was to be resumed").await?;
                Ok(ResumeOutcome::InstanceGone)
            }
            Err(source) => Err(LeaseError::provider(&self.id, "resume", source)),
        }
    }

    async fn pause(&mut self) -> Result<Lease, LeaseError> {
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
                self.record_lost(&lease, &instance, "it was gone when it was to be paused").await?;
                Err(nothing())
            }
            Err(source) => Err(LeaseError::provider(&self.id, "pause", source)),
        }
    }

    /// Ends the instance, and with [`Desired::Destroyed`] the lease too.
    async fn end_by_request(&mut self, desired: Desired) -> Result<Lease, LeaseError> {
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
        self.end(lease, "it was asked for").await
    }

    async fn end(&self, lease: Lease, why: &str) -> Result<Lease, LeaseError> {
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

    /// Brings the lease in line with what the provider reports and what was last requested.
    async fn reconcile(&mut self, suspect: Option<&InstanceId>) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        let provider = self.provider(&lease)?;
        if let Some(suspect) = suspect
            && lease.instance().is_none_or(|(instance, _)| instance.instance_id != *suspect)
        {
            return Ok(lease);
        }
        match lease.desired {
            Desired::Destroyed if lease.state != LeaseState::Destroyed => {
                return self.end(lease, "a server had begun to end it").await;
            }
            Desired::Stopped
                if !matches!(lease.state, LeaseState::Idle | LeaseState::Destroyed) =>
            {
                return self.end(lease, "a server had begun to end it").await;
            }
            Desired::Destroyed | Desired::Stopped | Desired::Running | Desired::Paused => {}
        }
        match &lease.state {
            LeaseState::Idle | LeaseState::Dead { .. } | LeaseState::Destroyed => Ok(lease),
            LeaseState::Creating { instance_id, .. } => {
                let of = |source| LeaseError::provider(&self.id, "look for", source);
                let found = provider.find_by_label(Some(&self.id)).await.map_err(of)?;
                let ours = found.into_iter().find(|found| {
                    found.instance_id == *instance_id && found.observed != Observed::Gone
                });
                let at = self.shared.clock.wall();
                let event = match ours {
                    Some(found) => LeaseEvent::Created { reference: found.reference, at },
                    None => {
                        let reason = "it was never made".to_owned();
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
                        self.record_lost(&lease, instance, "the provider has it no more").await
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

#[derive(Debug, PartialEq, Eq)]
enum ResumeOutcome {
    Running,
    InstanceGone,
}
