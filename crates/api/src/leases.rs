//! Leases, what runs under them, and the providers there are.

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, OptionalJson, Path, Query},
    page::{self, List},
    params::OfLease,
};
use machine::is_image_name;
use model::{InstanceState, Lease, LeaseId, ThreadId};
use provider::{Capabilities, Fidelity, Metrics};
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
        .routes(routes!(snapshot))
        .routes(routes!(snapshots))
        .routes(routes!(remove_snapshot))
        .routes(routes!(providers))
}

/// A lease and what runs under it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Leased {
    /// The thread it was asked for by.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// Its id.
    lease_id: String,
    /// The provider it is a claim on.
    provider_name: String,
    /// What runs under it now.
    instance: Option<Instanced>,
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
struct Instanced {
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
) -> Result<Leased, Problem> {
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
    let instance = lease.instance().map(|(instance, state)| Instanced {
        instance_id: instance.instance_id.to_string(),
        state,
        started_at: instance.started_at,
        metrics,
    });
    Ok(Leased {
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
struct ListQuery {
    /// Only those on this provider.
    provider: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// All leases, in the order they were made.
#[utoipa::path(get, path = "/api/leases", tag = "leases", params(ListQuery),
    responses((status = 200, description = "A page of leases", body = List<Leased>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<Leased>>, Problem> {
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

async fn again(app: &App, id: &LeaseId) -> Result<axum::Json<Leased>, Problem> {
    let lease = app.store.lease(id).await?.ok_or_else(|| Problem::missing("lease", id))?;
    Ok(axum::Json(leased(app, lease, None).await?))
}

/// A lease.
#[utoipa::path(get, path = "/api/leases/{id}", tag = "leases",
    params(OfLease),
    responses((status = 200, description = "It", body = Leased)))]
async fn show(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<Leased>, Problem> {
    again(&app, &id.lease()?).await
}

/// Make what runs under a lease hold still.
#[utoipa::path(post, path = "/api/leases/{id}/pause", tag = "leases",
    params(OfLease),
    responses((status = 200, description = "The lease", body = Leased)))]
async fn pause(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<Leased>, Problem> {
    let lease = app.leases.pause(&id.lease()?).await?;
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// Make what runs under a lease go on.
#[utoipa::path(post, path = "/api/leases/{id}/resume", tag = "leases",
    params(OfLease),
    responses((status = 200, description = "The lease", body = Leased)))]
async fn resume(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<Leased>, Problem> {
    let id = id.lease()?;
    app.leases.resume(&id).await?;
    again(&app, &id).await
}

/// End what runs under a lease; its terminals keep their state and get another on their next use.
#[utoipa::path(post, path = "/api/leases/{id}/destroy", tag = "leases",
    params(OfLease),
    responses((status = 200, description = "The lease", body = Leased)))]
async fn destroy(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<axum::Json<Leased>, Problem> {
    let lease = app.leases.stop(&id.lease()?).await?;
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// What a suspended lease keeps.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Suspend {
    /// `filesystem` (default) or `memory`; one that the provider cannot keep is refused.
    #[serde(default)]
    fidelity: Keep,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Keep {
    #[default]
    Filesystem,
    Memory,
}

/// End what runs under a lease and keep its files; the next use begins with them.
#[utoipa::path(post, path = "/api/leases/{id}/suspend", tag = "leases",
    params(OfLease), request_body = Suspend,
    responses((status = 200, description = "The lease", body = Leased)))]
async fn suspend(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
    OptionalJson(suspend): OptionalJson<Suspend>,
) -> Result<axum::Json<Leased>, Problem> {
    let keep = match suspend.fidelity {
        Keep::Filesystem => Fidelity::Filesystem,
        Keep::Memory => Fidelity::Memory,
    };
    let lease = app.leases.suspend(&id.lease()?, keep).await?;
    Ok(axum::Json(leased(&app, lease, None).await?))
}

/// Make another lease with a copy of this one's files, for threads to share.
#[utoipa::path(post, path = "/api/leases/{id}/fork", tag = "leases",
    params(OfLease),
    responses((status = 201, description = "The new lease", body = Leased)))]
async fn fork(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
) -> Result<(StatusCode, axum::Json<Leased>), Problem> {
    let fork = app.leases.fork(&id.lease()?).await?;
    let lease = app.leases.keep(fork).await?;
    Ok((StatusCode::CREATED, axum::Json(leased(&app, lease, None).await?)))
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
struct Snapshotted {
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
    params(OfLease), request_body = NewSnapshot,
    responses((status = 201, description = "The snapshot", body = Snapshotted)))]
async fn snapshot(
    State(app): State<App>,
    Path(id): Path<LeaseName>,
    Json(new): Json<NewSnapshot>,
) -> Result<(StatusCode, axum::Json<Snapshotted>), Problem> {
    if !is_image_name(&new.name) {
        return Err(Problem::body("/name", "must be 1 to 64 letters, digits, '.', '_' or '-'"));
    }
    app.leases.snapshot(&id.lease()?, &new.name).await?;
    let all = every_snapshot(&app).await?;
    let made = all.into_iter().find(|snapshot| snapshot.name == new.name);
    let made = made.ok_or_else(|| Problem::missing("snapshot", &new.name))?;
    Ok((StatusCode::CREATED, axum::Json(made)))
}

async fn every_snapshot(app: &App) -> Result<Vec<Snapshotted>, Problem> {
    let found = app.leases.providers().snapshots().await;
    let found = found.map_err(|error| Problem::internal("list the snapshots", &error))?;
    let shown = found.into_iter().map(|(provider, snapshot)| Snapshotted {
        name: snapshot.name,
        provider,
        bytes: snapshot.bytes,
        created_at: snapshot.at,
    });
    Ok(shown.collect())
}

/// The snapshots there are.
#[utoipa::path(get, path = "/api/snapshots", tag = "leases",
    responses((status = 200, description = "All of them", body = List<Snapshotted>)))]
async fn snapshots(State(app): State<App>) -> Result<axum::Json<List<Snapshotted>>, Problem> {
    Ok(axum::Json(List::whole(every_snapshot(&app).await?)))
}

/// Remove a snapshot. What began with it keeps its files.
#[utoipa::path(delete, path = "/api/snapshots/{name}", tag = "leases",
    params(("name" = String, Path, description = "The snapshot")),
    responses((status = 204, description = "It is gone")))]
async fn remove_snapshot(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let removed = app.leases.providers().remove_snapshot(&name).await;
    let removed = removed.map_err(|error| Problem::internal("remove a snapshot", &error))?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::missing("snapshot", &name)) }
}

/// An id of a lease as it stands in a path: one that cannot be an id names no lease.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct LeaseName(String);

impl LeaseName {
    fn lease(&self) -> Result<LeaseId, Problem> {
        self.0.parse().map_err(|_| Problem::missing("lease", &self.0))
    }
}

/// A provider.
#[derive(Debug, Serialize, ToSchema)]
struct Provided {
    /// Its name.
    name: String,
    /// Whether threads that name none get it.
    default: bool,
    /// Whether it can be had on this machine.
    available: bool,
    /// What it can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    capabilities: Option<Capabilities>,
    /// What is kept of an instance when its lease is suspended: `filesystem` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    suspend: Option<Fidelity>,
    /// How many instances wait for a thread that needs one, where some are kept ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<usize>,
    /// What this machine lacks for it.
    missing: Vec<String>,
}

/// The providers there are, and what each can do.
#[utoipa::path(get, path = "/api/providers", tag = "leases",
    responses((status = 200, description = "All of them", body = List<Provided>)))]
async fn providers(State(app): State<App>) -> axum::Json<List<Provided>> {
    let providers = app.leases.providers();
    let mut items = Vec::new();
    for provider in providers.all() {
        let missing = provider.missing().await.unwrap_or_else(|error| vec![error.to_string()]);
        let profile = provider.profile();
        items.push(Provided {
            name: provider.name().to_owned(),
            default: provider.name() == app.provider,
            available: missing.is_empty(),
            capabilities: missing.is_empty().then(|| provider.capabilities()),
            suspend: Some(profile.suspend),
            ready: profile.warm,
            missing,
        });
    }
    let absent = providers.absent().map(|(name, lacks)| Provided {
        name: name.to_owned(),
        default: false,
        available: false,
        capabilities: None,
        suspend: None,
        ready: None,
        missing: lacks.to_vec(),
    });
    items.extend(absent);
    axum::Json(List::whole(items))
}
