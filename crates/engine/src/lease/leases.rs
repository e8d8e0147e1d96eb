//! The handle to all leases.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    error::LeaseError,
    request::{Goal, IfPaused, LeaseRequest, RunningInstance},
    retry::RetryPolicy,
    shared::{ForkGuard, LeasesShared},
    worker::LeaseWorker,
};
use base::{clock::Clock, event::Events};
use model::{Env, InstanceId, Lease, LeaseEvent, LeaseId, Money};
use provider::{
    CopyTo, EgressLog, Exceeded, Fidelity, HostConnection, ImageShell, Metrics, MountedPaths,
    ProviderError, Providers, TerminalMounts,
};
use store::Store;

/// How many requests may wait for one worker; a further caller waits for room.
const QUEUE_LENGTH: usize = 256;

/// How often a request is sent again because its worker ended without a reply.
const MAX_ATTEMPTS: u32 = 5;

/// The handle to all leases; cheap to clone.
#[derive(Debug, Clone)]
pub struct Leases {
    pub(super) shared: Arc<LeasesShared>,
}

/// A fork that is deleted unless it is kept. While this exists, the reaper leaves it alone.
#[derive(Debug)]
pub struct LeaseFork {
    pub lease: Lease,
    _guard: ForkGuard,
}

impl Leases {
    /// Its tasks end when `stop` is cancelled.
    #[must_use]
    pub fn new(
        store: Store,
        providers: Providers,
        events: Events,
        clock: Clock,
        retry: RetryPolicy,
        stop: CancellationToken,
    ) -> Self {
        let shared = LeasesShared::new(store, providers, events, clock, retry, stop);
        Self { shared: Arc::new(shared) }
    }

    /// Returns the one running instance of a lease. Resumes or creates it if necessary.
    pub async fn running(&self, id: &LeaseId) -> Result<RunningInstance, LeaseError> {
        self.running_if(id, IfPaused::Resume).await
    }

    /// Returns the one running instance of a lease. `if_paused` decides about a paused one.
    pub async fn running_if(
        &self,
        id: &LeaseId,
        if_paused: IfPaused,
    ) -> Result<RunningInstance, LeaseError> {
        if let Some(running) = self.shared.seen_running(id) {
            return Ok(running);
        }
        self.request(id, |reply| LeaseRequest::Run { if_paused, reply }).await
    }

    /// Opens a stream to the host of a running instance. After [`ProviderError::Gone`], call
    /// [`lost`](Self::lost).
    pub async fn connect(&self, running: &RunningInstance) -> Result<HostConnection, LeaseError> {
        let lease_id = &running.lease_id;
        let of = |source| LeaseError::provider(lease_id, "connect to", source);
        let provider = self.shared.providers.named(&running.provider).map_err(of)?;
        provider.connect(&running.instance).await.map_err(of)
    }

    /// Makes a terminal's directory and a project's files available inside a running instance.
    pub async fn mount(
        &self,
        running: &RunningInstance,
        wanted: &TerminalMounts,
    ) -> Result<MountedPaths, LeaseError> {
        let of = |source| LeaseError::provider(&running.lease_id, "prepare", source);
        let provider = self.shared.providers.named(&running.provider).map_err(of)?;
        match provider.mounts() {
            Some(mounts) => mounts.mount(&running.instance, wanted).await.map_err(of),
            None => Ok(MountedPaths::unchanged(wanted)),
        }
    }

    /// Returns what the image of a running instance says about shells.
    pub async fn image_shell(&self, running: &RunningInstance) -> Result<ImageShell, LeaseError> {
        let of = |source| LeaseError::provider(&running.lease_id, "inspect", source);
        let provider = self.shared.providers.named(&running.provider).map_err(of)?;
        match provider.mounts() {
            Some(mounts) => mounts.image(&running.instance).await.map_err(of),
            None => Ok(ImageShell::default()),
        }
    }

    /// Returns the initial environment of a shell in this instance; `None` means the server's own.
    #[must_use]
    pub fn environment(&self, running: &RunningInstance) -> Option<Env> {
        self.shared.providers.named(&running.provider).ok()?.profile().environment
    }

    /// Returns the price of one hour of a lease's instance.
    #[must_use]
    pub fn price(&self, lease: &Lease) -> Money {
        self.price_at(&lease.provider)
    }

    /// Returns the price of one hour of an instance; zero for a provider that no longer exists.
    #[must_use]
    pub fn price_at(&self, provider: &str) -> Money {
        let provider = self.shared.providers.named(provider);
        provider.map_or(Money::default(), |provider| provider.profile().hourly_price)
    }

    /// Returns how long to try to reconnect to a host of this lease before it counts as gone.
    #[must_use]
    pub fn reconnect_timeout(&self, lease: &Lease) -> Duration {
        let provider = self.shared.providers.named(&lease.provider);
        provider.map_or(Duration::ZERO, |provider| provider.profile().reconnect_timeout)
    }

    /// Returns whether programs survive a pause of this lease.
    #[must_use]
    pub fn keeps_programs(&self, lease: &Lease) -> bool {
        let provider = self.shared.providers.named(&lease.provider);
        provider.is_ok_and(|provider| provider.capabilities().pause == Fidelity::Memory)
    }

    /// Returns how often the running instance of a lease reached its limits; `None` if it has none.
    #[must_use]
    pub fn exceeded(&self, id: &LeaseId) -> Option<Exceeded> {
        let running = self.shared.seen_running(id)?;
        let provider = self.shared.providers.named(&running.provider).ok()?;
        provider.limits()?.exceeded(&running.instance)
    }

    /// Reports that an instance could not be used. If the provider confirms that it is gone, the loss is
    /// recorded, and the next [`running`](Self::running) creates another.
    pub async fn lost(&self, id: &LeaseId, instance: &InstanceId) -> Result<Lease, LeaseError> {
        self.shared.forget_running(id);
        let instance = instance.clone();
        self.reach(id, Goal::Consistent { suspect: Some(instance) }).await
    }

    /// Brings a lease in line with what its provider reports and what was last requested. This completes
    /// what a crash interrupted.
    pub async fn reconcile(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.reach(id, Goal::Consistent { suspect: None }).await
    }

    /// Pauses the instance. Refused if there is none, or if the provider cannot pause.
    pub async fn pause(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.reach(id, Goal::Paused).await
    }

    /// Resumes the instance: the same as [`running`](Self::running).
    pub async fn resume(&self, id: &LeaseId) -> Result<RunningInstance, LeaseError> {
        self.running(id).await
    }

    /// Ends the instance; the next [`running`](Self::running) creates another.
    pub async fn stop(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.reach(id, Goal::Stopped).await
    }

    /// Ends the instance and keeps `keep` of it for the next [`running`](Self::running). Refused if the
    /// provider keeps less.
    pub async fn suspend(&self, id: &LeaseId, keep: Fidelity) -> Result<Lease, LeaseError> {
        let lease = self.shared.store.lease(id).await?;
        let lease = lease.ok_or_else(|| LeaseError::Missing { lease: id.clone() })?;
        let of = |source| LeaseError::provider(id, "suspend", source);
        let provider = self.shared.providers.named(&lease.provider).map_err(of)?;
        let enough = match keep {
            Fidelity::None => true,
            Fidelity::Filesystem => provider.profile().suspend != Fidelity::None,
            Fidelity::Memory => provider.profile().suspend == Fidelity::Memory,
        };
        if !enough {
            let what = match keep {
                Fidelity::Memory => "keep the memory of an instance that is ended",
                Fidelity::Filesystem | Fidelity::None => {
                    "keep the files of an instance that is ended"
                }
            };
            let provider = lease.provider.clone();
            return Err(of(ProviderError::Unsupported { provider, what }));
        }
        self.stop(id).await
    }

    /// Creates another lease like this one, with a copy of its files. It is deleted unless it is
    /// [kept](Self::keep), or assigned to a thread, before the returned handle is dropped.
    pub async fn fork(&self, id: &LeaseId) -> Result<LeaseFork, LeaseError> {
        let lease = self.shared.store.lease(id).await?;
        let lease = lease.ok_or_else(|| LeaseError::Missing { lease: id.clone() })?;
        let fork = lease.fork(LeaseId::fresh(), self.shared.clock.wall());
        let guard = ForkGuard::new(self.shared.clone(), fork.lease_id.clone());
        // Recorded first, because files without a lease are removed.
        self.shared.store.add_lease(&fork).await?;
        let to = CopyTo::Lease(fork.lease_id.clone());
        let copied = self.request(id, |reply| LeaseRequest::Copy { to: to.clone(), reply }).await;
        if let Err(error) = copied {
            self.destroy(&fork.lease_id).await?;
            return Err(error);
        }
        Ok(LeaseFork { lease: fork, _guard: guard })
    }

    /// Keeps a fork that no thread uses yet.
    pub async fn keep(&self, fork: LeaseFork) -> Result<Lease, LeaseError> {
        Ok(self.shared.store.save_lease(&fork.lease.apply(LeaseEvent::Kept)?).await?)
    }

    /// Saves a copy of a lease's files under a name.
    pub async fn snapshot(&self, id: &LeaseId, name: &str) -> Result<Lease, LeaseError> {
        let to = CopyTo::Snapshot(name.to_owned());
        self.request(id, |reply| LeaseRequest::Copy { to: to.clone(), reply }).await
    }

    /// Changes provider settings of the lease. They apply to its instance at once, and to later ones.
    pub async fn resize(
        &self,
        id: &LeaseId,
        settings: Map<String, Value>,
    ) -> Result<Lease, LeaseError> {
        let request = |reply| LeaseRequest::Resize { settings: settings.clone(), reply };
        self.request(id, request).await
    }

    /// Replaces the settings of a lease by others that differ only in egress rules. Programs keep running.
    pub async fn set_egress(&self, id: &LeaseId, spec: &Value) -> Result<Lease, LeaseError> {
        self.request(id, |reply| LeaseRequest::SetEgress { spec: spec.clone(), reply }).await
    }

    /// Ends the instance and the lease.
    pub async fn destroy(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.reach(id, Goal::Destroyed).await
    }

    /// Returns the resource usage of the instance; `None` without an instance or without metrics.
    pub async fn metrics(&self, lease: &Lease) -> Result<Option<Metrics>, LeaseError> {
        let Some((instance, _)) = lease.instance() else { return Ok(None) };
        let of = |source| LeaseError::provider(&lease.lease_id, "measure", source);
        let provider = self.shared.providers.named(&lease.provider).map_err(of)?;
        if !provider.capabilities().metrics {
            return Ok(None);
        }
        match provider.metrics(instance).await {
            Ok(metrics) => Ok(Some(metrics)),
            Err(ProviderError::Gone { .. }) => Ok(None),
            Err(source) => Err(of(source)),
        }
    }

    /// Returns the egress log of the instance; an empty one without an instance.
    pub async fn egress_log(&self, lease: &Lease) -> Result<EgressLog, LeaseError> {
        let of = |source| LeaseError::provider(&lease.lease_id, "read the egress log of", source);
        let provider = self.shared.providers.named(&lease.provider).map_err(of)?;
        let unsupported = || of(ProviderError::unsupported(provider.name(), "log egress"));
        let egress = provider.egress().ok_or_else(unsupported)?;
        let Some((instance, _)) = lease.instance() else { return Ok(EgressLog::default()) };
        match egress.egress_log(instance).await {
            Ok(log) => Ok(log),
            Err(ProviderError::Gone { .. }) => Ok(EgressLog::default()),
            Err(source) => Err(of(source)),
        }
    }

    #[must_use]
    pub fn providers(&self) -> &Providers {
        &self.shared.providers
    }

    /// Waits for the workers to end after `stop` was cancelled. Instances keep running.
    pub async fn finished(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn reach(&self, id: &LeaseId, goal: Goal) -> Result<Lease, LeaseError> {
        self.request(id, |reply| LeaseRequest::Reach { goal: goal.clone(), reply }).await
    }

    /// Sends a request to the worker of a lease, which is started if necessary. A worker that ended
    /// without a reply did not begin, or left its work as a crash would, so repeating is safe.
    async fn request<T>(
        &self,
        id: &LeaseId,
        request: impl Fn(oneshot::Sender<Result<T, LeaseError>>) -> LeaseRequest,
    ) -> Result<T, LeaseError> {
        for _ in 0..MAX_ATTEMPTS {
            let (reply, received) = oneshot::channel();
            if self.worker(id)?.send(request(reply)).await.is_err() {
                continue;
            }
            if let Ok(result) = received.await {
                return result;
            }
        }
        Err(LeaseError::Stopping)
    }

    fn worker(&self, id: &LeaseId) -> Result<mpsc::Sender<LeaseRequest>, LeaseError> {
        if self.shared.stop.is_cancelled() {
            return Err(LeaseError::Stopping);
        }
        let mut workers = self.shared.workers.lock();
        if let Some(worker) = workers.get(id).filter(|worker| !worker.is_closed()) {
            return Ok(worker.clone());
        }
        let (sender, requests) = mpsc::channel(QUEUE_LENGTH);
        workers.insert(id.clone(), sender.clone());
        let worker = LeaseWorker::new(id.clone(), self.shared.clone(), requests);
        self.shared.tasks.spawn(worker.run());
        Ok(sender)
    }
}
