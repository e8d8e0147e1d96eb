//! Whether the server lives, whether it is ready, and what it counted.

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

/// Time the store has to take a write.
const PROBE_TIME: Duration = Duration::from_secs(2);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// Whether the server lives.
#[derive(Debug, Serialize, ToSchema)]
struct Liveness {
    /// Always `ok`: a server that cannot say so does not answer.
    status: &'static str,
    /// The program's version.
    version: &'static str,
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "server", security(()),
    responses((status = 200, description = "It lives", body = Liveness)))]
async fn healthz() -> impl IntoResponse {
    axum::Json(Liveness { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// What the server can do.
#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// Always `ready`.
    status: &'static str,
}

/// Whether the server can serve: the store takes writes and the hosts left running are found.
#[utoipa::path(get, path = "/readyz", tag = "server", security(()),
    responses((status = 200, description = "It can serve", body = Readiness)))]
async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    if app.stopping.is_cancelled() {
        return Err(Problem::new(Code::Stopping, "the server is stopping"));
    }
    match tokio::time::timeout(PROBE_TIME, app.store.probe()).await {
        Ok(written) => written?,
        Err(_) => return Err(Problem::new(Code::StoreUnavailable, "the store does not answer")),
    }
    Ok(axum::Json(Readiness { status: "ready" }).into_response())
}

/// What was counted, in the text form of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "All metrics", body = String,
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
