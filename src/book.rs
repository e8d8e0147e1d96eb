//! The book, embedded in the binary and served at `/docs`.
//!
//! `make embed` packs it; without it, one page says how. Its files need no authentication: they contain no data. The page
//! of the HTTP API at `/docs/api` is a route of its own.

use std::io::Read;

use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use flate2::read::GzDecoder;
use rust_embed::{EmbeddedFile, RustEmbed};

use super::embedded::{Encoding, accepts_gzip, respond};

/// The output of `docs/scripts/embed.py`: texts with the suffix `.gz`, and images.
#[derive(RustEmbed)]
#[folder = "docs/.vitepress/embedded"]
#[allow_missing = true]
struct Packed;

const PLACEHOLDER: &str = include_str!("../web/placeholder/docs.html");

#[derive(Debug, PartialEq, Eq)]
enum Page {
    /// The name of a file of the book.
    File(String),
    Placeholder,
    /// The address of the API's page with a slash at its end, which links of the book have.
    Api,
}

/// Whether the book has a page or file at a path.
pub(super) fn has(path: &str) -> bool {
    find(path, |name| stored(name).is_some()).is_some()
}

/// Serves a page or file; returns `None` if there is none at the path.
pub(super) fn serve(request: &Request) -> Option<Response> {
    let name = match find(request.uri().path(), |name| stored(name).is_some())? {
        Page::File(name) => name,
        Page::Placeholder => {
            let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
            return Some(([kind], PLACEHOLDER).into_response());
        }
        Page::Api => {
            let to = (header::LOCATION, "/docs/api");
            return Some((StatusCode::PERMANENT_REDIRECT, [to]).into_response());
        }
    };
    let (mut file, mut encoding) = stored(&name)?;
    let kind = Packed::get(&name)
        .map_or_else(|| text_kind(&name), |file| file.metadata.mimetype().to_owned());
    if encoding == Encoding::Gzip && !accepts_gzip(request) {
        let mut text = Vec::new();
        GzDecoder::new(&*file.data).read_to_end(&mut text).expect("the book was packed by gzip");
        file.data = text.into();
        encoding = Encoding::Identity;
    }
    Some(respond(request, &name, &kind, encoding, file))
}

fn stored(name: &str) -> Option<(EmbeddedFile, Encoding)> {
    let packed = Packed::get(&format!("{name}.gz")).map(|file| (file, Encoding::Gzip));
    packed.or_else(|| Packed::get(name).map(|file| (file, Encoding::Identity)))
}

fn text_kind(name: &str) -> String {
    let kind = match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("html") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "text/plain",
    };
    kind.to_owned()
}

fn find(path: &str, has: impl Fn(&str) -> bool) -> Option<Page> {
    let name = match path.strip_prefix("/docs")? {
        "" | "/" => "index.html",
        "/api/" => return Some(Page::Api),
        // What the binary stores is not an address.
        name if name == "/api" || name.starts_with("/api/") || name.ends_with(".gz") => {
            return None;
        }
        name => name.strip_prefix('/')?,
    };
    let folder = || format!("{name}index.html");
    let names =
        [name.to_owned(), if name.ends_with('/') { folder() } else { format!("{name}.html") }];
    match names.into_iter().find(|name| has(name)) {
        Some(name) => Some(Page::File(name)),
        None => (name == "index.html").then_some(Page::Placeholder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_page() {
        let files =
            ["index.html", "why.html", "reference/index.html", "assets/a.js", "api-changelog.html"];
        let file = |name: &str| Some(Page::File(name.to_owned()));
        for (path, expected) in [
            ("/docs", file("index.html")),
            ("/docs/", file("index.html")),
            ("/docs/why", file("why.html")),
            ("/docs/why.html", file("why.html")),
            ("/docs/reference/", file("reference/index.html")),
            ("/docs/assets/a.js", file("assets/a.js")),
            ("/docs/api-changelog", file("api-changelog.html")),
            ("/docs/api/", Some(Page::Api)),
            ("/docs/api", None),
            ("/docs/api/page.js", None),
            ("/docs/missing", None),
            ("/docsmissing", None),
            ("/why.html", None),
        ] {
            assert_eq!(find(path, |name| files.contains(&name)), expected, "{path}");
        }
        assert_eq!(find("/docs", |_| false), Some(Page::Placeholder));
        assert_eq!(find("/docs/why", |_| false), None);
    }
}
