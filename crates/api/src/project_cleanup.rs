//! Deletion of unused projects, and the trash from which projects can be restored.

use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    page::List,
    params::ProjectPath,
    projects::{ProjectView, shown},
};
use engine::project::{CleanupItem, Mode, cleanup::Decision};
use model::{ProjectId, Trashed};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(plan, run)).routes(routes!(trash)).routes(routes!(restore))
}

/// What clean-up does, or would do, with one project.
#[derive(Debug, Serialize, ToSchema)]
struct CleanupCandidate {
    /// The project.
    project_id: String,
    /// `warn` or `delete`.
    action: &'static str,
    /// When it is deleted.
    #[schema(value_type = String)]
    at: Timestamp,
    /// On which day from now, counted from 1; 0 is at once.
    days_left: u32,
    /// Why.
    reason: String,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_access: Timestamp,
}

fn item(now: Timestamp, item: CleanupItem) -> CleanupCandidate {
    let (action, at, days_left) = match item.decision {
        Decision::Warn { days_left, deletes_at } => ("warn", deletes_at, days_left),
        Decision::Delete | Decision::Keep => ("delete", now, 0),
    };
    let (project_id, reason) = (item.project_id.to_string(), item.reason);
    CleanupCandidate { project_id, action, at, days_left, reason, last_access: item.last_used_at }
}

/// Whether to act.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CleanupReport {
    /// Only say what would be done.
    dry_run: Option<bool>,
}

/// What clean-up would do at this instant, and why.
#[utoipa::path(get, path = "/api/projects/cleanup", tag = "projects", params(CleanupReport),
    responses((status = 200, description = "What would be done", body = List<CleanupCandidate>)))]
async fn plan(
    State(app): State<App>,
    Query(query): Query<CleanupReport>,
) -> Result<axum::Json<List<CleanupCandidate>>, Problem> {
    if query.dry_run == Some(false) {
        return Err(Problem::query("dry_run", "a GET changes nothing; POST cleans up"));
    }
    let (items, _) = app.projects.clean_up(Mode::DryRun).await?;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// Look at all projects at once, as is done every day.
#[utoipa::path(post, path = "/api/projects/cleanup", tag = "projects", params(CleanupReport),
    responses((status = 200, description = "What was done", body = List<CleanupCandidate>)))]
async fn run(
    State(app): State<App>,
    Query(query): Query<CleanupReport>,
) -> Result<axum::Json<List<CleanupCandidate>>, Problem> {
    let mode = if query.dry_run == Some(true) { Mode::DryRun } else { Mode::Act };
    let (items, gone) = app.projects.clean_up(mode).await?;
    let removing = app.removals.begin("projects", &"unused");
    app.end_gone(removing, gone).wait().await;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// A deleted project.
#[derive(Debug, Serialize, ToSchema)]
struct TrashedProject {
    /// Its id.
    project_id: String,
    /// What it was.
    description: String,
    /// When it was deleted.
    #[schema(value_type = String)]
    deleted_at: Timestamp,
    /// Until when it can be restored.
    #[schema(value_type = String)]
    restorable_until: Timestamp,
    /// Why it was deleted.
    reason: String,
}

/// Deleted projects that can be restored.
#[utoipa::path(get, path = "/api/projects/trash", tag = "projects",
    responses((status = 200, description = "All of them", body = List<TrashedProject>)))]
async fn trash(State(app): State<App>) -> Result<axum::Json<List<TrashedProject>>, Problem> {
    let keep = app.projects.settings().trash;
    let deleted = |trashed: Trashed| TrashedProject {
        project_id: trashed.project_id.to_string(),
        description: trashed.description,
        deleted_at: trashed.deleted_at,
        restorable_until: trashed.deleted_at.saturating_add(keep).unwrap_or(Timestamp::MAX),
        reason: trashed.reason,
    };
    let all = app.projects.trashed().await?;
    Ok(axum::Json(List::whole(all.into_iter().map(deleted).collect())))
}

/// Bring a deleted project back, with its threads, terminals' states, memories and files.
#[utoipa::path(post, path = "/api/projects/{id}/restore", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "It is back", body = ProjectView)))]
async fn restore(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.restore(&id).await?)))
}
