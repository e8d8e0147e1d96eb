//! Liveness, readiness and metrics.

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    auth::Principal,
    error::{Code, Problem},
    readiness::{ReadinessCheck, ReadinessPart},
};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The liveness of the server.
#[derive(Debug, Serialize, ToSchema)]
struct Liveness {
    /// Always `ok`.
    status: &'static str,
    /// Version of the server.
    version: &'static str,
}

/// Check that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "server",
    operation_id = "server.live", security(()),
    responses((status = 200, description = "The process is alive", body = Liveness)))]
async fn healthz() -> impl IntoResponse {
    Json(Liveness { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// The readiness of the server.
#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// Always `ready`.
    status: &'static str,
    /// What was checked. A failed check here is a warning.
    checks: Vec<ReadinessCheck>,
}

/// Check that the server is ready.
///
/// The server is ready when the store accepts writes and the shells that kept running were found. Little free space, hosts
/// that do not answer and a default provider that cannot be used are warnings. Callers without a token see which checks
/// failed, but not why.
#[utoipa::path(get, path = "/readyz", tag = "server",
    operation_id = "server.ready", security(()),
    responses(
        (status = 200, description = "The server is ready", body = Readiness),
        (status = 503, description = "The server is not ready: `code` is `stopping` or `store_unavailable`, and `checks` has all checks",
            body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn readyz(
    State(app): State<App>,
    authenticated: Option<Extension<Principal>>,
) -> Result<Json<Readiness>, Problem> {
    let mut checks = app.readiness.run().await;
    if authenticated.is_none() {
        checks.iter_mut().for_each(|check| check.reason = None);
    }
    let failed = checks.iter().find_map(|check| match (check.ok, check.name) {
        (false, ReadinessPart::Shutdown) => Some((Code::Stopping, "the server is stopping")),
        (false, ReadinessPart::Store) => {
            let reason = check.reason.as_deref();
            Some((Code::StoreUnavailable, reason.unwrap_or("the store accepts no writes")))
        }
        (true, _) | (_, ReadinessPart::Disk | ReadinessPart::Hosts | ReadinessPart::Providers) => {
            None
        }
    });
    match failed {
        Some((code, detail)) => Err(Problem::new(code, detail).with_checks(checks)),
        None => Ok(Json(Readiness { status: "ready", checks })),
    }
}

/// Get metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "server",
    operation_id = "server.metrics", responses((status = 200, description = "All metrics", body = String,
        content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    for (provider, ran) in app.store.ran_by_provider(app.now().at).await? {
        let cost = app.leases.price_at(&provider).for_time(ran);
        app.metrics.ran(&provider, ran, cost.into());
    }
    let text = app
        .metrics
        .text()
        .map_err(|error| Problem::internal("cannot write the metrics", &error))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response())
}
