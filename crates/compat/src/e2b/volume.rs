//! Volumes: directories that sandboxes share, and that outlive them.

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Refusal};
use crate::Compat;
use machine::volume::{Volume, VolumeMount};

/// A volume that a new sandbox is to see.
#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    name: String,
    path: String,
}

impl From<Mount> for VolumeMount {
    fn from(mount: Mount) -> VolumeMount {
        VolumeMount { id: mount.name, path: mount.path, subpath: String::new() }
    }
}

fn shown(app: &Compat, volume: &Volume) -> Value {
    let token = app.sandboxes.keys.volume(&volume.id);
    json!({"volumeID": volume.id, "name": volume.name, "token": token})
}

/// Every volume.
pub(super) async fn list(State(app): State<Compat>) -> Result<axum::Json<Value>, Refusal> {
    let all = app.volumes().await?;
    Ok(axum::Json(all.iter().map(|it| json!({"volumeID": it.id, "name": it.name})).collect()))
}

/// What a volume is to be called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    name: String,
}

/// Makes a volume.
pub(super) async fn create(
    State(app): State<Compat>,
    Asked(asked): Asked<Named>,
) -> Result<Response, Refusal> {
    let volume = app.make_volume(&asked.name).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&app, &volume))).into_response())
}

async fn find(app: &Compat, name: &str) -> Result<Volume, Refusal> {
    let missing = || Refusal::new(StatusCode::NOT_FOUND, format!("volume {name} not found"));
    app.volume(name).await?.ok_or_else(missing)
}

/// A volume.
pub(super) async fn show(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    Ok(axum::Json(shown(&app, &find(&app, &name).await?)))
}

/// Removes a volume that no sandbox has.
pub(super) async fn remove(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let volume = find(&app, &name).await?;
    app.remove_volume(&volume.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
