//! The resource usage of sandboxes.

use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{E2bRefusal, address::DaemonCall, view::find};
use adapter::Adapter;
use adapter::usage::UsageSample;

/// The limit of sandboxes per request parameter.
const MAX_SANDBOXES_PER_REQUEST: usize = 100;

/// The time span of the requested measurements, in seconds since 1970.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsageSpan {
    start: Option<i64>,
    end: Option<i64>,
}

/// Returns the measurements of a sandbox.
pub(super) async fn metrics(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(span): Query<UsageSpan>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let sandbox = find(&app, &name).await?;
    let (from, to) = (span.start.unwrap_or(i64::MIN), span.end.unwrap_or(i64::MAX));
    let all = UsageSample::between(&app, &sandbox, from, to).await?;
    Ok(axum::Json(all.iter().map(UsageSample::control_json).collect()))
}

/// Returns the current usage of several sandboxes.
pub(super) async fn metrics_of(
    State(app): State<Adapter>,
    uri: Uri,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let mut all = serde_json::Map::new();
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    for (_, value) in query.filter(|(name, _)| name == "sandbox_ids") {
        for name in value.split(',').take(MAX_SANDBOXES_PER_REQUEST) {
            if let Ok(sandbox) = find(&app, name).await {
                let used = UsageSample::of(&app, &sandbox).await?;
                all.insert(sandbox.id().to_string(), used.control_json());
            }
        }
    }
    Ok(axum::Json(json!({"sandboxes": all})))
}

/// The usage of a sandbox as its daemon reports it. The route belongs to the server's own metrics; the guard
/// redirects requests to a sandbox.
pub(super) async fn daemon_metrics(
    State(app): State<Adapter>,
    call: DaemonCall,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let used = UsageSample::of(&app, &call.sandbox).await?;
    Ok(axum::Json(used.daemon_json()))
}
