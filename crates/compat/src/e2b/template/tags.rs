//! Tags of templates.

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::lookup::{checked_tags, find, problem};
use crate::e2b::{E2bJson, E2bRefusal, bad};
use adapter::{Adapter, build::split_tag};
use model::{Tag, USUAL_TAG};

/// A request to add or remove tags of a template.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::e2b) struct TagsRequest {
    target: String,
    name: String,
    tags: Vec<String>,
}

/// Adds tags to the build that another tag points to.
pub(in crate::e2b) async fn tag(
    State(app): State<Adapter>,
    E2bJson(request): E2bJson<TagsRequest>,
) -> Result<Response, E2bRefusal> {
    let tags = checked_tags(request.tags)?;
    if tags.is_empty() {
        return Err(bad("the request names no tags"));
    }
    let (name, from) = split_tag(&request.target);
    let (template, from) = (find(&app, name).await?, from.unwrap_or(USUAL_TAG).to_owned());
    let (now, wanted, tag) = (app.now().at, tags.clone(), from.clone());
    let changed = app.store.change_template(&template.template_id, move |template| {
        let build_id = template.tags.get(&from)?.build_id.clone();
        for tag in &wanted {
            template.tags.insert(tag.clone(), Tag { build_id: build_id.clone(), at: now });
        }
        Some(build_id)
    });
    let missing = || {
        let message = format!("tag '{tag}' of template '{name}' not found");
        E2bRefusal::new(StatusCode::NOT_FOUND, message)
    };
    let build = changed.await.map_err(problem)?.flatten().ok_or_else(missing)?;
    app.sweep_builds().await;
    Ok((StatusCode::CREATED, axum::Json(json!({"tags": tags, "buildID": build}))).into_response())
}

/// Removes tags from a template.
pub(in crate::e2b) async fn untag(
    State(app): State<Adapter>,
    E2bJson(request): E2bJson<TagsRequest>,
) -> Result<StatusCode, E2bRefusal> {
    if request.tags.iter().any(|tag| tag == USUAL_TAG) {
        return Err(bad(format!("the tag '{USUAL_TAG}' cannot be removed; delete the template")));
    }
    let template = find(&app, split_tag(&request.name).0).await?;
    let tags = request.tags;
    let changed = app.store.change_template(&template.template_id, move |template| {
        template.tags.retain(|tag, _| !tags.contains(tag));
    });
    changed.await.map_err(problem)?;
    app.sweep_builds().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the tags of a template.
pub(in crate::e2b) async fn tags(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, split_tag(&name).0).await?;
    let mut tags: Vec<_> = template.tags.iter().collect();
    tags.sort_by_key(|(_, tag)| std::cmp::Reverse(tag.at));
    let view = |(name, tag): (&String, &Tag)| json!({"tag": name, "buildID": tag.build_id, "createdAt": tag.at.to_string()});
    Ok(axum::Json(tags.into_iter().map(view).collect()))
}
