//! A page for people that draws `/openapi.json`; nothing of it comes from elsewhere.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(page)).routes(routes!(script)).routes(routes!(style))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// This page.
#[utoipa::path(get, path = "/docs", tag = "server",
    responses((status = 200, description = "A page for people", content_type = "text/html")))]
async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

/// The script of this page.
#[utoipa::path(get, path = "/docs/page.js", tag = "server",
    responses((status = 200, description = "A script", content_type = "text/javascript")))]
async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

/// The style of this page.
#[utoipa::path(get, path = "/docs/page.css", tag = "server",
    responses((status = 200, description = "A style sheet", content_type = "text/css")))]
async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}
