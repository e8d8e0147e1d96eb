//! The web app, embedded in the binary.
//!
//! `web/dist` is embedded if it was built; otherwise one page explains how to build it. The files need no
//! authentication: they contain no data, and the app authenticates to the API with its cookie.

use api::Assets;
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use rust_embed::{EmbeddedFile, RustEmbed};

/// The files, for the router.
pub const ASSETS: Assets = Assets { has, serve };

/// The output of `make web`.
#[derive(RustEmbed)]
#[folder = "web/dist"]
#[allow_missing = true]
struct Built;

/// The page in place of an app that was not built.
const PLACEHOLDER: &str = include_str!("../web/placeholder/index.html");
const PLACEHOLDER_STYLE: &str = include_str!("../web/placeholder/style.css");

/// Whether there is a file at a path. All paths under `/ui/` are views of the app and serve its first page.
fn has(path: &str) -> bool {
    find(path).is_some()
}

enum Found {
    Built(String, EmbeddedFile),
    Placeholder(&'static str, &'static str),
}

fn find(path: &str) -> Option<Found> {
    let name = match path {
        "/" | "/ui" => "index.html",
        view if view.starts_with("/ui/") => "index.html",
        file => file.strip_prefix('/')?,
    };
    if let Some(file) = Built::get(name) {
        return Some(Found::Built(name.to_owned(), file));
    }
    match name {
        "index.html" => Some(Found::Placeholder("text/html; charset=utf-8", PLACEHOLDER)),
        "style.css" => Some(Found::Placeholder("text/css; charset=utf-8", PLACEHOLDER_STYLE)),
        _ => None,
    }
}

/// Serves a file of the app; returns `None` if there is none at the path.
fn serve(request: &Request) -> Option<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    Some(match find(request.uri().path())? {
        Found::Placeholder(kind, text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Found::Built(name, file) => built(request, &name, file),
    })
}

fn built(request: &Request, name: &str, file: EmbeddedFile) -> Response {
    let gzip = accepts_gzip(request).then(|| Built::get(&format!("{name}.gz"))).flatten();
    // The compressed representation has an entity tag of its own.
    let hash = gzip.as_ref().unwrap_or(&file).metadata.sha256_hash();
    let tag = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let tag = HeaderValue::try_from(format!("\"{tag}\"")).expect("hex in quotes is a header value");
    // Names under assets/ contain a hash of the content: such a file never changes.
    let cache = if name.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if request.headers().get(header::IF_NONE_MATCH) == Some(&tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let kind = file.metadata.mimetype().to_owned();
    let kind = if kind.starts_with("text/") { format!("{kind}; charset=utf-8") } else { kind };
    if let Ok(kind) = HeaderValue::try_from(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    let data = match gzip {
        Some(compressed) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            compressed.data
        }
        None => file.data,
    };
    *response.body_mut() = Body::from(data.into_owned());
    response
}

fn accepts_gzip(request: &Request) -> bool {
    let value = request.headers().get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok());
    value.is_some_and(|value| {
        value.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next() == Some("gzip") && parts.next() != Some("q=0")
        })
    })
}
