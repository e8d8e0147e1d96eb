//! The book, embedded in the binary and served at `/docs`.
//!
//! `make embed` packs it; without it, one page says how. Its files need no authentication: they contain no data. The page
//! of the HTTP API at `/docs/api` is a route of its own.

use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use rust_embed::RustEmbed;

use super::embedded;

/// The output of `docs/scripts/embed.py`: texts with the suffix `.gz`, and images.
#[derive(RustEmbed)]
#[folder = "docs/.vitepress/embedded"]
#[allow_missing = true]
struct PackedBook;

const PLACEHOLDER: &str = include_str!("../web/placeholder/docs.html");

#[derive(Debug, PartialEq, Eq)]
enum BookPage {
    /// The name of a file of the book.
    File(String),
    Placeholder,
    /// The address of the API's page with a slash at its end, which links of the book have.
    Api,
}

/// Whether the book has a page or file at a path.
pub(super) fn has(path: &str) -> bool {
    find(path, embedded::has::<PackedBook>).is_some()
}

/// Serves a page or file; returns `None` if there is none at the path.
pub(super) fn serve(request: &Request) -> Option<Response> {
    match find(request.uri().path(), embedded::has::<PackedBook>)? {
        BookPage::File(name) => embedded::serve::<PackedBook>(request, &name),
        BookPage::Placeholder => {
            let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
            Some(([kind], PLACEHOLDER).into_response())
        }
        BookPage::Api => {
            let to = (header::LOCATION, "/docs/api");
            Some((StatusCode::PERMANENT_REDIRECT, [to]).into_response())
        }
    }
}

fn find(path: &str, has: impl Fn(&str) -> bool) -> Option<BookPage> {
    let name = match path.strip_prefix("/docs")? {
        "" | "/" => "index.html",
        "/api/" => return Some(BookPage::Api),
        name if name == "/api" || name.starts_with("/api/") => return None,
        name => name.strip_prefix('/')?,
    };
    let folder = || format!("{name}index.html");
    let names =
        [name.to_owned(), if name.ends_with('/') { folder() } else { format!("{name}.html") }];
    match names.into_iter().find(|name| has(name)) {
        Some(name) => Some(BookPage::File(name)),
        None => (name == "index.html").then_some(BookPage::Placeholder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_page() {
        let files =
            ["index.html", "why.html", "reference/index.html", "assets/a.js", "api-changelog.html"];
        let file = |name: &str| Some(BookPage::File(name.to_owned()));
        for (path, expected) in [
            ("/docs", file("index.html")),
            ("/docs/", file("index.html")),
            ("/docs/why", file("why.html")),
            ("/docs/why.html", file("why.html")),
            ("/docs/reference/", file("reference/index.html")),
            ("/docs/assets/a.js", file("assets/a.js")),
            ("/docs/api-changelog", file("api-changelog.html")),
            ("/docs/api/", Some(BookPage::Api)),
            ("/docs/api", None),
            ("/docs/api/page.js", None),
            ("/docs/missing", None),
            ("/docsmissing", None),
            ("/why.html", None),
        ] {
            assert_eq!(find(path, |name| files.contains(&name)), expected, "{path}");
        }
        assert_eq!(find("/docs", |_| false), Some(BookPage::Placeholder));
        assert_eq!(find("/docs/why", |_| false), None);
    }
}
