//! Instances, leases and sessions, with real hosts and a real store; images; and the hostile cases at every provider.
#![allow(clippy::unwrap_used, missing_docs)]

mod agentbay;
mod cloud;
mod commands_only;
mod conformance;
mod containers;
mod faults;
mod faulty;
mod files;
mod image_build;
mod images;
mod kubernetes;
mod lease;
mod link;
mod provider;
mod registry;
mod session;
mod vendor;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::provider::{Local, Provider, Providers};
use base::{
    clock::Clock,
    event::{EventKind, EventSubscription, Events},
};
use engine::{
    lease::{Leases, RetryPolicy},
    session::Sessions,
};
use machine::docker::DockerOptions;
use machine::namespace::{Confined, NamespaceOptions};
use machine::{Docker, EgressPolicy, Namespace};
use model::{LeaseId, Moment, ShellKind, Timestamp};
use store::{Chain, FirstUse, Store, ThreadChoices};
use tokio_util::sync::CancellationToken;

use harness::Home;

/// A clock that only advances when a test turns it.
#[derive(Clone, Default)]
pub struct Hands(Arc<AtomicU64>);

impl Hands {
    pub fn turn(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let hands = self.0.clone();
        Clock::from_fn(move || {
            let micros = hands.load(Ordering::SeqCst);
            let wall = 1_700_000_000_000_000 + i64::try_from(micros).unwrap();
            let wall = Timestamp::from_microsecond(wall).unwrap();
            Moment::new(wall, 1, Duration::from_micros(micros))
        })
    }
}

/// Everything that a server has below its terminals. A test may drop it and create it again on the same
/// home, as after a crash.
pub struct World {
    pub home: Arc<Home>,
    pub hands: Hands,
    pub store: Store,
    pub provider: Arc<dyn Provider>,
    pub events: Events,
    pub leases: Leases,
    pub sessions: Sessions,
    stop: CancellationToken,
}

pub fn local(home: &Path) -> Local {
    Local::beneath(home, "run", Path::new(harness::program()))
}

pub fn namespace(home: &Path) -> Namespace {
    let executable = Path::new(harness::program()).to_owned();
    let mut options = NamespaceOptions { executable, ..NamespaceOptions::new(home) };
    options.defaults.disk = 64 << 20;
    options.defaults.egress = EgressPolicy::None;
    Namespace::new(options)
}

/// Sandboxes of a user who is not root.
pub fn confined(home: &Path) -> Confined {
    let executable = Path::new(harness::program()).to_owned();
    let mut options = NamespaceOptions { executable, ..NamespaceOptions::new(home) };
    options.defaults.egress = EgressPolicy::None;
    Confined::new(options)
}

pub fn containers(home: &Path, engine: &str) -> Docker {
    let executable = Path::new(harness::program()).to_owned();
    let host = engine.to_owned();
    let mut options = DockerOptions { executable, host, ..DockerOptions::new(home) };
    options.defaults.disk = 64 << 20;
    options.defaults.egress = EgressPolicy::None;
    Docker::new(options)
}

/// How long before its end a session is reported as expiring.
const WARN_BEFORE: Duration = Duration::from_secs(120);

/// A policy with short delays.
fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        initial_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(8),
        ..RetryPolicy::default()
    }
}

impl World {
    fn new() -> World {
        let home = Arc::new(Home::new());
        let provider = Arc::new(local(home.path()));
        World::with(home, Hands::default(), provider)
    }

    pub fn with(home: Arc<Home>, hands: Hands, provider: Arc<dyn Provider>) -> World {
        let path = home.path().to_owned();
        World { home, ..World::on(path, hands, provider).unwrap() }
    }

    /// A world on a home that the caller removes.
    pub fn on(
        home: PathBuf,
        hands: Hands,
        provider: Arc<dyn Provider>,
    ) -> Result<World, anyhow::Error> {
        let store = Store::open(&home)?;
        let events = Events::new(hands.clock());
        let stop = CancellationToken::new();
        let providers = Providers::new([provider.clone()]);
        let leases = Leases::new(
            store.clone(),
            providers,
            events.clone(),
            hands.clock(),
            retry_policy(),
            stop.clone(),
        );
        let sessions = Sessions::new(
            store.clone(),
            leases.clone(),
            events.clone(),
            hands.clock(),
            WARN_BEFORE,
        );
        // The caller owns the home; `World` removes only this empty one.
        let home = Arc::new(Home::new());
        Ok(World { home, hands, store, provider, events, leases, sessions, stop })
    }

    /// Drops everything in memory, as when the server is killed, and starts again.
    pub async fn crash(self) -> World {
        let World { home, hands, provider, stop, leases, store, sessions, .. } = self;
        stop.cancel();
        leases.finished().await;
        drop((store, sessions, leases));
        World::with(home, hands, provider)
    }

    pub fn first_use(&self, thread: &str) -> FirstUse {
        FirstUse {
            thread_id: thread.parse().unwrap(),
            choices: ThreadChoices::default(),
            policy: Default::default(),
            provider: self.provider.name().to_owned(),
            shell: ShellKind::Bash,
            size: (80, 24),
            now: self.hands.clock().now(),
        }
    }

    pub async fn open(&self, thread: &str) -> Chain {
        self.sessions.open(self.first_use(thread)).await.unwrap()
    }

    pub async fn lease(&self, thread: &str) -> LeaseId {
        self.open(thread).await.lease.lease_id
    }

    /// Returns how many instances the provider has, including dead ones.
    pub async fn instances(&self) -> usize {
        local(self.home.path()).find_by_label(None).await.unwrap().len()
    }
}

/// Returns all events that were published.
pub fn published(events: &Events, listener: &EventSubscription) -> Vec<EventKind> {
    let _ = listener;
    events.subscribe(Some(0)).missed.into_iter().map(|event| event.kind).collect()
}
