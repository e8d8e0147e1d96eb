//! Deleting: the rows go first, in one transaction; a task of the server then ends what they stood for.
//!
//! ```text
//!   DELETE ──▶ rows gone, leases wanted gone ──▶ answer, at the latest after `REMOVAL_WAIT`
//!                       └──▶ task: end shells, destroy leases, remove directories; again until it is done
//! ```
//! A server that is killed in between leaves leases that are wanted gone, which the next start and the
//! reaper destroy, and shells and directories without a row, which [`Terminals::reap`] removes.
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

/// How long a `DELETE` waits for what it deletes to be gone.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);
/// Terminals or leases of one removal that are ended at the same time.
const CONCURRENT_ENDS: usize = 8;
/// The first pause before what could not be ended is tried again, and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// Whether a `DELETE` waits.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// `false` answers 202 as soon as the deletion is recorded; `true` (default) waits a few seconds for
    /// it to be complete and answers 204.
    wait: Option<bool>,
}

/// The removals under way, by what each removes. One name has several where something was made again
/// and deleted again while the first was still being ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Removals(Arc<Mutex<HashMap<String, Vec<Removal>>>>);

/// A removal under way, to be waited for.
#[derive(Debug, Clone)]
pub struct Removal(watch::Receiver<bool>);

/// Held by the task that removes something; when it is dropped, the removal is over.
pub(super) struct Removing {
    removals: Removals,
    names: Vec<String>,
    done: watch::Sender<bool>,
}

/// What a removal goes by.
fn name(noun: &str, id: &dyn Display) -> String {
    format!("{noun} {id}")
}

impl Removals {
    /// The removal of something, if it is under way.
    pub(super) fn of(&self, noun: &str, id: &dyn Display) -> Option<Removal> {
        let all = self.0.lock();
        all.get(&name(noun, id))?.last().cloned()
    }

    /// Notes that something is being removed.
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
    /// Waits until everything is gone, but no longer than [`REMOVAL_WAIT`].
    pub async fn wait(mut self) {
        // Too late is no error: what is not gone yet is recorded, and goes without us.
        let _ = tokio::time::timeout(REMOVAL_WAIT, self.0.wait_for(|done| *done)).await;
    }

    /// The answer to a `DELETE`.
    pub(super) async fn answer(self, query: RemovalQuery) -> StatusCode {
        if query.wait == Some(false) {
            return StatusCode::ACCEPTED;
        }
        self.wait().await;
        StatusCode::NO_CONTENT
    }
}

/// Ends what deleted rows leave behind, however often that has to be tried.
pub async fn end(terminals: &Terminals, leases: &Leases, gone: Gone) {
    let doomed: HashSet<LeaseId> = gone.leases.iter().cloned().collect();
    // A shell whose instance goes needs not be told: that would wait for a host that may not answer.
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
        again("destroy a lease", gone.leases, destroy).await;
        let remove = |id: TerminalId| async move { terminals.remove_directory(&id).await };
        again("remove the directory of a terminal", discarded, remove).await;
    };
    let close = |id: TerminalId| async move { terminals.close(&id).await };
    tokio::join!(destroyed, again("end a terminal", closed, close));
}

/// Does something for each of several, and again for those for which it failed, with pauses in between.
async fn again<T, E, F>(doing: &str, mut left: Vec<T>, act: impl Fn(T) -> F)
where
    T: Display + Clone,
    E: std::error::Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    let (mut pause, longest) = RETRY_PAUSES;
    while !left.is_empty() {
        let mut failed = Vec::new();
        let tries = left.into_iter().map(|each| {
            let tried = act(each.clone());
            async move { (each, tried.await) }
        });
        let mut tries = stream::iter(tries).buffer_unordered(CONCURRENT_ENDS);
        while let Some((each, tried)) = tries.next().await {
            if let Err(error) = tried {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(id = %each, error, "cannot {doing} yet");
                failed.push(each);
            }
        }
        left = failed;
        if !left.is_empty() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_removal_is_known_until_it_is_over_even_if_its_name_is_used_again() {
        let removals = Removals::default();
        let first = removals.begin("thread", &"a");
        let second = removals.begin("thread", &"a");
        let mut removal = removals.of("thread", &"a").unwrap();
        drop(first);
        assert!(removals.of("thread", &"a").is_some(), "the second is under way");
        assert!(!*removal.0.borrow());
        drop(second);
        assert!(removal.0.wait_for(|done| *done).await.is_ok());
        assert!(removals.of("thread", &"a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_ended_is_tried_until_it_can() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let act = |each: i32| {
            let nth = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let refused = each == 2 && nth < 10;
            async move { if refused { Err(std::io::Error::other("not yet")) } else { Ok(()) } }
        };
        again("end it", vec![1, 2, 3], act).await;
        assert!(tries.into_inner() > 10);
    }
}
