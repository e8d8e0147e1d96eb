//! A sandbox as clients of Daytona read it, and how they name one.

use serde_json::{Value, json};

use super::{
    DaytonaRefusal, ORGANIZATION, ORIGIN, TOOLBOX, network, size::DaytonaSize, volume::mounts_view,
};
use adapter::{Adapter, build::ALIAS, port, volume::mounts};
use model::{PortAccess, ProjectId, SandboxState, SandboxStatus};
use store::{SandboxFilter, SandboxRecord};

/// The name of the provider's own files, which sandboxes start from if no snapshot is given.
pub(super) const DEFAULT_SNAPSHOT: &str = "default";
/// Minutes without use after which a sandbox stops by default.
pub(super) const DEFAULT_AUTO_STOP_MINUTES: u64 = 15;
/// Minutes after which a stopped sandbox would be archived by default.
pub(super) const DEFAULT_AUTO_ARCHIVE_MINUTES: u64 = 10_080;
/// Facts of a sandbox that only this API knows, by their names in its row.
pub(super) const AUTO_STOP: &str = "auto_stop";
pub(super) const AUTO_PAUSE: &str = "auto_pause";
pub(super) const AUTO_ARCHIVE: &str = "auto_archive";
pub(super) const USER: &str = "user";

/// Every sandbox of this API.
pub(super) fn own() -> SandboxFilter {
    SandboxFilter { origin: Some(ORIGIN.to_owned()), ..SandboxFilter::default() }
}

/// The sandbox with this id or name.
pub(super) async fn find(app: &Adapter, name: &str) -> Result<SandboxRecord, DaytonaRefusal> {
    if let Ok(id) = name.parse()
        && let Some(sandbox) = app.sandboxes.get(&id).await?
        && sandbox.row.origin == ORIGIN
    {
        return Ok(sandbox);
    }
    let named = app.sandboxes.named(&ProjectId::default_project(), ORIGIN, name).await?;
    named
        .ok_or_else(|| DaytonaRefusal::missing(format!("Sandbox with ID or name {name} not found")))
}

/// The name of a sandbox's state. Its desired state has the same.
pub(super) fn state(sandbox: &SandboxRecord) -> &'static str {
    match sandbox.status() {
        SandboxStatus::Paused if sandbox.row.state == SandboxState::Paused => "paused",
        // A sandbox that was paused in the app resumes on its next use.
        SandboxStatus::Paused | SandboxStatus::Suspended | SandboxStatus::Running => "started",
        SandboxStatus::Stopped => "stopped",
        SandboxStatus::Archived => "archived",
    }
}

/// A whole number that a sandbox records under this name.
pub(super) fn number(sandbox: &SandboxRecord, name: &str) -> Option<u64> {
    sandbox.row.extra.get(name)?.parse().ok()
}

pub(super) fn sandbox(app: &Adapter, sandbox: &SandboxRecord) -> Value {
    sandbox_as(app, sandbox, state(sandbox))
}

/// A sandbox in a state that it is about to have.
pub(super) fn sandbox_as(app: &Adapter, sandbox: &SandboxRecord, state: &str) -> Value {
    let row = &sandbox.row;
    let size = DaytonaSize::of(app, Some(&sandbox.lease));
    let active = sandbox.last_active_at.unwrap_or(row.started_at);
    let auto_delete =
        row.delete_after_stop.map_or(-1, |after| (after.as_secs() / 60).cast_signed());
    let mut env = sandbox.thread.env.clone();
    env.retain(|name, _| !matches!(name.as_str(), "HOME" | "USER" | "LOGNAME"));
    let mut body = json!({
        "id": sandbox.id(),
        "organizationId": ORGANIZATION,
        "name": row.name.as_deref().unwrap_or(sandbox.id().as_str()),
        "snapshot": row.extra.get(ALIAS).unwrap_or(&row.template),
        "user": row.extra.get(USER).unwrap_or(&row.user),
        "env": env,
        "labels": row.labels,
        "public": row.port_access == PortAccess::Public,
        "kvm": false,
        "target": "local",
        "cpu": size.cpu,
        "gpu": 0,
        "memory": size.memory,
        "disk": size.disk,
        "state": state,
        "desiredState": state,
        "backupState": "None",
        "autoStopInterval": number(sandbox, AUTO_STOP).unwrap_or(DEFAULT_AUTO_STOP_MINUTES),
        "autoPauseInterval": number(sandbox, AUTO_PAUSE).unwrap_or(0),
        "autoArchiveInterval":
            number(sandbox, AUTO_ARCHIVE).unwrap_or(DEFAULT_AUTO_ARCHIVE_MINUTES),
        "autoDeleteInterval": auto_delete,
        "volumes": mounts_view(&mounts(&sandbox.lease.spec)),
        "createdAt": row.created_at.to_string(),
        "updatedAt": row.updated_at.max(sandbox.thread.updated_at).to_string(),
        "lastActivityAt": active.to_string(),
        "autoDestroyAt": row.expires_at.map(|at| at.to_string()),
        "class": "small",
        "daemonVersion": TOOLBOX,
        "toolboxProxyUrl": toolbox_url(app),
    });
    network::add_view(row, &mut body);
    body
}

pub(super) fn toolbox_url(app: &Adapter) -> String {
    format!("{}/daytona/toolbox", app.url)
}

/// The URL of a port of the sandbox, or of the signed link, with this name.
pub(super) fn port_url(app: &Adapter, number: u16, name: &str) -> Result<String, DaytonaRefusal> {
    let Some((scheme, domain)) = port::domain(app) else {
        let message = "ports have names below one of the server: put one into the setting `names`";
        return Err(DaytonaRefusal::bad(message));
    };
    Ok(format!("{scheme}://{number}-{name}.{domain}"))
}
