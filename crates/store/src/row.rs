//! Conversions between columns and model types.

use serde::{Serialize, de::DeserializeOwned};

use super::sql::{self, SqlRow};
use model::Timestamp;

/// The result of reading a row.
pub(super) type Read<T> = sql::Result<T>;

fn bad(column: &str, error: impl std::error::Error + Send + Sync + 'static) -> sql::Error {
    sql::Error::BadValue { column: column.to_owned(), reason: error.into() }
}

/// Reads a time from a column of microseconds.
pub(super) fn time(row: &SqlRow<'_>, column: &str) -> Read<Timestamp> {
    Timestamp::from_microsecond(row.get(column)?).map_err(|e| bad(column, e))
}

/// Reads a time that may be absent.
pub(super) fn time_or_none(row: &SqlRow<'_>, column: &str) -> Read<Option<Timestamp>> {
    let micros: Option<i64> = row.get(column)?;
    micros.map(Timestamp::from_microsecond).transpose().map_err(|e| bad(column, e))
}

/// Reads an unsigned number.
pub(super) fn count(row: &SqlRow<'_>, column: &str) -> Read<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|e| bad(column, e))
}

/// Reads an unsigned number that may be absent.
pub(super) fn count_or_none(row: &SqlRow<'_>, column: &str) -> Read<Option<u64>> {
    let value: Option<i64> = row.get(column)?;
    value.map(u64::try_from).transpose().map_err(|e| bad(column, e))
}

/// Reads any type that parses from text, such as an id.
pub(super) fn parsed<T>(row: &SqlRow<'_>, column: &str) -> Read<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    text.parse().map_err(|e| bad(column, e))
}

/// Reads a value that is stored as JSON.
pub(super) fn json<T: DeserializeOwned>(row: &SqlRow<'_>, column: &str) -> Read<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|e| bad(column, e))
}

/// Reads a unit variant that is stored as its name.
pub(super) fn word<T: DeserializeOwned>(row: &SqlRow<'_>, column: &str) -> Read<T> {
    let text: String = row.get(column)?;
    serde_json::from_value(serde_json::Value::String(text)).map_err(|e| bad(column, e))
}

/// Reads a unit variant that may be absent.
pub(super) fn word_or_none<T: DeserializeOwned>(row: &SqlRow<'_>, column: &str) -> Read<Option<T>> {
    let text: Option<String> = row.get(column)?;
    let word = text.map(|text| serde_json::from_value(serde_json::Value::String(text)));
    word.transpose().map_err(|e| bad(column, e))
}

/// Formats a value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own values serialize: string keys, no custom code")
}

/// Returns the name of a unit variant.
pub(super) fn to_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => unreachable!("only unit variants are stored as words"),
    }
}

/// Converts an unsigned number for a column. A number that does not fit is saturated.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts a time to microseconds for a column.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}
