//! Paginated lists.

use std::{fmt, str::FromStr};

/// A request for one page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The maximum number of items.
    pub limit: u32,
    /// The end of the previous page.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// Requests the first page.
    #[must_use]
    pub fn first(limit: u32) -> Self {
        Self { limit, after: None }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page, or `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Creates a page from the result of a query for `limit + 1` rows.
    pub(super) fn cut(mut items: Vec<T>, limit: u32, key: impl Fn(&T) -> Cursor) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(key) } else { None };
        Self { items, next }
    }

    /// Converts the items.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}

/// A position in a list that is ordered by time and id. Opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(super) at: i64,
    pub(super) id: String,
}

/// The text is not a valid cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this list")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.", self.at)?;
        self.id.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (at, id) = text.split_once('.').ok_or(BadCursor)?;
        let at = i64::from_str_radix(at, 16).map_err(|_| BadCursor)?;
        if !id.is_ascii() || id.len() % 2 != 0 || id.len() > 512 {
            return Err(BadCursor);
        }
        let bytes: Result<Vec<u8>, _> = (0..id.len())
            .step_by(2)
            .map(|start| u8::from_str_radix(&id[start..start + 2], 16))
            .collect();
        let id = String::from_utf8(bytes.map_err(|_| BadCursor)?).map_err(|_| BadCursor)?;
        Ok(Self { at, id })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_survives_formatting_and_parsing(at in 0..i64::MAX, id in "\\PC{0,60}") {
            let cursor = Cursor { at, id };
            prop_assert_eq!(cursor.to_string().parse::<Cursor>(), Ok(cursor));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Cursor>();
        }
    }
}
