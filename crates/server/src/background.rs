//! All periodic tasks of the server.

use std::{future::Future, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use base::clock::Clock;
use cgroup::DiskReserve;
use engine::{
    lease::Leases,
    project::{CleanupMode, Projects},
    session::Sessions,
};
use machine::{
    DISK_GOVERNOR_INTERVAL, Docker, Namespace, Prewarm, WorkspaceImages,
    namespace::GOVERNOR_INTERVAL,
};
use model::Timestamp;
use store::{DeletedRows, Pruned, Retention, Store};

/// Time between two searches for orphans.
const REAP_INTERVAL: Duration = Duration::from_secs(60);

/// Lower bound of the configurable intervals.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Hot memories are unloaded after this time without use.
const MEMORY_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time between two searches for disks of workspaces that nothing uses.
const UNMOUNT_INTERVAL: Duration = Duration::from_secs(60);

/// The disk of a workspace is unmounted after this time without use.
const WORKSPACE_IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Time between two deletions of expired history.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The inputs of the periodic tasks.
#[derive(Debug, Clone)]
pub struct Background {
    pub store: Store,
    pub leases: Leases,
    pub sessions: Sessions,
    pub clock: Clock,
    pub retention: Retention,
    pub projects: Projects,
    /// Time between two clean-ups of unused projects.
    pub cleanup_interval: Duration,
    /// Time between two snapshots of the hot memories.
    pub snapshot_interval: Duration,
    pub sandboxes: LocalSandboxes,
}

/// The providers of local sandboxes, where available, and whether each keeps a warm pool.
#[derive(Debug, Clone)]
pub struct LocalSandboxes {
    pub home: PathBuf,
    pub workspaces: Arc<WorkspaceImages>,
    pub namespace: Option<(Namespace, Prewarm)>,
    pub containers: Option<(Docker, Prewarm)>,
}

impl Background {
    /// Starts all tasks; they end when `stop` is cancelled. `forget` deletes the output of pruned commands, `end`
    /// ends the terminals and leases of deleted projects, `reap` removes terminals without a row.
    pub fn start<F, G, H>(
        self,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        forget: impl Fn(Pruned) -> F + Send + Sync + 'static,
        end: impl Fn(DeletedRows) -> G + Send + Sync + 'static,
        reap: impl Fn() -> H + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
        G: Future<Output = ()> + Send,
        H: Future<Output = ()> + Send,
    {
        self.start_project_tasks(tasks, stop, end);
        self.start_sandbox_tasks(tasks, stop);
        let sessions = self.sessions.clone();
        let until = stop.clone();
        tasks.spawn(async move { sessions.run(until).await });

        let (leases, reap) = (self.leases.clone(), std::sync::Arc::new(reap));
        let reap_all = move || {
            let (leases, reap) = (leases.clone(), reap.clone());
            async move {
                if let Err(error) = leases.reconcile_unfinished().await {
                    warn!(%error, "cannot list the leases to destroy");
                }
                leases.reap().await;
                reap().await;
            }
        };
        let until = stop.clone();
        tasks.spawn(async move {
            // Orphans of the previous server can be found immediately.
            reap_all().await;
            every(REAP_INTERVAL, until, reap_all).await;
        });

        let Self { store, clock, retention, .. } = self;
        let forget = std::sync::Arc::new(forget);
        tasks.spawn(every(PRUNE_INTERVAL, stop.clone(), move || {
            let (store, clock, forget) = (store.clone(), clock.clone(), forget.clone());
            async move {
                match store.prune(retention, clock.wall()).await {
                    Ok(pruned) => forget(pruned).await,
                    Err(error) => warn!(%error, "cannot prune the history"),
                }
            }
        }));
    }
}

impl Background {
    /// Unused workspaces, disk quotas, orphans, the warm pools and the governors.
    fn start_sandbox_tasks(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let workspaces = self.sandboxes.workspaces.clone();
        tasks.spawn(every(UNMOUNT_INTERVAL, stop.clone(), move || {
            let workspaces = workspaces.clone();
            async move {
                let unmount = move || workspaces.unmount_idle(WORKSPACE_IDLE_TIMEOUT);
                let _ = base::task::blocking(unmount).await;
            }
        }));
        if self.sandboxes.namespace.is_some() || self.sandboxes.containers.is_some() {
            tasks.spawn(keep_disk_reserve(DiskReserve::new(&self.sandboxes.home), stop.clone()));
        }
        if let Some((containers, warm)) = self.sandboxes.containers.clone() {
            tasks.spawn(containers.clone().enforce_quotas(stop.clone()));
            tasks.spawn(containers.clone().remove_orphans(stop.clone()));
            tasks.spawn(containers.keep_warm(warm, stop.clone()));
        }
        let Some((sandboxes, warm)) = self.sandboxes.namespace.clone() else { return };
        tasks.spawn(sandboxes.clone().enforce_quotas(stop.clone()));
        tasks.spawn(sandboxes.clone().keep_warm(warm, stop.clone()));
        tasks.spawn(sandboxes.clone().sweep_images(stop.clone()));
        let governed = sandboxes.clone();
        tasks.spawn(every(GOVERNOR_INTERVAL, stop.clone(), move || {
            let sandboxes = governed.clone();
            async move { sandboxes.govern_cpus().await }
        }));
        tasks.spawn(every(DISK_GOVERNOR_INTERVAL, stop.clone(), move || {
            let sandboxes = sandboxes.clone();
            async move { sandboxes.govern_disks().await }
        }));
    }

    /// Clean-up of unused projects, at the start and then periodically, and snapshots of the hot memories.
    fn start_project_tasks<G>(
        &self,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        end: impl Fn(DeletedRows) -> G + Send + Sync + 'static,
    ) where
        G: Future<Output = ()> + Send,
    {
        let (projects, end) = (self.projects.clone(), std::sync::Arc::new(end));
        let clean_up = move || {
            let (projects, end) = (projects.clone(), end.clone());
            async move {
                match projects.clean_up(CleanupMode::Act).await {
                    Ok((_, gone)) => end(gone).await,
                    Err(error) => warn!(%error, "cannot clean up unused projects"),
                }
            }
        };
        let (period, until) = (self.cleanup_interval.max(MIN_INTERVAL), stop.clone());
        tasks.spawn(async move {
            // The server may have been down when a clean-up was due.
            clean_up().await;
            every(period, until, clean_up).await;
        });

        let (projects, clock) = (self.projects.clone(), self.clock.clone());
        tasks.spawn(every(self.snapshot_interval.max(MIN_INTERVAL), stop.clone(), move || {
            let (projects, clock) = (projects.clone(), clock.clone());
            async move {
                let idle =
                    clock.wall().saturating_sub(MEMORY_IDLE_TIMEOUT).unwrap_or(Timestamp::MIN);
                let memories = projects.memories();
                let done = memories.snapshot_all().await;
                if let Err(error) = done.and(memories.unload_unused(idle).await) {
                    warn!(%error, "cannot write snapshots of the hot memories");
                }
            }
        }));
    }
}

/// Keeps a part of the machine's disk free of what sandboxes write, until `stop` is cancelled.
async fn keep_disk_reserve(mut reserve: DiskReserve, stop: CancellationToken) {
    loop {
        let checked = base::task::blocking(move || {
            let next = reserve.check();
            (reserve, next)
        });
        let Ok((checked, next)) = checked.await else { return };
        reserve = checked;
        let next = next.unwrap_or_else(|error| {
            warn!(%error, "cannot keep the last space of the machine's disk free");
            Duration::from_secs(1)
        });
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// Repeats `act`, first after one period.
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
