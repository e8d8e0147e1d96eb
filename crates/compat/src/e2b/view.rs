//! The JSON of a sandbox, and the lookup of a sandbox by id.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{E2bRefusal, ENVD, ORIGIN, address::sandbox_id, network::NetworkConfig};
use adapter::{Adapter, build::ALIAS, port, sandbox::is_paused, usage::SandboxSize};
use model::{ExpiryAction, SandboxStatus, Timestamp};
use store::SandboxRecord;

/// The id of this machine in E2B's terms.
const CLIENT_ID: &str = "stead";

pub(super) fn missing(id: &str) -> E2bRefusal {
    E2bRefusal::new(
        StatusCode::NOT_FOUND,
        format!("sandbox \"{id}\" doesn't exist or you don't have access to it"),
    )
}

/// The sandbox with this id.
pub(super) async fn find(app: &Adapter, name: &str) -> Result<SandboxRecord, E2bRefusal> {
    let id = sandbox_id(name).ok_or_else(|| missing(name))?;
    let found = app.sandboxes.get(&id).await?.filter(|sandbox| sandbox.row.origin == ORIGIN);
    found.ok_or_else(|| missing(name))
}

/// The JSON that a client needs to connect to a sandbox.
pub(super) fn connection(app: &Adapter, sandbox: &SandboxRecord) -> Value {
    let keys = &app.keys;
    json!({
        "templateID": sandbox.row.template,
        "sandboxID": sandbox.id(),
        "alias": sandbox.row.extra.get(ALIAS).unwrap_or(&sandbox.row.template),
        "clientID": CLIENT_ID,
        "envdVersion": ENVD,
        "envdAccessToken": keys.access(sandbox.id()),
        // Sent for public ports, too: clients send only this key when they manage interpreter contexts.
        "trafficAccessToken": keys.traffic(sandbox.id()),
        "domain": port::domain(app).map(|(_, name)| name),
    })
}

/// The JSON of a sandbox.
pub(super) fn sandbox(app: &Adapter, sandbox: &SandboxRecord) -> Value {
    let mut body = connection(app, sandbox);
    let size = SandboxSize::of(app, Some(&sandbox.lease));
    let (internet, network) = NetworkConfig::of(&sandbox.row).view();
    let row = &sandbox.row;
    let is_paused = is_paused(sandbox);
    let details = json!({
        "startedAt": row.started_at.to_string(),
        "endAt": row.expires_at.unwrap_or(Timestamp::MAX).to_string(),
        "cpuCount": size.cpus,
        "memoryMB": size.memory >> 20,
        "diskSizeMB": size.disk >> 20,
        "state": if is_paused { "paused" } else { "running" },
        "metadata": row.labels,
        "allowInternetAccess": internet,
        "lifecycle": {
            "autoResume": row.auto_resume,
            "onTimeout": match row.on_expiry {
                ExpiryAction::Delete => "kill",
                ExpiryAction::Pause | ExpiryAction::Suspend => "pause",
            },
        },
    });
    if let (Some(body), Value::Object(details)) = (body.as_object_mut(), details) {
        body.extend(details);
    }
    if let Some(network) = network {
        body["network"] = network;
    }
    if is_paused {
        let is_suspended = sandbox.status() == SandboxStatus::Suspended;
        body["pauseMode"] = if is_suspended { "filesystem" } else { "full" }.into();
    }
    body
}
