//! The handle to the database.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::watch;

use super::{
    error::{OpenError, StoreError},
    postgres::{ConnectionPool, TransactionKind},
    sql::Db,
    sqlite::Sqlite,
    writer::{Statements, StoreHealth, WriterCounts},
};

/// A handle to the database, cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Database,
    health_sender: watch::Sender<StoreHealth>,
    health: watch::Receiver<StoreHealth>,
    counts: Arc<WriterCounts>,
}

/// The database that has the rows.
#[derive(Debug)]
enum Database {
    Sqlite(Sqlite),
    Postgres(Arc<ConnectionPool>),
}

/// Counters of the writer since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterTotals {
    /// Committed transactions.
    pub commits: u64,
    /// Requested changes; several share a transaction.
    pub changes: u64,
    /// Failed transactions.
    pub failures: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("backend", &self.inner.backend).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database in this home, and creates or migrates it if needed. Blocks. The caller must hold
    /// the [`HomeLock`](crate::HomeLock).
    pub fn open(home: &Path) -> Result<Self, OpenError> {
        Self::start(|health, counts| Ok(Database::Sqlite(Sqlite::open(home, health, counts)?)))
    }

    /// Opens a database of PostgreSQL, and migrates it if needed. Blocks; not to be called on a thread of a runtime.
    pub fn open_postgres(url: &str) -> Result<Self, OpenError> {
        Self::start(|_, _| Ok(Database::Postgres(Arc::new(ConnectionPool::open(url)?))))
    }

    fn start(
        open: impl FnOnce(watch::Sender<StoreHealth>, Arc<WriterCounts>) -> Result<Database, OpenError>,
    ) -> Result<Self, OpenError> {
        let (health_sender, health) = watch::channel(StoreHealth::Good);
        let counts = Arc::new(WriterCounts::default());
        let backend = open(health_sender.clone(), counts.clone())?;
        Ok(Self { inner: Arc::new(Inner { backend, health_sender, health, counts }) })
    }

    /// Returns whether the last change succeeded.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.inner.health.borrow().clone()
    }

    /// Returns the counters of the writer.
    #[must_use]
    pub fn counts(&self) -> WriterTotals {
        let counts = &self.inner.counts;
        WriterTotals {
            commits: counts.commits.load(Ordering::Relaxed),
            changes: counts.jobs.load(Ordering::Relaxed),
            failures: counts.failures.load(Ordering::Relaxed),
        }
    }

    /// Makes one change that reaches stable storage or fails, for readiness probes.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.write(|db| {
            db.prepare_cached(
                "INSERT INTO meta (key, value) VALUES ('probe', '1')
                 ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)",
            )?
            .execute(())?;
            Ok(())
        })
        .await
    }

    /// Runs a change in a transaction, which may be repeated.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        f: impl Fn(&Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_boxed(Box::new(f)).await
    }

    async fn write_boxed<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        match &self.inner.backend {
            Database::Sqlite(sqlite) => sqlite.write(f).await,
            Database::Postgres(pool) => {
                let result = pool.clone().run(TransactionKind::Write, f).await;
                self.note(&result);
                result
            }
        }
    }

    /// Counts a change in PostgreSQL, and records whether the database accepts changes.
    fn note<T>(&self, result: &Result<T, StoreError>) {
        let Inner { counts, health_sender, .. } = &*self.inner;
        counts.jobs.fetch_add(1, Ordering::Relaxed);
        let next = match result {
            Err(StoreError::Unavailable { reason }) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                StoreHealth::Failing { reason: reason.clone() }
            }
            Ok(_) | Err(_) => {
                counts.commits.fetch_add(1, Ordering::Relaxed);
                StoreHealth::Good
            }
        };
        health_sender.send_if_modified(|health| {
            let is_changed = *health != next;
            *health = next;
            is_changed
        });
    }

    /// Runs a read on one consistent snapshot of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        f: impl Fn(&Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_boxed(Box::new(f)).await
    }

    async fn read_boxed<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        match &self.inner.backend {
            Database::Sqlite(sqlite) => sqlite.read(f).await,
            Database::Postgres(pool) => pool.clone().run(TransactionKind::Read, f).await,
        }
    }
}
