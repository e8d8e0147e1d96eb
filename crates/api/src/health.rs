//! Liveness, readiness and metrics.

use std::time::Duration;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
};

/// Deadline of the store's test write.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
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
    axum::Json(Liveness { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// The readiness of the server.
#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// Always `ready`.
    status: &'static str,
}

/// Check that the server is ready.
///
/// The server is ready when the store accepts writes and the shells that kept running were found.
#[utoipa::path(get, path = "/readyz", tag = "server",
    operation_id = "server.ready", security(()),
    responses((status = 200, description = "The server is ready", body = Readiness)))]
async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    if app.stopping.is_cancelled() {
        return Err(Problem::new(Code::Stopping, "the server is stopping"));
    }
    match tokio::time::timeout(PROBE_TIMEOUT, app.readiness.probe(&app.store)).await {
        Ok(written) => written?,
        Err(_) => return Err(Problem::new(Code::StoreUnavailable, "the store does not respond")),
    }
    Ok(axum::Json(Readiness { status: "ready" }).into_response())
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
