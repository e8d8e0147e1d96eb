//! Lists sandboxes: filters, order and pages.

use std::{cmp::Ordering, collections::BTreeMap};

use axum::extract::{RawQuery, State};
use serde_json::{Value, json};

use super::{
    DaytonaRefusal,
    view::{self, daytona_sandboxes},
};
use adapter::Adapter;
use model::Timestamp;
use store::{SandboxFilter, SandboxRecord};

/// The limit of sandboxes per page.
const MAX_PAGE: usize = 200;
/// The default number of sandboxes per page.
const DEFAULT_PAGE: usize = 100;

/// The parameters of a query; a list has one pair per value.
struct SandboxListQuery {
    pairs: Vec<(String, String)>,
    labels: BTreeMap<String, String>,
}

/// Numeric filters: the suffix of the `min…` and `max…` parameters, and the filtered field.
const NUMBERS: [(&str, &str); 4] =
    [("Cpu", "cpu"), ("MemoryGiB", "memory"), ("DiskGiB", "disk"), ("Gpu", "gpu")];
/// Time filters: the prefix of the `…After` and `…Before` parameters, and the filtered field.
const TIMES: [(&str, &str); 3] = [
    ("createdAt", "createdAt"),
    ("lastEvent", "lastActivityAt"),
    ("autoDestroyAt", "autoDestroyAt"),
];

impl SandboxListQuery {
    fn parse(query: &str) -> Result<SandboxListQuery, DaytonaRefusal> {
        let pairs: Vec<(String, String)> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut parsed = SandboxListQuery { pairs, labels: BTreeMap::new() };
        if let Some(text) = parsed.one("labels") {
            parsed.labels = serde_json::from_str(text).map_err(|error| {
                DaytonaRefusal::bad(format!("labels are not an object: {error}"))
            })?;
        }
        Ok(parsed)
    }

    fn one(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, DaytonaRefusal> {
        let parsed = self.one(name).map(str::parse).transpose();
        parsed.map_err(|_| DaytonaRefusal::bad(format!("{name} is not a number")))
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, DaytonaRefusal> {
        let Some(text) = self.one(name) else { return Ok(None) };
        // Clients may omit the time zone.
        let time = text.parse().or_else(|_| format!("{text}Z").parse());
        time.map(Some).map_err(|_| DaytonaRefusal::bad(format!("{name} is not a time")))
    }

    /// Whether a list contains a value; a missing list contains every value.
    fn list_contains(&self, name: &str, value: &str) -> bool {
        let mut given = self.pairs.iter().filter(|(known, _)| known == name).peekable();
        given.peek().is_none()
            || given.any(|(_, all)| all.split(',').any(|one| one.eq_ignore_ascii_case(value)))
    }

    /// Whether a sandbox matches the filters on its row.
    fn matches_row(&self, sandbox: &SandboxRecord) -> bool {
        let has_prefix = |name: &str, text: &str| {
            let (text, prefix) = (text.to_lowercase(), self.one(name).unwrap_or_default());
            text.starts_with(&prefix.to_lowercase())
        };
        has_prefix("id", sandbox.id().as_str())
            && has_prefix("name", sandbox.row.name.as_deref().unwrap_or(sandbox.id().as_str()))
            && self.list_contains("snapshots", &sandbox.row.template)
    }

    /// Whether a sandbox matches the filters on its JSON.
    fn matches_view(&self, body: &Value) -> Result<bool, DaytonaRefusal> {
        let text = |field: &str| body[field].as_str().unwrap_or_default();
        if !self.list_contains("states", text("state"))
            || !self.list_contains("regionIds", text("target"))
        {
            return Ok(false);
        }
        for (name, actual) in [("isPublic", &body["public"]), ("isRecoverable", &json!(false))] {
            if self
                .one(name)
                .is_some_and(|value| Some(value.eq_ignore_ascii_case("true")) != actual.as_bool())
            {
                return Ok(false);
            }
        }
        for (name, field) in NUMBERS {
            let value = body[field].as_f64().unwrap_or_default();
            let min = self.number::<f64>(&format!("min{name}"))?;
            let max = self.number::<f64>(&format!("max{name}"))?;
            if min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max) {
                return Ok(false);
            }
        }
        for (name, field) in TIMES {
            let at: Option<Timestamp> = body[field].as_str().and_then(|at| at.parse().ok());
            let after = self.time(&format!("{name}After"))?;
            let before = self.time(&format!("{name}Before"))?;
            if after.is_some_and(|after| at.is_none_or(|at| at <= after))
                || before.is_some_and(|before| at.is_none_or(|at| at >= before))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The order of the list; the newest first by default.
    fn order(&self) -> Result<impl Fn(&Value, &Value) -> Ordering + use<>, DaytonaRefusal> {
        let field = match self.one("sort") {
            None | Some("createdAt") => "createdAt",
            Some("name") => "name",
            Some("cpu") => "cpu",
            Some("memoryGib") => "memory",
            Some("diskGib") => "disk",
            Some("lastActivityAt") => "lastActivityAt",
            Some("updatedAt") => "updatedAt",
            Some("state") => "state",
            Some(other) => return Err(DaytonaRefusal::bad(format!("cannot sort by {other}"))),
        };
        let ascending = match self.one("order") {
            None => self.one("sort").is_some_and(|sort| sort == "name"),
            Some("asc") => true,
            Some("desc") => false,
            Some(other) => {
                return Err(DaytonaRefusal::bad(format!("order must be asc or desc, not {other}")));
            }
        };
        Ok(move |one: &Value, other: &Value| {
            let order = match (one[field].as_u64(), other[field].as_u64()) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => one[field].as_str().cmp(&other[field].as_str()),
            };
            let order = order.then_with(|| one["id"].as_str().cmp(&other["id"].as_str()));
            if ascending { order } else { order.reverse() }
        })
    }
}

/// Returns a page of sandboxes.
pub(super) async fn list(
    State(app): State<Adapter>,
    RawQuery(query): RawQuery,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let query = SandboxListQuery::parse(query.as_deref().unwrap_or_default())?;
    let limit = query.number::<usize>("limit")?.unwrap_or(DEFAULT_PAGE);
    if limit == 0 || limit > MAX_PAGE {
        return Err(DaytonaRefusal::bad(format!("limit must be 1 to {MAX_PAGE}")));
    }
    let page = query.number::<usize>("page")?.unwrap_or(1).max(1);
    let order = query.order()?;
    let mut all = Vec::new();
    let labels = query.labels.clone().into_iter().map(|pair| vec![pair]).collect();
    for sandbox in app.sandboxes.all(SandboxFilter { labels, ..daytona_sandboxes() }).await? {
        if query.matches_row(&sandbox) {
            let body = view::sandbox(&app, &sandbox);
            if query.matches_view(&body)? {
                all.push(body);
            }
        }
    }
    all.sort_by(order);
    let total = all.len();
    let start = match query.one("cursor") {
        None => (page - 1).saturating_mul(limit),
        Some(cursor) => all.iter().position(|it| it["id"] == *cursor).map_or(total, |at| at + 1),
    };
    let items: Vec<Value> = all.into_iter().skip(start).take(limit).collect();
    let has_more = start + items.len() < total;
    let last = items.last().map(|item| item["id"].clone());
    Ok(axum::Json(json!({
        "items": items,
        "nextCursor": last.filter(|_| has_more),
        "total": total,
        "page": page,
        "totalPages": total.div_ceil(limit),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Value {
        json!({"id": "b", "name": "two", "state": "started", "target": "local", "public": false,
            "cpu": 2, "memory": 4, "disk": 8, "createdAt": "2026-01-02T00:00:00Z",
            "lastActivityAt": "2026-01-03T00:00:00Z", "autoDestroyAt": null})
    }

    #[test]
    fn filters_select_matching_sandboxes() {
        let check = |query: &str, expected: bool| {
            let parsed = SandboxListQuery::parse(query).unwrap_or_else(|_| panic!("{query}"));
            assert_eq!(parsed.matches_view(&body()).unwrap(), expected, "{query}");
        };
        check("", true);
        check("states=stopped&states=started", true);
        check("states=stopped", false);
        check("regionIds=eu", false);
        check("isPublic=false&isRecoverable=false", true);
        check("isPublic=True", false);
        check("minCpu=2&maxCpu=2&minMemoryGiB=1&maxDiskGiB=8", true);
        check("minCpu=3", false);
        check("maxDiskGiB=7", false);
        check("createdAtAfter=2026-01-01T00:00:00.000000%2B0000", true);
        check("createdAtBefore=2026-01-01T00:00:00", false);
        check("lastEventAfter=2026-01-02T00:00:00Z&lastEventBefore=2026-01-04T00:00:00Z", true);
        check("autoDestroyAtBefore=2030-01-01T00:00:00Z", false);
    }

    #[test]
    fn invalid_queries_are_refused() {
        for query in ["minCpu=many", "createdAtAfter=soon"] {
            assert!(
                SandboxListQuery::parse(query).unwrap().matches_view(&body()).is_err(),
                "{query}"
            );
        }
        assert!(SandboxListQuery::parse("labels=1").is_err());
        for query in ["sort=size", "order=up"] {
            assert!(SandboxListQuery::parse(query).unwrap().order().is_err(), "{query}");
        }
    }

    #[test]
    fn the_newest_is_first_by_default() {
        let old = json!({"id": "a", "name": "zero", "cpu": 4, "createdAt": "2026-01-01T00:00:00Z"});
        let check = |query: &str, expected: [&str; 2]| {
            let mut all = [old.clone(), body()];
            all.sort_by(SandboxListQuery::parse(query).unwrap().order().unwrap());
            assert_eq!(all.map(|it| it["id"].as_str().unwrap().to_owned()), expected, "{query}");
        };
        check("", ["b", "a"]);
        check("order=asc", ["a", "b"]);
        check("sort=name", ["b", "a"]);
        check("sort=cpu&order=desc", ["a", "b"]);
    }
}
