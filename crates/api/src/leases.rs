//! Leases, what runs under them, and the providers there are.

use axum::{extract::State, http::StatusCode};
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
};
use model::{InstanceState, Lease, LeaseId, ThreadId};
use provider::{Fidelity, Metrics};
use store::LeaseFilter;

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

/// A lease and what runs under it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeaseView {
    /// The thread it was asked for by.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// Its id.
    lease_id: String,
    /// The provider it is a claim on.
    provider_name: String,
    /// What runs under it now.
    instance: Option<InstanceView>,
    /// The threads that stand on it.
    shared_by: Vec<String>,
    /// Whether its host answers, as far as is known.
    reachable: bool,
    /// Since when its host has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    unreachable_since: Option<Timestamp>,
    /// How many instances it has had.
    generation: u64,
    /// How long they have run, in seconds.
    running_s: f64,
    /// What that costs by the price its provider has in the settings; left out where that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// An instance.
#[derive(Debug, Serialize, ToSchema)]
struct InstanceView {
    /// Its id.
    instance_id: String,
    /// `running`, `paused` or `dead`.
    #[schema(value_type = String)]
    state: InstanceState,
    /// Since when it runs.
    #[schema(value_type = String)]
    started_at: Timestamp,
    /// What it uses; null where that cannot be told.
    #[schema(value_type = Option<Object>)]
    metrics: Option<Metrics>,
}

/// The word for a lease's instance, if it has one.
pub(super) fn instance_word(lease: Option<&Lease>) -> Option<&'static str> {
    let (_, state) = lease?.instance()?;
    Some(match state {
        InstanceState::Running => "running",
        InstanceState::Paused => "paused",
        InstanceState::Dead => "dead",
    })
}

/// A lease as clients see it.
pub(super) async fn leased(
    app: &App,
    lease: Lease,
    thread: Option<&ThreadId>,
) -> Result<LeaseView, Problem> {
    let unreachable_since = app.terminals.unreachable_since(&lease.lease_id);
    let metrics = match unreachable_since {
        Some(_) => None,
        None => app.leases.metrics(&lease).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "an instance cannot be measured");
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

/// Which leases.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LeasesQuery {
    /// Only those on this provider.
    provider: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// All leases, in the order they were made.
#[utoipa::path(get, path = "/api/leases", tag = "leases", params(LeasesQuery),
    responses((status = 200, description = "A page of leases", body = List<LeaseView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<LeasesQuery>,
) -> Result<axum::Json<List<LeaseView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = LeaseFilter { provider: query.provider };
    let page = app.store.leases(filter, request).await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let mut items = Vec::with_capacity(page.items.len());
    for lease in page.items {
        items.push(leased(&app, lease, None).await?);
    }
    Ok(axum::Json(List { items, next_cursor }))
}

async fn again(app: &App, id: &LeaseId) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.store.lease(id).await?.ok_or_else(|| Problem::missing("lease", id))?;
    Ok(axum::Json(leased(app, lease, None).await?))
}

/// A lease.
#[utoipa::path(get, path = "/api/leases/{id}", tag = "leases",
    params(LeasePath),
    responses((status = 200, description = "It", body = LeaseView)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    again(&app, &id.lease()?).await
}

/// Make what runs under a lease hold still.
#[utoipa::path(post, path = "/api/leases/{id}/pause", tag = "leases",
    params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.leases.pause(&id.lease()?).await?;
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// Make what runs under a lease go on.
#[utoipa::path(post, path = "/api/leases/{id}/resume", tag = "leases",
    params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let id = id.lease()?;
    app.leases.resume(&id).await?;
    again(&app, &id).await
}

/// End what runs under a lease; its terminals keep their state and get another on their next use.
#[utoipa::path(post, path = "/api/leases/{id}/destroy", tag = "leases",
    params(LeasePath),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn destroy(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<LeaseView>, Problem> {
    let lease = app.leases.stop(&id.lease()?).await?;
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// What a suspended lease keeps.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SuspendRequest {
    /// `filesystem` (default) or `memory`; one that the provider cannot keep is refused.
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

/// End what runs under a lease and keep its files; the next use begins with them.
#[utoipa::path(post, path = "/api/leases/{id}/suspend", tag = "leases",
    params(LeasePath), request_body = SuspendRequest,
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
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// Make another lease with a copy of this one's files, for threads to share.
#[utoipa::path(post, path = "/api/leases/{id}/fork", tag = "leases",
    params(LeasePath),
    responses((status = 201, description = "The new lease", body = LeaseView)))]
async fn fork(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<(StatusCode, axum::Json<LeaseView>), Problem> {
    let fork = app.leases.fork(&id.lease()?).await?;
    let lease = app.leases.keep(fork).await?;
    Ok((StatusCode::CREATED, axum::Json(leased(&app, lease, None).await?)))
}

/// An id of a lease as it stands in a path: one that cannot be an id names no lease.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct LeaseName(String);

impl LeaseName {
    pub(super) fn lease(&self) -> Result<LeaseId, Problem> {
        self.0.parse().map_err(|_| Problem::missing("lease", &self.0))
    }
}
