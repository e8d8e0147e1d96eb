//! The routes of E2B's control plane and of its daemon.

use axum::{
    Router,
    http::StatusCode,
    routing::{get, patch, post, put},
};
use serde_json::{Value, json};

use super::{
    address::DaemonCall, content, control, files, filesystem, list, logs, process, snapshot,
    template, usage, volume, watch,
};
use adapter::Adapter;

pub fn routes() -> Router<Adapter> {
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
        .route("/sandboxes/{id}/logs", get(logs::logs_v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::logs_v2))
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

fn contents() -> Router<Adapter> {
    Router::new()
        .route("/volumecontent/{name}/dir", get(content::list).post(content::make_dir))
        .route(
            "/volumecontent/{name}/path",
            get(content::show).patch(content::change).delete(content::remove),
        )
        .route("/volumecontent/{name}/file", get(content::read).put(content::write))
}

fn templates() -> Router<Adapter> {
    Router::new()
        .route("/templates", get(template::list::list))
        .route("/v2/templates", get(template::list::page).post(template::build::request))
        .route("/v3/templates", post(template::build::request))
        .route("/templates/tags", post(template::tags::tag).delete(template::tags::untag))
        .route(
            "/templates/{name}",
            get(template::list::show).patch(template::list::update).delete(template::list::remove),
        )
        .route("/v2/templates/{name}", patch(template::list::update))
        .route("/templates/aliases/{name}", get(template::list::alias))
        .route("/templates/{name}/tags", get(template::tags::tags))
        .route(
            "/templates/{name}/files/{hash}",
            get(template::upload::files).put(template::upload::receive),
        )
        .route("/v2/templates/{name}/builds/{build}", post(template::build::start))
        .route("/templates/{name}/builds/{build}/status", get(template::log::status))
        .route("/templates/{name}/builds/{build}/logs", get(template::log::logs))
}

fn calls() -> Router<Adapter> {
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

/// Answers if the sandbox runs.
async fn health(_call: DaemonCall) -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Returns the environment of the sandbox's programs.
async fn envs(call: DaemonCall) -> axum::Json<Value> {
    axum::Json(json!(call.sandbox.thread.env))
}
