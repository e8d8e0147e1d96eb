//! The API of Daytona below `/daytona`: its control plane, and the toolbox that it has in every sandbox.
//!
//! What is served is what the official clients call; `docs/migrate-daytona.md` lists it. A session of the
//! toolbox is a terminal with a live shell, a PTY a terminal with a program of its own.

mod control;
mod copy;
mod door;
mod events;
mod fault;
mod files;
mod git;
mod image;
mod interpreter;
mod link;
mod list;
mod network;
mod process;
mod pty;
mod session;
mod settings;
mod size;
mod vendor;
mod view;
mod volume;

use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use serde::de::DeserializeOwned;
use serde_json::json;

pub use door::DaytonaDoor;
pub use vendor::DaytonaVendor;

use crate::Compat;
use ::files::FileError;
use api::{error::Problem, extract::OptionalJson};
use engine::{sandbox::SandboxError, terminal::TerminalError};
use git::{branch, commit, config, remote};
use model::Timestamp;
use store::{SandboxRecord, StoreError};
use view::find;

/// The prefix of every path.
const PREFIX: &str = "/daytona";
/// The name of this API in the rows of sandboxes and templates.
const ORIGIN: &str = "daytona";
/// The id of the only organization.
const ORGANIZATION: &str = "00000000-0000-0000-0000-000000000001";
/// The version of the toolbox whose behaviour we reproduce.
const TOOLBOX: &str = "0.190.0";

/// Whether a path is one of Daytona's.
pub fn is_path(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the body is a file, which is streamed and may be large.
pub fn is_file_upload(path: &str) -> bool {
    let file = |name: &str| path.ends_with(name);
    is_path(path)
        && ["/files/bulk-upload", "/files/upload", "/files/upload-v2"].into_iter().any(file)
}

/// Every route. Clients are pointed at `/daytona` or, as they know it, at `/daytona/api`.
pub fn routes() -> Router<Compat> {
    let control = control_routes();
    Router::new()
        .nest("/daytona/api", control.clone())
        .nest("/daytona", control)
        .nest("/daytona/toolbox/{id}", toolbox())
}

fn control_routes() -> Router<Compat> {
    Router::new()
        .route("/config", get(control::config))
        .route("/socket.io/", get(events::connect))
        .route("/sandbox", get(list::list).post(control::create))
        .route("/sandbox/paginated", get(list::list))
        .route("/sandbox/{id}", get(control::show).delete(control::delete))
        .route("/sandbox/{id}/start", post(control::start))
        .route("/sandbox/{id}/stop", post(control::stop))
        .route("/sandbox/{id}/archive", post(control::archive))
        .route("/sandbox/{id}/recover", post(control::start))
        .route("/sandbox/{id}/last-activity", post(control::touch))
        .route("/sandbox/{id}/labels", put(settings::labels))
        .route("/sandbox/{id}/network-settings", post(settings::network))
        .route("/sandbox/{id}/autostop/{minutes}", post(settings::auto_stop))
        .route("/sandbox/{id}/autoarchive/{minutes}", post(settings::auto_archive))
        .route("/sandbox/{id}/autodelete/{minutes}", post(settings::auto_delete))
        .route("/sandbox/{id}/ttl/{minutes}", post(settings::ttl))
        .route("/sandbox/{id}/ports/{port}/preview-url", get(control::preview))
        .route("/sandbox/{id}/ports/{port}/signed-preview-url", get(link::signed_preview))
        .route(
            "/sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire",
            post(link::expire_preview),
        )
        .route("/sandbox/{id}/signing-key", get(link::signing_key))
        .route("/sandbox/{id}/signing-key/rotate", post(link::rotate))
        .route("/sandbox/{id}/resize", post(settings::resize))
        .route("/sandbox/{id}/telemetry/metrics", get(settings::metrics))
        .route("/sandbox/{id}/autopause/{minutes}", post(settings::auto_pause))
        .route("/sandbox/{id}/pause", post(control::pause))
        .route("/sandbox/{id}/fork", post(copy::fork))
        .route("/sandbox/{id}/snapshot", post(copy::snapshot))
        .route("/volumes", get(volume::list).post(volume::create))
        .route("/volumes/by-name/{name}", get(volume::show))
        .route("/volumes/{name}", get(volume::show).delete(volume::remove))
        .route("/snapshots", get(copy::list).post(image::create))
        .route("/snapshots/{name}", get(copy::show).delete(copy::remove))
        .route("/snapshots/{name}/activate", post(copy::activate))
        .route("/snapshots/{name}/build-logs", get(image::logs))
        .route("/snapshots/{name}/build-logs-url", get(image::logs_url))
        .route("/sandbox/{id}/build-logs", get(image::sandbox_logs))
        .route("/sandbox/{id}/build-logs-url", get(image::sandbox_logs_url))
        .route("/object-storage/push-access", get(image::push_access))
        .route("/sandbox/{id}/public/{public}", post(settings::public))
        .route("/sandbox/{id}/toolbox-proxy-url", get(control::toolbox))
}

fn toolbox() -> Router<Compat> {
    Router::new()
        .route("/version", get(process::version))
        .route("/system/metrics", get(process::metrics))
        .route("/env", post(settings::env))
        .route("/work-dir", get(process::work_dir))
        .route("/user-home-dir", get(process::work_dir))
        .route("/project-dir", get(process::work_dir))
        .route("/port", get(process::ports))
        .route("/port/{port}/in-use", get(process::port_in_use))
        .route("/process/execute", post(process::execute))
        .route("/process/code-run", post(process::code_run))
        .route("/process/session", get(session::list).post(session::create))
        .route("/process/session/entrypoint", get(session::entrypoint))
        .route("/process/session/entrypoint/logs", get(session::entrypoint_logs))
        .route("/process/session/{session}", get(session::show).delete(session::delete))
        .route("/process/session/{session}/exec", post(session::exec))
        .route("/process/session/{session}/command/{command}", get(session::command))
        .route("/process/session/{session}/command/{command}/logs", get(session::logs))
        .route("/process/session/{session}/command/{command}/input", post(session::input))
        .route("/process/interpreter/execute", get(interpreter::execute))
        .route("/process/interpreter/context", get(interpreter::list).post(interpreter::create))
        .route("/process/interpreter/context/{context}", delete(interpreter::delete))
        .route("/process/pty", get(pty::list).post(pty::create))
        .route("/process/pty/create-connect", get(pty::create_connect))
        .route("/process/pty/{pty}", get(pty::show).delete(pty::delete))
        .route("/process/pty/{pty}/resize", post(pty::resize))
        .route("/process/pty/{pty}/connect", get(pty::connect))
        .route("/files", get(files::list).delete(files::delete))
        .route("/files/info", get(files::info))
        .route("/files/folder", post(files::folder))
        .route("/files/download", get(files::download))
        .route("/files/upload", post(files::upload))
        .route("/files/upload-v2", post(files::upload_raw))
        .route("/files/bulk-upload", post(files::bulk_upload))
        .route("/files/bulk-download", post(files::bulk_download))
        .route("/files/move", post(files::rename))
        .route("/files/find", get(files::find))
        .route("/files/search", get(files::search))
        .route("/files/replace", post(files::replace))
        .route("/files/permissions", post(files::permissions))
        .merge(repositories())
}

fn repositories() -> Router<Compat> {
    Router::new()
        .route("/git/clone", post(remote::clone))
        .route("/git/init", post(remote::init))
        .route("/git/status", get(commit::status))
        .route(
            "/git/branches",
            get(branch::branches).post(branch::create_branch).delete(branch::delete_branch),
        )
        .route("/git/checkout", post(branch::checkout))
        .route("/git/add", post(commit::add))
        .route("/git/commit", post(commit::commit))
        .route("/git/history", get(commit::history))
        .route("/git/pull", post(remote::pull))
        .route("/git/push", post(remote::push))
        .route("/git/reset", post(commit::reset))
        .route("/git/restore", post(commit::restore))
        .route("/git/remotes", get(remote::remotes).post(remote::add_remote))
        .route("/git/config", get(config::config).post(config::set_config))
        .route("/git/config/user", post(config::set_user))
        .route("/git/credentials", post(config::authenticate))
}

/// A refusal as clients of Daytona read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaytonaRefusal {
    status: StatusCode,
    message: String,
    /// What clients of the toolbox tell its kind by, where that is more than the status.
    code: Option<&'static str>,
}

impl DaytonaRefusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal { status, message: message.into(), code: None }
    }

    /// One that clients of the toolbox have a name for.
    fn coded(status: StatusCode, code: &'static str, message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal { status, message: message.into(), code: Some(code) }
    }

    fn bad(message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal::new(StatusCode::BAD_REQUEST, message)
    }

    fn missing(message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal::new(StatusCode::NOT_FOUND, message)
    }

    fn body(&self) -> serde_json::Value {
        let word = self.status.canonical_reason().unwrap_or("error");
        let word = word.to_uppercase().replace([' ', '-'], "_");
        json!({
            "statusCode": self.status.as_u16(),
            "message": self.message,
            "error": word,
            "code": self.code.unwrap_or(&word),
            "source": if self.code.is_some() { "DAYTONA_DAEMON" } else { "DAYTONA_API" },
            "timestamp": Timestamp::now().to_string(),
            "path": "",
            "method": "",
        })
    }
}

impl From<Problem> for DaytonaRefusal {
    fn from(problem: Problem) -> DaytonaRefusal {
        DaytonaRefusal::new(problem.code().status().0, problem.detail())
    }
}

impl From<TerminalError> for DaytonaRefusal {
    fn from(error: TerminalError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<StoreError> for DaytonaRefusal {
    fn from(error: StoreError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<SandboxError> for DaytonaRefusal {
    fn from(error: SandboxError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<FileError> for DaytonaRefusal {
    fn from(error: FileError) -> DaytonaRefusal {
        let (status, code) = match &error {
            FileError::Missing { .. } => (StatusCode::NOT_FOUND, "FILE_NOT_FOUND"),
            FileError::Exists { .. } => (StatusCode::CONFLICT, "CONFLICT"),
            FileError::Forbidden { .. } => (StatusCode::FORBIDDEN, "FILE_ACCESS_DENIED"),
            FileError::BadPath { .. }
            | FileError::IsDirectory { .. }
            | FileError::NotDirectory { .. }
            | FileError::NotEmpty { .. }
            | FileError::NotRegular { .. } => (StatusCode::BAD_REQUEST, "INVALID_FILE_PATH"),
            _ => return Problem::from(error).into(),
        };
        DaytonaRefusal::coded(status, code, error.to_string())
    }
}

impl IntoResponse for DaytonaRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// A JSON body that may be left out, with refusals as clients of Daytona read them.
pub struct DaytonaJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for DaytonaJson<T> {
    type Rejection = DaytonaRefusal;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, DaytonaRefusal> {
        // Some calls of the clients do not say what they send.
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().entry(header::CONTENT_TYPE).or_insert(json);
        let OptionalJson(asked) = OptionalJson::from_request(request, state).await?;
        Ok(DaytonaJson(asked))
    }
}

/// The sandbox that a path of the toolbox names, running.
pub struct DaytonaGuest(pub SandboxRecord);

impl FromRequestParts<Compat> for DaytonaGuest {
    type Rejection = DaytonaRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Compat) -> Result<Self, DaytonaRefusal> {
        let names =
            Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, app);
        let Path(names) = names.await.map_err(|error| DaytonaRefusal::bad(error.body_text()))?;
        let name = names.get("id").map_or("", String::as_str);
        let sandbox = find(app, name).await?;
        match view::state(&sandbox) {
            "started" => {}
            state => {
                let message = format!("Sandbox {name} is {state}; start it first");
                return Err(DaytonaRefusal::bad(message));
            }
        }
        app.used(sandbox.id()).await;
        Ok(DaytonaGuest(sandbox))
    }
}
