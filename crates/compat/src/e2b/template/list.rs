//! Lists, shows and removes templates.

use std::collections::BTreeMap;

use axum::{
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::lookup::{BASE, DEFAULT_TAG_SUFFIX, find, missing, problem};
use crate::e2b::{E2bRefusal, ENVD, ORIGIN, bad};
use adapter::{
    Adapter,
    build::{is_of_build, split_tag},
    usage::SandboxSize,
};
use model::{Template, Timestamp, USUAL_TAG};

/// The limit of templates per page.
const MAX_PAGE: usize = 100;
/// The build id of templates that were not built.
const NO_BUILD: &str = "00000000-0000-0000-0000-000000000000";

/// The JSON of a template.
fn template_view(app: &Adapter, template: &Template) -> Value {
    let latest = template.tagged(USUAL_TAG).or_else(|| template.builds.last());
    let (id, created_at) = (template.template_id.as_str(), template.created_at);
    let mut view = unbuilt_view(app, id, &template.name, created_at);
    view["updatedAt"] = json!(template.updated_at.to_string());
    view["buildCount"] = json!(template.builds.len());
    if let Some(build) = latest {
        view["buildID"] = json!(build.build_id);
        view["buildStatus"] = json!(build.status.word());
    }
    view
}

/// The JSON of a template that was not built.
fn unbuilt_view(app: &Adapter, id: &str, name: &str, at: Timestamp) -> Value {
    let size = SandboxSize::default_size(app);
    json!({
        "templateID": id,
        "buildID": NO_BUILD,
        "cpuCount": size.cpus,
        "memoryMB": size.memory >> 20,
        "diskSizeMB": size.disk >> 20,
        "public": false,
        "aliases": [name],
        "names": [name],
        "createdAt": at.to_string(),
        "updatedAt": at.to_string(),
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": 0,
        "envdVersion": ENVD,
        "buildStatus": "ready",
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::e2b) struct TemplatePageQuery {
    next_token: Option<String>,
    limit: Option<usize>,
}

/// The JSON of all templates by id.
async fn all(app: &Adapter) -> Result<BTreeMap<String, Value>, E2bRefusal> {
    let epoch = Timestamp::UNIX_EPOCH;
    let mut names = BTreeMap::from([(BASE.to_owned(), epoch)]);
    names.extend(app.leases.providers().all().map(|it| (it.name().to_owned(), epoch)));
    names.extend(app.snapshots().await?.into_iter().filter(|(name, _)| !is_of_build(name)));
    let view = |(name, at): (String, Timestamp)| {
        let view = unbuilt_view(app, &name, &name, at);
        (name, view)
    };
    let mut all: BTreeMap<_, _> = names.into_iter().map(view).collect();
    for template in app.store.templates().await.map_err(problem)? {
        if template.owner == ORIGIN {
            all.insert(template.template_id.to_string(), template_view(app, &template));
        }
    }
    Ok(all)
}

pub(in crate::e2b) async fn list(
    State(app): State<Adapter>,
) -> Result<axum::Json<Vec<Value>>, E2bRefusal> {
    Ok(axum::Json(all(&app).await?.into_values().collect()))
}

/// Returns a page of templates.
pub(in crate::e2b) async fn page(
    State(app): State<Adapter>,
    Query(page): Query<TemplatePageQuery>,
) -> Result<Response, E2bRefusal> {
    let limit = page.limit.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(bad(format!("limit must be 1 to {MAX_PAGE}")));
    }
    let after = page.next_token.unwrap_or_default();
    let all = all(&app).await?;
    let mut rest = all.into_iter().skip_while(|(id, _)| !after.is_empty() && *id <= after);
    let found: Vec<(String, Value)> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(found.last()).and_then(|(id, _)| HeaderValue::from_str(id).ok());
    let found: Vec<_> = found.into_iter().map(|(_, view)| view).collect();
    let mut response = axum::Json(found).into_response();
    if let Some(next) = next {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// Returns a template with its builds, the newest first.
pub(in crate::e2b) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, &name).await?;
    let size = SandboxSize::default_size(&app);
    let builds = template.builds.iter().rev().map(|build| {
        let mut view = json!({
            "buildID": build.build_id,
            "status": build.status.word(),
            "createdAt": build.created_at.to_string(),
            "updatedAt": build.updated_at.to_string(),
            "cpuCount": size.cpus,
            "memoryMB": size.memory >> 20,
            "diskSizeMB": size.disk >> 20,
            "envdVersion": ENVD,
        });
        if build.status.is_end() {
            view["finishedAt"] = json!(build.updated_at.to_string());
        }
        view
    });
    let mut body = template_view(&app, &template);
    body["builds"] = builds.collect();
    Ok(axum::Json(body))
}

/// Accepts an update and changes nothing: templates are always private.
pub(in crate::e2b) async fn update(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, &name).await?;
    Ok(axum::Json(json!({"names": [template.name]})))
}

/// Returns the template with this name.
pub(in crate::e2b) async fn alias(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (base_name, tag) = split_tag(&name);
    if let Some(template) = app.store.template(ORIGIN, base_name).await.map_err(problem)? {
        if tag.is_some_and(|tag| tag != USUAL_TAG && template.tagged(tag).is_none()) {
            return Err(missing(&name));
        }
        return Ok(axum::Json(json!({"templateID": template.template_id, "public": false})));
    }
    let plain = name.strip_suffix(DEFAULT_TAG_SUFFIX).unwrap_or(&name);
    if is_of_build(plain) || !all(&app).await?.contains_key(plain) {
        return Err(missing(&name));
    }
    Ok(axum::Json(json!({"templateID": plain, "public": false})))
}

/// Removes a template or a snapshot. Sandboxes created from it keep their files.
pub(in crate::e2b) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<StatusCode, E2bRefusal> {
    let plain = name.strip_suffix(DEFAULT_TAG_SUFFIX).unwrap_or(&name);
    let removed = match app.store.template(ORIGIN, plain).await.map_err(problem)? {
        Some(template) => app.delete_template(&template).await?,
        None => !is_of_build(plain) && app.remove_snapshot(plain).await?,
    };
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(missing(&name)) }
}
