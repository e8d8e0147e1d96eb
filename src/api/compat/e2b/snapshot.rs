//! What sandboxes can be made from: the providers, and the files of sandboxes as they once were.

use std::collections::BTreeMap;

use axum::{
    extract::{Path, State},
    http::{StatusCode, Uri},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Asked, ENVD, Refusal,
    address::sandbox_id,
    control::{cpus, disk_bytes, find, memory_bytes},
};
use crate::{api::App, model::Timestamp};

/// The template that stands for the server's own choice.
const BASE: &str = "base";
/// The tag that every name may have.
const TAG: &str = ":default";

/// What a snapshot is to be called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Create {
    name: Option<String>,
}

fn shown(name: &str) -> Value {
    json!({"snapshotID": name, "names": [name]})
}

/// Keeps the files of a sandbox as they are.
pub(super) async fn create(
    State(app): State<App>,
    Path(id): Path<String>,
    Asked(asked): Asked<Create>,
) -> Result<(StatusCode, axum::Json<Value>), Refusal> {
    let sandbox = find(&app, &id).await?;
    let name = match asked.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => name.strip_suffix(TAG).unwrap_or(name).to_owned(),
        None => format!("snapshot-{}", uuid::Uuid::now_v7().simple()),
    };
    if name == BASE {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("{BASE} is no snapshot's name")));
    }
    app.snapshot_sandbox(&sandbox, &name).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&name))))
}

/// The snapshots there are, or those of one sandbox.
pub(super) async fn list(
    State(app): State<App>,
    uri: Uri,
) -> Result<axum::Json<Vec<Value>>, Refusal> {
    let query = uri.query().unwrap_or_default();
    let of = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "sandboxID");
    let of = match of.and_then(|(_, id)| sandbox_id(&id)) {
        Some(id) => match app.sandbox(&id).await? {
            Some(sandbox) => Some(sandbox),
            None => return Ok(axum::Json(vec![])),
        },
        None => None,
    };
    let takes = |name: &&String| of.as_ref().is_none_or(|sandbox| sandbox.has_snapshot(name));
    Ok(axum::Json(app.snapshots().await?.keys().filter(takes).map(|name| shown(name)).collect()))
}

/// What sandboxes can be made from.
pub(super) async fn templates(State(app): State<App>) -> Result<axum::Json<Vec<Value>>, Refusal> {
    let began = Timestamp::UNIX_EPOCH;
    let mut names = BTreeMap::from([(BASE.to_owned(), began)]);
    names.extend(app.leases.providers().all().map(|it| (it.name().to_owned(), began)));
    names.extend(app.snapshots().await?);
    let template = |(name, at): (String, Timestamp)| {
        json!({
            "templateID": name,
            "buildID": "00000000-0000-0000-0000-000000000000",
            "cpuCount": cpus(),
            "memoryMB": memory_bytes() >> 20,
            "diskSizeMB": disk_bytes(&app).1 >> 20,
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
    };
    Ok(axum::Json(names.into_iter().map(template).collect()))
}

fn missing(name: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("template '{name}' not found"))
}

/// Whether a template of this name is there.
pub(super) async fn alias(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let plain = name.strip_suffix(TAG).unwrap_or(&name);
    let known = plain == BASE
        || app.leases.providers().named(plain).is_ok()
        || app.snapshots().await?.contains_key(plain);
    if !known {
        return Err(missing(&name));
    }
    Ok(axum::Json(json!({"templateID": plain, "public": false})))
}

/// Removes a snapshot. What began with it keeps its files.
pub(super) async fn remove(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let plain = name.strip_suffix(TAG).unwrap_or(&name);
    let removed = app.remove_snapshot(plain).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(missing(&name)) }
}
