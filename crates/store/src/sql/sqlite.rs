//! Statements and rows of SQLite.

use std::borrow::Cow;

use rusqlite::{
    CachedStatement, Connection,
    types::{ToSql, ToSqlOutput, ValueRef as SqliteValue},
};

use super::{
    column::ColumnKey,
    error::{Error, Result},
    params::{Parameter, ParameterList},
    value::ValueRef,
};

pub(crate) struct SqliteStatement<'db>(CachedStatement<'db>);

impl<'db> SqliteStatement<'db> {
    pub(super) fn new(connection: &'db Connection, sql: &str) -> Result<Self> {
        Ok(Self(connection.prepare_cached(sql)?))
    }

    fn bind(&mut self, params: &impl ParameterList) -> Result<()> {
        let mut bound = 0;
        params.each(&mut |parameter, value| {
            let index = match parameter {
                Parameter::Position(index) => index,
                Parameter::Name(name) => {
                    let unknown = || rusqlite::Error::InvalidParameterName(name.to_owned());
                    self.0.parameter_index(name)?.ok_or_else(unknown)?
                }
            };
            bound += 1;
            Ok(self.0.raw_bind_parameter(index, Borrowed(value.value()))?)
        })?;
        let expected = self.0.parameter_count();
        if bound != expected {
            return Err(rusqlite::Error::InvalidParameterCount(bound, expected).into());
        }
        Ok(())
    }

    pub(super) fn execute(&mut self, params: &impl ParameterList) -> Result<usize> {
        self.bind(params)?;
        Ok(self.0.raw_execute()?)
    }

    pub(super) fn query(&mut self, params: &impl ParameterList) -> Result<rusqlite::Rows<'_>> {
        self.bind(params)?;
        Ok(self.0.raw_query())
    }

    pub(super) fn query_row<T>(
        &mut self,
        params: &impl ParameterList,
        map: impl FnOnce(&rusqlite::Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.query(params)?;
        map(rows.next()?.ok_or(Error::NoRows)?)
    }
}

/// A value that SQLite copies when it is bound.
struct Borrowed<'a>(ValueRef<'a>);

impl ToSql for Borrowed<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match &self.0 {
            ValueRef::Null => SqliteValue::Null,
            ValueRef::Integer(number) => SqliteValue::Integer(*number),
            ValueRef::Text(text) => SqliteValue::Text(text),
            ValueRef::Blob(bytes) => SqliteValue::Blob(bytes),
        }))
    }
}

pub(crate) struct SqliteRow<'r>(pub(super) &'r rusqlite::Row<'r>);

impl SqliteRow<'_> {
    pub(super) fn value(&self, place: ColumnKey<'_>) -> Result<ValueRef<'_>> {
        let value = match place {
            ColumnKey::Position(index) => self.0.get_ref(index)?,
            ColumnKey::Name(name) => self.0.get_ref(name)?,
        };
        Ok(match value {
            SqliteValue::Null => ValueRef::Null,
            SqliteValue::Integer(number) => ValueRef::Integer(number),
            SqliteValue::Text(text) => ValueRef::Text(Cow::Borrowed(text)),
            SqliteValue::Blob(bytes) => ValueRef::Blob(bytes),
            SqliteValue::Real(_) => {
                let reason = "found a fraction, and no column has one".into();
                return Err(Error::BadValue { column: place.to_string(), reason });
            }
        })
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.as_ref().column_names()
    }
}
