//! The store in a file of SQLite: one writer, several readers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::{
    check, checksum,
    connect::{connect, connect_reader},
    error::{OpenError, StoreError},
    private, schema,
    sql::Db,
    writer::{Statements, StoreHealth, Writer, WriterCounts},
};

/// The number of concurrent reads.
const READERS: usize = 4;

/// The connections to one file.
pub(super) struct Sqlite {
    readers: Arc<Readers>,
    /// Closed after the readers: the last connection to close removes the log, which readers cannot do.
    writer: Writer,
}

struct Readers {
    path: PathBuf,
    connections: Mutex<Vec<Db>>,
    permits: Semaphore,
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.readers.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    pub(super) fn open(
        home: &Path,
        health: watch::Sender<StoreHealth>,
        counts: Arc<WriterCounts>,
    ) -> Result<Self, OpenError> {
        schema::check_library()?;
        let path = home.join("stead.db");
        private::restrict(&path).map_err(StoreError::unavailable)?;
        let connection = connect(&path).map_err(|error| check::named(&path, error))?;
        let checked = check::at_start(&path, &connection)?;
        schema::migrate(&connection)?;
        checksum::install(&connection).map_err(StoreError::from)?;
        check::report_damaged_rows(&path, &connection)?;
        let mut connections = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            connections.push(Db::Sqlite(connect_reader(&path)?));
        }
        let writer = Writer::start(path.clone(), Db::Sqlite(connection), health, counts, checked)
            .map_err(StoreError::unavailable)?;
        let readers = Readers {
            path,
            connections: Mutex::new(connections),
            permits: Semaphore::new(READERS),
        };
        Ok(Self { readers: Arc::new(readers), writer })
    }

    /// Runs a change in a transaction, together with other waiting changes.
    pub(super) async fn write<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        self.writer.run(f).await
    }

    pub(super) async fn read<T: Send + 'static>(&self, f: Statements<T>) -> Result<T, StoreError> {
        let readers = self.readers.clone();
        let permit = self.readers.permits.acquire().await.map_err(StoreError::unavailable)?;
        let task = tokio::task::spawn_blocking(move || {
            let pooled = readers.connections.lock().pop();
            let connection = match pooled {
                Some(connection) => connection,
                None => Db::Sqlite(connect_reader(&readers.path)?),
            };
            connection.execute_batch("BEGIN")?;
            let result = f(&connection);
            // A connection that cannot end its transaction is dropped; the next read opens another.
            if connection.execute_batch("ROLLBACK").is_ok() {
                readers.connections.lock().push(connection);
            }
            result
        });
        let result = task.await.map_err(StoreError::unavailable)?;
        drop(permit);
        result
    }
}
