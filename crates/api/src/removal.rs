//! Deletion: first the rows, in one transaction; then a task of the server ends processes and instances.
//!
//! ```text
//!   DELETE ──▶ rows deleted, leases marked ──▶ response, at the latest after `REMOVAL_TIMEOUT`
//!                       └──▶ task: end shells, destroy leases, remove directories; retried until done
//! ```
//! A server that is killed in between leaves marked leases, which the next start and the reaper destroy, and
//! shells and directories without a row, which [`Terminals::reap`] removes.
//!
//! [`Terminals::reap`]: engine::terminal::Terminals::reap

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use axum::http::StatusCode;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use engine::{
    lease::{LeaseError, Leases},
    terminal::Terminals,
};
use model::{LeaseId, TerminalId};
use store::Gone;

/// How long a `DELETE` waits for processes and instances to end.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Terminals or leases of one removal that are ended concurrently.
const MAX_CONCURRENT_ENDS: usize = 8;
/// The first and the longest delay before a retry.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// Options of a deletion.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
    /// responds with 202 as soon as it is recorded.
    wait: Option<bool>,
}

/// The removals in progress, by resource. A resource has several if it was created and deleted again during
/// the first removal.
#[derive(Debug, Clone, Default)]
pub(super) struct Removals(Arc<Mutex<HashMap<String, Vec<Removal>>>>);

/// A handle to wait for a removal.
#[derive(Debug, Clone)]
pub struct Removal(watch::Receiver<bool>);

/// Held by the task of a removal; dropping it completes the removal.
pub(super) struct Removing {
    removals: Removals,
    names: Vec<String>,
    done: watch::Sender<bool>,
}

/// The key of a removal.
fn name(noun: &str, id: &dyn Display) -> String {
    format!("{noun} {id}")
}

impl Removals {
    /// Returns the removal of a resource, if it is in progress.
    pub(super) fn of(&self, noun: &str, id: &dyn Display) -> Option<Removal> {
        let all = self.0.lock();
        all.get(&name(noun, id))?.last().cloned()
    }

    /// Registers the removal of a resource.
    pub(super) fn begin(&self, noun: &str, id: &dyn Display) -> Removing {
        let done = watch::channel(false).0;
        let mut removing = Removing { removals: self.clone(), names: Vec::new(), done };
        removing.add(noun, id);
        removing
    }
}

impl Removing {
    pub(super) fn add(&mut self, noun: &str, id: &dyn Display) {
        let name = name(noun, id);
        let mut all = self.removals.0.lock();
        all.entry(name.clone()).or_default().push(self.removal());
        self.names.push(name);
    }

    pub(super) fn removal(&self) -> Removal {
        Removal(self.done.subscribe())
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        let own = self.removal();
        let mut all = self.removals.0.lock();
        for name in self.names.drain(..) {
            if let Some(known) = all.get_mut(&name) {
                known.retain(|other| !other.0.same_channel(&own.0));
                if known.is_empty() {
                    all.remove(&name);
                }
            }
        }
        drop(all);
        self.done.send_replace(true);
    }
}

impl Removal {
    /// Waits until the removal is complete, but no longer than [`REMOVAL_TIMEOUT`].
    pub async fn wait(mut self) {
        // A timeout is no error: the removal is recorded and continues without us.
        let _ = tokio::time::timeout(REMOVAL_TIMEOUT, self.0.wait_for(|done| *done)).await;
    }

    /// Returns the status of a `DELETE`, after waiting if the client asked for it.
    pub(super) async fn answer(self, query: RemovalQuery) -> StatusCode {
        if query.wait == Some(false) {
            return StatusCode::ACCEPTED;
        }
        self.wait().await;
        StatusCode::NO_CONTENT
    }
}

/// Ends the processes and instances of deleted rows; retries until it succeeds.
pub async fn end(terminals: &Terminals, leases: &Leases, gone: Gone) {
    let doomed: HashSet<LeaseId> = gone.leases.iter().cloned().collect();
    // A shell whose instance is destroyed is not closed first: its host may not respond.
    let (discarded, closed): (Vec<_>, Vec<_>) =
        gone.terminals.into_iter().partition(|(_, lease)| doomed.contains(lease));
    let discarded: Vec<TerminalId> = discarded.into_iter().map(|(id, _)| id).collect();
    let closed = closed.into_iter().map(|(id, _)| id).collect();
    for id in &discarded {
        terminals.discard(id).await;
    }
    let destroyed = async {
        let destroy = |id: LeaseId| async move {
            match leases.destroy(&id).await {
                Ok(_) | Err(LeaseError::Missing { .. } | LeaseError::Destroyed { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        };
        retry_each("destroy a lease", gone.leases, destroy).await;
        let remove = |id: TerminalId| async move { terminals.remove_directory(&id).await };
        retry_each("remove the directory of a terminal", discarded, remove).await;
    };
    let close = |id: TerminalId| async move { terminals.close(&id).await };
    tokio::join!(destroyed, retry_each("end a terminal", closed, close));
}

/// Applies `act` to each item, and retries those that failed, with increasing delays.
async fn retry_each<T, E, F>(doing: &str, mut left: Vec<T>, act: impl Fn(T) -> F)
where
    T: Display + Clone,
    E: std::error::Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    let (mut delay, longest) = RETRY_DELAYS;
    while !left.is_empty() {
        let mut failed = Vec::new();
        let tries = left.into_iter().map(|each| {
            let tried = act(each.clone());
            async move { (each, tried.await) }
        });
        let mut tries = stream::iter(tries).buffer_unordered(MAX_CONCURRENT_ENDS);
        while let Some((each, tried)) = tries.next().await {
            if let Err(error) = tried {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(id = %each, error, "cannot {doing}; retrying");
                failed.push(each);
            }
        }
        left = failed;
        if !left.is_empty() {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_removal_is_known_until_it_completes_even_if_its_key_is_reused() {
        let removals = Removals::default();
        let first = removals.begin("thread", &"a");
        let second = removals.begin("thread", &"a");
        let mut removal = removals.of("thread", &"a").unwrap();
        drop(first);
        assert!(removals.of("thread", &"a").is_some(), "the second is in progress");
        assert!(!*removal.0.borrow());
        drop(second);
        assert!(removal.0.wait_for(|done| *done).await.is_ok());
        assert!(removals.of("thread", &"a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_item_is_retried_until_it_succeeds() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let act = |each: i32| {
            let nth = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let refused = each == 2 && nth < 10;
            async move { if refused { Err(std::io::Error::other("not yet")) } else { Ok(()) } }
        };
        retry_each("end it", vec![1, 2, 3], act).await;
        assert!(tries.into_inner() > 10);
    }
}
