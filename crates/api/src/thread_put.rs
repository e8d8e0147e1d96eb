//! `PUT /api/threads/{tid}`: creates a thread with options, or changes one.

use std::collections::BTreeMap;

use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{OptionalJson, Path},
    providers::{check_provider, check_settings},
    shapes::SandboxSettingsSchema,
    terminals::check_env,
    threads::{ThreadView, thread_view},
};
use base::event::EventKind;
use model::{Env, Hours, LeaseId, Money, OnExpiry, ProjectId, SessionPolicy, ThreadId};
use store::ThreadChoices;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put))
}

/// The limits of sessions; omitted fields keep their defaults.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PolicyRequest {
    /// Idle timeout in seconds.
    idle_timeout_s: Option<u64>,
    /// Maximum duration of a session in seconds.
    max_duration_s: Option<u64>,
    /// What happens to the instance when a session expires: `keep`, `pause` or `stop`.
    #[schema(value_type = Option<String>)]
    on_expiry: Option<OnExpiry>,
    /// Maximum running time of the instance during a session, in hours; 0 means no limit.
    max_running_hours: Option<f64>,
    /// Maximum cost of the instance during a session, at the configured price; 0 means no limit.
    max_cost: Option<f64>,
}

/// Options of a thread; all are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"project_id": "demo-0a1b2c3d", "policy": {"idle_timeout_s": 3600}, "env": {"CI": "1"}}))]
struct ThreadRequest {
    /// Id of its project.
    #[schema(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// Provider of its lease; cannot be changed later.
    provider: Option<String>,
    /// Image, limits, egress and capabilities of its sandbox; cannot be changed later.
    #[schema(value_type = Option<SandboxSettingsSchema>)]
    sandbox: Option<serde_json::Value>,
    /// Id of a lease to share; cannot be changed later.
    #[schema(value_type = Option<String>)]
    lease_id: Option<LeaseId>,
    /// Limits of its sessions.
    policy: Option<PolicyRequest>,
    /// Environment variables of its shells.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Env>,
    /// Initial working directory of its shells.
    cwd: Option<String>,
    /// Labels set by clients.
    labels: Option<BTreeMap<String, String>>,
}

/// Create a thread with options, or change one.
#[utoipa::path(put, path = "/api/threads/{tid}", tag = "threads",
    operation_id = "threads.put", params(("tid" = String, Path, description = "Id of the thread, chosen by the client")),
    request_body = ThreadRequest,
    responses((status = 200, description = "The changed thread", body = ThreadView),
        (status = 201, description = "The new thread", body = ThreadView)))]
async fn put(
    State(app): State<App>,
    Path(thread_id): Path<ThreadId>,
    OptionalJson(mut choices): OptionalJson<ThreadRequest>,
) -> Result<(StatusCode, axum::Json<ThreadView>), Problem> {
    check_env(choices.env.as_ref(), "/env")?;
    if choices.cwd.as_deref().is_some_and(|cwd| !cwd.starts_with('/') || cwd.contains('\0')) {
        return Err(Problem::body("/cwd", "must be an absolute path"));
    }
    check_provider(&app, choices.provider.as_deref())?;
    let is_empty = |spec: &serde_json::Value| spec.as_object().is_some_and(|spec| spec.is_empty());
    choices.sandbox = choices.sandbox.filter(|spec| !is_empty(spec));
    if let Some(spec) = &choices.sandbox {
        if choices.lease_id.is_some() {
            return Err(Problem::body(
                "/sandbox",
                "cannot be combined with lease_id: a shared lease has its own sandbox",
            ));
        }
        let known = app.store.thread(&thread_id).await?.and_then(|thread| thread.provider);
        let name = choices.provider.as_ref().or(known.as_ref()).unwrap_or(&app.provider);
        check_settings(&app, name, spec, "/sandbox")?;
    }
    if let Some(policy) = &choices.policy {
        for (pointer, amount) in [
            ("/policy/max_running_hours", policy.max_running_hours),
            ("/policy/max_cost", policy.max_cost),
        ] {
            if amount.is_some_and(|amount| !(0.0..=1e9).contains(&amount)) {
                return Err(Problem::body(pointer, "must be 0 to 1000000000"));
            }
        }
    }
    let policy = choices.policy.map(|policy| {
        let base = app.policy();
        SessionPolicy {
            idle_timeout_s: policy.idle_timeout_s.unwrap_or(base.idle_timeout_s),
            max_duration_s: policy.max_duration_s.unwrap_or(base.max_duration_s),
            on_expiry: policy.on_expiry.unwrap_or(base.on_expiry),
            max_running: policy.max_running_hours.filter(|hours| *hours != 0.0).map(Hours::from),
            max_cost: policy.max_cost.filter(|cost| *cost != 0.0).map(Money::from),
        }
    });
    if let Some(policy) = policy {
        for (pointer, seconds) in [
            ("/policy/idle_timeout_s", policy.idle_timeout_s),
            ("/policy/max_duration_s", policy.max_duration_s),
        ] {
            if seconds == 0 || seconds > 10 * 365 * 86_400 {
                return Err(Problem::body(pointer, "must be 1 to 315360000"));
            }
        }
    }
    let choices = ThreadChoices {
        sandbox: None,
        project_id: choices.project_id,
        provider: choices.provider,
        spec: choices.sandbox,
        lease_id: choices.lease_id,
        fork: None,
        policy,
        env: choices.env,
        cwd: choices.cwd,
        labels: choices.labels,
    };
    let changes_policy = choices.policy.is_some();
    let (thread, created) = app.store.put_thread(app.first_use(&thread_id, choices)).await?;
    if changes_policy {
        app.sessions.policy_changed(&thread_id).await?;
    }
    if created {
        app.events.publish(EventKind::ThreadCreated { thread_id });
    }
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(thread_view(&app, thread).await?)))
}
