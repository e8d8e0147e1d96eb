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
use machine::is_image_name;
use model::LeaseId;
use provider::Snapshot;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(list)).routes(routes!(delete))
}

/// A snapshot to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "with-dependencies"}))]
pub(super) struct NewSnapshot {
    /// Name of 1 to 64 letters, digits, `.`, `_` and `-`. An existing snapshot of this name is replaced.
    name: String,
}

/// A snapshot of the files of a lease. A thread with `sandbox: {"snapshot": NAME}` starts from it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SnapshotView {
    /// Name of the snapshot.
    name: String,
    /// Name of its provider.
    provider: String,
    /// Size on disk in bytes.
    bytes: u64,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
}

/// Create a named snapshot of the files of a lease.
#[utoipa::path(post, path = "/api/leases/{id}/snapshot", tag = "leases",
    operation_id = "snapshots.create", params(LeasePath), request_body = NewSnapshot,
    responses((status = 201, description = "The snapshot", body = SnapshotView)))]
async fn create(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
    Json(new): Json<NewSnapshot>,
) -> Result<(StatusCode, axum::Json<SnapshotView>), Problem> {
    Ok((StatusCode::CREATED, axum::Json(take(&app, &id.lease()?, &new).await?)))
}

/// Creates a snapshot of the files of a lease.
pub(super) async fn take(
    app: &App,
    lease: &LeaseId,
    new: &NewSnapshot,
) -> Result<SnapshotView, Problem> {
    if !is_image_name(&new.name) {
        return Err(Problem::body("/name", "must be 1 to 64 letters, digits, '.', '_' or '-'"));
    }
    app.leases.snapshot(lease, &new.name).await?;
    let all = all_snapshots(app).await?;
    let created = all.into_iter().find(|snapshot| snapshot.name == new.name);
    created.ok_or_else(|| Problem::missing("snapshot", &new.name))
}

async fn all_snapshots(app: &App) -> Result<Vec<SnapshotView>, Problem> {
    let found = app.leases.providers().snapshots().await;
    let found = found.map_err(|error| Problem::internal("cannot list the snapshots", &error))?;
    let view = |(provider, snapshot): (String, Snapshot)| SnapshotView {
        name: snapshot.name,
        provider,
        bytes: snapshot.bytes,
        created_at: snapshot.at,
    };
    Ok(found.into_iter().map(view).collect())
}

/// List all snapshots.
#[utoipa::path(get, path = "/api/snapshots", tag = "leases",
    operation_id = "snapshots.list", responses((status = 200, description = "All snapshots", body = List<SnapshotView>)))]
async fn list(State(app): State<App>) -> Result<axum::Json<List<SnapshotView>>, Problem> {
    Ok(axum::Json(List::whole(all_snapshots(&app).await?)))
}

/// Delete a snapshot.
///
/// Instances that were created from it keep their files.
#[utoipa::path(delete, path = "/api/snapshots/{name}", tag = "leases",
    operation_id = "snapshots.delete", params(("name" = String, Path, description = "Name of the snapshot")),
    responses((status = 204, description = "The snapshot was deleted")))]
async fn delete(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let removed = app.leases.providers().remove_snapshot(&name).await;
    let removed = removed.map_err(|error| Problem::internal("cannot delete a snapshot", &error))?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::missing("snapshot", &name)) }
}
