//! The Model Context Protocol at `/mcp`: a translation onto the native routes.
//!
//! A tool turns its arguments into requests to the native API of the same process, so that MCP clients get the
//! checks, the limits and the words of every other client, and this crate depends on no other crate of ours.
//! A long `exec` is a task whose id is the id of its command: everything about it is read from the server's store,
//! and nothing about tasks is kept here.
//!
//! ```text
//! POST /mcp ─▶ guard ─▶ rmcp (both lifecycles) ─▶ server ─▶ tools, resources ─▶ native routes
//! ```

mod command;
mod events;
mod fixtures;
mod native;
mod resources;
mod screens;
mod server;
mod sessions;
mod tools;

use std::sync::Arc;

use axum::Router;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use fixtures::Fixtures;
use server::McpServer;
use sessions::BoundedSessions;

/// Whether the tools, resources and prompts of the official conformance suite are served as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixtureMode {
    Off,
    On,
}

/// Returns the route `/mcp`. `native` has the native routes without their guard; the returned routes belong behind
/// it. Streams end when `stopping` is cancelled.
pub fn routes(
    native: Router,
    stopping: &CancellationToken,
    max_body_bytes: usize,
    fixtures: FixtureMode,
) -> Router {
    let fixtures = match fixtures {
        FixtureMode::Off => None,
        FixtureMode::On => Some(Arc::new(Fixtures::new())),
    };
    // The guard checks Host and Origin, for all names of the server.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(max_body_bytes)
        .with_cancellation_token(stopping.clone());
    let stopping = stopping.clone();
    let server = move || Ok(McpServer::new(native.clone(), stopping.clone(), fixtures.clone()));
    let service = StreamableHttpService::new(server, BoundedSessions::shared(), config);
    Router::new().route_service("/mcp", service)
}
