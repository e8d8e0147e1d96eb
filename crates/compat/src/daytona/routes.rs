//! The routes of Daytona's control plane and of its toolbox.

use axum::{
    Router,
    routing::{delete, get, post, put},
};

use super::{
    build_log, control, copy, events,
    files::{search, transfer, tree},
    git::{branch, commit, config, remote},
    image, interpreter, link, list, process, pty, session, settings, volume,
};
use adapter::Adapter;

/// All routes. Clients use `/daytona` or, as at Daytona itself, `/daytona/api` as their base URL.
pub fn routes() -> Router<Adapter> {
    let control = control_routes();
    Router::new()
        .nest("/daytona/api", control.clone())
        .nest("/daytona", control)
        .nest("/daytona/toolbox/{id}", toolbox())
}

fn control_routes() -> Router<Adapter> {
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
        .route("/snapshots/{name}/build-logs", get(build_log::logs))
        .route("/snapshots/{name}/build-logs-url", get(build_log::logs_url))
        .route("/sandbox/{id}/build-logs", get(build_log::sandbox_logs))
        .route("/sandbox/{id}/build-logs-url", get(build_log::sandbox_logs_url))
        .route("/object-storage/push-access", get(image::push_access))
        .route("/sandbox/{id}/public/{public}", post(settings::public))
        .route("/sandbox/{id}/toolbox-proxy-url", get(control::toolbox))
}

fn toolbox() -> Router<Adapter> {
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
        .route("/files", get(tree::list).delete(tree::delete))
        .route("/files/info", get(tree::info))
        .route("/files/folder", post(tree::folder))
        .route("/files/download", get(transfer::download))
        .route("/files/upload", post(transfer::upload))
        .route("/files/upload-v2", post(transfer::upload_raw))
        .route("/files/bulk-upload", post(transfer::bulk_upload))
        .route("/files/bulk-download", post(transfer::bulk_download))
        .route("/files/move", post(tree::rename))
        .route("/files/find", get(search::find))
        .route("/files/search", get(search::search))
        .route("/files/replace", post(search::replace))
        .route("/files/permissions", post(tree::permissions))
        .merge(repositories())
}

fn repositories() -> Router<Adapter> {
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
