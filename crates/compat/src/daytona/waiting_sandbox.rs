//! Sandboxes that wait until their image is built.

use serde_json::{Value, json};

use super::{
    DaytonaApi, DaytonaRefusal, ORGANIZATION, ORIGIN,
    image::{BuildInfo, UNNAMED_PREFIX, new_build},
    size::DaytonaSize,
    view::toolbox_url,
};
use adapter::{Adapter, build::plan::Base, new_sandbox::NewSandbox, vendor::VendorApi};
use model::{Build, BuildStatus, Template, USUAL_TAG, Waiter};

/// The limit of images that are kept for later sandboxes with the same Dockerfile.
const MAX_UNNAMED_IMAGES: usize = 16;

/// Builds the image of a Dockerfile and then creates a sandbox from it. Returns `Err` with the sandbox to create at
/// once if the image needs no build.
pub(super) async fn create(
    app: &Adapter,
    info: &BuildInfo,
    mut new: NewSandbox,
) -> Result<Result<axum::Json<Value>, NewSandbox>, DaytonaRefusal> {
    let plan = info.plan()?;
    // The files of an image need a build even without steps: it reads the settings of the image.
    let is_image = app.starts_from_image(&DaytonaApi, &plan.base).await?;
    if plan.steps.is_empty() && plan.start.is_none() && !is_image {
        let (Base::Image(name) | Base::Template(name)) = plan.base;
        return Ok(Err(NewSandbox { template: name, ..new }));
    }
    let hash = blake3::hash(info.dockerfile_content.as_bytes()).to_hex();
    let name = format!("{UNNAMED_PREFIX}{hash}");
    new.template = name.clone();
    // The disk has the size of the image's disk.
    new.settings.remove("disk");
    let known = app.store.template(ORIGIN, &name).await?;
    if known.is_some_and(|template| template.tagged(USUAL_TAG).is_some()) {
        return Ok(Err(new));
    }
    evict_images(app).await?;
    let sandbox_name = new.name.clone().unwrap_or_default();
    let waiter = Waiter { thread_id: new.id.clone(), name: sandbox_name };
    let build = new_build(app, Some(info.dockerfile_content.clone()), Some(waiter.clone()));
    let id = build.build_id.clone();
    let template = app.request_build(&DaytonaApi, &name, build).await?;
    app.start_build(&DaytonaApi, &template.template_id, &id, plan, Some(new)).await?;
    Ok(Ok(axum::Json(waiting_view(app, &waiter, "pending_build", None))))
}

/// Deletes the oldest images that were built for sandboxes, down to the limit.
async fn evict_images(app: &Adapter) -> Result<(), DaytonaRefusal> {
    let mut images = app.store.templates().await?;
    images.retain(|it| it.owner == ORIGIN && it.name.starts_with(UNNAMED_PREFIX));
    images.retain(|it| it.builds.iter().all(|build| build.status.is_end()));
    images.sort_by_key(|image| image.updated_at);
    let surplus = (images.len() + 1).saturating_sub(MAX_UNNAMED_IMAGES);
    for image in images.iter().take(surplus) {
        app.delete_template(image).await?;
    }
    Ok(())
}

/// The JSON of a sandbox that does not exist yet.
fn waiting_view(app: &Adapter, waiter: &Waiter, state: &str, reason: Option<&str>) -> Value {
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

/// The build that a sandbox waits for.
pub(super) async fn awaited_build(
    app: &Adapter,
    name: &str,
) -> Result<Option<(Template, Build, Waiter)>, DaytonaRefusal> {
    for template in app.store.templates().await? {
        for build in template.builds.iter().rev() {
            let waiter = build.waiter.clone();
            let is_requested = |it: &Waiter| it.thread_id.as_str() == name || it.name == name;
            let Some(waiter) = waiter.filter(is_requested) else { continue };
            let is_running = app.builds().lines(&build.build_id).is_some();
            // A server that was killed at that moment may have created the sandbox without recording it.
            let exists = !is_running && app.sandboxes.get(&waiter.thread_id).await?.is_some();
            let build = build.clone();
            return Ok((!exists).then_some((template, build, waiter)));
        }
    }
    Ok(None)
}

/// Returns a sandbox that waits for its image, or whose image failed.
pub(super) async fn show(app: &Adapter, name: &str) -> Result<Option<Value>, DaytonaRefusal> {
    let Some((_, build, waiter)) = awaited_build(app, name).await? else { return Ok(None) };
    let is_running = app.builds().lines(&build.build_id).is_some();
    let (state, reason) = match &build.status {
        BuildStatus::Failed(failure) => ("build_failed", Some(failure.message.as_str())),
        _ if is_running => ("building_snapshot", None),
        _ => ("error", Some("the image was built, but the sandbox could not be created from it")),
    };
    Ok(Some(waiting_view(app, &waiter, state, reason)))
}

/// Cancels a sandbox that waits for its image, and the build of the image.
pub(super) async fn cancel(app: &Adapter, name: &str) -> Result<Option<Value>, DaytonaRefusal> {
    let Some((template, build, waiter)) = awaited_build(app, name).await? else { return Ok(None) };
    if build.status.is_end() {
        app.forget_waiter(&template.template_id, &build.build_id).await?;
    } else {
        app.delete_template(&template).await?;
    }
    Ok(Some(waiting_view(app, &waiter, "destroyed", None)))
}
