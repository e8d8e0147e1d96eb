//! Durable rows of all nouns. The only place that knows SQL.
//!
//! An `Ok` of a writing operation means that the change is on stable storage. Every change of
//! something that others may have changed carries the version (or revision) that was read and is
//! refused, never merged, when that is no longer the one. Readers never wait for the writer.

mod bundle;
mod check;
mod checkpoint;
mod commands;
mod entries;
mod error;
mod idempotency;
mod leases;
mod ledger;
mod lock;
mod page;
mod projects;
mod relocate;
mod retention;
mod row;
mod schema;
mod sessions;
mod shares;
mod templates;
mod terminals;
mod threads;
mod tokens;
mod versions;
mod writer;

#[cfg(test)]
mod contract;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Semaphore, watch};

pub use bundle::{Bundle, Ids};
pub use commands::{CommandQuery, FinishCommand, Finished, Outputs};
pub use entries::{EntryChange, EntryIndex, EntryRow};
pub use error::{OpenError, StoreError};
pub use idempotency::{Claim, StoredResponse, scoped_key};
pub use leases::LeaseFilter;
pub use ledger::LedgerEntry;
pub use lock::{HomeLock, LockError};
pub use page::{BadCursor, Cursor, Page, PageRequest};
pub use projects::{ProjectFilter, Use};
pub use retention::{Pruned, Retention};
pub use shares::Share;
pub use terminals::TerminalView;
pub use threads::{Chain, FirstUse, Gone, ThreadChoices, ThreadFilter};
pub use tokens::Token;
pub use versions::{Section, StateChange};

/// How many reads go on at once.
const READERS: usize = 4;

/// A handle to the database; cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    /// Closed before the writer: only the last connection to close clears the log, and these cannot.
    readers: Mutex<Vec<Connection>>,
    writer: writer::Writer,
    permits: Semaphore,
    health: watch::Receiver<Health>,
    counts: Arc<writer::WriterCounts>,
}

/// Whether changes can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The last change reached stable storage.
    Good,
    /// The last one did not. Reads go on; each further change tries again.
    Failing {
        /// What the library said.
        reason: String,
    },
}

/// What the writer has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Transactions on stable storage.
    pub commits: u64,
    /// Changes asked for; several share a transaction.
    pub changes: u64,
    /// Transactions that failed.
    pub failures: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database in this home, making or migrating it. Blocks. The caller holds the
    /// [`HomeLock`].
    pub fn open(home: &Path) -> Result<Self, OpenError> {
        schema::check_library()?;
        let path = home.join("stead.db");
        let connection = connect(&path).map_err(|error| check::named(&path, error))?;
        let checked = check::at_start(&path, &connection)?;
        schema::migrate(&connection)?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            readers.push(connect_reader(&path)?);
        }
        let (health_sender, health) = watch::channel(Health::Good);
        let counts = Arc::new(writer::WriterCounts::default());
        let writer =
            writer::Writer::start(path.clone(), connection, health_sender, counts.clone(), checked)
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

    /// Whether changes can be made, as far as the last one told.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.health.borrow().clone()
    }

    /// What the writer has done since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counts = &self.inner.counts;
        Counts {
            commits: counts.commits.load(Ordering::Relaxed),
            changes: counts.jobs.load(Ordering::Relaxed),
            failures: counts.failures.load(Ordering::Relaxed),
        }
    }

    /// Makes one change that reaches stable storage or fails: what a readiness probe asks.
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

    /// Runs a change in a transaction, together with others that wait at the same time.
    async fn write<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.writer.run(f).await
    }

    /// Runs a read that sees one state of the database throughout.
    async fn read<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let inner = self.inner.clone();
        let permit = self.inner.permits.acquire().await.map_err(StoreError::unavailable)?;
        let task = tokio::task::spawn_blocking(move || {
            let kept = inner.readers.lock().pop();
            let connection = match kept {
                Some(connection) => connection,
                None => connect_reader(&inner.path)?,
            };
            connection.execute_batch("BEGIN")?;
            let result = f(&connection);
            // A connection that cannot end its transaction is dropped, and the next read opens
            // another.
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

/// Opens a connection that writes.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // The checkpointer does it sooner; this only bounds the log should that fall behind.
    connection.pragma_update(None, "wal_autocheckpoint", 16 * 1024)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Opens a connection that reads. Not with the read-only flag: such a one cannot take part in the
/// write-ahead log when it comes first.
fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}
