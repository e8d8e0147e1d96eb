//! Lists: `limit` and an opaque `cursor` in, items and the next cursor out.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::Problem;
use store::{Page, PageRequest};

/// Items of a page when the client does not say.
pub const DEFAULT_LIMIT: u32 = 100;
/// Most items of a page.
pub const MAX_LIMIT: u32 = 1000;

/// Which page of a list. One that also filters has a type of its own: a flattened one could not
/// refuse unknown fields.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

impl PageQuery {
    /// The page that is asked for.
    pub(super) fn request(&self) -> Result<PageRequest, Problem> {
        request(self.limit, self.cursor.as_deref())
    }
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct List<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// Where the next page begins; null on the last one.
    pub next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A list that is one page.
    pub fn whole(items: Vec<T>) -> List<T> {
        List { items, next_cursor: None }
    }
}

impl<T> From<Page<T>> for List<T> {
    fn from(page: Page<T>) -> List<T> {
        List { items: page.items, next_cursor: page.next.map(|cursor| cursor.to_string()) }
    }
}

/// Reads the two query parameters.
pub fn request(limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest, Problem> {
    let limit = items(limit)?;
    let after = cursor.map(str::parse).transpose();
    let after = after.map_err(|_| Problem::query("cursor", "is not a cursor of this list"))?;
    Ok(PageRequest { limit, after })
}

/// How many items of a page, or matches, are asked for.
pub(super) fn items(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(Problem::query("limit", format!("must be 1 to {MAX_LIMIT}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_limit_or_cursor_is_named() {
        let detail = |limit, cursor| request(limit, cursor).unwrap_err().detail().to_owned();
        assert_eq!(detail(Some(0), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(Some(1001), None), "/limit: must be 1 to 1000");
        assert_eq!(detail(None, Some("!")), "/cursor: is not a cursor of this list");
        assert_eq!(request(None, None).unwrap(), PageRequest::first(DEFAULT_LIMIT));
    }
}
