//! Pagination: `limit` and an opaque `cursor` in the request, items and the next cursor in the response.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::Problem;
use store::{Page, PageRequest};

/// Default number of items of a page.
pub const DEFAULT_PAGE_ITEMS: u32 = 100;
/// Maximum number of items of a page.
pub const MAX_PAGE_ITEMS: u32 = 1000;

/// Selects a page. A list with filters has a type of its own, because serde cannot refuse unknown fields of a
/// flattened one.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageQuery {
    pub(super) fn request(&self) -> Result<PageRequest, Problem> {
        request(self.limit, self.cursor.as_deref())
    }
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct List<T> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// The `cursor` of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A list with a single page.
    pub fn whole(items: Vec<T>) -> List<T> {
        List { items, next_cursor: None }
    }
}

impl<T> From<Page<T>> for List<T> {
    fn from(page: Page<T>) -> List<T> {
        List { items: page.items, next_cursor: page.next.map(|cursor| cursor.to_string()) }
    }
}

/// Checks the two query parameters.
pub fn request(limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest, Problem> {
    let limit = items(limit)?;
    let after = cursor.map(str::parse).transpose();
    let after = after.map_err(|_| Problem::query("cursor", "not a cursor of this list"))?;
    Ok(PageRequest { limit, after })
}

/// Returns the checked `limit`.
pub(super) fn items(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(DEFAULT_PAGE_ITEMS) {
        limit @ 1..=MAX_PAGE_ITEMS => Ok(limit),
        _ => Err(Problem::query("limit", format!("must be 1 to {MAX_PAGE_ITEMS}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_limit_or_cursor_is_named() {
        let detail = |limit, cursor| request(limit, cursor).unwrap_err().detail().to_owned();
        assert_eq!(detail(Some(0), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(Some(1001), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(None, Some("!")), "/cursor: not a cursor of this list");
        assert_eq!(request(None, None).unwrap(), PageRequest::first(DEFAULT_PAGE_ITEMS));
    }
}
