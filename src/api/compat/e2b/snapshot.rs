//! The files of sandboxes as they once were.

use axum::{
    extract::{Path, State},
    http::{StatusCode, Uri},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Asked, Refusal,
    address::sandbox_id,
    control::find,
    template::{BASE, TAG},
};
use crate::api::{App, compat::build::is_of_build};

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
    let takes = |name: &&String| {
        !is_of_build(name) && of.as_ref().is_none_or(|sandbox| sandbox.has_snapshot(name))
    };
    Ok(axum::Json(app.snapshots().await?.keys().filter(takes).map(|name| shown(name)).collect()))
}
