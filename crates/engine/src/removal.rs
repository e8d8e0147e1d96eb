//! Ends what deleted rows leave behind: shells, leases and directories.
//!
//! The rows go first, in one transaction. If the server is killed before the rest is done, the next start
//! and the reaper destroy the leases, and [`Terminals::reap`] ends the shells and removes the directories.

use std::{collections::HashSet, fmt::Display, time::Duration};

use futures_util::{StreamExt, stream};

use crate::{
    lease::{LeaseError, Leases},
    terminal::Terminals,
};
use model::{LeaseId, TerminalId};
use store::DeletedRows;

/// Terminals or leases of one removal that are ended at the same time.
const CONCURRENT_ENDS: usize = 8;
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Ends the shells and leases of deleted rows and removes their directories. Retries until it succeeds.
pub async fn end_deleted(terminals: &Terminals, leases: &Leases, gone: DeletedRows) {
    let doomed: HashSet<LeaseId> = gone.leases.iter().cloned().collect();
    // A shell whose instance is destroyed is not closed first: its host may not answer.
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

/// Runs `act` for each item, and again for the items for which it failed, with a growing backoff.
async fn retry_each<T, E, F>(doing: &str, mut left: Vec<T>, act: impl Fn(T) -> F)
where
    T: Display + Clone,
    E: std::error::Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    let mut backoff = INITIAL_BACKOFF;
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
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_ended_is_tried_until_it_can() {
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
