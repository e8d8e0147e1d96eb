//! The store's test write, which `/readyz` reports.

use std::time::{Duration, Instant};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use store::{Store, StoreError};

/// How long the result of a test write is valid.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

pub(super) type ProbeResult = Shared<BoxFuture<'static, Result<(), StoreError>>>;

/// The last test write. Callers need no token, so they share one write per interval.
#[derive(Default)]
pub(super) struct ReadinessProbe {
    last: Mutex<Option<(Instant, ProbeResult)>>,
}

impl ReadinessProbe {
    pub(super) fn probe(&self, store: &Store) -> ProbeResult {
        let mut last = self.last.lock();
        if let Some((started, result)) = &*last
            && (result.peek().is_none() || started.elapsed() < PROBE_INTERVAL)
        {
            return result.clone();
        }
        let store = store.clone();
        // A task: the write must end even if the caller that started it disconnects.
        let written = tokio::spawn(async move { store.probe().await });
        let result = async move {
            written
                .await
                .unwrap_or_else(|error| Err(StoreError::Unavailable { reason: error.to_string() }))
        };
        let result = result.boxed().shared();
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
