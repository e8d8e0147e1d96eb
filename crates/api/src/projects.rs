//! Projects: create, list, change, pin, delete.

use std::collections::{BTreeMap, BTreeSet};

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Path, Query},
    page::{self, List},
    params::ProjectPath,
    removal::RemovalQuery,
    shapes::ProjectConfigSchema,
};
use model::{BackendKind, Project, ProjectConfig, ProjectId};
use project::{ProjectChoices, cleanup};
use store::ProjectFilter;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, delete))
        .routes(routes!(extend))
        .routes(routes!(pin))
        .routes(routes!(unpin))
}

/// A project and its statistics.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProjectView {
    /// Id of the project.
    project_id: String,
    /// The chosen prefix of the id.
    prefix: String,
    /// Description of the project.
    description: String,
    /// Tags set by clients.
    tags: BTreeSet<String>,
    /// Settings of this project that differ from the defaults.
    #[schema(value_type = ProjectConfigSchema)]
    config: ProjectConfig,
    /// The backend of each route of the project's file tree: `filesystem` (disk), `state` (memory) or `store`
    /// (database). Routes of `config` take precedence over the setting `project.routes` of the server.
    #[schema(value_type = BTreeMap<String, String>)]
    routes: BTreeMap<String, BackendKind>,
    /// Whether the project is exempt from automatic deletion.
    pinned: bool,
    /// Time of its automatic deletion without further activity; null means never.
    #[schema(value_type = Option<String>)]
    deletes_at: Option<Timestamp>,
    /// Time of the first warning about its deletion.
    #[schema(value_type = Option<String>)]
    warned_at: Option<Timestamp>,
    /// Activity in the project.
    statistics: ProjectCounts,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// Activity in a project.
#[derive(Debug, Serialize, ToSchema)]
struct ProjectCounts {
    /// Number of sessions.
    sessions: u64,
    /// Number of commands.
    commands: u64,
    /// Bytes of command output.
    bytes: u64,
    /// Size of its files on disk in bytes; omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    /// Time of the last activity.
    #[schema(value_type = String)]
    last_access: Timestamp,
}

pub(super) fn project_view(app: &App, project: Project) -> ProjectView {
    let policy = &app.projects.settings().cleanup;
    let routes = app.projects.routes(&project).into_iter();
    ProjectView {
        routes: routes.map(|(prefix, kind)| (format!("/{prefix}"), kind)).collect(),
        deletes_at: cleanup::deletes_at(&project, policy),
        prefix: project.project_id.prefix().to_owned(),
        project_id: project.project_id.to_string(),
        description: project.description,
        tags: project.tags,
        config: project.config,
        pinned: project.pinned,
        warned_at: project.warned_at,
        statistics: ProjectCounts {
            sessions: project.statistics.sessions,
            commands: project.statistics.commands,
            bytes: project.statistics.output_bytes,
            disk_bytes: None,
            last_access: project.last_used_at,
        },
        created_at: project.created_at,
        updated_at: project.updated_at,
    }
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ProjectsQuery {
    /// Only projects whose id starts with this.
    prefix: Option<String>,
    /// Only projects with this tag.
    tag: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List all projects in the order of their creation.
#[utoipa::path(get, path = "/api/projects", tag = "projects",
    operation_id = "projects.list", params(ProjectsQuery),
    responses((status = 200, description = "A page of projects", body = List<ProjectView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ProjectsQuery>,
) -> Result<axum::Json<List<ProjectView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = ProjectFilter { prefix: query.prefix, tag: query.tag };
    let page = app.projects.list(filter, request).await?;
    Ok(axum::Json(page.map(|project| project_view(&app, project)).into()))
}

/// A project to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prefix": "demo", "description": "A demonstration", "tags": ["example"]}))]
struct NewProject {
    /// Prefix of its id: `^[a-z][a-z0-9-]{0,31}$`.
    prefix: String,
    /// Description of the project.
    description: Option<String>,
    /// Tags set by clients.
    tags: Option<BTreeSet<String>>,
    /// Settings of this project that differ from the defaults.
    #[schema(value_type = Option<ProjectConfigSchema>)]
    config: Option<ProjectConfig>,
}

/// Create a project.
///
/// The id of the project is the prefix, a dash and eight hexadecimal digits.
#[utoipa::path(post, path = "/api/projects", tag = "projects",
    operation_id = "projects.create", request_body = NewProject,
    responses((status = 201, description = "The project", body = ProjectView)))]
async fn create(
    State(app): State<App>,
    Json(create): Json<NewProject>,
) -> Result<(StatusCode, axum::Json<ProjectView>), Problem> {
    let NewProject { prefix, description, tags, config } = create;
    let choices = ProjectChoices { description, tags, config };
    let project = app.projects.create(&prefix, choices).await?;
    Ok((StatusCode::CREATED, axum::Json(project_view(&app, project))))
}

/// Get a project.
#[utoipa::path(get, path = "/api/projects/{id}", tag = "projects",
    operation_id = "projects.get", params(ProjectPath),
    responses((status = 200, description = "The project", body = ProjectView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    let mut view = project_view(&app, app.projects.project(&id).await?);
    view.statistics.disk_bytes = Some(app.projects.disk_bytes(&id).await?);
    Ok(axum::Json(view))
}

/// The fields to change; omitted fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"description": "A demonstration"}))]
struct ProjectPatch {
    /// Description of the project.
    description: Option<String>,
    /// Tags set by clients.
    tags: Option<BTreeSet<String>>,
    /// Settings of this project that differ from the defaults.
    #[schema(value_type = Option<ProjectConfigSchema>)]
    config: Option<ProjectConfig>,
}

/// Change a project.
#[utoipa::path(patch, path = "/api/projects/{id}", tag = "projects",
    operation_id = "projects.update", params(ProjectPath), request_body = ProjectPatch,
    responses((status = 200, description = "The changed project", body = ProjectView)))]
async fn change(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(change): Json<ProjectPatch>,
) -> Result<axum::Json<ProjectView>, Problem> {
    let ProjectPatch { description, tags, config } = change;
    let choices = ProjectChoices { description, tags, config };
    Ok(axum::Json(project_view(&app, app.projects.change(&id, choices).await?)))
}

/// Delete a project with its threads.
///
/// A deleted project stays in the trash for some days and can be restored.
#[utoipa::path(delete, path = "/api/projects/{id}", tag = "projects",
    operation_id = "projects.delete", params(ProjectPath, RemovalQuery),
    responses((status = 204, description = "The project is in the trash"),
        (status = 202, description = "The deletion was recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    if let Err(error) = app.projects.project(&id).await {
        let in_progress = app.removals.of("project", &id).ok_or(error)?;
        return Ok(query.answer(in_progress).await);
    }
    let removing = app.removals.begin("project", &id);
    let gone = app.projects.delete(&id, "deleted by a client").await?;
    Ok(query.answer(app.removals.end_gone(removing, gone)).await)
}

/// The time to keep a project.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"days": 30}))]
struct ExtendProject {
    /// Number of days, 1 to 3650.
    days: u32,
}

/// Postpone the automatic deletion of a project.
#[utoipa::path(post, path = "/api/projects/{id}/extend", tag = "projects",
    operation_id = "projects.extend", params(ProjectPath), request_body = ExtendProject,
    responses((status = 200, description = "The project with its new `deletes_at`", body = ProjectView)))]
async fn extend(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(extend): Json<ExtendProject>,
) -> Result<axum::Json<ProjectView>, Problem> {
    if extend.days == 0 || extend.days > 3650 {
        return Err(Problem::body("/days", "must be 1 to 3650"));
    }
    Ok(axum::Json(project_view(&app, app.projects.extend(&id, extend.days).await?)))
}

/// Exempt a project from automatic deletion.
#[utoipa::path(post, path = "/api/projects/{id}/pin", tag = "projects",
    operation_id = "projects.pin", params(ProjectPath),
    responses((status = 200, description = "The pinned project", body = ProjectView)))]
async fn pin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(project_view(&app, app.projects.pin(&id).await?)))
}

/// Make a project subject to automatic deletion again.
#[utoipa::path(post, path = "/api/projects/{id}/unpin", tag = "projects",
    operation_id = "projects.unpin", params(ProjectPath),
    responses((status = 200, description = "The unpinned project", body = ProjectView)))]
async fn unpin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(project_view(&app, app.projects.unpin(&id).await?)))
}
