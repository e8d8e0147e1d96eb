//! Lists sandboxes: filters, order and pages.

use axum::{
    extract::State,
    http::{HeaderValue, Uri},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::{E2bRefusal, ORIGIN, bad, view};
use adapter::Adapter;
use model::SandboxStatus;
use store::{Cursor, PageRequest, SandboxFilter, SandboxOrder};

/// The limit of sandboxes per page.
const MAX_PAGE: u32 = 100;
/// The limit of sandboxes in the list without pages.
const MAX_LIST: u32 = 10_000;

/// The parsed query of a list.
#[derive(Debug, Default, PartialEq, Eq)]
struct SandboxQuery {
    filter: SandboxFilter,
    order: SandboxOrder,
    limit: Option<u32>,
    after: Option<Cursor>,
    /// The requested state is unknown, so that no sandbox matches.
    is_empty: bool,
}

impl SandboxQuery {
    fn parse(query: &str) -> Result<SandboxQuery, E2bRefusal> {
        let mut parsed = SandboxQuery::default();
        parsed.filter.origin = Some(ORIGIN.to_owned());
        let mut states = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                // The value is itself a query string.
                "metadata" => {
                    let pairs = form_urlencoded::parse(value.as_bytes()).into_owned();
                    parsed.filter.labels = pairs.map(label).collect();
                }
                "order" => {
                    parsed.order = match &*value {
                        "asc" => SandboxOrder::OldestFirst,
                        "desc" => SandboxOrder::NewestFirst,
                        _ => return Err(bad("order must be asc or desc")),
                    };
                }
                "startedAfter" => {
                    let at = value.parse().map_err(|_| bad("invalid startedAfter"))?;
                    parsed.filter.started_from = Some(at);
                }
                "template" => parsed.filter.template = Some(value.into_owned()),
                "state" => states.extend(value.split(',').map(str::to_owned)),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
                    let invalid = || bad(format!("limit must be 1 to {MAX_PAGE}"));
                    parsed.limit = Some(limit.ok_or_else(invalid)?);
                }
                "nextToken" if !value.is_empty() => {
                    let after = value.parse().map_err(|_| bad("invalid nextToken"))?;
                    parsed.after = Some(after);
                }
                _ => {}
            }
        }
        parsed.set_states(&states);
        Ok(parsed)
    }

    fn set_states(&mut self, states: &[String]) {
        let statuses = states.iter().flat_map(|state| statuses(state));
        self.filter.statuses = statuses.copied().collect();
        self.is_empty = !states.is_empty() && self.filter.statuses.is_empty();
    }
}

/// The statuses that a state of E2B's API stands for.
fn statuses(state: &str) -> &'static [SandboxStatus] {
    match state {
        "running" => &[SandboxStatus::Running, SandboxStatus::Stopped, SandboxStatus::Archived],
        "paused" => &[SandboxStatus::Paused, SandboxStatus::Suspended],
        _ => &[],
    }
}

/// The alternatives of a label filter: the pair itself and the decoded pair, because some clients encode twice.
fn label((name, value): (String, String)) -> Vec<(String, String)> {
    let decode = |text: &str| {
        form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned())
    };
    let decoded = decode(&name).zip(decode(&value));
    [Some((name, value)), decoded].into_iter().flatten().collect()
}

async fn page(
    app: &Adapter,
    query: SandboxQuery,
) -> Result<(Vec<Value>, Option<Cursor>), E2bRefusal> {
    if query.is_empty {
        return Ok((Vec::new(), None));
    }
    let request = PageRequest { limit: query.limit.unwrap_or(MAX_PAGE), after: query.after };
    let found = app.sandboxes.list(query.filter, query.order, request).await?;
    Ok((found.items.iter().map(|it| view::sandbox(app, it)).collect(), found.next))
}

/// Returns a page of sandboxes, by default the newest first.
pub(super) async fn list(State(app): State<Adapter>, uri: Uri) -> Result<Response, E2bRefusal> {
    let query = SandboxQuery::parse(uri.query().unwrap_or_default())?;
    let (found, next) = page(&app, query).await?;
    let mut response = axum::Json(found).into_response();
    if let Some(Ok(next)) = next.map(|next| HeaderValue::from_str(&next.to_string())) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// Returns the running sandboxes, in the first version of the API.
pub(super) async fn list_running(
    State(app): State<Adapter>,
    uri: Uri,
) -> Result<axum::Json<Vec<Value>>, E2bRefusal> {
    let mut query = SandboxQuery::parse(uri.query().unwrap_or_default())?;
    if query.filter.statuses.is_empty() && !query.is_empty {
        query.set_states(&["running".to_owned()]);
    }
    query.limit = Some(MAX_LIST);
    Ok(axum::Json(page(&app, query).await?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_a_filter() {
        let parse = |query: &str| SandboxQuery::parse(query).unwrap();
        assert_eq!(parse("").filter.origin.as_deref(), Some("e2b"));
        let query = parse("state=paused&metadata=a%3Db%252520c&limit=7&order=asc&template=x");
        assert_eq!(query.filter.statuses, [SandboxStatus::Paused, SandboxStatus::Suspended]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(query.filter.labels, [vec![pair("a", "b%20c"), pair("a", "b c")]]);
        assert_eq!((query.limit, query.order), (Some(7), SandboxOrder::OldestFirst));
        assert!(parse("state=broken").is_empty);
        for invalid in ["limit=0", "limit=101", "order=up", "nextToken=x", "startedAfter=soon"] {
            assert!(SandboxQuery::parse(invalid).is_err(), "{invalid}");
        }
    }
}
