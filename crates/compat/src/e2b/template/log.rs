//! The status and the log of a build.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::lookup::find_build;
use crate::e2b::E2bRefusal;
use adapter::{
    Adapter,
    build::log::{Level, LogLine},
};
use model::BuildStatus;

/// The limit of lines per response.
const MAX_LINES: usize = 100;

/// The filters of a log request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::e2b) struct BuildLogQuery {
    logs_offset: Option<u64>,
    cursor: Option<i64>,
    limit: Option<usize>,
    level: Option<Level>,
    direction: Option<String>,
}

impl BuildLogQuery {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES)
    }
}

fn line_view(line: &LogLine) -> Value {
    json!(line)
}

/// Returns the status of a build and lines of its log.
pub(in crate::e2b) async fn status(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    Query(query): Query<BuildLogQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (template, build) = find_build(&app, &name, &build).await?;
    let min_level = query.level.unwrap_or(Level::Debug);
    let from = query.logs_offset.unwrap_or(0);
    let lines = app.build_log(&build.build_id, from, query.limit(), min_level).await?;
    let mut body = json!({
        "templateID": template.template_id,
        "buildID": build.build_id,
        "status": build.status.word(),
        "logs": [],
        "logEntries": lines.iter().map(line_view).collect::<Vec<_>>(),
    });
    if let BuildStatus::Failed(failure) = &build.status {
        body["reason"] = json!({"message": failure.message, "logEntries": []});
        if let Some(step) = &failure.step {
            body["reason"]["step"] = json!(step);
        }
    }
    Ok(axum::Json(body))
}

/// Returns the log of a build from a time on, or backward from a time.
pub(in crate::e2b) async fn logs(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    Query(query): Query<BuildLogQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (_, build) = find_build(&app, &name, &build).await?;
    let min_level = query.level.unwrap_or(Level::Debug);
    let mut all = app.build_log(&build.build_id, 0, usize::MAX, min_level).await?;
    let backward = query.direction.as_deref() == Some("backward");
    if backward {
        all.reverse();
    }
    let is_in_range = |line: &&LogLine| match (query.cursor, backward) {
        (None, _) => true,
        (Some(at), true) => line.timestamp.as_millisecond() <= at,
        (Some(at), false) => line.timestamp.as_millisecond() >= at,
    };
    let found: Vec<_> = all.iter().filter(is_in_range).take(query.limit()).map(line_view).collect();
    Ok(axum::Json(json!({"logs": found})))
}
