//! Responses with files that the binary embeds. Texts are stored compressed only, as `NAME.gz`.

use std::io::Read;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use flate2::read::GzDecoder;
use rust_embed::{EmbeddedFile, RustEmbed};

/// How a client gets the data of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentEncoding {
    /// As the binary stores it.
    Identity,
    /// Compressed, as the binary stores it.
    Gzip,
    /// Decompressed for a client that does not accept gzip.
    Decompressed,
}

/// Whether the binary contains a file of this name.
pub(super) fn has<F: RustEmbed>(name: &str) -> bool {
    stored::<F>(name).is_some()
}

/// Responds with a file, or with 304 if the client has it; returns `None` if there is none of this name.
pub(super) fn serve<F: RustEmbed>(request: &Request, name: &str) -> Option<Response> {
    let (mut file, mut encoding) = stored::<F>(name)?;
    let kind = match encoding {
        ContentEncoding::Gzip => text_kind(name).to_owned(),
        ContentEncoding::Identity | ContentEncoding::Decompressed => {
            file.metadata.mimetype().to_owned()
        }
    };
    if encoding == ContentEncoding::Gzip && !accepts_gzip(request) {
        let mut text = Vec::new();
        GzDecoder::new(&*file.data).read_to_end(&mut text).expect("the build packed it by gzip");
        file.data = text.into();
        encoding = ContentEncoding::Decompressed;
    }
    Some(respond(request, name, kind, encoding, file))
}

fn stored<F: RustEmbed>(name: &str) -> Option<(EmbeddedFile, ContentEncoding)> {
    // What the binary stores is not an address.
    if name.ends_with(".gz") {
        return None;
    }
    let packed = F::get(&format!("{name}.gz")).map(|file| (file, ContentEncoding::Gzip));
    packed.or_else(|| F::get(name).map(|file| (file, ContentEncoding::Identity)))
}

fn text_kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("html") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "text/plain",
    }
}

fn respond(
    request: &Request,
    name: &str,
    kind: String,
    encoding: ContentEncoding,
    file: EmbeddedFile,
) -> Response {
    // Each representation has an entity tag of its own.
    let hash = file.metadata.sha256_hash();
    let tag = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let suffix = if encoding == ContentEncoding::Decompressed { "-text" } else { "" };
    let tag = HeaderValue::try_from(format!("\"{tag}{suffix}\"")).expect("hex is a header value");
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
    let kind = if kind.starts_with("text/") { kind + "; charset=utf-8" } else { kind };
    if let Ok(kind) = HeaderValue::try_from(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if encoding == ContentEncoding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    *response.body_mut() = Body::from(file.data);
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
