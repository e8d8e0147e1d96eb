//! The web app, embedded in the binary.
//!
//! `web/dist` is embedded if it was built; otherwise one page explains how to build it. The files need no
//! authentication: they contain no data, and the app authenticates to the API with its cookie.

use super::book;
use super::embedded;
use api::Assets;
use axum::{
    extract::Request,
    http::{Method, header},
    response::{IntoResponse, Response},
};
use rust_embed::RustEmbed;

/// The files, for the router.
pub const ASSETS: Assets = Assets { has, serve };

/// The output of `make web`: texts with the suffix `.gz`, and other files.
#[derive(RustEmbed)]
#[folder = "web/dist"]
#[allow_missing = true]
struct Built;

/// The page in place of an app that was not built.
const PLACEHOLDER: &str = include_str!("../web/placeholder/index.html");
const PLACEHOLDER_STYLE: &str = include_str!("../web/placeholder/style.css");

/// Whether there is a file at a path. All paths under `/ui/` are views of the app and serve its first page.
fn has(path: &str) -> bool {
    book::has(path) || find(path).is_some()
}

enum FoundAsset {
    Built(String),
    Placeholder(&'static str, &'static str),
}

fn find(path: &str) -> Option<FoundAsset> {
    let name = match path {
        "/" | "/ui" => "index.html",
        view if view.starts_with("/ui/") => "index.html",
        file => file.strip_prefix('/')?,
    };
    if embedded::has::<Built>(name) {
        return Some(FoundAsset::Built(name.to_owned()));
    }
    match name {
        "index.html" => Some(FoundAsset::Placeholder("text/html; charset=utf-8", PLACEHOLDER)),
        "style.css" => Some(FoundAsset::Placeholder("text/css; charset=utf-8", PLACEHOLDER_STYLE)),
        _ => None,
    }
}

/// Serves a file of the app; returns `None` if there is none at the path.
fn serve(request: &Request) -> Option<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri().path();
    if book::has(path) {
        return book::serve(request);
    }
    match find(path)? {
        FoundAsset::Placeholder(kind, text) => {
            Some(([(header::CONTENT_TYPE, kind)], text).into_response())
        }
        FoundAsset::Built(name) => embedded::serve::<Built>(request, &name),
    }
}
