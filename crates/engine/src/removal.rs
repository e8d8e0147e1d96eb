//! Deletion: the rows are deleted first, in one transaction; a task of the server then ends the shells and
//! instances that belonged to them.
//!
//! ```text
//!   delete ──▶ rows deleted, leases to be destroyed ──▶ caller, which may wait up to `REMOVAL_WAIT`,
//!                       │                               but not for a host that does not answer
//!                       └──▶ task: end shells, destroy leases, remove directories; retried until it is done
//! ```
//! The transaction that deletes the rows also records the deletion, until the task is done: the next start continues
//! where a killed server stopped ([`Removals::resume`]), and a repeated `DELETE` finds it in progress.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    lease::{LeaseError, Leases},
    session::Sessions,
    terminal::Terminals,
};
use base::{
    backoff::Backoff,
    event::{EventKind, Events},
};
use model::{LeaseId, Terminal, TerminalId, ThreadId, Timestamp};
use store::{DeletedRows, Store, StoreError, UnfinishedRemoval};

/// How long a caller waits for the end of a removal.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);
/// Terminals or leases of one removal that are ended at the same time.
const CONCURRENT_ENDS: usize = 8;
/// The waits between retries.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(60));

/// The handle to all removals under way. Cheap to clone.
#[derive(Clone)]
pub struct Removals(Arc<SharedRemovals>);

struct SharedRemovals {
    store: Store,
    leases: Leases,
    terminals: Terminals,
    sessions: Sessions,
    events: Events,
    stop: CancellationToken,
    tasks: TaskTracker,
    under_way: UnderWay,
}

/// The removals by the name of the deleted resource. A name has several removals if the resource was created
/// and deleted again before the first removal was over.
type UnderWay = Arc<Mutex<HashMap<String, Vec<Removal>>>>;

/// A removal that a caller can wait for.
#[derive(Debug, Clone)]
pub struct Removal(watch::Receiver<RemovalProgress>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalProgress {
    UnderWay,
    /// A host does not answer. Its shells are ended when it does.
    Unreachable,
    Over,
}

/// The task's side of a removal; the removal is over when this is dropped.
#[derive(Debug)]
pub struct RemovalGuard {
    under_way: UnderWay,
    names: Vec<String>,
    progress: watch::Sender<RemovalProgress>,
}

fn name(noun: &str, id: &dyn Display) -> String {
    format!("{noun} {id}")
}

impl Removals {
    /// The removal tasks end when `stop` is cancelled; [`finished`](Self::finished) waits for them.
    #[must_use]
    pub fn new(
        store: Store,
        leases: Leases,
        terminals: Terminals,
        sessions: Sessions,
        events: Events,
        stop: CancellationToken,
    ) -> Self {
        let (tasks, under_way) = (TaskTracker::new(), UnderWay::default());
        let shared =
            SharedRemovals { store, leases, terminals, sessions, events, stop, tasks, under_way };
        Self(Arc::new(shared))
    }

    /// Returns the removal of a resource, if it is under way.
    #[must_use]
    pub fn of(&self, noun: &str, id: &dyn Display) -> Option<Removal> {
        self.0.under_way.lock().get(&name(noun, id))?.last().cloned()
    }

    /// Notes that a resource is being removed.
    #[must_use]
    pub fn begin(&self, noun: &str, id: &dyn Display) -> RemovalGuard {
        RemovalGuard::begin(self.0.under_way.clone(), noun, id)
    }

    /// Deletes a terminal. Its rows are deleted when this returns; the removal ends its processes.
    pub async fn delete_terminal(
        &self,
        terminal: &Terminal,
        now: Timestamp,
    ) -> Result<Removal, StoreError> {
        let id = &terminal.terminal_id;
        let removing = self.begin("terminal", id);
        match self.0.store.delete_terminal(id, now).await {
            Ok(gone) => Ok(self.end_gone(removing, gone)),
            Err(error) => self.removed_by_another(removing, "terminal", id, error),
        }
    }

    /// Deletes a thread with its terminals, and its lease if no other thread uses it. The rows are deleted when
    /// this returns; the removal ends shells and instances.
    pub async fn delete_thread(
        &self,
        id: &ThreadId,
        now: Timestamp,
    ) -> Result<Removal, StoreError> {
        let removing = self.begin("thread", id);
        match self.0.store.delete_thread(id, now).await {
            Ok(gone) => {
                self.0.sessions.thread_deleted(id);
                let removal = self.end_gone(removing, gone);
                self.0.events.publish(EventKind::ThreadDeleted { thread_id: id.clone() });
                Ok(removal)
            }
            Err(error) => self.removed_by_another(removing, "thread", id, error),
        }
    }

    /// Returns the removal that another request began, if the rows were deleted already.
    fn removed_by_another(
        &self,
        own: RemovalGuard,
        noun: &str,
        id: &dyn Display,
        error: StoreError,
    ) -> Result<Removal, StoreError> {
        drop(own);
        self.of(noun, id).ok_or(error)
    }

    /// Ends the shells and instances of deleted rows in a task of the server.
    #[must_use]
    pub fn end_gone(&self, removing: RemovalGuard, gone: DeletedRows) -> Removal {
        for (terminal_id, _) in &gone.terminals {
            self.0.events.publish(EventKind::TerminalDeleted { terminal_id: terminal_id.clone() });
        }
        let shared = self.0.clone();
        let progress = removing.progress.clone();
        self.spawn(removing, gone, |gone| async move {
            let silent: FuturesUnordered<_> = hosts_that_stay(&gone)
                .into_iter()
                .map(|lease| {
                    let terminals = shared.terminals.clone();
                    async move { terminals.is_unreachable(&lease).await }
                })
                .collect();
            let mut first =
                silent.map(|()| progress.send_replace(RemovalProgress::Unreachable)).take(1);
            let mut ended = pin!(end(&shared.store, &shared.terminals, &shared.leases, gone));
            tokio::select! {
                () = &mut ended => return,
                Some(_) = first.next() => {}
            }
            ended.await;
        })
    }

    /// Continues the deletions that an earlier server did not complete.
    pub async fn resume(&self) -> Result<(), StoreError> {
        for UnfinishedRemoval { noun, id, gone } in self.0.store.unfinished_removals().await? {
            let removing = self.begin(&noun, &id);
            let shared = self.0.clone();
            let _ = self.spawn(removing, gone, |gone| async move {
                end_shells_without_rows(&shared.terminals, &gone).await;
                end(&shared.store, &shared.terminals, &shared.leases, gone).await;
            });
        }
        Ok(())
    }

    fn spawn<F>(
        &self,
        mut removing: RemovalGuard,
        gone: DeletedRows,
        end: impl FnOnce(DeletedRows) -> F,
    ) -> Removal
    where
        F: Future<Output = ()> + Send + 'static,
    {
        for (terminal_id, _) in &gone.terminals {
            removing.add("terminal", terminal_id);
        }
        let removal = removing.removal();
        let (stop, ending) = (self.0.stop.clone(), end(gone));
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = ending => {}
            }
            drop(removing);
        });
        removal
    }

    /// Waits for the tasks to end, once `stop` was cancelled.
    pub async fn finished(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl RemovalGuard {
    fn begin(under_way: UnderWay, noun: &str, id: &dyn Display) -> RemovalGuard {
        let progress = watch::channel(RemovalProgress::UnderWay).0;
        let mut removing = RemovalGuard { under_way, names: Vec::new(), progress };
        removing.add(noun, id);
        removing
    }

    fn add(&mut self, noun: &str, id: &dyn Display) {
        let name = name(noun, id);
        self.under_way.lock().entry(name.clone()).or_default().push(self.removal());
        self.names.push(name);
    }

    fn removal(&self) -> Removal {
        Removal(self.progress.subscribe())
    }
}

impl Drop for RemovalGuard {
    fn drop(&mut self) {
        let own = self.removal();
        let mut all = self.under_way.lock();
        for name in self.names.drain(..) {
            if let Some(known) = all.get_mut(&name) {
                known.retain(|other| !other.0.same_channel(&own.0));
                if known.is_empty() {
                    all.remove(&name);
                }
            }
        }
        drop(all);
        self.progress.send_replace(RemovalProgress::Over);
    }
}

impl Removal {
    /// Waits until the removal is over, or waits for a host that does not answer; at most for [`REMOVAL_WAIT`].
    pub async fn wait(mut self) {
        // A timeout is not an error: the deletion is recorded, and its task completes it.
        let waited = self.0.wait_for(|progress| *progress != RemovalProgress::UnderWay);
        let _ = tokio::time::timeout(REMOVAL_WAIT, waited).await;
    }
}

/// The leases of deleted terminals whose instances other terminals still use.
fn hosts_that_stay(gone: &DeletedRows) -> Vec<LeaseId> {
    let mut hosts: Vec<LeaseId> = gone.terminals.iter().map(|(_, lease)| lease.clone()).collect();
    hosts.sort();
    hosts.dedup();
    hosts.retain(|lease| !gone.leases.contains(lease));
    hosts
}

/// Ends the shells of deleted terminals in hosts that other terminals still use. This server has not adopted them,
/// because they have no rows.
async fn end_shells_without_rows(terminals: &Terminals, gone: &DeletedRows) {
    let reap = |lease: LeaseId| async move { terminals.reap_lease(&lease).await.map(drop) };
    let hosts = hosts_that_stay(gone);
    retry_all("end the shells of deleted terminals of a lease", hosts, reap).await;
}

/// Ends the shells and instances of deleted rows, retrying until that succeeds, and then removes the record of
/// the deletion.
pub async fn end(store: &Store, terminals: &Terminals, leases: &Leases, gone: DeletedRows) {
    let doomed: HashSet<LeaseId> = gone.leases.iter().cloned().collect();
    // A shell whose instance is destroyed needs no request to its host, which may not answer.
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
        retry_all("destroy a lease", gone.leases, destroy).await;
        let remove = |id: TerminalId| async move { terminals.remove_directory(&id).await };
        retry_all("remove the directory of a terminal", discarded, remove).await;
    };
    let close = |id: TerminalId| async move { terminals.close(&id).await };
    tokio::join!(destroyed, retry_all("end a terminal", closed, close));
    if let Err(error) = store.finish_removals(gone.removals).await {
        // The next start repeats the removal and finds nothing to end.
        tracing::warn!(%error, "cannot record that a deletion is complete");
    }
}

/// Applies `act` to each of `left`, and retries those that fail until all have succeeded.
async fn retry_all<T, E, F>(doing: &str, mut left: Vec<T>, act: impl Fn(T) -> F)
where
    T: Display + Clone,
    E: std::error::Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    let mut backoff = RETRY;
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
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_removal_is_found_until_it_is_over_even_if_its_name_is_used_again() {
        let under_way = UnderWay::default();
        let last = || under_way.lock().get("thread a").and_then(|all| all.last().cloned());
        let first = RemovalGuard::begin(under_way.clone(), "thread", &"a");
        let second = RemovalGuard::begin(under_way.clone(), "thread", &"a");
        let mut removal = last().unwrap();
        drop(first);
        assert!(last().is_some(), "the second is under way");
        assert_eq!(*removal.0.borrow(), RemovalProgress::UnderWay);
        drop(second);
        assert!(removal.0.wait_for(|progress| *progress == RemovalProgress::Over).await.is_ok());
        assert!(last().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_does_not_wait_for_a_host_that_does_not_answer() {
        let removing = RemovalGuard::begin(UnderWay::default(), "thread", &"a");
        let removal = removing.removal();
        let began = tokio::time::Instant::now();
        let mut waiting = pin!(removal.wait());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        removing.progress.send_replace(RemovalProgress::Unreachable);
        waiting.await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_end_is_retried_until_it_succeeds() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let act = |each: i32| {
            let nth = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let refused = each == 2 && nth < 10;
            async move { if refused { Err(std::io::Error::other("not yet")) } else { Ok(()) } }
        };
        retry_all("end a terminal", vec![1, 2, 3], act).await;
        assert!(tries.into_inner() > 10);
    }
}
