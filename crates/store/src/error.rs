//! Errors of the store, by what the caller can do about them.

use std::path::PathBuf;

use rusqlite::{ErrorCode, ffi};

use super::sql::{self, PostgresError};
use model::{BadId, Refused};

/// Why an operation had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The row does not exist.
    #[error("{what} does not exist")]
    Missing { what: String },
    /// The row already exists.
    #[error("{what} already exists")]
    Exists { what: String },
    /// The row was changed since the caller read it.
    #[error("{what} is at version {found}, not {expected}")]
    Conflict {
        what: String,
        /// The version that the caller read.
        expected: u64,
        /// The version of the row.
        found: u64,
    },
    /// A new row cannot have this id.
    #[error(transparent)]
    BadId(#[from] BadId),
    /// The state of the row does not allow the change.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A sync failed: unwritten pages may be lost, and a later sync would not report that. Nothing is
    /// written
    /// until the server is restarted.
    #[error(
        "the store is unavailable: a sync of the database failed ({reason}); nothing is written until \
         the server is restarted"
    )]
    SyncFailed {
        /// The error of the library.
        reason: String,
    },
    /// Reading or writing failed; retrying later may help.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// The error of the library.
        reason: String,
    },
    /// A row or the file is corrupted.
    #[error("{what} is damaged: {reason}")]
    Damaged { what: String, reason: String },
}

impl StoreError {
    pub(super) fn missing(noun: &str, id: impl std::fmt::Display) -> Self {
        Self::Missing { what: format!("{noun} {id}") }
    }

    pub(super) fn unavailable(reason: impl std::fmt::Display) -> Self {
        Self::Unavailable { reason: reason.to_string() }
    }
}

impl From<sql::Error> for StoreError {
    fn from(error: sql::Error) -> Self {
        match error {
            sql::Error::Sqlite(error) => error.into(),
            sql::Error::NoRows => Self::unavailable(error),
            sql::Error::Postgres(error) => error.into(),
            sql::Error::BadValue { .. } => {
                Self::Damaged { what: "a row".into(), reason: error.to_string() }
            }
            sql::Error::DamagedRow { noun } => {
                Self::Damaged { what: noun.into(), reason: error.to_string() }
            }
        }
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Unique { .. } | PostgresError::Constraint { .. } => {
                Self::Exists { what: error.to_string() }
            }
            PostgresError::Damaged { reason } => {
                Self::Damaged { what: "the database".into(), reason }
            }
            PostgresError::Serialization { .. }
            | PostgresError::Refused { .. }
            | PostgresError::Connection { .. } => Self::unavailable(error),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        match &error {
            E::SqliteFailure(failure, _) => match failure.code {
                ErrorCode::ConstraintViolation => Self::Exists { what: error.to_string() },
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                    Self::Damaged { what: "the database".into(), reason: error.to_string() }
                }
                _ if matches!(
                    failure.extended_code,
                    ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC
                ) =>
                {
                    Self::SyncFailed { reason: error.to_string() }
                }
                // A full disk, no memory, a lock held too long: all may be temporary.
                _ => Self::unavailable(error),
            },
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::Utf8Error(..)
            | E::InvalidColumnType(..) => {
                Self::Damaged { what: "a row".into(), reason: error.to_string() }
            }
            _ => Self::unavailable(error),
        }
    }
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The linked library loses commits.
    #[error("sqlite {version} can lose commits; 3.51.3 or later is needed")]
    Library { version: String },
    /// The file was written by a later version of this program.
    #[error(
        "the database has schema version {found}, but this program supports only {known}; use a newer version"
    )]
    TooNew { found: usize, known: usize },
    /// The file is damaged.
    #[error("the database {path} is damaged: {reason}")]
    Damaged {
        path: PathBuf,
        /// The result of the check.
        reason: String,
    },
    /// PostgreSQL, or its settings.
    #[error("the PostgreSQL database cannot be used: {reason}")]
    Unsuitable { reason: String },
    /// Any other error of the store.
    #[error("cannot open the database")]
    Store(#[from] StoreError),
}
