//! Leases and their instances.

use axum::{extract::State, http::StatusCode};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{OptionalJson, Path, Query},
    page::{self, List},
    params::LeasePath,
    shapes::MetricsSchema,
};
use model::{InstanceState, Lease, LeaseId, ThreadId};
use provider::{Fidelity, Metrics};
use store::LeaseFilter;

/// How many leases of a list are measured at the same time.
const MEASURED_AT_ONCE: usize = 16;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(destroy))
        .routes(routes!(suspend))
        .routes(routes!(fork))
}

/// A lease and its instance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeaseView {
    /// Thread of the request, in responses about a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// Id of the lease.
    lease_id: String,
    /// Name of the provider.
    provider_name: String,
    /// The current instance.
    instance: Option<InstanceView>,
    /// Ids of the threads that use the lease.
    shared_by: Vec<String>,
    /// Whether the host of the instance responds.
    reachable: bool,
    /// Time since which the host has not responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    unreachable_since: Option<Timestamp>,
    /// Number of instances so far.
    generation: u64,
    /// Total running time of all instances, in seconds.
    running_s: f64,
    /// Cost of the running time at the configured price; omitted if it is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// The instance of a lease.
#[derive(Debug, Serialize, ToSchema)]
struct InstanceView {
    /// Id of the instance.
    instance_id: String,
    /// `running`, `paused` or `dead`.
    #[schema(value_type = String)]
    state: InstanceState,
    /// Start time.
    #[schema(value_type = String)]
    started_at: Timestamp,
    /// Resource usage; null if it cannot be measured.
    #[schema(value_type = Option<MetricsSchema>)]
    metrics: Option<Metrics>,
}

/// Returns the state of a lease's instance as text.
pub(super) fn instance_state(lease: Option<&Lease>) -> Option<&'static str> {
    let (_, state) = lease?.instance()?;
    Some(match state {
        InstanceState::Running => "running",
        InstanceState::Paused => "paused",
        InstanceState::Dead => "dead",
    })
}

/// Returns a lease as clients see it, with the metrics of its instance.
pub(super) async fn lease_view(
    app: &App,
    lease: Lease,
    thread: Option<&ThreadId>,
) -> Result<LeaseView, Problem> {
    let unreachable_since = app.terminals.unreachable_since(&lease.lease_id);
    let metrics = match unreachable_since {
        Some(_) => None,
        None => app.leases.metrics(&lease).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot measure an instance");
            None
        }),
    };
    let ran = lease.ran_at(app.now().at);
    let cost = Some(app.leases.price(&lease).for_time(ran)).filter(|cost| cost.0 > 0);
    let shared_by = app.store.lease_threads(&lease.lease_id).await?;
    let instance = lease.instance().map(|(instance, state)| InstanceView {
        instance_id: instance.instance_id.to_string(),
        state,
        started_at: instance.started_at,
        metrics,
    });
    Ok(LeaseView {
        thread_id: thread.map(ToString::to_string),
        lease_id: lease.lease_id.to_string(),
        instance,
        provider_name: lease.provider,
        shared_by: shared_by.iter().map(ToString::to_string).collect(),
        reachable: unreachable_since.is_none(),
        unreachable_since,
        generation: lease.generation,
        running_s: ran.as_secs_f64(),
        cost: cost.map(f64::from),
        created_at: lease.created_at,
        updated_at: lease.updated_at,
    })
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LeasesQuery {
    /// Only leases of this provider.
    provider: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List all leases in the order of their creation.
#[utoipa::path(get, path = "/api/leases", tag = "leases",
    operation_id = "leases.list", params(LeasesQuery),
    responses((status = 200, description = "A page of leases", body = List<LeaseView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<LeasesQuery>,
) -> Result<axum::Json<List<LeaseView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = LeaseFilter { provider: query.provider };
    let page = app.store.leases(filter, request).await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let views = page.items.into_iter().map(|lease| lease_view(&app, lease, None));
    let items = stream::iter(views).buffered(MEASURED_AT_ONCE).try_collect().await?;
    Ok(axum::Json(List { items, next_cursor }))
}

async fn reload(app: &App, id: &LeaseId) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.store.lease(id).await?.ok_or_else(|| Problem::missing("lease", id))?;
    Ok(axum::Json(lease_view(app, lease, None).await?))
}

/// Get a lease.
#[utoipa::path(get, path = "/api/leases/{id}", tag = "leases",
    operation_id = "leases.get", params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    reload(&app, &id.lease()?).await
}

/// Pause the instance of a lease.
#[utoipa::path(post, path = "/api/leases/{id}/pause", tag = "leases",
    operation_id = "leases.pause", params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.leases.pause(&id.lease()?).await?;
    Ok(axum::Json(lease_view(&app, lease, None).await?))
}

/// Resume the instance of a lease.
#[utoipa::path(post, path = "/api/leases/{id}/resume", tag = "leases",
    operation_id = "leases.resume", params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let id = id.lease()?;
    app.leases.resume(&id).await?;
    reload(&app, &id).await
}

/// Destroy the instance of a lease.
///
/// The terminals of the lease keep their state and get a new instance on their next use.
#[utoipa::path(post, path = "/api/leases/{id}/destroy", tag = "leases",
    operation_id = "leases.destroy", params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn destroy(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.leases.stop(&id.lease()?).await?;
    Ok(axum::Json(lease_view(&app, lease, None).await?))
}

/// Options of a suspension.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fidelity": "filesystem"}))]
struct SuspendRequest {
    /// What to keep: `filesystem` (default) or `memory`. Refused if the provider does not support it.
    #[serde(default)]
    fidelity: SuspendKeep,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum SuspendKeep {
    #[default]
    Filesystem,
    Memory,
}

/// Suspend the instance of a lease.
///
/// Ends its processes and keeps its files; the next use starts from them.
#[utoipa::path(post, path = "/api/leases/{id}/suspend", tag = "leases",
    operation_id = "leases.suspend", params(LeasePath), request_body = SuspendRequest,
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn suspend(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
    OptionalJson(suspend): OptionalJson<SuspendRequest>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let keep = match suspend.fidelity {
        SuspendKeep::Filesystem => Fidelity::Filesystem,
        SuspendKeep::Memory => Fidelity::Memory,
    };
    let lease = app.leases.suspend(&id.lease()?, keep).await?;
    Ok(axum::Json(lease_view(&app, lease, None).await?))
}

/// Create a lease from a copy of the files of this one.
///
/// Threads can share the new lease.
#[utoipa::path(post, path = "/api/leases/{id}/fork", tag = "leases",
    operation_id = "leases.fork", params(LeasePath),
    responses((status = 201, description = "The new lease", body = LeaseView)))]
async fn fork(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<(StatusCode, axum::Json<LeaseView>), Problem> {
    let fork = app.leases.fork(&id.lease()?).await?;
    let lease = app.leases.keep(fork).await?;
    Ok((StatusCode::CREATED, axum::Json(lease_view(&app, lease, None).await?)))
}

/// A lease id in a path. A malformed id is answered with 404, like an unknown one.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct LeaseName(String);

impl LeaseName {
    pub(super) fn lease(&self) -> Result<LeaseId, Problem> {
        self.0.parse().map_err(|_| Problem::missing("lease", &self.0))
    }
}
