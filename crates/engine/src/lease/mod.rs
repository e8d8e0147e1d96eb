//! Makes what is beneath a lease be running, paused or gone.
//!
//! One task keeps each lease that somebody asks about; it decides (pure, in `model`), records, and
//! then acts, in that order, so that a crash between any two is repaired by doing them again. However
//! many ask, there is one instance. What a provider loses, delays or says twice changes nothing: every
//! act is asked for by the instance's own name, which was recorded before.

mod budget;
mod error;
mod keeper;
mod reaper;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use budget::Pace;
pub use error::LeaseError;

use base::{clock::Clock, event::Events};
use keeper::{Ask, Keeper, Make};
use model::{Env, Instance, InstanceId, Lease, LeaseEvent, LeaseId, Money};
use provider::{
    Connection, CopyTo, Exceeded, Fidelity, Metrics, MountedPaths, ProviderError, Providers,
    TerminalMounts,
};
use store::Store;

/// How many may ask about one lease before the next has to wait.
const QUEUE: usize = 256;

/// How many keepers in turn may go away without an answer.
const ASKED: u32 = 5;

/// How long a keeper stays when nobody asks.
const LINGER: Duration = Duration::from_secs(30);

/// The handle to all leases; cheap to clone.
#[derive(Debug, Clone)]
pub struct Leases {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    providers: Providers,
    events: Events,
    clock: Clock,
    pace: Pace,
    keepers: Mutex<HashMap<LeaseId, mpsc::Sender<Ask>>>,
    /// What was seen running by this process and not heard of otherwise since.
    running: Mutex<HashMap<LeaseId, Running>>,
    /// Forks whose files are being copied, or whose thread is being made.
    forks: Mutex<HashSet<LeaseId>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// An instance that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The lease it is under.
    pub lease_id: LeaseId,
    /// The provider that holds it.
    pub provider: String,
    /// The instance.
    pub instance: Instance,
    /// Whether it was made because the one before it was lost, by whoever asked first.
    pub recreated: bool,
}

/// A fork that is wanted gone until it is kept. While this is held, the reaper leaves it alone.
#[derive(Debug)]
pub struct Fork {
    /// The new lease.
    pub lease: Lease,
    _forking: Forking,
}

/// Keeps the reaper from a fork that is being made.
#[derive(Debug)]
struct Forking {
    shared: Arc<Shared>,
    id: LeaseId,
}

impl Forking {
    fn begin(shared: Arc<Shared>, id: LeaseId) -> Self {
        shared.forks.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        Self { shared, id }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        self.shared.forks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// What to do with a lease that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPaused {
    /// Resume it.
    Resume,
    /// Refuse, with [`LeaseError::Paused`].
    Refuse,
}

impl Leases {
    /// The handle; its tasks end when `stop` is cancelled.
    #[must_use]
    pub fn new(
        store: Store,
        providers: Providers,
        events: Events,
        clock: Clock,
        pace: Pace,
        stop: CancellationToken,
    ) -> Self {
        let shared = Shared {
            store,
            providers,
            events,
            clock,
            pace,
            keepers: Mutex::default(),
            running: Mutex::default(),
            forks: Mutex::default(),
            tasks: TaskTracker::new(),
            stop,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The one running instance of a lease: found, resumed, or made.
    pub async fn running(&self, id: &LeaseId) -> Result<Running, LeaseError> {
        self.running_if(id, IfPaused::Resume).await
    }

    /// The one running instance of a lease, where it matters what happens to a paused one.
    pub async fn running_if(
        &self,
        id: &LeaseId,
        if_paused: IfPaused,
    ) -> Result<Running, LeaseError> {
        if let Some(running) = self.shared.seen_running(id) {
            return Ok(running);
        }
        self.ask(id, |answer| Ask::Running { if_paused, answer }).await
    }

    /// Opens a stream to the host of a running instance. A failure that says it is gone should be
    /// followed by [`lost`](Self::lost).
    pub async fn connect(&self, running: &Running) -> Result<Connection, LeaseError> {
        let lease_id = &running.lease_id;
        let of = |source| LeaseError::provider(lease_id, "connect to", source);
        let provider = self.shared.providers.named(&running.provider).map_err(of)?;
        provider.connect(&running.instance).await.map_err(of)
    }

    /// Makes a terminal's directory and a project's files available inside a running instance.
    pub async fn mount(
        &self,
        running: &Running,
        wanted: &TerminalMounts,
    ) -> Result<MountedPaths, LeaseError> {
        let of = |source| LeaseError::provider(&running.lease_id, "prepare", source);
        let provider = self.shared.providers.named(&running.provider).map_err(of)?;
        match provider.mounts() {
            Some(mounts) => mounts.mount(&running.instance, wanted).await.map_err(of),
            None => Ok(MountedPaths::unchanged(wanted)),
        }
    }

    /// What a shell's environment begins with under this lease; `None` for the server's own.
    #[must_use]
    pub fn environment(&self, running: &Running) -> Option<Env> {
        self.shared.providers.named(&running.provider).ok()?.profile().environment
    }

    /// What an hour of a lease's instance costs.
    #[must_use]
    pub fn price(&self, lease: &Lease) -> Money {
        self.price_at(&lease.provider)
    }

    /// What an hour of an instance of a provider costs; nothing at one that is not there any more.
    #[must_use]
    pub fn price_at(&self, provider: &str) -> Money {
        let provider = self.shared.providers.named(provider);
        provider.map_or(Money::default(), |provider| provider.profile().hourly_price)
    }

    /// How long a host under a provider that cannot be reached is looked for.
    #[must_use]
    pub fn patience(&self, lease: &Lease) -> Duration {
        let provider = self.shared.providers.named(&lease.provider);
        provider.map_or(Duration::ZERO, |provider| provider.profile().reconnect_timeout)
    }

    /// Whether what runs under a provider goes on after a pause.
    #[must_use]
    pub fn keeps_programs(&self, lease: &Lease) -> bool {
        let provider = self.shared.providers.named(&lease.provider);
        provider.is_ok_and(|provider| provider.capabilities().pause == Fidelity::Memory)
    }

    /// How often the running instance of a lease met its limits; `None` if it has none.
    #[must_use]
    pub fn exceeded(&self, id: &LeaseId) -> Option<Exceeded> {
        let running = self.shared.seen_running(id)?;
        let provider = self.shared.providers.named(&running.provider).ok()?;
        provider.limits()?.exceeded(&running.instance)
    }

    /// Tells that an instance was not there when it was used. The provider is asked, and the loss
    /// recorded if it agrees; the next [`running`](Self::running) makes another.
    pub async fn lost(&self, id: &LeaseId, instance: &InstanceId) -> Result<Lease, LeaseError> {
        self.shared.forget_running(id);
        let instance = instance.clone();
        self.make(id, Make::Right { suspect: Some(instance) }).await
    }

    /// Brings a lease in line with what its provider says and what was last asked for: finishes what
    /// a crash interrupted.
    pub async fn reconcile(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.make(id, Make::Right { suspect: None }).await
    }

    /// Makes the instance hold still. Refused if there is none, or if the provider cannot.
    pub async fn pause(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.make(id, Make::Paused).await
    }

    /// Makes the instance run: the same as [`running`](Self::running), asked for by name.
    pub async fn resume(&self, id: &LeaseId) -> Result<Running, LeaseError> {
        self.running(id).await
    }

    /// Ends the instance; the next [`running`](Self::running) makes another.
    pub async fn stop(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.make(id, Make::Stopped).await
    }

    /// Ends the instance and keeps this much of it for the next [`running`](Self::running). Refused if
    /// the provider keeps less.
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

    /// Another lease like this one, with a copy of its files. It is wanted gone until it is
    /// [kept](Self::keep) or becomes a thread's, before the handle is dropped.
    pub async fn fork(&self, id: &LeaseId) -> Result<Fork, LeaseError> {
        let lease = self.shared.store.lease(id).await?;
        let lease = lease.ok_or_else(|| LeaseError::Missing { lease: id.clone() })?;
        let fork = lease.fork(LeaseId::fresh(), self.shared.clock.wall());
        let forking = Forking::begin(self.shared.clone(), fork.lease_id.clone());
        // On record first: files that no lease knows are removed.
        self.shared.store.add_lease(&fork).await?;
        let to = CopyTo::Lease(fork.lease_id.clone());
        if let Err(error) = self.ask(id, |answer| Ask::Copy { to: to.clone(), answer }).await {
            self.destroy(&fork.lease_id).await?;
            return Err(error);
        }
        Ok(Fork { lease: fork, _forking: forking })
    }

    /// Keeps a fork that no thread stands on yet.
    pub async fn keep(&self, fork: Fork) -> Result<Lease, LeaseError> {
        Ok(self.shared.store.save_lease(&fork.lease.apply(LeaseEvent::Kept)?).await?)
    }

    /// Keeps a copy of a lease's files under a name.
    pub async fn snapshot(&self, id: &LeaseId, name: &str) -> Result<Lease, LeaseError> {
        let to = CopyTo::Snapshot(name.to_owned());
        self.ask(id, |answer| Ask::Copy { to: to.clone(), answer }).await
    }

    /// Gives the lease other settings of its provider: its instance at once, and every later one.
    pub async fn resize(
        &self,
        id: &LeaseId,
        settings: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Lease, LeaseError> {
        self.ask(id, |answer| Ask::Resize { settings: settings.clone(), answer }).await
    }

    /// Gives a lease other settings, which only differ in what is reached. What runs goes on, and reaches
    /// what they say from now on.
    pub async fn reach(&self, id: &LeaseId, spec: &serde_json::Value) -> Result<Lease, LeaseError> {
        self.ask(id, |answer| Ask::Reach { spec: spec.clone(), answer }).await
    }

    /// Ends the instance and the lease.
    pub async fn destroy(&self, id: &LeaseId) -> Result<Lease, LeaseError> {
        self.make(id, Make::Destroyed).await
    }

    /// What the instance uses; `None` if there is none or its provider does not tell.
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

    /// The providers there are.
    #[must_use]
    pub fn providers(&self) -> &Providers {
        &self.shared.providers
    }

    /// Ends the keepers, once `stop` was cancelled. Instances go on.
    pub async fn finished(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn make(&self, id: &LeaseId, what: Make) -> Result<Lease, LeaseError> {
        self.ask(id, |answer| Ask::Make { what: what.clone(), answer }).await
    }

    /// Asks the keeper of a lease, starting it if there is none. One that went away without an
    /// answer did not begin, or left what it began as a crash would: asking again is safe.
    async fn ask<T>(
        &self,
        id: &LeaseId,
        ask: impl Fn(oneshot::Sender<Result<T, LeaseError>>) -> Ask,
    ) -> Result<T, LeaseError> {
        for _ in 0..ASKED {
            let (answer, answered) = oneshot::channel();
            if self.keeper(id)?.send(ask(answer)).await.is_err() {
                continue;
            }
            if let Ok(result) = answered.await {
                return result;
            }
        }
        Err(LeaseError::Stopping)
    }

    fn keeper(&self, id: &LeaseId) -> Result<mpsc::Sender<Ask>, LeaseError> {
        if self.shared.stop.is_cancelled() {
            return Err(LeaseError::Stopping);
        }
        let mut keepers = self.shared.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keepers.get(id).filter(|keeper| !keeper.is_closed()) {
            return Ok(keeper.clone());
        }
        let (sender, asks) = mpsc::channel(QUEUE);
        keepers.insert(id.clone(), sender.clone());
        let keeper = Keeper::new(id.clone(), self.shared.clone(), asks);
        self.shared.tasks.spawn(keeper.run());
        Ok(sender)
    }
}

impl Shared {
    fn seen_running(&self, id: &LeaseId) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn note_running(&self, running: Running) {
        let mut seen = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(running.lease_id.clone(), running);
    }

    fn forking(&self) -> HashSet<LeaseId> {
        self.forks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget_running(&self, id: &LeaseId) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
