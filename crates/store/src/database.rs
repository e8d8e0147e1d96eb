//! The handle to the database: one writer, several readers.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};

use super::{
    check, checksum,
    connect::{connect, connect_reader},
    error::{OpenError, StoreError},
    private, schema,
    writer::{Statements, StoreHealth, Writer, WriterCounts},
};

/// The number of concurrent reads.
const READERS: usize = 4;

/// A handle to the database, cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    /// Closed before the writer: the last connection to close removes the log, which readers cannot do.
    readers: Mutex<Vec<Connection>>,
    writer: Writer,
    permits: Semaphore,
    health: watch::Receiver<StoreHealth>,
    counts: Arc<WriterCounts>,
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
        f.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database in this home, and creates or migrates it if needed. Blocks. The caller must hold
    /// the [`HomeLock`].
    pub fn open(home: &Path) -> Result<Self, OpenError> {
        schema::check_library()?;
        let path = home.join("stead.db");
        private::restrict(&path).map_err(StoreError::unavailable)?;
        let connection = connect(&path).map_err(|error| check::named(&path, error))?;
        let checked = check::at_start(&path, &connection)?;
        schema::migrate(&connection)?;
        checksum::install(&connection).map_err(StoreError::from)?;
        check::report_damaged_rows(&path, &connection)?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            readers.push(connect_reader(&path)?);
        }
        let (health_sender, health) = watch::channel(StoreHealth::Good);
        let counts = Arc::new(WriterCounts::default());
        let writer =
            Writer::start(path.clone(), connection, health_sender, counts.clone(), checked)
                .map_err(StoreError::unavailable)?;
        let inner = Inner {
            path,
            readers: Mutex::new(readers),
            writer,
            permits: Semaphore::new(READERS),
            health,
            counts,
        };
        Ok(Self { inner: Arc::new(inner) })
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
                 ON CONFLICT (key) DO UPDATE SET value = value + 1",
            )?
            .execute([])?;
            Ok(())
        })
        .await
    }

    /// Runs a change in a transaction, together with other waiting changes.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.writer.run(Box::new(f)).await
    }

    /// Runs a read on one consistent snapshot of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_boxed(Box::new(f)).await
    }

    async fn read_boxed<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let permit = self.inner.permits.acquire().await.map_err(StoreError::unavailable)?;
        let task = tokio::task::spawn_blocking(move || {
            let pooled = inner.readers.lock().pop();
            let connection = match pooled {
                Some(connection) => connection,
                None => connect_reader(&inner.path)?,
            };
            connection.execute_batch("BEGIN")?;
            let result = f(&connection);
            // A connection that cannot end its transaction is dropped; the next read opens another.
            if connection.execute_batch("ROLLBACK").is_ok() {
                inner.readers.lock().push(connection);
            }
            result
        });
        let result = task.await.map_err(StoreError::unavailable)?;
        drop(permit);
        result
    }
}
