//! The one task that keeps a lease.

use std::sync::{Arc, PoisonError};

use serde_json::{Map, Value};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use super::{IfPaused, LINGER, LeaseError, Running, Shared, budget::Budget};
use base::event::Happened;
use model::{Desired, Instance, InstanceId, Lease, LeaseEvent, LeaseId, LeaseState};
use provider::{CopyTo, Fidelity, Intent, Observed, Provider, ProviderError};
use store::StoreError;

type Answer<T> = oneshot::Sender<Result<T, LeaseError>>;

/// What a keeper is asked.
#[derive(Debug)]
pub(super) enum Ask {
    Running { if_paused: IfPaused, answer: Answer<Running> },
    Make { what: Make, answer: Answer<Lease> },
    Copy { to: CopyTo, answer: Answer<Lease> },
    Resize { settings: Map<String, Value>, answer: Answer<Lease> },
    Reach { spec: serde_json::Value, answer: Answer<Lease> },
}

/// What a lease is to be made, other than running.
#[derive(Debug, Clone)]
pub(super) enum Make {
    /// As its provider says and as was last asked for.
    Right {
        /// Only if this is its instance.
        suspect: Option<InstanceId>,
    },
    Paused,
    Stopped,
    Destroyed,
}

/// How often a change is decided anew because somebody else changed the lease meanwhile.
const CONFLICTS: u32 = 3;

fn is_conflict<T>(result: &Result<T, LeaseError>) -> bool {
    matches!(result, Err(LeaseError::Store(StoreError::Conflict { .. })))
}

pub(super) struct Keeper {
    id: LeaseId,
    shared: Arc<Shared>,
    asks: mpsc::Receiver<Ask>,
    budget: Budget,
}

impl Keeper {
    pub(super) fn new(id: LeaseId, shared: Arc<Shared>, asks: mpsc::Receiver<Ask>) -> Self {
        Self { id, shared, asks, budget: Budget::default() }
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            let ask = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                ask = timeout(LINGER, self.asks.recv()) => ask,
            };
            match ask {
                Ok(Some(ask)) => {
                    // What was begun when the server is told to stop is left as a crash would leave
                    // it: the next start finishes it.
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        // Boxed, for most of its life a keeper waits.
                        () = Box::pin(self.answer(ask)) => {}
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let mut keepers =
                        self.shared.keepers.lock().unwrap_or_else(PoisonError::into_inner);
                    // Under the lock nobody gets another handle. Whoever has one and asks after this
                    // finds the question dropped, and asks the next keeper.
                    if self.asks.is_empty() {
                        keepers.remove(&self.id);
                        break;
                    }
                }
            }
        }
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Running { if_paused, answer } => {
                let mut result = self.make_running(if_paused).await;
                for _ in 0..CONFLICTS {
                    if !is_conflict(&result) {
                        break;
                    }
                    result = self.make_running(if_paused).await;
                }
                // Those who asked meanwhile share a failure instead of each repeating it.
                let mut others = Vec::new();
                if result.is_err() {
                    let mut rest = Vec::new();
                    while let Ok(ask) = self.asks.try_recv() {
                        match ask {
                            Ask::Running { if_paused: same, answer } if same == if_paused => {
                                others.push(answer);
                            }
                            other => rest.push(other),
                        }
                    }
                    for ask in rest {
                        Box::pin(self.answer(ask)).await;
                    }
                }
                for other in others {
                    let _ = other.send(result.clone());
                }
                let _ = answer.send(result);
            }
            Ask::Copy { to, answer } => {
                let _ = answer.send(self.copy(&to).await);
            }
            Ask::Resize { settings, answer } => {
                let _ = answer.send(self.resize(settings).await);
            }
            Ask::Reach { spec, answer } => {
                let mut result = self.reach(&spec).await;
                for _ in 0..CONFLICTS {
                    if !is_conflict(&result) {
                        break;
                    }
                    result = self.reach(&spec).await;
                }
                let _ = answer.send(result);
            }
            Ask::Make { what, answer } => {
                let mut result = self.make(&what).await;
                for _ in 0..CONFLICTS {
                    if !is_conflict(&result) {
                        break;
                    }
                    result = self.make(&what).await;
                }
                let _ = answer.send(result);
            }
        }
    }

    /// Copies the files of the lease; nothing is made or ended meanwhile.
    async fn copy(&mut self, to: &CopyTo) -> Result<Lease, LeaseError> {
        let lease = self.check(None).await?;
        let provider = self.provider(&lease)?;
        let instance = match &lease.state {
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
            LeaseState::Running(instance) | LeaseState::Paused(instance) => Some(instance),
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => None,
        };
        let copied = match provider.disks() {
            Some(disks) => self.try_often(|| disks.copy(&self.id, instance, to)).await,
            None => Err(ProviderError::unsupported(provider.name(), "copy a lease's files")),
        };
        copied.map_err(|source| LeaseError::provider(&self.id, "copy", source))?;
        Ok(lease)
    }

    /// Takes other settings; a disk grows where nothing runs on it. What there is has them before they are
    /// on record: asked again, it is as if nothing had been.
    async fn resize(&mut self, settings: Map<String, Value>) -> Result<Lease, LeaseError> {
        let mut lease = self.check(None).await?;
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
                let changed = self.try_often(|| limits.resize(&self.id, instance, &spec)).await;
                changed.map_err(of)?;
            }
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => {
                if let Some(bytes) = wanted.filter(|_| has != wanted) {
                    let what = "change the size of a disk";
                    let unsupported = || of(ProviderError::unsupported(provider.name(), what));
                    let disks = provider.disks().ok_or_else(unsupported)?;
                    self.try_often(|| disks.grow(&self.id, bytes)).await.map_err(of)?;
                }
            }
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
        }
        lease.spec = spec;
        self.save(lease).await
    }

    /// Gives the lease other settings, which only differ in what is reached, and its instance what they
    /// say. On record first: what is made later has them whatever becomes of this one.
    async fn reach(&mut self, spec: &serde_json::Value) -> Result<Lease, LeaseError> {
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
            match self.try_often(|| egress.set_egress(instance, spec)).await {
                // The next one has them from the start.
                Ok(()) | Err(ProviderError::Gone { .. }) => {}
                Err(source) => return Err(of(source)),
            }
        }
        Ok(lease)
    }

    async fn make(&mut self, what: &Make) -> Result<Lease, LeaseError> {
        match what {
            Make::Right { suspect } => self.check(suspect.as_ref()).await,
            Make::Paused => self.make_paused().await,
            Make::Stopped => self.make_gone(Desired::Stopped).await,
            Make::Destroyed => self.make_gone(Desired::Destroyed).await,
        }
    }

    async fn make_running(&mut self, if_paused: IfPaused) -> Result<Running, LeaseError> {
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
                LeaseState::Running(instance) => match self.look(&*provider, instance).await? {
                    Observed::Running => {
                        let lease = self.want(lease, Desired::Running).await?;
                        return self.is_running(&lease, recreated);
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
                    recreated |= self.resume(&*provider, lease).await? == Resumed::WasGone;
                }
                LeaseState::Creating { .. } => {
                    let lease = self.create(&*provider, lease).await?;
                    return self.is_running(&lease, recreated);
                }
                LeaseState::Idle | LeaseState::Dead { .. } => {
                    recreated |= matches!(lease.state, LeaseState::Dead { .. });
                    if let Err(retry_after) = self.budget.take(&self.shared.pace, Instant::now()) {
                        return Err(LeaseError::Exhausted { lease: self.id.clone(), retry_after });
                    }
                    let at = self.shared.clock.wall();
                    let intended = lease
                        .apply(LeaseEvent::Wanted(Desired::Running))?
                        .apply(LeaseEvent::Intended(InstanceId::fresh(), at))?;
                    let intended = self.save(intended).await?;
                    let lease = self.create(&*provider, intended).await?;
                    return self.is_running(&lease, recreated);
                }
            }
        }
    }

    fn is_running(&self, lease: &Lease, recreated: bool) -> Result<Running, LeaseError> {
        let LeaseState::Running(instance) = &lease.state else {
            return Err(LeaseError::NoInstance { lease: self.id.clone() });
        };
        let running = Running {
            lease_id: self.id.clone(),
            provider: lease.provider.clone(),
            instance: instance.clone(),
            recreated,
        };
        self.shared.note_running(running.clone());
        Ok(running)
    }

    /// Makes the intended instance be there. Its name was recorded, so that trying again finds what
    /// an earlier try left.
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
        let error = match self.try_often(|| provider.create(&intent)).await {
            Ok(created) => {
                let at = self.shared.clock.wall();
                let reference = created.reference;
                let next = lease.apply(LeaseEvent::Created { reference, at })?;
                let next = self.save(next).await?;
                self.shared.events.tell(Happened::InstanceCreated {
                    lease_id: self.id.clone(),
                    instance_id: intent.instance_id,
                    generation: intent.generation,
                });
                return Ok(next);
            }
            Err(error) => error,
        };
        // It may be there in spite of what we heard. Only when it certainly is not may another be
        // intended; until then the intent stands, and the next who asks tries again.
        let perhaps = Instance {
            instance_id: instance_id.clone(),
            generation: lease.generation,
            reference: String::new(),
            started_at: *since,
        };
        match self.try_often(|| provider.destroy(&perhaps)).await {
            Ok(()) => {
                let at = self.shared.clock.wall();
                let reason = chain(&error);
                self.save(lease.apply(LeaseEvent::Failed { at, reason })?).await?;
            }
            Err(left) => warn!(
                lease = %self.id, instance = %perhaps.instance_id, error = chain(&left),
                "cannot make sure that an instance is not there"
            ),
        }
        Err(LeaseError::provider(&self.id, "create", error))
    }

    /// Resumes the instance and records it; one that is gone is recorded as lost.
    async fn resume(&self, provider: &dyn Provider, lease: Lease) -> Result<Resumed, LeaseError> {
        let (LeaseState::Paused(instance) | LeaseState::Running(instance)) = &lease.state else {
            return Ok(Resumed::Runs);
        };
        match self.try_often(|| provider.resume(instance)).await {
            Ok(()) => {
                let id = instance.instance_id.clone();
                self.save(lease.apply(LeaseEvent::Resumed(id.clone()))?).await?;
                let lease_id = self.id.clone();
                self.shared.events.tell(Happened::InstanceResumed { lease_id, instance_id: id });
                Ok(Resumed::Runs)
            }
            Err(ProviderError::Gone { .. }) => {
                self.record_lost(&lease, instance, "it was gone when it was to be resumed").await?;
                Ok(Resumed::WasGone)
            }
            Err(source) => Err(LeaseError::provider(&self.id, "resume", source)),
        }
    }

    async fn make_paused(&mut self) -> Result<Lease, LeaseError> {
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
        match self.try_often(|| provider.pause(&instance)).await {
            Ok(()) => {
                let id = instance.instance_id.clone();
                let lease = self.save(lease.apply(LeaseEvent::Paused(id.clone()))?).await?;
                let lease_id = self.id.clone();
                self.shared.events.tell(Happened::InstancePaused { lease_id, instance_id: id });
                Ok(lease)
            }
            Err(ProviderError::Gone { .. }) => {
                self.record_lost(&lease, &instance, "it was gone when it was to be paused").await?;
                Err(nothing())
            }
            Err(source) => Err(LeaseError::provider(&self.id, "pause", source)),
        }
    }

    /// Ends whatever there is, and with [`Desired::Destroyed`] the lease too.
    async fn make_gone(&mut self, desired: Desired) -> Result<Lease, LeaseError> {
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
            self.try_often(|| provider.destroy(instance)).await.map_err(of)?;
        }
        // Whatever else carries this lease's label was left by a reply that got lost.
        for found in self.try_often(|| provider.find_by_label(Some(&self.id))).await.map_err(of)? {
            let instance = found.instance(lease.updated_at);
            self.try_often(|| provider.destroy(&instance)).await.map_err(of)?;
        }
        if lease.desired == Desired::Destroyed
            && let Some(disks) = provider.disks()
        {
            self.try_often(|| disks.forget(&self.id)).await.map_err(of)?;
        }
        let was_alive = matches!(lease.state, LeaseState::Running(_) | LeaseState::Paused(_));
        let lease = self.save(lease.apply(LeaseEvent::Ended)?).await?;
        if let Some(instance) = known.filter(|_| was_alive) {
            self.shared.events.tell(Happened::InstanceEnded {
                lease_id: self.id.clone(),
                instance_id: instance.instance_id,
                reason: why.to_owned(),
            });
        }
        if lease.state == LeaseState::Destroyed {
            self.shared.events.tell(Happened::LeaseDestroyed { lease_id: self.id.clone() });
        }
        Ok(lease)
    }

    /// Brings the lease in line with what the provider says and what was last asked for.
    async fn check(&mut self, suspect: Option<&InstanceId>) -> Result<Lease, LeaseError> {
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
            _ => {}
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
                let observed = self.look(&*provider, instance).await?;
                let id = instance.instance_id.clone();
                match (observed, lease.desired) {
                    (Observed::Gone, _) => {
                        self.record_lost(&lease, instance, "the provider has it no more").await
                    }
                    (Observed::Running, Desired::Paused) => self.make_paused().await,
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
        self.shared.events.tell(Happened::InstanceLost {
            lease_id: self.id.clone(),
            instance_id,
            reason: reason.to_owned(),
        });
        Ok(next)
    }

    async fn look(
        &self,
        provider: &dyn Provider,
        instance: &Instance,
    ) -> Result<Observed, LeaseError> {
        let result = self.try_often(|| provider.inspect(instance)).await;
        result.map_err(|source| LeaseError::provider(&self.id, "inspect", source))
    }

    /// Tries something that may pass, with waits in between.
    async fn try_often<'a, T>(
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
            if gone || !error.may_pass() || failures >= self.shared.pace.tries {
                return Err(error);
            }
            let asked = match &error {
                ProviderError::Busy { retry_after, .. } => *retry_after,
                _ => None,
            };
            sleep(self.shared.pace.wait(failures, asked)).await;
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

/// What came of resuming.
#[derive(Debug, PartialEq, Eq)]
enum Resumed {
    Runs,
    WasGone,
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
