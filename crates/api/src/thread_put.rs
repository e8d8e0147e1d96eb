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
    terminals::check_env,
    threads::{ThreadView, shown},
};
use base::event::Happened;
use model::{Env, Hours, LeaseId, Money, OnExpiry, ProjectId, SessionPolicy, ThreadId};
use provider::ProviderError;
use store::ThreadChoices;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put))
}

/// A policy, or the parts of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PolicyRequest {
    /// Seconds without activity after which a session expires.
    idle_timeout_s: Option<u64>,
    /// Seconds after which it expires in any case.
    max_duration_s: Option<u64>,
    /// What its end does to the compute: `keep`, `pause` or `stop`.
    #[schema(value_type = Option<String>)]
    on_expiry: Option<OnExpiry>,
    /// Hours that the compute beneath may run during a session; 0 is as many as it likes.
    max_running_hours: Option<f64>,
    /// What the compute beneath may cost during a session, by the price that its provider has in the
    /// settings; 0 is as much as it likes.
    max_cost: Option<f64>,
}

/// Choices for a thread; all optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ThreadRequest {
    /// The project it belongs to.
    #[schema(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// The provider its lease is a claim on; cannot be changed later.
    provider: Option<String>,
    /// Limits and egress of its sandbox, `{memory, cpus, processes, disk, egress, image}`; cannot be
    /// changed later.
    #[schema(value_type = Option<Object>)]
    sandbox: Option<serde_json::Value>,
    /// A lease to share; cannot be changed later.
    #[schema(value_type = Option<String>)]
    lease_id: Option<LeaseId>,
    /// The policy of its sessions.
    policy: Option<PolicyRequest>,
    /// What its shells have in their environment from the start.
    #[schema(value_type = Option<Object>)]
    env: Option<Env>,
    /// Where its shells start.
    cwd: Option<String>,
    /// A client's own notes.
    labels: Option<BTreeMap<String, String>>,
}

/// Make a thread with choices, or change one.
#[utoipa::path(put, path = "/api/threads/{tid}", tag = "threads",
    params(("tid" = String, Path, description = "The thread; its id is the client's choice")),
    request_body = ThreadRequest,
    responses((status = 200, description = "It was changed", body = ThreadView),
        (status = 201, description = "It was made", body = ThreadView)))]
async fn put(
    State(app): State<App>,
    Path(thread_id): Path<ThreadId>,
    OptionalJson(mut choices): OptionalJson<ThreadRequest>,
) -> Result<(StatusCode, axum::Json<ThreadView>), Problem> {
    check_env(choices.env.as_ref(), "/env")?;
    if choices.cwd.as_deref().is_some_and(|cwd| !cwd.starts_with('/') || cwd.contains('\0')) {
        return Err(Problem::body("/cwd", "must be an absolute path"));
    }
    if let Some(provider) = &choices.provider
        && app.leases.providers().named(provider).is_err()
    {
        let known: Vec<&str> = app.leases.providers().all().map(|p| p.name()).collect();
        let detail = format!("must be one of {}", known.join(", "));
        return Err(Problem::body("/provider", detail));
    }
    let nothing = |spec: &serde_json::Value| spec.as_object().is_some_and(|spec| spec.is_empty());
    choices.sandbox = choices.sandbox.filter(|spec| !nothing(spec));
    if let Some(spec) = &choices.sandbox {
        if choices.lease_id.is_some() {
            return Err(Problem::body("/sandbox", "is that of the lease to be shared"));
        }
        let known = app.store.thread(&thread_id).await?.and_then(|thread| thread.provider);
        let name = choices.provider.as_ref().or(known.as_ref()).unwrap_or(&app.provider);
        let provider = app.leases.providers().named(name);
        if let Some(refused) = provider.ok().and_then(|provider| provider.accepts(spec).err()) {
            let detail = match refused {
                ProviderError::Refused { reason, .. } => reason,
                other => other.to_string(),
            };
            return Err(Problem::body("/sandbox", detail));
        }
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
    let (thread, made) = app.store.put_thread(app.first_use(&thread_id, choices)).await?;
    if changes_policy {
        app.sessions.policy_changed(&thread_id).await?;
    }
    if made {
        app.events.tell(Happened::ThreadCreated { thread_id });
    }
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(shown(&app, thread).await?)))
}
