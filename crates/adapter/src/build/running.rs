//! The builds that run or wait.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use model::BuildId;

/// Builds whose steps run at the same time; more wait.
const CONCURRENT_BUILDS: usize = 2;

/// The builds that run.
pub struct Builds {
    running: Mutex<HashMap<BuildId, RunningBuild>>,
    pub(super) room: Semaphore,
}

pub(super) struct RunningBuild {
    pub(super) stop: CancellationToken,
    pub(super) lines: watch::Receiver<u64>,
}

impl Default for Builds {
    fn default() -> Builds {
        Builds { running: Mutex::default(), room: Semaphore::new(CONCURRENT_BUILDS) }
    }
}

impl Builds {
    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<BuildId, RunningBuild>> {
        self.running.lock()
    }

    /// Tells how many lines the log of a build has, until it has ended; `None` if it has.
    pub fn lines(&self, build: &BuildId) -> Option<watch::Receiver<u64>> {
        Some(self.running().get(build)?.lines.clone())
    }
}
