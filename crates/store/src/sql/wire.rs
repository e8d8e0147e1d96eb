//! Values as PostgreSQL sends and receives them, in its binary format.
//!
//! Text in PostgreSQL cannot contain NUL. It is stored as U+10FFFF followed by `0`, and U+10FFFF, which Unicode reserves
//! and assigns to nothing, as itself twice, so that every text can be stored and is read as it was written.

use std::borrow::Cow;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::value::{ValueKind, ValueRef};

const ESCAPE: char = '\u{10FFFF}';

/// The type of a parameter for a kind of values.
pub(super) fn parameter_type(kind: ValueKind) -> Type {
    match kind {
        ValueKind::Integer => Type::INT8,
        ValueKind::Text => Type::TEXT,
        ValueKind::Blob => Type::BYTEA,
        // The server infers it from the statement.
        ValueKind::Any => Type::UNKNOWN,
    }
}

/// The value of a parameter, encoded when it is sent.
#[derive(Debug)]
pub(super) enum BoundValue {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl BoundValue {
    pub(super) fn new(value: &ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(*number),
            ValueRef::Text(text) => Self::Text(escape(&String::from_utf8_lossy(text))),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

impl ToSql for BoundValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match (self, kind) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Integer(number), &Type::INT8) => out.extend_from_slice(&number.to_be_bytes()),
            (Self::Integer(number), &Type::INT4) => {
                out.extend_from_slice(&i32::try_from(*number)?.to_be_bytes());
            }
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::UNKNOWN) => {
                out.extend_from_slice(text.as_bytes());
            }
            (Self::Blob(bytes), &Type::BYTEA) => out.extend_from_slice(bytes),
            (found, expected) => return Err(format!("{found:?} is not {expected}").into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The value of a column.
pub(super) struct ColumnValue<'a>(pub(super) ValueRef<'a>);

impl<'a> FromSql<'a> for ColumnValue<'a> {
    fn from_sql(
        kind: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT8 => ValueRef::Integer(i64::from_be_bytes(raw.try_into()?)),
            Type::INT4 => ValueRef::Integer(i32::from_be_bytes(raw.try_into()?).into()),
            Type::BOOL => ValueRef::Integer(i64::from(raw != [0])),
            Type::BYTEA => ValueRef::Blob(raw),
            Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN => {
                ValueRef::Text(unescape(raw))
            }
            ref other => return Err(format!("columns of type {other} are not supported").into()),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(ValueRef::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn escape(text: &str) -> String {
    if !text.contains(['\0', ESCAPE]) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, ESCAPE]),
            other => out.push(other),
        }
    }
    out
}

fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    let text = match std::str::from_utf8(raw) {
        Ok(text) if text.contains(ESCAPE) => text,
        _ => return Cow::Borrowed(raw),
    };
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => match characters.next() {
                Some('0') => out.push('\0'),
                Some(other) => out.push(other),
                None => out.push(ESCAPE),
            },
            other => out.push(other),
        }
    }
    Cow::Owned(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_is_read_as_it_was_written(text in "[ab\\x00\u{10FFFF}0é]{0,20}") {
            let stored = escape(&text);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(unescape(stored.as_bytes()), text.as_bytes());
        }
    }
}
