//! Projects: make, find, change, keep, delete, restore, move.

use std::collections::BTreeSet;

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
};
use engine::project::{
    ProjectChoices,
    cleanup::{self},
};
use model::{Project, ProjectConfig, ProjectId};
use store::ProjectFilter;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, delete))
        .routes(routes!(extend))
        .routes(routes!(pin))
        .routes(routes!(unpin))
}

/// A project.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProjectView {
    /// Its id.
    project_id: String,
    /// The part of it that was chosen.
    prefix: String,
    /// What it is.
    description: String,
    /// A client's own words for it.
    tags: BTreeSet<String>,
    /// What it does otherwise than others.
    #[schema(value_type = Object)]
    config: ProjectConfig,
    /// Whether clean-up leaves it alone for good.
    pinned: bool,
    /// When it is deleted if nothing more is done in it; null is never.
    #[schema(value_type = Option<String>)]
    deletes_at: Option<Timestamp>,
    /// When it was first warned of that.
    #[schema(value_type = Option<String>)]
    warned_at: Option<Timestamp>,
    /// What was done in it.
    statistics: ProjectCounts,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// What was done in a project.
#[derive(Debug, Serialize, ToSchema)]
struct ProjectCounts {
    /// Sessions opened.
    sessions: u64,
    /// Commands run.
    commands: u64,
    /// Bytes of their output.
    bytes: u64,
    /// Bytes of its files on disk; only where one project is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    /// When something was last done in it.
    #[schema(value_type = String)]
    last_access: Timestamp,
}

pub(super) fn shown(app: &App, project: Project) -> ProjectView {
    let policy = &app.projects.settings().cleanup;
    ProjectView {
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

/// Which projects.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ProjectsQuery {
    /// Only those whose id begins with this.
    prefix: Option<String>,
    /// Only those with this tag.
    tag: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// All projects, in the order they were made.
#[utoipa::path(get, path = "/api/projects", tag = "projects", params(ProjectsQuery),
    responses((status = 200, description = "A page of projects", body = List<ProjectView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ProjectsQuery>,
) -> Result<axum::Json<List<ProjectView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = ProjectFilter { prefix: query.prefix, tag: query.tag };
    let page = app.projects.list(filter, request).await?;
    Ok(axum::Json(page.map(|project| shown(&app, project)).into()))
}

/// A project to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProject {
    /// What its id begins with: `^[a-z][a-z0-9-]{0,31}$`.
    prefix: String,
    /// What it is.
    description: Option<String>,
    /// A client's own words for it.
    tags: Option<BTreeSet<String>>,
    /// What it does otherwise than others.
    #[schema(value_type = Option<Object>)]
    config: Option<ProjectConfig>,
}

/// Make a project. Its id is the prefix, a dash and eight hexadecimal digits.
#[utoipa::path(post, path = "/api/projects", tag = "projects", request_body = NewProject,
    responses((status = 201, description = "It was made", body = ProjectView)))]
async fn create(
    State(app): State<App>,
    Json(create): Json<NewProject>,
) -> Result<(StatusCode, axum::Json<ProjectView>), Problem> {
    let NewProject { prefix, description, tags, config } = create;
    let choices = ProjectChoices { description, tags, config };
    let project = app.projects.create(&prefix, choices).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&app, project))))
}

/// A project.
#[utoipa::path(get, path = "/api/projects/{id}", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "It", body = ProjectView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    let mut shown = shown(&app, app.projects.project(&id).await?);
    shown.statistics.disk_bytes = Some(app.projects.disk_bytes(&id).await?);
    Ok(axum::Json(shown))
}

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProjectPatch {
    /// What it is.
    description: Option<String>,
    /// A client's own words for it.
    tags: Option<BTreeSet<String>>,
    /// What it does otherwise than others.
    #[schema(value_type = Option<Object>)]
    config: Option<ProjectConfig>,
}

/// Change a project.
#[utoipa::path(patch, path = "/api/projects/{id}", tag = "projects",
    params(ProjectPath), request_body = ProjectPatch,
    responses((status = 200, description = "It was changed", body = ProjectView)))]
async fn change(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(change): Json<ProjectPatch>,
) -> Result<axum::Json<ProjectView>, Problem> {
    let ProjectPatch { description, tags, config } = change;
    let choices = ProjectChoices { description, tags, config };
    Ok(axum::Json(shown(&app, app.projects.change(&id, choices).await?)))
}

/// Delete a project with its threads. It can be restored for some days.
#[utoipa::path(delete, path = "/api/projects/{id}", tag = "projects",
    params(ProjectPath, RemovalQuery),
    responses((status = 204, description = "The project is in the trash"),
        (status = 202, description = "The deletion is recorded (`wait=false`)")))]
async fn delete(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    if let Err(error) = app.projects.project(&id).await {
        let under_way = app.removals.of("project", &id).ok_or(error)?;
        return Ok(under_way.answer(query).await);
    }
    let removing = app.removals.begin("project", &id);
    let gone = app.projects.delete(&id, "deleted by a client").await?;
    Ok(app.end_gone(removing, gone).answer(query).await)
}

/// How much longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ExtendProject {
    /// Days, 1 to 3650.
    days: u32,
}

/// Move the clean-up of a project away.
#[utoipa::path(post, path = "/api/projects/{id}/extend", tag = "projects",
    params(ProjectPath), request_body = ExtendProject,
    responses((status = 200, description = "It is kept longer", body = ProjectView)))]
async fn extend(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
    Json(extend): Json<ExtendProject>,
) -> Result<axum::Json<ProjectView>, Problem> {
    if extend.days == 0 || extend.days > 3650 {
        return Err(Problem::body("/days", "must be 1 to 3650"));
    }
    Ok(axum::Json(shown(&app, app.projects.extend(&id, extend.days).await?)))
}

/// Keep a project for good.
#[utoipa::path(post, path = "/api/projects/{id}/pin", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "Clean-up leaves it alone", body = ProjectView)))]
async fn pin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.pin(&id).await?)))
}

/// Keep a project no longer than others.
#[utoipa::path(post, path = "/api/projects/{id}/unpin", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "Clean-up takes it as any other", body = ProjectView)))]
async fn unpin(
    State(app): State<App>,
    Path(id): Path<ProjectId>,
) -> Result<axum::Json<ProjectView>, Problem> {
    Ok(axum::Json(shown(&app, app.projects.unpin(&id).await?)))
}
