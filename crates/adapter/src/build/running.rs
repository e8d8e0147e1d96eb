//! The builds that run or wait for their turn.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use model::BuildId;

/// The limit of builds whose steps run at the same time; others wait.
const MAX_CONCURRENT_BUILDS: usize = 2;

/// The builds that run or wait, by id.
pub struct Builds {
    running: Mutex<HashMap<BuildId, RunningBuild>>,
    pub(super) slots: Semaphore,
}

pub(super) struct RunningBuild {
    pub(super) stop: CancellationToken,
    pub(super) lines: watch::Receiver<u64>,
}

impl Default for Builds {
    fn default() -> Builds {
        Builds { running: Mutex::default(), slots: Semaphore::new(MAX_CONCURRENT_BUILDS) }
    }
}

impl Builds {
    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<BuildId, RunningBuild>> {
        self.running.lock()
    }

    /// Receives the number of lines in a build's log until the build ends; `None` if it has ended.
    pub fn lines(&self, build: &BuildId) -> Option<watch::Receiver<u64>> {
        Some(self.running().get(build)?.lines.clone())
    }
}
