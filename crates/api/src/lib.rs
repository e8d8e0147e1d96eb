//! The HTTP API: REST, server-sent events and WebSocket.
//!
//! `guard` protects every route; `code` has every status; each noun has a file of routes. Handlers parse the
//! request, call `engine`, and respond; they make no decisions of their own. Nothing here starts or owns a
//! shell.

mod app;
pub mod auth;
pub mod budget;
mod code;
mod command_summary;
mod commands;
mod cookie;
mod detach;
mod docs;
pub mod door;
mod drain;
mod egress;
pub mod error;
mod events;
mod exec;
pub mod extract;
mod file_events;
mod files;
mod forwarded;
pub mod guard;
mod gzip;
mod handoffs;
mod header_rules;
mod health;
pub mod idempotency;
pub mod images;
mod input;
mod interactive;
pub mod key;
mod leases;
mod login;
mod memories;
mod messages;
mod older;
pub mod openapi;
mod origin;
pub mod page;
mod params;
pub mod pass;
mod ports;
mod preview;
mod preview_label;
mod project_archive;
mod project_cleanup;
mod project_sessions;
mod projects;
mod providers;
pub mod proxy;
mod query;
mod readiness;
mod receipt;
mod removal;
mod request_span;
mod sandboxes;
mod search;
mod secrets;
mod sessions;
mod shapes;
mod shares;
mod sign_in_page;
mod signal;
pub mod slow_body;
mod snapshots;
pub mod sse;
mod stream;
mod target;
mod terminal_state;
mod terminals;
#[cfg(test)]
mod test_settings;
mod thread_put;
mod threads;
pub mod transfer;
mod ws;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{Method, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use utoipa_axum::router::OpenApiRouter;

pub use app::{App, Engine, Parts, ThreadRuntimes};
pub use door::{Door, Doors};
pub use guard::{Assets, GuardState};
pub use terminals::check_env;

use error::{Code, Problem};

/// Returns all native routes with their document. They expect what the guard adds to a request.
pub fn native_routes(app: &App, builder: Arc<dyn images::ImageBuilder>) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(openapi::base())
        .merge(health::routes())
        .merge(login::routes())
        .merge(docs::routes())
        .merge(threads::routes())
        .merge(thread_put::routes())
        .merge(ports::routes())
        .merge(preview::routes())
        .merge(messages::routes())
        .merge(sessions::routes())
        .merge(terminals::routes())
        .merge(terminal_state::routes())
        .merge(interactive::routes())
        .merge(shares::routes())
        .merge(handoffs::routes())
        .merge(exec::routes())
        .merge(commands::routes())
        .merge(search::routes())
        .merge(sandboxes::routes())
        .merge(egress::routes())
        .merge(leases::routes())
        .merge(snapshots::routes())
        .merge(images::routes())
        .merge(providers::routes())
        .merge(events::routes())
        .merge(projects::routes())
        .merge(project_sessions::routes())
        .merge(project_cleanup::routes())
        .merge(project_archive::routes())
        .merge(memories::routes())
        .merge(files::routes())
        .merge(file_events::routes())
        .split_for_parts();
    let document = openapi::text(&openapi::finish(document, &app.url));
    router
        .layer(Extension(builder))
        .merge(older::routes())
        .route("/openapi.json", axum::routing::get(openapi::serve).with_state(document))
        .method_not_allowed_fallback(wrong_method)
        .with_state(app.clone())
}

/// Returns the native routes for callers in this process that act for an admitted request. What changes
/// something runs to its end without its caller.
pub fn internal_routes(app: &App, native: Router) -> Router {
    native.layer(middleware::from_fn_with_state(app.clone(), detach_changes))
}

async fn detach_changes(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    match detach::outlives_client(&request) {
        true => app.detached.run(&app.tasks, request, next).await,
        false => Ok(next.run(request).await),
    }
}

/// Returns the native routes and those of other APIs behind the guard.
pub fn router(state: GuardState, native: Router, others: Router) -> Router {
    let assets = state.assets;
    native
        .fallback(move |request: Request| async move {
            (assets.serve)(&request).unwrap_or_else(|| no_route(&request))
        })
        .merge(others)
        // Inside the guard, so that responses of programs in sandboxes are forwarded unchanged.
        .layer(middleware::from_fn(gzip::events))
        .layer(middleware::from_fn_with_state(state, guard::guard))
}

async fn wrong_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("this route does not support {method}"))
}

fn no_route(request: &Request) -> Response {
    missing_route(request.uri()).into_response()
}

fn missing_route(uri: &Uri) -> Problem {
    Problem::new(Code::NoSuchRoute, format!("there is no route {:?}", uri.path()))
}
