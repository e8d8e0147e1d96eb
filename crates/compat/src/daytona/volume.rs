//! Volumes: directories that sandboxes share and that outlive them.

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DaytonaJson, DaytonaRefusal, ORGANIZATION};
use adapter::{Adapter, volume::VolumeName};
use machine::volume::{Volume, VolumeMount};

/// A volume that a new sandbox mounts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaMount {
    volume_id: String,
    mount_path: String,
    subpath: Option<String>,
}

impl From<DaytonaMount> for VolumeMount {
    fn from(mount: DaytonaMount) -> VolumeMount {
        let path = match mount.mount_path.trim_end_matches('/') {
            "" => mount.mount_path,
            path => path.to_owned(),
        };
        let subpath = mount.subpath.unwrap_or_default();
        VolumeMount { id: mount.volume_id, path, subpath: subpath.trim_matches('/').to_owned() }
    }
}

/// The volumes that a sandbox mounts.
pub(super) fn mounts_view(mounts: &[VolumeMount]) -> Vec<Value> {
    let view = |mounted: &VolumeMount| {
        let mut view = json!({"volumeId": mounted.id, "mountPath": mounted.path});
        if !mounted.subpath.is_empty() {
            view["subpath"] = mounted.subpath.as_str().into();
        }
        view
    };
    mounts.iter().map(view).collect()
}

fn volume_view(volume: &Volume) -> Value {
    json!({
        "id": volume.id,
        "name": volume.name,
        "organizationId": ORGANIZATION,
        "state": "ready",
        "createdAt": volume.created_at.to_string(),
        "updatedAt": volume.created_at.to_string(),
        "lastUsedAt": null,
        "errorReason": null,
        "sizeBytes": volume.bytes,
    })
}

pub(super) async fn list(State(app): State<Adapter>) -> Result<axum::Json<Value>, DaytonaRefusal> {
    Ok(axum::Json(app.volumes().await?.iter().map(volume_view).collect()))
}

pub(super) async fn create(
    State(app): State<Adapter>,
    DaytonaJson(request): DaytonaJson<VolumeName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    Ok(axum::Json(volume_view(&app.create_volume(request).await?)))
}

/// Returns the volume with this id or name.
pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    Ok(axum::Json(volume_view(&find(&app, &name).await?)))
}

async fn find(app: &Adapter, name: &str) -> Result<Volume, DaytonaRefusal> {
    let missing = || DaytonaRefusal::missing(format!("Volume with ID or name {name} not found"));
    app.volume(name).await?.ok_or_else(missing)
}

/// Removes a volume that no sandbox uses.
pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<StatusCode, DaytonaRefusal> {
    let volume = find(&app, &name).await?;
    app.remove_volume(&volume.id).await?;
    Ok(StatusCode::OK)
}
