//! The ports that programs of a thread listen on.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, error::Problem, extract::Path, page::List, params::ThreadPath, threads};
use model::ThreadId;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A port that a program listens on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"port": 8000}))]
struct ListeningPort {
    /// Number of the TCP port.
    port: u16,
}

/// List the TCP ports that programs of a thread listen on.
///
/// Without a sandbox (provider `local`) these are the ports of the machine.
#[utoipa::path(get, path = "/api/threads/{tid}/ports", tag = "threads",
    operation_id = "threads.list_ports", params(ThreadPath),
    responses((status = 200, description = "The ports, in ascending order", body = List<ListeningPort>)))]
async fn list(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<List<ListeningPort>>, Problem> {
    let thread = threads::find(&app, &id).await?;
    let ports = app.terminals.ports(&thread.lease_id).await?;
    let items = ports.into_iter().map(|port| ListeningPort { port }).collect();
    Ok(axum::Json(List::whole(items)))
}
