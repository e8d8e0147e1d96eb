//! Snapshots that are built from a Dockerfile or an image.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DaytonaApi, DaytonaJson, DaytonaRefusal, ORIGIN, size::DaytonaSize};
use adapter::{
    Adapter,
    build::{
        dockerfile::{self, BuildInputs},
        plan::{Base, MAX_SOURCE_BYTES, MAX_STEPS, Plan},
    },
    wrap::quote,
};
use model::{Build, BuildStatus, Template, USUAL_TAG, Waiter};

const MAX_NAME_BYTES: usize = 128;
/// The prefix of the name of an image built for a sandbox. Clients cannot use it: it contains spaces.
pub(super) const UNNAMED_PREFIX: &str = "unnamed image ";

/// The description of an image in a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BuildInfo {
    pub(super) dockerfile_content: String,
    context_hashes: Option<Vec<String>>,
}

impl BuildInfo {
    /// The build plan of the Dockerfile.
    pub(super) fn plan(&self) -> Result<Plan, DaytonaRefusal> {
        if self.context_hashes.as_ref().is_some_and(|hashes| !hashes.is_empty()) {
            return Err(DaytonaRefusal::bad(NO_FILES));
        }
        if self.dockerfile_content.len() > MAX_SOURCE_BYTES {
            return Err(DaytonaRefusal::bad(format!(
                "a Dockerfile may have up to {MAX_SOURCE_BYTES} bytes"
            )));
        }
        let parsed = dockerfile::parse(&self.dockerfile_content, &BuildInputs::default());
        let plan =
            parsed.map_err(|error| DaytonaRefusal::bad(format!("Dockerfile, {error}")))?.plan;
        if plan.steps.len() > MAX_STEPS {
            return Err(DaytonaRefusal::bad(format!(
                "a Dockerfile may have up to {MAX_STEPS} steps"
            )));
        }
        Ok(plan)
    }
}

const NO_FILES: &str = "this server receives no files with an image; write them with RUN, or upload them into a \
                        sandbox and create a snapshot of it";

/// Refuses the upload of files for an image.
pub(super) async fn push_access() -> DaytonaRefusal {
    DaytonaRefusal::bad(NO_FILES)
}

/// A request to build a snapshot.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CreateSnapshot {
    name: String,
    image_name: Option<String>,
    entrypoint: Option<Vec<String>>,
    build_info: Option<BuildInfo>,
}

pub(super) async fn create(
    State(app): State<Adapter>,
    DaytonaJson(request): DaytonaJson<CreateSnapshot>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let name = request.name.trim();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_allowed) {
        let message = "Invalid snapshot name: use letters, digits and -_.:/@";
        return Err(DaytonaRefusal::bad(message));
    }
    let is_taken = app.store.template(ORIGIN, name).await?.is_some()
        || app.leases.providers().named(name).is_ok()
        || app.snapshots().await?.contains_key(name);
    if is_taken {
        let message = format!("Snapshot with name \"{name}\" already exists");
        return Err(DaytonaRefusal::new(StatusCode::CONFLICT, message));
    }
    let (mut plan, source) = match (&request.build_info, request.image_name) {
        (Some(info), _) => (info.plan()?, Some(info.dockerfile_content.clone())),
        (None, Some(image)) if !image.trim().is_empty() => {
            (dockerfile::empty(Base::Image(image.trim().to_owned())), None)
        }
        (None, _) => return Err(DaytonaRefusal::bad("a snapshot needs an image or a Dockerfile")),
    };
    if let Some(words) = request.entrypoint.filter(|words| !words.is_empty()) {
        let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
        plan.start = Some(words.join(" "));
    }
    let build = new_build(&app, source, None);
    let id = build.build_id.clone();
    let template = app.request_build(&DaytonaApi, name, build).await?;
    app.start_build(&DaytonaApi, &template.template_id, &id, plan, None).await?;
    let template = app.store.template(ORIGIN, name).await?;
    let template = template.ok_or_else(|| missing(name))?;
    Ok(axum::Json(snapshot_view(&app, &template)))
}

pub(super) fn new_build(app: &Adapter, source: Option<String>, waiter: Option<Waiter>) -> Build {
    let id = uuid::Uuid::now_v7().to_string().parse().expect("a uuid is an id");
    let build = Build::new(id, vec![USUAL_TAG.to_owned()], app.now().at);
    Build { source, waiter, ..build }
}

pub(super) fn missing(name: &str) -> DaytonaRefusal {
    DaytonaRefusal::missing(format!("Snapshot with ID or name {name} not found"))
}

/// The JSON of a snapshot that was built.
fn snapshot_view(app: &Adapter, template: &Template) -> Value {
    let size = DaytonaSize::default_size(app);
    let build = template.builds.last();
    let (state, reason) = match build.map(|build| &build.status) {
        Some(BuildStatus::Waiting) | None => ("pending", None),
        Some(BuildStatus::Building) => ("building", None),
        Some(BuildStatus::Ready(_)) => ("active", None),
        Some(BuildStatus::Failed(failure)) => ("build_failed", Some(&failure.message)),
    };
    let info =
        build.and_then(|build| Some((build, build.source.as_ref()?))).map(|(build, text)| {
            json!({
                "dockerfileContent": text,
                "contextHashes": [],
                "createdAt": build.created_at.to_string(),
                "updatedAt": build.updated_at.to_string(),
                "snapshotRef": build.build_id,
            })
        });
    let entrypoint = build.and_then(Build::made).and_then(|made| made.start.clone());
    json!({
        "id": template.template_id,
        "name": template.name,
        "general": false,
        "state": state,
        "size": null,
        "entrypoint": entrypoint.map(|command| vec![command]),
        "cpu": size.cpu,
        "gpu": 0,
        "mem": size.memory,
        "disk": size.disk,
        "errorReason": reason,
        "createdAt": template.created_at.to_string(),
        "updatedAt": template.updated_at.to_string(),
        "lastUsedAt": null,
        "sourceSandboxId": null,
        "buildInfo": info,
    })
}

/// The JSON of all built snapshots by name.
pub(super) async fn all(app: &Adapter) -> Result<BTreeMap<String, Value>, DaytonaRefusal> {
    let templates = app.store.templates().await?.into_iter();
    let named = templates.filter(|it| it.owner == ORIGIN && !it.name.starts_with(UNNAMED_PREFIX));
    Ok(named.map(|template| (template.name.clone(), snapshot_view(app, &template))).collect())
}

/// Deletes a built snapshot; `None` if there is no such snapshot.
pub(super) async fn remove(app: &Adapter, name: &str) -> Result<Option<bool>, DaytonaRefusal> {
    match app.store.template(ORIGIN, name).await? {
        Some(template) => Ok(Some(app.delete_template(&template).await?)),
        None => Ok(None),
    }
}
