//! Named copies of the files of a lease.

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Path},
    leases::LeaseName,
    page::List,
    params::LeasePath,
};
use machine::namespace::is_image_name;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(list)).routes(routes!(delete))
}

/// What a snapshot is to be called.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSnapshot {
    /// Letters, digits, `.`, `_` and `-`; takes the place of one that has it.
    name: String,
}

/// A snapshot of a lease's files. A thread begins with them that is made with
/// `sandbox: {"snapshot": NAME}`.
#[derive(Debug, Serialize, ToSchema)]
struct SnapshotView {
    /// Its name.
    name: String,
    /// The provider that has it.
    provider: String,
    /// What it takes on disk.
    bytes: u64,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
}

/// Keep a copy of a lease's files under a name.
#[utoipa::path(post, path = "/api/leases/{id}/snapshot", tag = "leases",
    params(LeasePath), request_body = NewSnapshot,
    responses((status = 201, description = "The snapshot", body = SnapshotView)))]
async fn create(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
    Json(new): Json<NewSnapshot>,
) -> Result<(StatusCode, axum::Json<SnapshotView>), Problem> {
    if !is_image_name(&new.name) {
        return Err(Problem::body("/name", "must be 1 to 64 letters, digits, '.', '_' or '-'"));
    }
    app.leases.snapshot(&id.lease()?, &new.name).await?;
    let all = all_snapshots(&app).await?;
    let made = all.into_iter().find(|snapshot| snapshot.name == new.name);
    let made = made.ok_or_else(|| Problem::missing("snapshot", &new.name))?;
    Ok((StatusCode::CREATED, axum::Json(made)))
}

async fn all_snapshots(app: &App) -> Result<Vec<SnapshotView>, Problem> {
    let mut all = Vec::new();
    for provider in app.leases.providers().all() {
        let found = provider
            .snapshots()
            .await
            .map_err(|error| Problem::internal("look for snapshots", &error))?;
        all.extend(found.into_iter().map(|snapshot| SnapshotView {
            name: snapshot.name,
            provider: provider.name().to_owned(),
            bytes: snapshot.bytes,
            created_at: snapshot.at,
        }));
    }
    Ok(all)
}

/// The snapshots there are.
#[utoipa::path(get, path = "/api/snapshots", tag = "leases",
    responses((status = 200, description = "All of them", body = List<SnapshotView>)))]
async fn list(State(app): State<App>) -> Result<axum::Json<List<SnapshotView>>, Problem> {
    Ok(axum::Json(List::whole(all_snapshots(&app).await?)))
}

/// Remove a snapshot. What began with it keeps its files.
#[utoipa::path(delete, path = "/api/snapshots/{name}", tag = "leases",
    params(("name" = String, Path, description = "The snapshot")),
    responses((status = 204, description = "It is gone")))]
async fn delete(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let mut removed = false;
    for provider in app.leases.providers().all() {
        removed |= provider
            .remove_snapshot(&name)
            .await
            .map_err(|error| Problem::internal("remove a snapshot", &error))?;
    }
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::missing("snapshot", &name)) }
}
