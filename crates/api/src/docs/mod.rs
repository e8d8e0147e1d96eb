//! The API reference: a page that renders `/openapi.json` without external resources.

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

/// Get the API reference as a web page.
#[utoipa::path(get, path = "/docs/api", tag = "server",
    operation_id = "docs.page", responses((status = 200, description = "An HTML page", content_type = "text/html")))]
async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

/// Get the script of the API reference.
#[utoipa::path(get, path = "/docs/api/page.js", tag = "server",
    operation_id = "docs.script", responses((status = 200, description = "A JavaScript file", content_type = "text/javascript")))]
async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

/// Get the style sheet of the API reference.
#[utoipa::path(get, path = "/docs/api/page.css", tag = "server",
    operation_id = "docs.style", responses((status = 200, description = "A CSS file", content_type = "text/css")))]
async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}
