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
    projects::{ProjectView, project_view},
};
use model::{ProjectId, Trashed};
use project::{CleanupItem, CleanupMode, cleanup::Decision};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(plan, run)).routes(routes!(trash)).routes(routes!(restore))
}

/// An action of the clean-up on one project.
#[derive(Debug, Serialize, ToSchema)]
struct CleanupCandidate {
    /// Id of the project.
    project_id: String,
    /// `warn` or `delete`.
    action: &'static str,
    /// Time of the deletion.
    #[schema(value_type = String)]
    at: Timestamp,
    /// Days until the deletion, counted from 1; 0 means now.
    days_left: u32,
    /// Reason of the action.
    reason: String,
    /// Time of the last activity.
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

/// Options of the clean-up.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CleanupQuery {
    /// Report the actions without performing them.
    dry_run: Option<bool>,
}

/// List the projects that a clean-up would warn about or delete now.
#[utoipa::path(get, path = "/api/projects/cleanup", tag = "projects",
    operation_id = "projects.plan_cleanup", params(CleanupQuery),
    responses((status = 200, description = "The planned actions with their reasons", body = List<CleanupCandidate>)))]
async fn plan(
    State(app): State<App>,
    Query(query): Query<CleanupQuery>,
) -> Result<axum::Json<List<CleanupCandidate>>, Problem> {
    if query.dry_run == Some(false) {
        return Err(Problem::query(
            "dry_run",
            "must be true for GET; use POST to run the clean-up",
        ));
    }
    let (items, _) = app.projects.clean_up(CleanupMode::DryRun).await?;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// Run the clean-up of unused projects now.
///
/// The server also runs it once a day.
#[utoipa::path(post, path = "/api/projects/cleanup", tag = "projects",
    operation_id = "projects.run_cleanup", params(CleanupQuery),
    responses((status = 200, description = "The actions with their reasons", body = List<CleanupCandidate>)))]
async fn run(
    State(app): State<App>,
    Query(query): Query<CleanupQuery>,
) -> Result<axum::Json<List<CleanupCandidate>>, Problem> {
    let mode = if query.dry_run == Some(true) { CleanupMode::DryRun } else { CleanupMode::Act };
    let (items, gone) = app.projects.clean_up(mode).await?;
    let removing = app.removals.begin("projects", &"unused");
    app.removals.end_gone(removing, gone).wait().await;
    let now = app.now().at;
    let items = items.into_iter().map(|found| item(now, found)).collect();
    Ok(axum::Json(List::whole(items)))
}

/// A deleted project.
#[derive(Debug, Serialize, ToSchema)]
struct TrashedProject {
    /// Id of the project.
    project_id: String,
    /// Description of the project.
    description: String,
    /// Time of the deletion.
    #[schema(value_type = String)]
    deleted_at: Timestamp,
    /// Time until which the project can be restored.
    #[schema(value_type = String)]
    restorable_until: Timestamp,
    /// Reason of the deletion.
    reason: String,
}

/// List the deleted projects that can be restored.
#[utoipa::path(get, path = "/api/projects/trash", tag = "projects",
    operation_id = "projects.list_trash", responses((status = 200, description = "All deleted projects", body = List<TrashedProject>)))]
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

/// Restore a deleted project.
///
/// Restores its threads, the state of their terminals, its memories and its files.
#[utoipa::path(post, path = "/api/projects/{id}/restore", tag = "projects",
    operation_id = "projects.restore", params(ProjectPath),
    responses((status = 200, description = "The restored project", body = ProjectView)))]
async fn restore(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(project_view(&app, app.projects.restore(&id).await?)))
}
