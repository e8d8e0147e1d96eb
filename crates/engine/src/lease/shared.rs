//! The state that the handle to all leases shares with the workers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    request::{LeaseRequest, RunningInstance},
    retry::RetryPolicy,
};
use base::{clock::Clock, event::Events};
use model::LeaseId;
use provider::Providers;
use store::Store;

#[derive(Debug)]
pub(super) struct LeasesShared {
    pub(super) store: Store,
    pub(super) providers: Providers,
    pub(super) events: Events,
    pub(super) clock: Clock,
    pub(super) retry: RetryPolicy,
    /// The queue of each worker that is running.
    pub(super) workers: Mutex<HashMap<LeaseId, mpsc::Sender<LeaseRequest>>>,
    /// Instances that this process saw running, without a later report to the contrary.
    running: Mutex<HashMap<LeaseId, RunningInstance>>,
    /// Forks whose files are being copied, or whose thread is being created.
    forks: Mutex<HashSet<LeaseId>>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl LeasesShared {
    pub(super) fn new(
        store: Store,
        providers: Providers,
        events: Events,
        clock: Clock,
        retry: RetryPolicy,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            providers,
            events,
            clock,
            retry,
            workers: Mutex::default(),
            running: Mutex::default(),
            forks: Mutex::default(),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    pub(super) fn seen_running(&self, id: &LeaseId) -> Option<RunningInstance> {
        self.running.lock().get(id).cloned()
    }

    pub(super) fn note_running(&self, running: RunningInstance) {
        self.running.lock().insert(running.lease_id.clone(), running);
    }

    pub(super) fn forget_running(&self, id: &LeaseId) {
        self.running.lock().remove(id);
    }

    pub(super) fn forking(&self) -> HashSet<LeaseId> {
        self.forks.lock().clone()
    }
}

/// Keeps the reaper from a fork while the guard exists.
#[derive(Debug)]
pub(super) struct ForkGuard {
    shared: Arc<LeasesShared>,
    id: LeaseId,
}

impl ForkGuard {
    pub(super) fn new(shared: Arc<LeasesShared>, id: LeaseId) -> Self {
        shared.forks.lock().insert(id.clone());
        Self { shared, id }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        self.shared.forks.lock().remove(&self.id);
    }
}
