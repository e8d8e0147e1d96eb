//! Lists: `limit` and an opaque `cursor` in, items and the next cursor out.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::Problem;

/// Items of a page when the client does not say.
pub const DEFAULT_LIMIT: u32 = 100;
/// Most items of a page.
pub const MAX_LIMIT: u32 = 1000;

/// One page of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct List<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// Where the next page begins; null on the last one.
    pub next_cursor: Option<String>,
}

/// The part of a list a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// How many items.
    pub limit: usize,
    /// The key of the last item the client has.
    pub after: Option<String>,
}

impl Window {
    /// Reads the two query parameters.
    pub fn new(limit: Option<u32>, cursor: Option<&str>) -> Result<Window, Problem> {
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Problem::query("limit", format!("must be 1 to {MAX_LIMIT}")));
        }
        let after = cursor.map(decode).transpose()?;
        Ok(Window { limit: limit as usize, after })
    }

    /// Makes a page of items that were asked for with one more than `limit`: if that one is there,
    /// there is a next page. `key` is what the list is ordered by.
    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> String) -> List<T> {
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next_cursor = items.last().filter(|_| more).map(|last| encode(&key(last)));
        List { items, next_cursor }
    }
}

fn encode(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn decode(cursor: &str) -> Result<String, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| Problem::query("cursor", "is not a cursor of ours"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_until_there_are_no_more() {
        let all: Vec<u32> = (0..5).collect();
        let fetch = |window: &Window| {
            let after = window.after.as_ref().map(|key| key.parse::<u32>().unwrap());
            let rest = all.iter().copied().filter(|item| after.is_none_or(|after| *item > after));
            rest.take(window.limit + 1).collect::<Vec<_>>()
        };
        let (mut cursor, mut seen) = (None, Vec::new());
        loop {
            let window = Window::new(Some(2), cursor.as_deref()).unwrap();
            let page = window.page(fetch(&window), u32::to_string);
            seen.push(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, [vec![0, 1], vec![2, 3], vec![4]]);
    }

    #[test]
    fn a_bad_limit_or_cursor_is_named() {
        let detail = |limit, cursor| Window::new(limit, cursor).unwrap_err().detail().to_owned();
        assert_eq!(detail(Some(0), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(Some(1001), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(None, Some("!")), "/cursor: is not a cursor of ours");
        assert_eq!(detail(None, Some("_w")), "/cursor: is not a cursor of ours");
    }
}
