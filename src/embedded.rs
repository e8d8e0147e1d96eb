//! Responses with files that the binary embeds.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use rust_embed::EmbeddedFile;

/// How the data of a response is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// Responds with a file, or with 304 if the client has it.
pub(super) fn respond(
    request: &Request,
    name: &str,
    kind: &str,
    encoding: Encoding,
    file: EmbeddedFile,
) -> Response {
    // The compressed representation has an entity tag of its own.
    let hash = file.metadata.sha256_hash();
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
    let kind = match kind {
        text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        other => other.to_owned(),
    };
    if let Ok(kind) = HeaderValue::try_from(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if encoding == Encoding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    *response.body_mut() = Body::from(file.data);
    response
}

pub(super) fn accepts_gzip(request: &Request) -> bool {
    let value = request.headers().get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok());
    value.is_some_and(|value| {
        value.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next() == Some("gzip") && parts.next() != Some("q=0")
        })
    })
}
