//! Errors of statements.

use super::value::BadValue;

/// The result of a statement.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a statement has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the query returned no rows")]
    NoRows,
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// A column does not contain what its reader expects.
    #[error("column {column}: {reason}")]
    BadValue { column: String, reason: BadValue },
    /// The content of a row does not match its checksum.
    #[error("its checksum does not match its content")]
    DamagedRow {
        /// What the row describes, with its article.
        noun: &'static str,
    },
}

/// Why PostgreSQL did not execute a statement.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PostgresError {
    /// Nothing but this transaction is affected, and a repetition may succeed: it conflicted with another one.
    #[error("the transaction conflicts with others: {reason}")]
    Serialization { reason: String },
    /// A unique constraint refuses the row.
    #[error("UNIQUE constraint failed: {constraint}")]
    Unique { constraint: String },
    /// Another constraint refuses the row.
    #[error("constraint failed: {reason}")]
    Constraint { reason: String },
    /// The data on the server's disk is damaged.
    #[error("{reason}")]
    Damaged { reason: String },
    /// The server refused the statement, e.g. because it took too long.
    #[error("{reason}")]
    Refused { reason: String },
    /// The connection is of no further use.
    #[error("the connection to PostgreSQL failed: {reason}")]
    Connection { reason: String },
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return Self::Connection { reason: chain(&error) };
        };
        let reason = match db.detail() {
            Some(detail) => format!("{} ({detail})", db.message()),
            None => db.message().to_owned(),
        };
        match (db.code().code(), db.code().code().get(..2).unwrap_or_default()) {
            ("40001" | "40P01", _) => Self::Serialization { reason },
            ("23505", _) => {
                let name = |part: Option<&str>| part.unwrap_or("?").to_owned();
                let constraint = format!("{}.{}", name(db.table()), name(db.constraint()));
                Self::Unique { constraint }
            }
            // The server is starting, stopping or out of connections, or has ended this one.
            ("53300" | "25P03", _) | (_, "57" | "08") if db.code().code() != "57014" => {
                Self::Connection { reason }
            }
            (_, "23") => Self::Constraint { reason },
            (_, "XX") => Self::Damaged { reason },
            _ => Self::Refused { reason: format!("{reason} ({})", db.code().code()) },
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
