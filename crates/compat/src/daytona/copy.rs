//! Copies of sandboxes: forks and snapshots.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaApi, DaytonaJson, DaytonaRefusal,
    control::{free_name, idle_policy},
    image,
    size::DaytonaSize,
    view::{
        self, AUTO_PAUSE, AUTO_STOP, DEFAULT_AUTO_STOP_MINUTES, DEFAULT_SNAPSHOT, find, number,
    },
};
use adapter::{Adapter, build::is_of_build, copy::has_snapshot, new_sandbox::NewSandbox};
use model::Timestamp;

/// The limit of snapshots per page.
const MAX_PAGE: usize = 100;
/// The prefixes of the keys that a fork does not copy from the sandbox.
const NOT_FORKED: [&str; 3] = ["snapshot.", "signing", "expired."];

/// The requested name of a copy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CopyName {
    name: Option<String>,
}

/// Creates a sandbox with the files of another.
pub(super) async fn fork(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    DaytonaJson(request): DaytonaJson<CopyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let (id, row) = (uuid::Uuid::now_v7().to_string(), &sandbox.row);
    let mut extra = row.extra.clone();
    extra.retain(|name, _| !NOT_FORKED.iter().any(|prefix| name.starts_with(prefix)));
    let stop = number(&sandbox, AUTO_STOP).unwrap_or(DEFAULT_AUTO_STOP_MINUTES);
    let new = NewSandbox {
        name: Some(free_name(&app, request.name, &id).await?),
        delete_after_stop: row.delete_after_stop,
        port_access: row.port_access,
        env: sandbox.thread.env.clone(),
        labels: row.labels.clone(),
        extra,
        policy: idle_policy(stop, number(&sandbox, AUTO_PAUSE).unwrap_or(0)),
        ..NewSandbox::new(&DaytonaApi, id.parse().expect("a uuid is an id"), row.template.clone())
    };
    let fork = app.fork_sandbox(&sandbox, new).await?;
    Ok(axum::Json(view::sandbox(&app, &fork)))
}

/// Takes a named snapshot of a sandbox's files.
pub(super) async fn snapshot(
    State(app): State<Adapter>,
    Path(id): Path<String>,
    DaytonaJson(request): DaytonaJson<CopyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &id).await?;
    app.snapshot_sandbox(&sandbox, &request.name.unwrap_or_default()).await?;
    Ok(axum::Json(view::sandbox(&app, &find(&app, &id).await?)))
}

/// The requested page of snapshots.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SnapshotPageQuery {
    page: Option<usize>,
    limit: Option<usize>,
    name: Option<String>,
    source_sandbox_id: Option<String>,
}

/// A page of snapshots, by name.
pub(super) async fn list(
    State(app): State<Adapter>,
    Query(filter): Query<SnapshotPageQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let limit = filter.limit.unwrap_or(MAX_PAGE);
    if limit == 0 || limit > MAX_PAGE {
        return Err(DaytonaRefusal::bad(format!("limit must be 1 to {MAX_PAGE}")));
    }
    let page = filter.page.unwrap_or(1).max(1);
    let mut all = all_snapshots(&app).await?;
    all.retain(|name, it| {
        filter.name.as_ref().is_none_or(|part| name.contains(part))
            && filter.source_sandbox_id.as_ref().is_none_or(|id| it["sourceSandboxId"] == **id)
    });
    let total = all.len();
    let items: Vec<_> =
        all.into_values().skip((page - 1).saturating_mul(limit)).take(limit).collect();
    let pages = total.div_ceil(limit);
    Ok(axum::Json(json!({"items": items, "total": total, "page": page, "totalPages": pages})))
}

/// The JSON of all snapshots by name.
async fn all_snapshots(app: &Adapter) -> Result<BTreeMap<String, Value>, DaytonaRefusal> {
    let sandboxes = app.sandboxes.all(view::daytona_sandboxes()).await?;
    let size = DaytonaSize::default_size(app);
    let view = |(name, at): (String, Timestamp)| {
        let source = sandboxes.iter().find(|sandbox| has_snapshot(sandbox, &name));
        let snapshot = json!({
            "id": name,
            "name": name,
            "general": name == DEFAULT_SNAPSHOT,
            "state": "active",
            "size": null,
            "entrypoint": null,
            "cpu": size.cpu,
            "gpu": 0,
            "mem": size.memory,
            "disk": size.disk,
            "errorReason": null,
            "createdAt": at.to_string(),
            "updatedAt": at.to_string(),
            "lastUsedAt": null,
            "sourceSandboxId": source.map(|sandbox| sandbox.id()),
        });
        (name, snapshot)
    };
    let taken = app.snapshots().await?.into_iter().filter(|(name, _)| !is_of_build(name));
    let general = (DEFAULT_SNAPSHOT.to_owned(), Timestamp::UNIX_EPOCH);
    let mut all: BTreeMap<_, _> = [general].into_iter().chain(taken).map(view).collect();
    all.extend(image::all(app).await?);
    Ok(all)
}

fn missing(name: &str) -> DaytonaRefusal {
    DaytonaRefusal::missing(format!("Snapshot with ID or name {name} not found"))
}

pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let all = all_snapshots(&app).await?;
    let found = all.into_iter().find(|(known, it)| *known == name || it["id"] == *name);
    found.map(|(_, it)| axum::Json(it)).ok_or_else(|| missing(&name))
}

/// Does nothing: every existing snapshot is active.
pub(super) async fn activate(
    app: State<Adapter>,
    name: Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let axum::Json(snapshot) = show(app, name).await?;
    match snapshot["state"].as_str() {
        Some("active") => Ok(axum::Json(snapshot)),
        state => {
            let state = state.unwrap_or_default();
            Err(DaytonaRefusal::bad(format!("Snapshot {} is {state}", snapshot["name"])))
        }
    }
}

pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::http::StatusCode, DaytonaRefusal> {
    let removed = match image::remove(&app, &name).await? {
        Some(removed) => removed,
        None => !is_of_build(&name) && app.remove_snapshot(&name).await?,
    };
    match removed {
        true => Ok(axum::http::StatusCode::OK),
        false => Err(missing(&name)),
    }
}
