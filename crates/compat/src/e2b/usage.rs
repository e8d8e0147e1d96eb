//! What sandboxes use and have used, as clients ask for it.

use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{E2bRefusal, address::E2bGuest, view::find};
use adapter::Adapter;
use adapter::usage::UsageSample;

/// Sandboxes of one answer.
const MAX_SANDBOXES_PER_REQUEST: usize = 100;

/// Which measurements are asked for, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsageSpan {
    start: Option<i64>,
    end: Option<i64>,
}

/// What a sandbox uses and has used.
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

/// What several sandboxes use.
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

/// The usage of a sandbox as its daemon reports it. The path is the server's own, which asks here when a
/// request is for a sandbox.
pub(super) async fn daemon_metrics(
    State(app): State<Adapter>,
    guest: E2bGuest,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let used = UsageSample::of(&app, &guest.sandbox).await?;
    Ok(axum::Json(used.daemon_json()))
}
