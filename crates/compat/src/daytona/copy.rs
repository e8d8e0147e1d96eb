//! Copies of sandboxes: forks, and snapshots that later ones are made from.

use std::{collections::BTreeMap, time::Duration};

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Asked, Refusal,
    control::{AUTO_STOP, free_name, idle, shown},
    find, image,
    size::Size,
};
use crate::Compat;
use crate::{
    build::is_of_build,
    reach::Network,
    sandbox::{Api, NewSandbox, OnTimeout},
};
use model::Timestamp;

/// Snapshots of a page.
const PAGE: usize = 100;
/// What is noted of a sandbox and not of one that begins with its files.
const OWN: [&str; 5] = ["archived", "paused", "snapshot.", "signing", "expired."];

/// What a copy is to be called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    name: Option<String>,
}

/// Makes a sandbox with the files of one.
pub(super) async fn fork(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(asked): Asked<Named>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let id = uuid::Uuid::now_v7().to_string();
    let mut more = sandbox.more.clone();
    more.retain(|note, _| !OWN.iter().any(|own| note.starts_with(own)));
    let minutes = |name: &str| more.get(name).and_then(|text| text.parse().ok());
    let policy =
        idle(minutes("auto_stop").unwrap_or(AUTO_STOP), minutes("auto_pause").unwrap_or(0));
    more.insert("name".to_owned(), free_name(&app, asked.name, &id).await?);
    let new = NewSandbox {
        api: Api::Daytona,
        id: id.parse().expect("a uuid is an id"),
        template: sandbox.template.clone(),
        timeout: Duration::MAX,
        on_timeout: OnTimeout::Kill,
        auto_resume: false,
        env: sandbox.thread.env.clone(),
        metadata: sandbox.metadata.clone(),
        more,
        policy: Some(policy),
        network: Network::Usual,
        settings: serde_json::Map::new(),
        fork: None,
    };
    let fork = app.fork_sandbox(&sandbox, new).await?;
    shown(&app, &fork).await
}

/// Keeps the files of a sandbox under a name.
pub(super) async fn snapshot(
    State(app): State<Compat>,
    Path(id): Path<String>,
    Asked(asked): Asked<Named>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &id).await?;
    app.snapshot_sandbox(&sandbox, &asked.name.unwrap_or_default()).await?;
    shown(&app, &sandbox).await
}

/// Which snapshots are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filter {
    page: Option<usize>,
    limit: Option<usize>,
    name: Option<String>,
    source_sandbox_id: Option<String>,
}

/// A page of snapshots, by name.
pub(super) async fn list(
    State(app): State<Compat>,
    Query(filter): Query<Filter>,
) -> Result<axum::Json<Value>, Refusal> {
    let limit = filter.limit.unwrap_or(PAGE);
    if limit == 0 || limit > PAGE {
        return Err(Refusal::bad(format!("limit must be 1 to {PAGE}")));
    }
    let page = filter.page.unwrap_or(1).max(1);
    let mut all = described(&app).await?;
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

/// Every snapshot as clients read it.
async fn described(app: &Compat) -> Result<BTreeMap<String, Value>, Refusal> {
    let sandboxes = app.all_sandboxes(Api::Daytona).await?;
    let size = Size::usual(app);
    let describe = |(name, at): (String, Timestamp)| {
        let source = sandboxes.iter().find(|sandbox| sandbox.has_snapshot(&name));
        let shown = json!({
            "id": name,
            "name": name,
            "general": false,
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
        (name, shown)
    };
    let made = app.snapshots().await?.into_iter().filter(|(name, _)| !is_of_build(name));
    let mut all: BTreeMap<_, _> = made.map(describe).collect();
    all.extend(image::all(app).await?);
    Ok(all)
}

fn missing(name: &str) -> Refusal {
    Refusal::missing(format!("Snapshot with ID or name {name} not found"))
}

/// A snapshot.
pub(super) async fn show(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let all = described(&app).await?;
    let found = all.into_iter().find(|(known, it)| *known == name || it["id"] == *name);
    found.map(|(_, it)| axum::Json(it)).ok_or_else(|| missing(&name))
}

/// Every snapshot that is there can be used; there is nothing to do.
pub(super) async fn activate(
    app: State<Compat>,
    name: Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let axum::Json(snapshot) = show(app, name).await?;
    match snapshot["state"].as_str() {
        Some("active") => Ok(axum::Json(snapshot)),
        state => {
            let state = state.unwrap_or_default();
            Err(Refusal::bad(format!("Snapshot {} is {state}", snapshot["name"])))
        }
    }
}

/// Removes a snapshot.
pub(super) async fn remove(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::http::StatusCode, Refusal> {
    let removed = match image::remove(&app, &name).await? {
        Some(removed) => removed,
        None => !is_of_build(&name) && app.remove_snapshot(&name).await?,
    };
    match removed {
        true => Ok(axum::http::StatusCode::OK),
        false => Err(missing(&name)),
    }
}
