//! Lists, a page at a time.

use std::{fmt, str::FromStr};

/// Which part of a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// How many items at most.
    pub limit: u32,
    /// Where the page before ended.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// The first page, of this many items.
    #[must_use]
    pub fn first(limit: u32) -> Self {
        Self { limit, after: None }
    }
}

/// A part of a list and where it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Makes a page of rows of which one more than `limit` was asked for.
    pub(super) fn cut(mut items: Vec<T>, limit: u32, key: impl Fn(&T) -> Cursor) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(key) } else { None };
        Self { items, next }
    }

    /// The same page of something else.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}

/// A place in a list ordered by time and id. Clients hand it back unread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(super) at: i64,
    pub(super) id: String,
}

/// A text that is not a cursor of ours.
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
        fn a_cursor_comes_back_as_it_went(at in 0..i64::MAX, id in "\\PC{0,60}") {
            let cursor = Cursor { at, id };
            prop_assert_eq!(cursor.to_string().parse::<Cursor>(), Ok(cursor));
        }

        #[test]
        fn no_text_is_too_strange_to_refuse(text in "\\PC{0,40}") {
            let _ = text.parse::<Cursor>();
        }
    }
}
