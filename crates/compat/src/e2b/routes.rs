//! The routes of E2B's control plane and of its daemon.

use axum::{
    Router,
    http::StatusCode,
    routing::{get, patch, post, put},
};
use serde_json::{Value, json};

use super::{
    address::E2bGuest, content, control, files, filesystem, list, logs, process, snapshot,
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

/// Whether the sandbox runs.
async fn health(_guest: E2bGuest) -> StatusCode {
    StatusCode::NO_CONTENT
}

/// What its programs have in their environment.
async fn envs(guest: E2bGuest) -> axum::Json<Value> {
    axum::Json(json!(guest.sandbox.thread.env))
}
