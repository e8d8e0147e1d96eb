//! Values of columns and parameters.

use std::borrow::Cow;

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueRef<'a> {
    Null,
    Integer(i64),
    /// UTF-8, unless the row is damaged.
    Text(Cow<'a, [u8]>),
    Blob(&'a [u8]),
}

/// A value that owns its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SqlValue {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        SqlValue::Text(text)
    }
}

/// The type of a parameter, known also if its value is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Integer,
    Text,
    Blob,
    /// Known only to the statement.
    Any,
}

/// A Rust type whose values can be bound to parameters.
pub(crate) trait HasKind {
    const KIND: ValueKind;
}

/// A value that can be bound to a parameter.
pub(crate) trait Bind {
    fn value(&self) -> ValueRef<'_>;

    fn kind(&self) -> ValueKind;
}

impl<T: HasKind + ?Sized> HasKind for &T {
    const KIND: ValueKind = T::KIND;
}

impl<T: Bind + ?Sized> Bind for &T {
    fn value(&self) -> ValueRef<'_> {
        (**self).value()
    }

    fn kind(&self) -> ValueKind {
        (**self).kind()
    }
}

impl<T: Bind + HasKind> Bind for Option<T> {
    fn value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, Bind::value)
    }

    fn kind(&self) -> ValueKind {
        T::KIND
    }
}

macro_rules! bind {
    ($($type:ty, $kind:ident: $value:ident => $result:expr;)*) => {
        $(impl HasKind for $type {
            const KIND: ValueKind = ValueKind::$kind;
        }

        impl Bind for $type {
            fn value(&self) -> ValueRef<'_> {
                let $value = self;
                $result
            }

            fn kind(&self) -> ValueKind {
                Self::KIND
            }
        })*
    };
}

bind! {
    i64, Integer: value => ValueRef::Integer(*value);
    i32, Integer: value => ValueRef::Integer(i64::from(*value));
    u32, Integer: value => ValueRef::Integer(i64::from(*value));
    u16, Integer: value => ValueRef::Integer(i64::from(*value));
    bool, Integer: value => ValueRef::Integer(i64::from(*value));
    str, Text: value => ValueRef::Text(Cow::Borrowed(value.as_bytes()));
    String, Text: value => ValueRef::Text(Cow::Borrowed(value.as_bytes()));
    [u8; 32], Blob: value => ValueRef::Blob(value);
    Vec<u8>, Blob: value => ValueRef::Blob(value);
    SqlValue, Any: value => match value {
        SqlValue::Null => ValueRef::Null,
        SqlValue::Integer(number) => ValueRef::Integer(*number),
        SqlValue::Text(text) => text.value(),
        SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
    };
}

/// Why a value of a column has no meaning for its reader.
pub(crate) type BadValue = Box<dyn std::error::Error + Send + Sync>;

/// A type that can be read from a column.
pub(crate) trait FromValue: Sized {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue>;
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
        match value {
            ValueRef::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! from_integer {
    ($($type:ty),*) => {
        $(impl FromValue for $type {
            fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
                match value {
                    ValueRef::Integer(number) => Ok(<$type>::try_from(number)?),
                    other => Err(unexpected(&other, "an integer")),
                }
            }
        })*
    };
}

from_integer!(i64, i32, u16);

impl FromValue for bool {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl FromValue for String {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
        match value {
            ValueRef::Text(text) => Ok(String::from_utf8(text.into_owned())?),
            other => Err(unexpected(&other, "text")),
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
        match value {
            ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
            other => Err(unexpected(&other, "bytes")),
        }
    }
}

impl FromValue for [u8; 32] {
    fn from_value(value: ValueRef<'_>) -> Result<Self, BadValue> {
        match value {
            ValueRef::Blob(bytes) => Ok(bytes.try_into()?),
            other => Err(unexpected(&other, "32 bytes")),
        }
    }
}

fn unexpected(found: &ValueRef<'_>, expected: &str) -> BadValue {
    let found = match found {
        ValueRef::Null => "nothing",
        ValueRef::Integer(_) => "an integer",
        ValueRef::Text(_) => "text",
        ValueRef::Blob(_) => "bytes",
    };
    format!("found {found} instead of {expected}").into()
}
