//! Finds templates and builds, and validates names and tags.

use axum::http::StatusCode;

use crate::e2b::{E2bRefusal, ORIGIN, bad};
use adapter::Adapter;
use api::error::Problem;
use model::{Build, Template};

/// The name of the default template.
pub(in crate::e2b) const BASE: &str = "base";
/// The suffix of a name with the default tag, which every template accepts.
pub(in crate::e2b) const DEFAULT_TAG_SUFFIX: &str = ":default";
/// The limit of tags per request.
const MAX_TAGS: usize = 50;

pub(super) fn missing(name: &str) -> E2bRefusal {
    E2bRefusal::new(StatusCode::NOT_FOUND, format!("template '{name}' not found"))
}

pub(super) fn problem(error: store::StoreError) -> E2bRefusal {
    Problem::from(error).into()
}

pub(super) async fn find(app: &Adapter, name: &str) -> Result<Template, E2bRefusal> {
    let found = app.store.template(ORIGIN, name).await.map_err(problem)?;
    found.ok_or_else(|| missing(name))
}

/// A build and its template.
pub(super) async fn find_build(
    app: &Adapter,
    name: &str,
    build: &str,
) -> Result<(Template, Build), E2bRefusal> {
    let template = find(app, name).await?;
    let found = template.build(build).cloned();
    let missing = || E2bRefusal::new(StatusCode::NOT_FOUND, format!("build '{build}' not found"));
    found.map(|build| (template, build)).ok_or_else(missing)
}

/// Whether a text has 1 to 128 letters, digits and the given punctuation.
fn is_word(text: &str, punctuation: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || punctuation.contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Validates and normalizes the name of a template.
pub(super) fn checked_name(name: &str) -> Result<String, E2bRefusal> {
    let name = name.trim().to_ascii_lowercase();
    let is_valid = is_word(&name, b"-_./") && name.split('/').count() <= 2;
    match is_valid && !name.split('/').any(str::is_empty) {
        true => Ok(name),
        false => Err(bad(format!(
            "invalid template name '{name}': use letters, digits, '-', '_', '.', and at most one '/'"
        ))),
    }
}

pub(super) fn checked_tags(tags: Vec<String>) -> Result<Vec<String>, E2bRefusal> {
    if tags.len() > MAX_TAGS {
        return Err(bad(format!("a request may have up to {MAX_TAGS} tags")));
    }
    match tags.iter().find(|tag| !is_word(tag, b"-_.")) {
        Some(tag) => Err(bad(format!("invalid tag '{tag}'"))),
        None => Ok(tags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalized() {
        assert_eq!(checked_name("My-Team/App_1.x").unwrap(), "my-team/app_1.x");
        for bad in ["", "a b", "a/b/c", "/a", "a/", "ä"] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
    }
}
