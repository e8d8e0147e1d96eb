//! The API of E2B: its control plane, and the daemon (envd) that it has in every sandbox.
//!
//! What is served is what the official clients call; `docs/migrate-e2b.md` lists it. Requests to the
//! daemon come to the same port and are distinguished by `address`.

mod address;
mod connect;
mod content;
mod control;
mod door;
mod files;
mod filesystem;
mod interpreter;
mod link;
mod list;
mod logs;
mod network;
mod process;
mod snapshot;
mod template;
mod usage;
mod vendor;
mod view;
mod volume;
mod watch;

use axum::{
    Router,
    extract::{FromRequest, Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, patch, post, put},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use door::E2bDoor;
pub use vendor::E2bVendor;
pub use watch::Watchers;

use crate::Compat;
use ::files::FileError;
use address::E2bGuest;
use api::{error::Problem, extract::OptionalJson};
use engine::sandbox::SandboxError;
use store::StoreError;

/// The name of this API in the rows of sandboxes and templates.
const ORIGIN: &str = "e2b";
/// The version of the daemon whose behaviour we reproduce.
const ENVD: &str = "0.6.13";

pub fn routes() -> Router<Compat> {
    Router::new()
        .route("/sandboxes", get(list::list_running).post(control::create))
        .route("/v2/sandboxes", get(list::list).post(control::create_v2))
        .route("/sandboxes/metrics", get(usage::metrics_of))
        .route("/sandboxes/{id}", get(control::show).delete(control::kill))
        .route("/sandboxes/{id}/pause", post(control::pause))
        .route("/sandboxes/{id}/resume", post(control::resume))
        .route("/sandboxes/{id}/connect", post(control::connect))
        .route("/v2/sandboxes/{id}/connect", post(control::connect_v2))
        .route("/sandboxes/{id}/network", put(control::update_network))
        .route("/sandboxes/{id}/timeout", post(control::timeout))
        .route("/sandboxes/{id}/refreshes", post(control::refresh))
        .route("/sandboxes/{id}/metrics", get(usage::metrics))
        .route("/sandboxes/{id}/logs", get(logs::first))
        .route("/v2/sandboxes/{id}/logs", get(logs::second))
        .route("/sandboxes/{id}/fork", post(control::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshot::create))
        .route("/volumes", get(volume::list).post(volume::create))
        .route("/volumes/{name}", get(volume::show).delete(volume::remove))
        .route("/snapshots", get(snapshot::list))
        .route("/health", get(health))
        .route("/envs", get(envs))
        .route("/files", get(files::read).post(files::write))
        .merge(contents())
        .merge(templates())
        .merge(calls())
}

fn contents() -> Router<Compat> {
    Router::new()
        .route("/volumecontent/{name}/dir", get(content::list).post(content::make_dir))
        .route(
            "/volumecontent/{name}/path",
            get(content::show).patch(content::change).delete(content::remove),
        )
        .route("/volumecontent/{name}/file", get(content::read).put(content::write))
}

fn templates() -> Router<Compat> {
    Router::new()
        .route("/templates", get(template::list))
        .route("/v2/templates", get(template::page).post(template::request))
        .route("/v3/templates", post(template::request))
        .route("/templates/tags", post(template::tag).delete(template::untag))
        .route(
            "/templates/{name}",
            get(template::show).patch(template::update).delete(template::remove),
        )
        .route("/v2/templates/{name}", patch(template::update))
        .route("/templates/aliases/{name}", get(template::alias))
        .route("/templates/{name}/tags", get(template::tags))
        .route("/templates/{name}/files/{hash}", get(template::files).put(template::take))
        .route("/v2/templates/{name}/builds/{build}", post(template::start))
        .route("/templates/{name}/builds/{build}/status", get(template::status))
        .route("/templates/{name}/builds/{build}/logs", get(template::logs))
}

fn calls() -> Router<Compat> {
    Router::new()
        .route("/process.Process/List", post(process::list))
        .route("/process.Process/Start", post(process::start))
        .route("/process.Process/Connect", post(process::connect))
        .route("/process.Process/SendInput", post(process::send_input))
        .route("/process.Process/StreamInput", post(process::stream_input))
        .route("/process.Process/CloseStdin", post(process::close_stdin))
        .route("/process.Process/SendSignal", post(process::send_signal))
        .route("/process.Process/Update", post(process::update))
        .route("/filesystem.Filesystem/Stat", post(filesystem::stat))
        .route("/filesystem.Filesystem/MakeDir", post(filesystem::make_dir))
        .route("/filesystem.Filesystem/Move", post(filesystem::rename))
        .route("/filesystem.Filesystem/ListDir", post(filesystem::list_dir))
        .route("/filesystem.Filesystem/Remove", post(filesystem::remove))
        .route("/filesystem.Filesystem/WatchDir", post(watch::watch_dir))
        .route("/filesystem.Filesystem/CreateWatcher", post(watch::create))
        .route("/filesystem.Filesystem/GetWatcherEvents", post(watch::events))
        .route("/filesystem.Filesystem/RemoveWatcher", post(watch::remove))
}

/// A refusal as clients of E2B read it: `{"code": 404, "message": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct E2bRefusal {
    status: StatusCode,
    message: String,
}

impl E2bRefusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> E2bRefusal {
        E2bRefusal { status, message: message.into() }
    }

    fn body(&self) -> Value {
        json!({"code": self.status.as_u16(), "message": self.message})
    }
}

impl From<Problem> for E2bRefusal {
    fn from(problem: Problem) -> E2bRefusal {
        E2bRefusal::new(problem.code().status().0, problem.detail())
    }
}

impl From<StoreError> for E2bRefusal {
    fn from(error: StoreError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl From<SandboxError> for E2bRefusal {
    fn from(error: SandboxError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl From<FileError> for E2bRefusal {
    fn from(error: FileError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl IntoResponse for E2bRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn bad(message: impl Into<String>) -> E2bRefusal {
    E2bRefusal::new(StatusCode::BAD_REQUEST, message)
}

/// A JSON body that may be left out, with refusals as clients of E2B read them.
pub struct E2bJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for E2bJson<T> {
    type Rejection = E2bRefusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, E2bRefusal> {
        let OptionalJson(asked) = OptionalJson::from_request(request, state).await?;
        Ok(E2bJson(asked))
    }
}

/// Whether the sandbox runs.
async fn health(_guest: E2bGuest) -> StatusCode {
    StatusCode::NO_CONTENT
}

/// What its programs have in their environment.
async fn envs(guest: E2bGuest) -> axum::Json<Value> {
    axum::Json(json!(guest.sandbox.thread.env))
}

/// The usage of a sandbox as its daemon reports it. The path is the server's own, which asks here when a
/// request is for a sandbox.
pub async fn metrics(
    State(app): State<Compat>,
    guest: E2bGuest,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let used = crate::usage::UsageSample::of(&app, &guest.sandbox).await?;
    Ok(axum::Json(used.of_daemon()))
}
