//! Daytona's images: snapshots that are built, and sandboxes that wait for one.

use std::collections::BTreeMap;

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaApi, DaytonaJson, DaytonaRefusal, ORGANIZATION, ORIGIN,
    size::DaytonaSize,
    view::{find, toolbox_url},
};
use adapter::{
    Adapter,
    build::{
        dockerfile,
        log::Level,
        plan::{Base, MAX_SOURCE_BYTES, MAX_STEPS, Plan},
    },
    new_sandbox::NewSandbox,
    vendor::VendorApi,
    wrap::quote,
};
use api::error::Problem;
use model::{Build, BuildId, BuildStatus, Template, USUAL_TAG, Waiter};

/// Bytes of a name.
const MAX_NAME_BYTES: usize = 128;
/// Images that were built for sandboxes and are kept for the next ones of the same text.
const MAX_UNNAMED_IMAGES: usize = 16;
/// The prefix of such an image's name, which no client may use.
const IMAGE: &str = "unnamed image ";
/// Lines of a log that are sent at once.
const MAX_LINES_PER_CHUNK: usize = 200;

/// What an image is built from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BuildInfo {
    dockerfile_content: String,
    context_hashes: Option<Vec<String>>,
}

impl BuildInfo {
    /// What is to be done.
    pub(super) fn plan(&self) -> Result<Plan, DaytonaRefusal> {
        if self.context_hashes.as_ref().is_some_and(|hashes| !hashes.is_empty()) {
            return Err(DaytonaRefusal::bad(NO_FILES));
        }
        if self.dockerfile_content.len() > MAX_SOURCE_BYTES {
            return Err(DaytonaRefusal::bad(format!(
                "a Dockerfile may have {MAX_SOURCE_BYTES} bytes"
            )));
        }
        let plan = dockerfile::parse(&self.dockerfile_content)
            .map_err(|error| DaytonaRefusal::bad(format!("Dockerfile, {error}")))?;
        if plan.steps.len() > MAX_STEPS {
            return Err(DaytonaRefusal::bad(format!("a Dockerfile may have {MAX_STEPS} steps")));
        }
        Ok(plan)
    }
}

const NO_FILES: &str = "files cannot be sent to this server with an image; write them by commands of the \
                        image, or upload them into a sandbox and make a snapshot of it";

/// Where a client would send the files of an image.
pub(super) async fn push_access() -> DaytonaRefusal {
    DaytonaRefusal::bad(NO_FILES)
}

/// A snapshot that is to be built.
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
    DaytonaJson(asked): DaytonaJson<CreateSnapshot>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let name = asked.name.trim();
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_good) {
        let message = "Invalid snapshot name: it has letters, digits and -_.:/@";
        return Err(DaytonaRefusal::bad(message));
    }
    let taken = app.store.template(ORIGIN, name).await?.is_some()
        || app.leases.providers().named(name).is_ok()
        || app.snapshots().await?.contains_key(name);
    if taken {
        let message = format!("Snapshot with name \"{name}\" already exists");
        return Err(DaytonaRefusal::new(StatusCode::CONFLICT, message));
    }
    let (mut plan, source) = match (&asked.build_info, asked.image_name) {
        (Some(info), _) => (info.plan()?, Some(info.dockerfile_content.clone())),
        (None, Some(image)) if !image.trim().is_empty() => {
            (dockerfile::empty(Base::Image(image.trim().to_owned())), None)
        }
        (None, _) => return Err(DaytonaRefusal::bad("a snapshot needs an image or a Dockerfile")),
    };
    if let Some(words) = asked.entrypoint.filter(|words| !words.is_empty()) {
        let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
        plan.start = Some(words.join(" "));
    }
    let build = fresh(&app, source, None);
    let id = build.build_id.clone();
    let template = app.request_build(&DaytonaApi, name, build).await?;
    app.start_build(&DaytonaApi, &template.template_id, &id, plan, None).await?;
    let template = app.store.template(ORIGIN, name).await?;
    let template = template.ok_or_else(|| missing(name))?;
    Ok(axum::Json(described(&app, &template)))
}

fn fresh(app: &Adapter, source: Option<String>, waiter: Option<Waiter>) -> Build {
    let id = uuid::Uuid::now_v7().to_string().parse().expect("a uuid is an id");
    let build = Build::new(id, vec![USUAL_TAG.to_owned()], app.now().at);
    Build { source, waiter, ..build }
}

fn missing(name: &str) -> DaytonaRefusal {
    DaytonaRefusal::missing(format!("Snapshot with ID or name {name} not found"))
}

/// A snapshot that was built, as clients read it.
fn described(app: &Adapter, template: &Template) -> Value {
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
    let entry = build.and_then(Build::made).and_then(|made| made.start.clone());
    json!({
        "id": template.template_id,
        "name": template.name,
        "general": false,
        "state": state,
        "size": null,
        "entrypoint": entry.map(|command| vec![command]),
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

/// Every snapshot that was built here by name.
pub(super) async fn all(app: &Adapter) -> Result<BTreeMap<String, Value>, DaytonaRefusal> {
    let templates = app.store.templates().await?.into_iter();
    let named = templates.filter(|it| it.owner == ORIGIN && !it.name.starts_with(IMAGE));
    Ok(named.map(|template| (template.name.clone(), described(app, &template))).collect())
}

/// Deletes one that was built here; `None` if it was not.
pub(super) async fn remove(app: &Adapter, name: &str) -> Result<Option<bool>, DaytonaRefusal> {
    match app.store.template(ORIGIN, name).await? {
        Some(template) => Ok(Some(app.delete_template(&template).await?)),
        None => Ok(None),
    }
}

/// Creates a sandbox from the image that a Dockerfile describes, once it is built; `Err` returns what
/// is to be made at once from an image that needs no building.
pub(super) async fn create_sandbox(
    app: &Adapter,
    info: &BuildInfo,
    mut new: NewSandbox,
) -> Result<Result<axum::Json<Value>, NewSandbox>, DaytonaRefusal> {
    let plan = info.plan()?;
    if plan.steps.is_empty() && plan.start.is_none() {
        let (Base::Image(name) | Base::Template(name)) = plan.base;
        return Ok(Err(NewSandbox { template: name, ..new }));
    }
    let hash = blake3::hash(info.dockerfile_content.as_bytes()).to_hex();
    let name = format!("{IMAGE}{hash}");
    new.template = name.clone();
    // Its disk has the size of the image's.
    new.settings.remove("disk");
    let known = app.store.template(ORIGIN, &name).await?;
    if known.is_some_and(|template| template.tagged(USUAL_TAG).is_some()) {
        return Ok(Err(new));
    }
    make_room(app).await?;
    let named = new.name.clone().unwrap_or_default();
    let waiter = Waiter { thread_id: new.id.clone(), name: named };
    let build = fresh(app, Some(info.dockerfile_content.clone()), Some(waiter.clone()));
    let id = build.build_id.clone();
    let template = app.request_build(&DaytonaApi, &name, build).await?;
    app.start_build(&DaytonaApi, &template.template_id, &id, plan, Some(new)).await?;
    Ok(Ok(axum::Json(waiting(app, &waiter, "pending_build", None))))
}

/// Forgets images that were built for sandboxes long ago.
async fn make_room(app: &Adapter) -> Result<(), DaytonaRefusal> {
    let mut images = app.store.templates().await?;
    images.retain(|it| it.owner == ORIGIN && it.name.starts_with(IMAGE));
    images.retain(|it| it.builds.iter().all(|build| build.status.is_end()));
    images.sort_by_key(|image| image.updated_at);
    let surplus = (images.len() + 1).saturating_sub(MAX_UNNAMED_IMAGES);
    for image in images.iter().take(surplus) {
        app.delete_template(image).await?;
    }
    Ok(())
}

/// A sandbox that is not there yet.
fn waiting(app: &Adapter, waiter: &Waiter, state: &str, reason: Option<&str>) -> Value {
    let size = DaytonaSize::default_size(app);
    json!({
        "id": waiter.thread_id,
        "organizationId": ORGANIZATION,
        "name": waiter.name,
        "user": DaytonaApi.user(),
        "env": {},
        "labels": {},
        "public": false,
        "networkBlockAll": false,
        "kvm": false,
        "target": "local",
        "cpu": size.cpu,
        "gpu": 0,
        "memory": size.memory,
        "disk": size.disk,
        "state": state,
        "desiredState": "started",
        "errorReason": reason,
        "toolboxProxyUrl": toolbox_url(app),
    })
}

/// The build that a sandbox waits for, and the sandbox.
async fn awaited(
    app: &Adapter,
    name: &str,
) -> Result<Option<(Template, Build, Waiter)>, DaytonaRefusal> {
    for template in app.store.templates().await? {
        for build in template.builds.iter().rev() {
            let waits = build.waiter.clone();
            let is_meant = |it: &Waiter| it.thread_id.as_str() == name || it.name == name;
            let Some(waiter) = waits.filter(is_meant) else { continue };
            let runs = app.builds().lines(&build.build_id).is_some();
            // A server that was killed right then may have made it and not noted that.
            let is_there = !runs && app.sandboxes.get(&waiter.thread_id).await?.is_some();
            let build = build.clone();
            return Ok((!is_there).then_some((template, build, waiter)));
        }
    }
    Ok(None)
}

/// A sandbox that waits for its image, or never got it.
pub(super) async fn show_waiting(
    app: &Adapter,
    name: &str,
) -> Result<Option<Value>, DaytonaRefusal> {
    let Some((_, build, waiter)) = awaited(app, name).await? else { return Ok(None) };
    let runs = app.builds().lines(&build.build_id).is_some();
    let (state, reason) = match &build.status {
        BuildStatus::Failed(failure) => ("build_failed", Some(failure.message.as_str())),
        _ if runs => ("building_snapshot", None),
        _ => ("error", Some("the image is there, the sandbox could not be made from it")),
    };
    Ok(Some(waiting(app, &waiter, state, reason)))
}

/// Forgets a sandbox that waits; its image is not built any further.
pub(super) async fn forget_waiting(
    app: &Adapter,
    name: &str,
) -> Result<Option<Value>, DaytonaRefusal> {
    let Some((template, build, waiter)) = awaited(app, name).await? else { return Ok(None) };
    if build.status.is_end() {
        app.forget_waiter(&template.template_id, &build.build_id).await?;
    } else {
        app.delete_template(&template).await?;
    }
    Ok(Some(waiting(app, &waiter, "destroyed", None)))
}

/// Whether lines that are still to come are sent, too.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogQuery {
    follow: Option<bool>,
}

/// Where the log of a snapshot's build is.
pub(super) async fn logs_url(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let template = app.store.template(ORIGIN, &name).await?.ok_or_else(|| missing(&name))?;
    let id = &template.template_id;
    Ok(axum::Json(json!({"url": format!("{}/daytona/snapshots/{id}/build-logs", app.url)})))
}

/// The log of a snapshot's build.
pub(super) async fn logs(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<LogQuery>,
) -> Result<Response, DaytonaRefusal> {
    let template = app.store.template(ORIGIN, &name).await?.ok_or_else(|| missing(&name))?;
    let build = template.builds.last().ok_or_else(|| missing(&name))?.build_id.clone();
    Ok(lines(app, build, asked.follow == Some(true)))
}

/// Where the log of the build is that a sandbox waits for.
pub(super) async fn sandbox_logs_url(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if awaited(&app, &name).await?.is_none() {
        find(&app, &name).await?;
    }
    Ok(axum::Json(json!({"url": format!("{}/daytona/sandbox/{name}/build-logs", app.url)})))
}

/// The log of that build; of one that is over, what its image says.
pub(super) async fn sandbox_logs(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<LogQuery>,
) -> Result<Response, DaytonaRefusal> {
    let build = match awaited(&app, &name).await? {
        Some((_, build, _)) => Some(build.build_id),
        None => {
            let sandbox = find(&app, &name).await?;
            let template = app.store.template(ORIGIN, &sandbox.row.template).await?;
            template.and_then(|it| Some(it.tagged(USUAL_TAG)?.build_id.clone()))
        }
    };
    match build {
        Some(build) => Ok(lines(app, build, asked.follow == Some(true))),
        None => Ok(text(Body::empty())),
    }
}

fn text(body: Body) -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], body).into_response()
}

/// The log of a build as text; where it is followed, until the build has ended.
fn lines(app: Adapter, build: BuildId, follow: bool) -> Response {
    let told = if follow { app.builds().lines(&build) } else { None };
    let state = (app, build, told, 0_u64);
    let body = stream::unfold(state, async |(app, build, mut told, from)| {
        loop {
            // The log of a build that has ended is complete.
            let ended = told.as_ref().is_none_or(|told| told.has_changed().is_err());
            let read: Result<_, Problem> =
                app.build_log(&build, from, MAX_LINES_PER_CHUNK, Level::Debug).await;
            let read = match read {
                Ok(read) => read,
                Err(problem) => {
                    let error = std::io::Error::other(problem.detail().to_owned());
                    return Some((Err(error), (app, build, None, u64::MAX)));
                }
            };
            if !read.is_empty() {
                let text: String = read.iter().map(|line| format!("{}\n", line.message)).collect();
                let next = from + read.len() as u64;
                return Some((Ok(Bytes::from(text)), (app, build, told, next)));
            }
            let told = told.as_mut().filter(|_| !ended)?;
            tokio::select! {
                _ = told.changed() => {}
                () = app.stopping.cancelled() => return None,
            }
        }
    });
    text(Body::from_stream(body))
}
