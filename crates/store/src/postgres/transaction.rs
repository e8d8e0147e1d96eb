//! Transactions: repeated when they conflict, and looked up when it is unknown whether they were committed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use base::backoff::Backoff;

use super::pool::{ConnectionPool, PooledConnection, TransactionKind};
use crate::{
    error::StoreError,
    sql::{Db, OptionalExtension, PostgresError},
};

/// How long a transaction is repeated, including the time to reconnect.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(12);

/// How long it is tried to find out whether a commit took place.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The first wait before a repetition; each further wait is twice as long, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// The statements of a transaction.
type Statements<'a, T> = &'a dyn Fn(&Db) -> Result<T, StoreError>;

/// How one attempt ended.
enum TransactionAttempt<T> {
    Done(Result<T, StoreError>),
    /// Nothing was changed, and a repetition may succeed.
    Conflict(PostgresError),
    /// Nothing was changed: there is such a row already, perhaps of a transaction that ran at the same time.
    Duplicate(StoreError),
    /// Nothing was changed; the connection is lost.
    Lost(PostgresError),
    /// The connection was lost while it was committing this number.
    Unknown {
        value: T,
        connection: String,
        number: i64,
        error: PostgresError,
    },
}

/// The waits between repetitions.
struct Pauses {
    backoff: Backoff,
    deadline: Instant,
}

impl Pauses {
    fn up_to(limit: Duration) -> Self {
        Self { backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE), deadline: Instant::now() + limit }
    }

    /// Waits before a repetition. Returns `false` at the deadline.
    fn pause(&mut self) -> bool {
        let wait = self.backoff.next_wait();
        if Instant::now() + wait >= self.deadline {
            return false;
        }
        thread::sleep(wait);
        true
    }
}

impl ConnectionPool {
    /// Runs a transaction until it is committed or refused. A read sees one consistent snapshot; a write returns after it
    /// is on stable storage. Blocks.
    pub(super) fn repeat<T>(
        &self,
        purpose: TransactionKind,
        statements: Statements<'_, T>,
    ) -> Result<T, StoreError> {
        let mut pauses = Pauses::up_to(REPEAT_TIMEOUT);
        let mut has_repeated_duplicate = false;
        loop {
            let error = match self.attempt(purpose, statements) {
                Ok(TransactionAttempt::Done(done)) => return done,
                // The next attempt sees that row, and then finds it or fails in its own words.
                Ok(TransactionAttempt::Duplicate(error)) => {
                    if std::mem::replace(&mut has_repeated_duplicate, true) {
                        return Err(error);
                    }
                    continue;
                }
                Ok(TransactionAttempt::Conflict(error)) => error,
                Ok(TransactionAttempt::Lost(error)) => {
                    self.close_idle();
                    error
                }
                Ok(TransactionAttempt::Unknown { value, connection, number, error }) => {
                    self.close_idle();
                    if self.is_committed(&connection, number, &error)? {
                        return Ok(value);
                    }
                    error
                }
                Err(error) if pauses.pause() => {
                    tracing::debug!(%error, "cannot connect to PostgreSQL yet");
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !pauses.pause() {
                return Err(StoreError::unavailable(error));
            }
        }
    }

    /// Runs the statements once. Fails if there is no connection.
    fn attempt<T>(
        &self,
        purpose: TransactionKind,
        statements: Statements<'_, T>,
    ) -> Result<TransactionAttempt<T>, StoreError> {
        let mut connection = self.take()?;
        let session = connection.session()?;
        session.take_failure();
        let begin = match purpose {
            TransactionKind::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            TransactionKind::Write => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        let began = session.batch(begin);
        let result = match began {
            Ok(()) => match catch_unwind(AssertUnwindSafe(|| statements(&connection.db))) {
                Ok(result) => result,
                Err(_) => {
                    // The connection is dropped, which rolls the transaction back.
                    return Ok(TransactionAttempt::Done(Err(StoreError::unavailable(
                        "the store panicked in this transaction",
                    ))));
                }
            },
            Err(error) => Err(error.into()),
        };
        // A statement that failed has ended the transaction, whatever its caller made of the error.
        if let Some(failure) = connection.session()?.take_failure() {
            return Ok(self.failed(connection, failure, result.err()));
        }
        match (purpose, result) {
            (TransactionKind::Read, result) => {
                self.end(connection, "COMMIT");
                Ok(TransactionAttempt::Done(result))
            }
            (TransactionKind::Write, Err(error)) => {
                self.end(connection, "ROLLBACK");
                Ok(TransactionAttempt::Done(Err(error)))
            }
            (TransactionKind::Write, Ok(value)) => {
                let number = connection.commits + 1;
                match self.commit(&mut connection, number) {
                    None => {
                        self.put(connection);
                        Ok(TransactionAttempt::Done(Ok(value)))
                    }
                    Some(error @ PostgresError::Connection { .. }) => {
                        let connection = connection.id.clone();
                        Ok(TransactionAttempt::Unknown { value, connection, number, error })
                    }
                    Some(error) => Ok(self.failed(connection, error, None)),
                }
            }
        }
    }

    /// Commits in one message with the number of the commit, so that it can be looked up later. Returns why it failed.
    fn commit(&self, connection: &mut PooledConnection, number: i64) -> Option<PostgresError> {
        let session = match connection.session() {
            Ok(session) => session,
            Err(error) => return Some(PostgresError::Refused { reason: error.to_string() }),
        };
        let sql = format!("SELECT mark_commit('{}', {number}); COMMIT", connection.id);
        match session.batch(&sql) {
            Ok(()) => {
                connection.commits = number;
                None
            }
            Err(error) => Some(
                session
                    .take_failure()
                    .unwrap_or_else(|| PostgresError::Connection { reason: error.to_string() }),
            ),
        }
    }

    fn end(&self, connection: PooledConnection, how: &str) {
        let ended = connection.session().map(|session| session.batch(how).is_ok());
        // A connection that cannot end its transaction is dropped; the next caller opens another.
        if ended == Ok(true) {
            self.put(connection);
        }
    }

    /// What follows from the failure of a statement.
    fn failed<T>(
        &self,
        connection: PooledConnection,
        failure: PostgresError,
        reported: Option<StoreError>,
    ) -> TransactionAttempt<T> {
        match failure {
            PostgresError::Connection { .. } => TransactionAttempt::Lost(failure),
            PostgresError::Serialization { .. } => {
                self.end(connection, "ROLLBACK");
                TransactionAttempt::Conflict(failure)
            }
            PostgresError::Unique { .. } => {
                self.end(connection, "ROLLBACK");
                TransactionAttempt::Duplicate(reported.unwrap_or_else(|| failure.into()))
            }
            PostgresError::Constraint { .. }
            | PostgresError::Damaged { .. }
            | PostgresError::Refused { .. } => {
                self.end(connection, "ROLLBACK");
                let error = reported.unwrap_or_else(|| failure.into());
                TransactionAttempt::Done(Err(error))
            }
        }
    }

    /// Finds out whether a connection that was lost has committed this number. Its row is marked first: what the lost
    /// connection may still be doing is waited for, and what it has not begun yet then fails.
    fn is_committed(
        &self,
        connection: &str,
        number: i64,
        lost: &PostgresError,
    ) -> Result<bool, StoreError> {
        let mut pauses = Pauses::up_to(SETTLE_TIMEOUT);
        let unknown = |error: &dyn std::fmt::Display| {
            StoreError::unavailable(format!(
                "it is unknown whether the change was made: {lost} while it was committed, and {error}"
            ))
        };
        loop {
            match self.settle(connection) {
                Ok(Some(commits)) => return Ok(commits >= number),
                Ok(None) => return Err(unknown(&"its record does not exist")),
                Err(error) if !pauses.pause() => return Err(unknown(&error)),
                Err(error) => tracing::debug!(%error, "cannot look a commit up yet"),
            }
        }
    }

    fn settle(&self, id: &str) -> Result<Option<i64>, StoreError> {
        let connection = self.take()?;
        let sql =
            "UPDATE connections SET is_given_up = true WHERE connection_id = ?1 RETURNING commits";
        let found = connection.db.prepare_cached(sql).and_then(|mut statement| {
            statement.query_row([id], |row| row.get::<i64>(0)).optional()
        });
        if found.is_ok() {
            self.put(connection);
        }
        Ok(found?)
    }
}
