//! The properties of a project that a client can set, and their validation.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ProjectError;
use files::Relative;
use model::{BackendKind, ProjectConfig};

/// The properties of a project that a client sets; `None` leaves a property unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectChoices {
    pub description: Option<String>,
    pub tags: Option<BTreeSet<String>>,
    pub config: Option<ProjectConfig>,
}

pub(super) fn check(choices: &ProjectChoices) -> Result<(), ProjectError> {
    let bad = |field: &str, why: &str| {
        Err(ProjectError::Bad { field: field.to_owned(), why: why.to_owned() })
    };
    if choices.description.as_ref().is_some_and(|text| text.len() > 4096) {
        return bad("/description", "must be at most 4096 bytes");
    }
    if let Some(tags) = &choices.tags {
        if tags.len() > 64 {
            return bad("/tags", "must have at most 64 entries");
        }
        if tags
            .iter()
            .any(|tag| tag.is_empty() || tag.len() > 64 || tag.chars().any(char::is_control))
        {
            return bad("/tags", "each must have 1 to 64 bytes and no control characters");
        }
    }
    let Some(config) = &choices.config else { return Ok(()) };
    if config.routes.len() > 32 {
        return bad("/config/routes", "must have at most 32 entries");
    }
    if config.cleanup_after_days.is_some_and(|days| days > 36_500) {
        return bad("/config/cleanup_after_days", "must be at most 36500");
    }
    check_routes(&config.routes, "/config/routes")
}

/// Checks the prefixes of routes. Errors name the field below `pointer`.
pub(super) fn check_routes(
    routes: &BTreeMap<String, BackendKind>,
    pointer: &str,
) -> Result<(), ProjectError> {
    let bad = |field: &str, why: &str| {
        Err(ProjectError::Bad { field: field.to_owned(), why: why.to_owned() })
    };
    for prefix in routes.keys() {
        let field = format!("{pointer}/{}", prefix.replace('~', "~0").replace('/', "~1"));
        if !prefix.starts_with('/') {
            return bad(&field, "must start with a slash");
        }
        match Relative::parse(prefix) {
            Ok(path) if path.is_root() => return bad(&field, "must not be the root"),
            Ok(path) if path.as_str().len() > 200 => {
                return bad(&field, "must be at most 200 bytes");
            }
            Ok(_) => {}
            Err(error) => return bad(&field, &error.to_string()),
        }
    }
    Ok(())
}
