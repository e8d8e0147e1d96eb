//! Columns of a row, by position or by name.

/// A column of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ColumnKey<'a> {
    Position(usize),
    Name(&'a str),
}

impl std::fmt::Display for ColumnKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ColumnKey::Position(index) => index.fmt(f),
            ColumnKey::Name(name) => name.fmt(f),
        }
    }
}

/// The position or the name of a column.
pub(crate) trait Column {
    fn place(&self) -> ColumnKey<'_>;
}

impl Column for ColumnKey<'_> {
    fn place(&self) -> ColumnKey<'_> {
        *self
    }
}

impl Column for usize {
    fn place(&self) -> ColumnKey<'_> {
        ColumnKey::Position(*self)
    }
}

impl Column for &str {
    fn place(&self) -> ColumnKey<'_> {
        ColumnKey::Name(self)
    }
}
