//! Statements and rows, independent of the database.
//!
//! All resources are read and written through [`Db`], whose interface follows the one of `rusqlite`. One text serves both
//! databases: parameters are `?1`, `?2` and so on, or names such as `:id`; what SQLite calls otherwise, such as `max` of
//! two numbers, is a function in the schema of PostgreSQL.

mod column;
mod dialect;
mod error;
mod params;
mod postgres;
mod sqlite;
mod tls;
mod value;
mod wire;

use postgres::PostgresRow;
use sqlite::{SqliteRow, SqliteStatement};

pub(crate) use column::Column;
pub(crate) use error::{Error, PostgresError, Result};
pub(crate) use params::{ParameterList, named_params, params};
pub(crate) use postgres::PostgresSession;
pub(crate) use tls::MakeTls;
pub(crate) use value::{Bind, FromValue, SqlValue, ValueRef};

/// A connection to a database.
#[derive(Debug)]
pub(crate) enum Db {
    Sqlite(rusqlite::Connection),
    Postgres(Box<PostgresSession>),
}

impl Db {
    /// Returns a statement, which the connection keeps prepared.
    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Self::Sqlite(connection) => Statement::Sqlite(SqliteStatement::new(connection, sql)?),
            Self::Postgres(session) => Statement::Postgres { session, sql: sql.to_owned() },
        })
    }

    /// Executes one statement and returns the number of changed rows.
    pub(crate) fn execute(&self, sql: &str, params: impl ParameterList) -> Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }

    /// Executes statements without parameters.
    pub(crate) fn execute_batch(&self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Self::Postgres(session) => session.batch(sql),
        }
    }

    /// Makes transactions that change this table wait for each other until the end of this one. Must come first in a
    /// transaction. SQLite has one writer anyway.
    pub(crate) fn lock_table(&self, table: &str) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => {
                session.batch(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
            }
        }
    }

    /// Executes a statement that only PostgreSQL needs.
    pub(crate) fn on_postgres(&self, sql: &str, params: impl ParameterList) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.query(sql, &params).map(drop),
        }
    }

    /// The relation of projects with their current statistics.
    pub(crate) fn projects(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "projects",
            // Statistics are appended by triggers, so that commands of one project do not wait for each other.
            Self::Postgres(_) => "current_projects",
        }
    }
}

/// A statement that can be executed repeatedly.
pub(crate) enum Statement<'db> {
    Sqlite(SqliteStatement<'db>),
    Postgres { session: &'db PostgresSession, sql: String },
}

impl Statement<'_> {
    /// Executes the statement and returns the number of changed rows.
    pub(crate) fn execute(&mut self, params: impl ParameterList) -> Result<usize> {
        match self {
            Self::Sqlite(statement) => statement.execute(&params),
            Self::Postgres { session, sql } => session.execute(sql, &params),
        }
    }

    /// Maps the first row of the result.
    pub(crate) fn query_row<T>(
        &mut self,
        params: impl ParameterList,
        map: impl FnOnce(&SqlRow<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Sqlite(statement) => {
                statement.query_row(&params, |row| map(&SqlRow::Sqlite(SqliteRow(row))))
            }
            Self::Postgres { session, sql } => {
                let rows = session.query(sql, &params)?;
                map(&SqlRow::Postgres(PostgresRow(rows.first().ok_or(Error::NoRows)?)))
            }
        }
    }

    /// Maps every row of the result, while the iterator is used.
    pub(crate) fn query_map<T, F>(
        &mut self,
        params: impl ParameterList,
        map: F,
    ) -> Result<MappedRows<'_, F>>
    where
        F: FnMut(&SqlRow<'_>) -> Result<T>,
    {
        Ok(match self {
            Self::Sqlite(statement) => MappedRows::Sqlite(statement.query(&params)?, map),
            Self::Postgres { session, sql } => {
                MappedRows::Postgres(session.query(sql, &params)?.into_iter(), map)
            }
        })
    }
}

/// The rows of a result, each mapped by `F`.
pub(crate) enum MappedRows<'statement, F> {
    Sqlite(rusqlite::Rows<'statement>, F),
    Postgres(std::vec::IntoIter<tokio_postgres::Row>, F),
}

impl<T, F: FnMut(&SqlRow<'_>) -> Result<T>> Iterator for MappedRows<'_, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        match self {
            Self::Sqlite(rows, map) => {
                let row = rows.next().map_err(Error::from).transpose()?;
                Some(row.and_then(|row| map(&SqlRow::Sqlite(SqliteRow(row)))))
            }
            Self::Postgres(rows, map) => Some(map(&SqlRow::Postgres(PostgresRow(&rows.next()?)))),
        }
    }
}

/// A row of a result.
pub(crate) enum SqlRow<'r> {
    Sqlite(SqliteRow<'r>),
    Postgres(PostgresRow<'r>),
}

impl SqlRow<'_> {
    /// Reads a column, which is given by its position or its name.
    pub(crate) fn get<T: FromValue>(&self, column: impl Column) -> Result<T> {
        let bad = |reason| Error::BadValue { column: column.place().to_string(), reason };
        T::from_value(self.value(column.place())?).map_err(bad)
    }

    /// Returns the value of a column.
    pub(crate) fn value(&self, column: impl Column) -> Result<ValueRef<'_>> {
        match self {
            Self::Sqlite(row) => row.value(column.place()),
            Self::Postgres(row) => row.value(column.place()),
        }
    }

    /// Returns the names of all columns in their order, if the row has a checksum.
    pub(crate) fn checked_columns(&self) -> Option<impl Iterator<Item = &str>> {
        match self {
            Self::Sqlite(row) => Some(row.columns()),
            // PostgreSQL has checksums of pages.
            Self::Postgres(_) => None,
        }
    }
}

/// Turns the error that there is no row into `None`.
pub(crate) trait OptionalExtension<T> {
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExtension<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoRows) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
