//! Every periodic loop the server runs, in one list.

use std::{future::Future, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use base::clock::Clock;
use engine::{
    lease::Leases,
    project::{Mode, Projects},
    session::Sessions,
};
use machine::{Docker, Namespace, Prewarm, namespace::GOVERNOR_INTERVAL};
use model::Timestamp;
use store::{Gone, Pruned, Retention, Store};

/// How often what no lease knows is looked for.
const REAP: Duration = Duration::from_secs(60);

/// No loop of a client's choosing is faster.
const LEAST: Duration = Duration::from_secs(1);

/// Memories unused for this long leave RAM.
const UNUSED: Duration = Duration::from_secs(30 * 60);

/// How often what is no longer kept is let go.
const PRUNE: Duration = Duration::from_secs(60 * 60);

/// What the loops work on.
#[derive(Debug, Clone)]
pub struct Background {
    /// The rows.
    pub store: Store,
    /// The leases.
    pub leases: Leases,
    /// The sessions.
    pub sessions: Sessions,
    /// The time.
    pub clock: Clock,
    /// How much history is kept.
    pub retention: Retention,
    /// The projects.
    pub projects: Projects,
    /// Time between two looks at all projects.
    pub cleanup_interval: Duration,
    /// Time between two snapshots of the hot memories.
    pub snapshot_interval: Duration,
    /// What is shut in on this machine.
    pub sandboxes: Sandboxes,
}

/// The kinds of sandboxes, and which of them are started before any is requested.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    /// Those of namespaces.
    pub namespace: Option<(Namespace, Prewarm)>,
    /// The containers of an engine.
    pub containers: Option<(Docker, Prewarm)>,
}

impl Background {
    /// Starts every loop; they end when `stop` is cancelled. `forget` is told which commands went, so
    /// that their output can go too; `end` is told what deleted projects leave to be ended; `reap` removes
    /// what terminals without a row have left.
    pub fn start<F, G, H>(
        self,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        forget: impl Fn(Pruned) -> F + Send + Sync + 'static,
        end: impl Fn(Gone) -> G + Send + Sync + 'static,
        reap: impl Fn() -> H + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
        G: Future<Output = ()> + Send,
        H: Future<Output = ()> + Send,
    {
        self.look_after_projects(tasks, stop, end);
        self.look_after_sandboxes(tasks, stop);
        let sessions = self.sessions.clone();
        let until = stop.clone();
        tasks.spawn(async move { sessions.run(until).await });

        let (leases, reap) = (self.leases.clone(), std::sync::Arc::new(reap));
        let reap_all = move || {
            let (leases, reap) = (leases.clone(), reap.clone());
            async move {
                if let Err(error) = leases.reconcile_unfinished().await {
                    warn!(%error, "cannot tell which leases are to be ended");
                }
                leases.reap().await;
                reap().await;
            }
        };
        let until = stop.clone();
        tasks.spawn(async move {
            // What the last server left is there to be found at once.
            reap_all().await;
            every(REAP, until, reap_all).await;
        });

        let Self { store, clock, retention, .. } = self;
        let forget = std::sync::Arc::new(forget);
        tasks.spawn(every(PRUNE, stop.clone(), move || {
            let (store, clock, forget) = (store.clone(), clock.clone(), forget.clone());
            async move {
                match store.prune(retention, clock.wall()).await {
                    Ok(pruned) => forget(pruned).await,
                    Err(error) => warn!(%error, "cannot let go of old history yet"),
                }
            }
        }));
    }
}

impl Background {
    /// Disk quotas, the CPU governor, orphaned containers, and the pools of warm sandboxes.
    fn look_after_sandboxes(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        if let Some((containers, warm)) = self.sandboxes.containers.clone() {
            tasks.spawn(containers.clone().enforce_quotas(stop.clone()));
            tasks.spawn(containers.clone().remove_orphans(stop.clone()));
            tasks.spawn(containers.keep_warm(warm, stop.clone()));
        }
        let Some((sandboxes, warm)) = self.sandboxes.namespace.clone() else { return };
        tasks.spawn(sandboxes.clone().enforce_quotas(stop.clone()));
        tasks.spawn(sandboxes.clone().keep_warm(warm, stop.clone()));
        tasks.spawn(every(GOVERNOR_INTERVAL, stop.clone(), move || {
            let sandboxes = sandboxes.clone();
            async move { sandboxes.govern_cpus().await }
        }));
    }

    /// Clean-up, at the start and then every so often, and the hot memories' snapshots.
    fn look_after_projects<G>(
        &self,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        end: impl Fn(Gone) -> G + Send + Sync + 'static,
    ) where
        G: Future<Output = ()> + Send,
    {
        let (projects, end) = (self.projects.clone(), std::sync::Arc::new(end));
        let clean_up = move || {
            let (projects, end) = (projects.clone(), end.clone());
            async move {
                match projects.clean_up(Mode::Act).await {
                    Ok((_, gone)) => end(gone).await,
                    Err(error) => warn!(%error, "cannot clean up the projects yet"),
                }
            }
        };
        let (period, until) = (self.cleanup_interval.max(LEAST), stop.clone());
        tasks.spawn(async move {
            // The server may have been down on the day: it looks when it is back.
            clean_up().await;
            every(period, until, clean_up).await;
        });

        let (projects, clock) = (self.projects.clone(), self.clock.clone());
        tasks.spawn(every(self.snapshot_interval.max(LEAST), stop.clone(), move || {
            let (projects, clock) = (projects.clone(), clock.clone());
            async move {
                let idle = clock.wall().saturating_sub(UNUSED).unwrap_or(Timestamp::MIN);
                let memories = projects.memories();
                let done = memories.snapshot_all().await;
                if let Err(error) = done.and(memories.unload_unused(idle).await) {
                    warn!(%error, "cannot write the memories' snapshots yet");
                }
            }
        }));
    }
}

/// Does something again and again, first after one period.
async fn every<F: Future<Output = ()>>(
    period: Duration,
    stop: CancellationToken,
    act: impl Fn() -> F,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = act() => {}
        }
    }
}
