//! The single writer with group commit.
//!
//! Jobs that arrive while a commit is being synced wait in a bounded queue and are then committed together,
//! with one sync. Each job runs under its own savepoint, so that a failed job affects no other. Callers get
//! their result after the commit is on stable storage. A failed commit fails all of its jobs and is not
//! retried. The connection is then dropped and the next job opens another, so that writes work again as
//! soon as the disk does. Only a failed sync is final: nothing is written until the next start, which reads the
//! actual content of the disk.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
    check::Checked, checkpoint::Checkpointer, connect::connect, error::StoreError, sql::Db,
};

/// The length of the queue; further callers wait for a free slot.
const QUEUE_LENGTH: usize = 1024;

/// The number of jobs per commit.
const MAX_BATCH: usize = 256;

/// The statements of one transaction, which may be repeated. Boxed, so that what runs them is compiled once for each
/// type of result.
pub(super) type Statements<T> = Box<dyn Fn(&Db) -> Result<T, StoreError> + Send>;

/// A change that runs inside the transaction.
type Job = Box<dyn FnOnce(Result<&Db, StoreError>) -> JobOutcome + Send>;

/// The result of a job, and how to reply to its caller.
struct JobOutcome {
    succeeded: bool,
    /// Called after the commit, with its error if it failed.
    answer: Box<dyn FnOnce(Option<StoreError>) + Send>,
}

/// Whether the store accepts changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    /// The last change reached stable storage.
    Good,
    /// The last change failed. Reads work, and each further change is attempted.
    Failing { reason: String },
}

/// A handle to the writer, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

/// Counters of the writer.
#[derive(Debug, Default)]
pub struct WriterCounts {
    pub(super) commits: AtomicU64,
    pub(super) jobs: AtomicU64,
    pub(super) failures: AtomicU64,
}

impl Writer {
    /// Starts the writer on an open connection.
    pub(super) fn start(
        path: PathBuf,
        connection: Db,
        health: watch::Sender<StoreHealth>,
        counts: std::sync::Arc<WriterCounts>,
        checked: Checked,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE_LENGTH);
        let checkpointer = Checkpointer::start(path.clone(), checked.clone())?;
        let connection = Some(connection);
        let mut work = Work { path, connection, health, counts, checked, checkpointer };
        std::thread::Builder::new().name("store-writer".into()).spawn(move || work.run(queue))?;
        Ok(Self { jobs })
    }

    /// Runs `f` inside a transaction and returns after the commit is on stable storage.
    pub(super) async fn run<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = connection.and_then(f);
            JobOutcome {
                succeeded: result.is_ok(),
                answer: Box::new(move |failed| {
                    let result = match failed {
                        Some(error) => result.and(Err(error)),
                        None => result,
                    };
                    // The change is committed even if the caller stopped waiting.
                    let _ = sender.send(result);
                }),
            }
        });
        let stopped = || StoreError::unavailable("the writer has stopped");
        self.jobs.send(job).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| StoreError::unavailable("the writer panicked in this change"))?
    }
}

struct Work {
    path: PathBuf,
    connection: Option<Db>,
    health: watch::Sender<StoreHealth>,
    counts: std::sync::Arc<WriterCounts>,
    checked: Checked,
    checkpointer: Checkpointer,
}

impl Work {
    fn run(&mut self, mut queue: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while let Some(first) = queue.blocking_recv() {
            batch.push(first);
            while batch.len() < MAX_BATCH {
                match queue.try_recv() {
                    Ok(job) => batch.push(job),
                    Err(_) => break,
                }
            }
            self.counts.jobs.fetch_add(batch.len() as u64, Ordering::Relaxed);
            self.commit(batch.drain(..));
        }
    }

    fn commit(&mut self, mut jobs: impl Iterator<Item = Job>) {
        let mut outcomes = Vec::new();
        let result = self.transaction(&mut jobs, &mut outcomes);
        let failed = match result {
            Ok(()) => {
                self.counts.commits.fetch_add(1, Ordering::Relaxed);
                self.checkpointer.committed();
                self.health.send_if_modified(|health| {
                    let changed = *health != StoreHealth::Good;
                    *health = StoreHealth::Good;
                    changed
                });
                None
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                self.checked.note(&error);
                // A connection that had an I/O error is not used for another transaction.
                self.connection = None;
                let reason = error.to_string();
                self.health.send_replace(StoreHealth::Failing { reason });
                outcomes.extend(jobs.map(|job| job(Err(error.clone()))));
                Some(error)
            }
        };
        for outcome in outcomes {
            (outcome.answer)(failed.clone());
        }
    }

    /// Runs the jobs and commits. On an error none of their changes is stored.
    fn transaction(
        &mut self,
        jobs: &mut impl Iterator<Item = Job>,
        outcomes: &mut Vec<JobOutcome>,
    ) -> Result<(), StoreError> {
        self.checked.verdict()?;
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Db::Sqlite(connect(&self.path)?),
        };
        let connection = &*self.connection.insert(connection);
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for job in jobs {
            connection.execute_batch("SAVEPOINT job")?;
            match catch_unwind(AssertUnwindSafe(|| job(Ok(connection)))) {
                Ok(outcome) => {
                    let ends = if outcome.succeeded {
                        "RELEASE job"
                    } else {
                        "ROLLBACK TO job; RELEASE job"
                    };
                    outcomes.push(outcome);
                    // A full disk or a failed write may have rolled back the whole transaction.
                    if is_over(connection) {
                        return Err(StoreError::unavailable("the transaction was rolled back"));
                    }
                    connection.execute_batch(ends)?;
                }
                // The caller's channel was dropped with the job, which fails its call.
                Err(_) => connection.execute_batch("ROLLBACK TO job; RELEASE job")?,
            }
        }
        Ok(connection.execute_batch("COMMIT")?)
    }
}

/// Whether SQLite has ended the transaction by itself.
fn is_over(db: &Db) -> bool {
    match db {
        Db::Sqlite(connection) => connection.is_autocommit(),
        Db::Postgres(_) => false,
    }
}
