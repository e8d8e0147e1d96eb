//! What can go wrong with the store, by what the caller can do about it.

use std::path::PathBuf;

use rusqlite::{ErrorCode, ffi};

use model::Refused;

/// Why an operation of the store had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing.
    #[error("{what} does not exist")]
    Missing { what: String },
    /// There is such a thing already.
    #[error("{what} exists already")]
    Exists { what: String },
    /// It was changed since the caller read it.
    #[error("{what} is at version {found}, not {expected}")]
    Conflict {
        what: String,
        /// The version the caller had read.
        expected: u64,
        /// The version it has.
        found: u64,
    },
    /// Its state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A sync failed: what the kernel still had to write may be lost, and no later sync would say so.
    /// Nothing is written until the server is started again.
    #[error(
        "the store is unavailable: a sync of the database failed ({reason}); nothing is written until \
         the server is restarted"
    )]
    SyncFailed {
        /// What the library said.
        reason: String,
    },
    /// Nothing can be written or read for the moment; asking again later may help.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What the library said.
        reason: String,
    },
    /// A row, or the file, is not what we wrote.
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
                // Full disk, no memory, a lock held too long: each may pass.
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
    /// A later version of this program wrote the file.
    #[error("the database is at schema {found}, and this program knows {known}")]
    TooNew { found: usize, known: usize },
    /// The file is damaged.
    #[error("the database {path} is damaged: {reason}")]
    Damaged {
        path: PathBuf,
        /// What the check said.
        reason: String,
    },
    /// Anything else that the library says.
    #[error("cannot open the database")]
    Store(#[from] StoreError),
}
