//! Deleting: the rows go first, in one transaction; a task of the server then ends what they stood for.
//!
//! ```text
//!   delete ──▶ rows gone, leases wanted gone ──▶ caller, which may wait up to `REMOVAL_WAIT`
//!                       └──▶ task: end shells, destroy leases, remove directories; again until it is done
//! ```
//! The transaction that deletes the rows also records the deletion, until the task is done: the next start continues
//! where a killed server stopped ([`Removals::resume`]), and a repeated `DELETE` finds it in progress.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    lease::{LeaseError, Leases},
    session::Sessions,
    terminal::Terminals,
};
use base::event::{EventKind, Events};
use model::{LeaseId, Terminal, TerminalId, ThreadId, Timestamp};
use store::{DeletedRows, Store, StoreError, UnfinishedRemoval};

/// How long a caller waits for what it deletes to be gone.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);
/// Terminals or leases of one removal that are ended at the same time.
const CONCURRENT_ENDS: usize = 8;
/// The first pause before what could not be ended is tried again, and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// The removals under way, by what each removes. Cheap to clone.
#[derive(Clone)]
pub struct Removals(Arc<Shared>);

struct Shared {
    store: Store,
    leases: Leases,
    terminals: Terminals,
    sessions: Sessions,
    events: Events,
    stop: CancellationToken,
    tasks: TaskTracker,
    under_way: UnderWay,
}

/// One name has several removals where something was made again and deleted again while the first was
/// still being ended.
type UnderWay = Arc<Mutex<HashMap<String, Vec<Removal>>>>;

/// A removal under way, to be waited for.
#[derive(Debug, Clone)]
pub struct Removal(watch::Receiver<bool>);

/// Held by the task that removes something; when it is dropped, the removal is over.
#[derive(Debug)]
pub struct Removing {
    under_way: UnderWay,
    names: Vec<String>,
    done: watch::Sender<bool>,
}

fn name(noun: &str, id: &dyn Display) -> String {
    format!("{noun} {id}")
}

impl Removals {
    /// Its tasks end when `stop` is cancelled; [`finished`](Self::finished) waits for them.
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
        let shared = Shared { store, leases, terminals, sessions, events, stop, tasks, under_way };
        Self(Arc::new(shared))
    }

    /// The removal of something, if it is under way.
    #[must_use]
    pub fn of(&self, noun: &str, id: &dyn Display) -> Option<Removal> {
        self.0.under_way.lock().get(&name(noun, id))?.last().cloned()
    }

    /// Notes that something is being removed.
    #[must_use]
    pub fn begin(&self, noun: &str, id: &dyn Display) -> Removing {
        Removing::begin(self.0.under_way.clone(), noun, id)
    }

    /// Deletes a terminal. Its rows are gone when this returns; its processes go with the removal.
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

    /// Deletes a thread and everything only it used. The rows are gone when this returns; what they stood
    /// for goes with the removal.
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

    /// The removal by another request, where the rows were gone already.
    fn removed_by_another(
        &self,
        own: Removing,
        noun: &str,
        id: &dyn Display,
        error: StoreError,
    ) -> Result<Removal, StoreError> {
        drop(own);
        self.of(noun, id).ok_or(error)
    }

    /// Ends what deleted rows leave behind, in a task of the server.
    #[must_use]
    pub fn end_gone(&self, removing: Removing, gone: DeletedRows) -> Removal {
        for (terminal_id, _) in &gone.terminals {
            self.0.events.publish(EventKind::TerminalDeleted { terminal_id: terminal_id.clone() });
        }
        let shared = self.0.clone();
        self.spawn(removing, gone, |gone| async move {
            end(&shared.store, &shared.terminals, &shared.leases, gone).await;
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
        mut removing: Removing,
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

impl Removing {
    fn begin(under_way: UnderWay, noun: &str, id: &dyn Display) -> Removing {
        let done = watch::channel(false).0;
        let mut removing = Removing { under_way, names: Vec::new(), done };
        removing.add(noun, id);
        removing
    }

    fn add(&mut self, noun: &str, id: &dyn Display) {
        let name = name(noun, id);
        self.under_way.lock().entry(name.clone()).or_default().push(self.removal());
        self.names.push(name);
    }

    fn removal(&self) -> Removal {
        Removal(self.done.subscribe())
    }
}

impl Drop for Removing {
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
        self.done.send_replace(true);
    }
}

impl Removal {
    /// Waits until everything is gone, but no longer than [`REMOVAL_WAIT`].
    pub async fn wait(mut self) {
        // Too late is no error: what is not gone yet is recorded, and goes without us.
        let _ = tokio::time::timeout(REMOVAL_WAIT, self.0.wait_for(|done| *done)).await;
    }
}

/// Ends the shells of deleted terminals in hosts that other terminals still use. This server has not adopted them,
/// because they have no rows.
async fn end_shells_without_rows(terminals: &Terminals, gone: &DeletedRows) {
    let mut hosts: Vec<LeaseId> = gone.terminals.iter().map(|(_, lease)| lease.clone()).collect();
    hosts.sort();
    hosts.dedup();
    hosts.retain(|lease| !gone.leases.contains(lease));
    let reap = |lease: LeaseId| async move { terminals.reap_lease(&lease).await.map(drop) };
    again("end the shells of deleted terminals of a lease", hosts, reap).await;
}

/// Ends what deleted rows leave behind, however often that has to be tried, and then forgets the deletion.
pub async fn end(store: &Store, terminals: &Terminals, leases: &Leases, gone: DeletedRows) {
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
    if let Err(error) = store.finish_removals(gone.removals).await {
        // The next start finds that nothing is left to end.
        tracing::warn!(%error, "cannot record that a deletion is complete");
    }
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
        let under_way = UnderWay::default();
        let last = || under_way.lock().get("thread a").and_then(|all| all.last().cloned());
        let first = Removing::begin(under_way.clone(), "thread", &"a");
        let second = Removing::begin(under_way.clone(), "thread", &"a");
        let mut removal = last().unwrap();
        drop(first);
        assert!(last().is_some(), "the second is under way");
        assert!(!*removal.0.borrow());
        drop(second);
        assert!(removal.0.wait_for(|done| *done).await.is_ok());
        assert!(last().is_none());
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
