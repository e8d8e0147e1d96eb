//! The connections to PostgreSQL.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Config;

use super::schema;
use crate::{
    error::{OpenError, StoreError},
    sql::{Db, MakeTls, PostgresSession},
    writer::Statements,
};

/// The number of concurrent reads, and of concurrent writes.
const READERS: usize = 6;
const WRITERS: usize = 10;

/// How long a caller waits for a free connection.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the kernel waits for the other side to acknowledge what was sent.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a starting server waits for the one that was killed before it.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(10);
const TAKE_OVER_INTERVAL: Duration = Duration::from_millis(50);

/// The key of the advisory lock that the one server of a database holds.
const SERVER_LOCK: i64 = 0x5354_4541_4401;

/// A connection with its row in the database.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) db: Db,
    /// The key of its row in `connections`.
    pub(super) id: String,
    /// The number of commits so far.
    pub(super) commits: i64,
}

impl PooledConnection {
    pub(super) fn session(&self) -> Result<&PostgresSession, StoreError> {
        match &self.db {
            Db::Postgres(session) => Ok(session),
            Db::Sqlite(_) => Err(StoreError::unavailable("a connection to another database")),
        }
    }
}

/// All connections of a server.
pub(crate) struct ConnectionPool {
    config: Config,
    tls: MakeTls,
    idle: Mutex<Vec<PooledConnection>>,
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// Holds the lock of this server.
    lock: Mutex<Option<PostgresSession>>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPool")
            .field("idle", &self.idle.lock().len())
            .finish_non_exhaustive()
    }
}

/// Which transactions a caller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionKind {
    Read,
    Write,
}

impl ConnectionPool {
    /// Connects, applies the missing migrations, and takes the lock of the server. Blocks.
    pub(crate) fn open(url: &str) -> Result<Self, OpenError> {
        let pool = Self::new(url)?;
        let session = pool.connect()?;
        schema::migrate(&session)?;
        schema::forget_connections(&session)?;
        pool.take_lock(session)?;
        Ok(pool)
    }

    /// Connects without changing anything, and returns the number of the last applied migration and of the last known
    /// one.
    pub(crate) fn inspect(url: &str) -> Result<(usize, usize), OpenError> {
        let pool = Self::new(url)?;
        Ok(schema::versions(&pool.connect()?)?)
    }

    fn new(url: &str) -> Result<Self, OpenError> {
        let wrong = |error: tokio_postgres::Error| {
            // The text of the error names parts of the URL, but never the password.
            OpenError::Unsuitable { reason: format!("its URL is malformed: {error}") }
        };
        let mut config: Config = url.parse().map_err(wrong)?;
        config.application_name("stead").tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(5)).keepalives_interval(Duration::from_secs(2));
        config.keepalives_retries(3);
        let tls = base::outbound::tls::client_config().map_err(StoreError::unavailable)?;
        Ok(Self {
            config,
            tls: MakeTls::new(tls),
            idle: Mutex::default(),
            readers: Arc::new(Semaphore::new(READERS)),
            writers: Arc::new(Semaphore::new(WRITERS)),
            lock: Mutex::default(),
        })
    }

    fn connect(&self) -> Result<PostgresSession, OpenError> {
        let session = PostgresSession::connect(&self.config, self.tls.clone());
        let session = session.map_err(StoreError::from)?;
        schema::set_up(&session)?;
        Ok(session)
    }

    /// Takes the lock, which a server that was just killed may still hold for a moment.
    fn take_lock(&self, session: PostgresSession) -> Result<(), OpenError> {
        let deadline = Instant::now() + TAKE_OVER_TIMEOUT;
        let sql = format!("SELECT pg_try_advisory_lock({SERVER_LOCK})");
        while session.batch_value(&sql).map_err(StoreError::from)?.as_deref() != Some("t") {
            if Instant::now() > deadline {
                let reason = "another server uses it".to_owned();
                return Err(OpenError::Unsuitable { reason });
            }
            std::thread::sleep(TAKE_OVER_INTERVAL);
        }
        *self.lock.lock() = Some(session);
        Ok(())
    }

    /// Waits until fewer than the maximum number of transactions run.
    async fn permit(&self, purpose: TransactionKind) -> Result<OwnedSemaphorePermit, StoreError> {
        let (call, permits) = match purpose {
            TransactionKind::Read => ("postgres.reader", &self.readers),
            TransactionKind::Write => ("postgres.writer", &self.writers),
        };
        let permit =
            base::outbound::bounded(call, QUEUE_TIMEOUT, permits.clone().acquire_owned()).await;
        permit.map_err(StoreError::unavailable)?.map_err(StoreError::unavailable)
    }

    /// Runs a transaction on a thread for blocking work.
    pub(crate) async fn run<T: Send + 'static>(
        self: Arc<Self>,
        purpose: TransactionKind,
        statements: Statements<T>,
    ) -> Result<T, StoreError> {
        let permit = self.permit(purpose).await?;
        let task = tokio::task::spawn_blocking(move || {
            let result = self.repeat(purpose, &*statements);
            drop(permit);
            result
        });
        task.await.map_err(StoreError::unavailable)?
    }

    /// Returns an idle connection, or a new one. Blocks.
    pub(super) fn take(&self) -> Result<PooledConnection, StoreError> {
        if let Some(connection) = self.idle.lock().pop() {
            return Ok(connection);
        }
        let session = self.connect().map_err(|error| match error {
            OpenError::Store(error) => error,
            other => StoreError::unavailable(other),
        })?;
        let db = Db::Postgres(Box::new(session));
        let id = schema::register(&db)?;
        Ok(PooledConnection { db, id, commits: 0 })
    }

    /// Keeps a connection for the next caller.
    pub(super) fn put(&self, connection: PooledConnection) {
        self.idle.lock().push(connection);
    }

    /// Closes the idle connections: the server has probably closed them, too.
    pub(super) fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }
}
