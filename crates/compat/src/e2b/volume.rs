//! Volumes: directories that sandboxes share and that outlive them.

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{E2bJson, E2bRefusal};
use adapter::{Adapter, volume::VolumeName};
use machine::volume::{Volume, VolumeMount};

/// A volume that a new sandbox mounts.
#[derive(Debug, Deserialize)]
pub(super) struct E2bMount {
    name: String,
    path: String,
}

impl From<E2bMount> for VolumeMount {
    fn from(mount: E2bMount) -> VolumeMount {
        VolumeMount { id: mount.name, path: mount.path, subpath: String::new() }
    }
}

fn volume_view(app: &Adapter, volume: &Volume) -> Value {
    let token = app.keys.volume(&volume.id);
    json!({"volumeID": volume.id, "name": volume.name, "token": token})
}

pub(super) async fn list(State(app): State<Adapter>) -> Result<axum::Json<Value>, E2bRefusal> {
    let all = app.volumes().await?;
    Ok(axum::Json(all.iter().map(|it| json!({"volumeID": it.id, "name": it.name})).collect()))
}

pub(super) async fn create(
    State(app): State<Adapter>,
    E2bJson(request): E2bJson<VolumeName>,
) -> Result<Response, E2bRefusal> {
    let volume = app.create_volume(request).await?;
    Ok((StatusCode::CREATED, axum::Json(volume_view(&app, &volume))).into_response())
}

async fn find(app: &Adapter, name: &str) -> Result<Volume, E2bRefusal> {
    let missing = || E2bRefusal::new(StatusCode::NOT_FOUND, format!("volume {name} not found"));
    app.volume(name).await?.ok_or_else(missing)
}

pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    Ok(axum::Json(volume_view(&app, &find(&app, &name).await?)))
}

/// Removes a volume that no sandbox uses.
pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<StatusCode, E2bRefusal> {
    let volume = find(&app, &name).await?;
    app.remove_volume(&volume.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
