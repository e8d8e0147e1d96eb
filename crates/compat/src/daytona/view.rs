//! The JSON of a sandbox, and the lookup of a sandbox by id or name.

use serde_json::{Value, json};

use super::{
    DaytonaRefusal, ORGANIZATION, ORIGIN, TOOLBOX, network, size::DaytonaSize, volume::mounts_view,
};
use adapter::{Adapter, build::ALIAS, port, volume::mounts};
use model::{PortAccess, ProjectId, SandboxState, SandboxStatus};
use store::{SandboxFilter, SandboxRecord};

/// The name of the provider's default files, which sandboxes start from if the request has no snapshot.
pub(super) const DEFAULT_SNAPSHOT: &str = "default";
/// The default number of idle minutes after which a sandbox stops.
pub(super) const DEFAULT_AUTO_STOP_MINUTES: u64 = 15;
/// The default number of minutes after which a stopped sandbox would be archived.
pub(super) const DEFAULT_AUTO_ARCHIVE_MINUTES: u64 = 10_080;
/// The key under which a sandbox records the idle minutes before it stops.
pub(super) const AUTO_STOP: &str = "auto_stop";
/// The key under which a sandbox records the idle minutes before it is paused.
pub(super) const AUTO_PAUSE: &str = "auto_pause";
/// The key under which a sandbox records the minutes before it would be archived.
pub(super) const AUTO_ARCHIVE: &str = "auto_archive";
/// The key under which a sandbox records the user that the client requested.
pub(super) const USER: &str = "user";

/// The filter for the sandboxes of this API.
pub(super) fn daytona_sandboxes() -> SandboxFilter {
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

/// The name of a sandbox's state, which is also the name of its desired state.
pub(super) fn state(sandbox: &SandboxRecord) -> &'static str {
    match sandbox.status() {
        SandboxStatus::Paused if sandbox.row.state == SandboxState::Paused => "paused",
        // A sandbox that was paused in the app resumes on its next use.
        SandboxStatus::Paused | SandboxStatus::Suspended | SandboxStatus::Running => "started",
        SandboxStatus::Stopped => "stopped",
        SandboxStatus::Archived => "archived",
    }
}

/// The number that a sandbox records under this key.
pub(super) fn number(sandbox: &SandboxRecord, name: &str) -> Option<u64> {
    sandbox.row.extra.get(name)?.parse().ok()
}

pub(super) fn sandbox(app: &Adapter, sandbox: &SandboxRecord) -> Value {
    sandbox_as(app, sandbox, state(sandbox))
}

/// The JSON of a sandbox with another state than its current one.
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

/// The URL of a port. `name` is the sandbox's id or the token of a signed link.
pub(super) fn port_url(app: &Adapter, number: u16, name: &str) -> Result<String, DaytonaRefusal> {
    let Some((scheme, domain)) = port::domain(app) else {
        let message = "ports need a domain name of the server; add one to the setting `names`";
        return Err(DaytonaRefusal::bad(message));
    };
    Ok(format!("{scheme}://{number}-{name}.{domain}"))
}
