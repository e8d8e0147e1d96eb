//! The egress log of a sandbox.

use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, error::Problem, extract::Path, params::SandboxPath};
use model::ThreadId;
use provider::{EgressDestination, EgressVerdict};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(log))
}

/// The destinations that programs of a sandbox tried to reach.
#[derive(Debug, Serialize, ToSchema)]
struct EgressLogView {
    /// The destinations, the most recently used first.
    items: Vec<EgressEntry>,
    /// Attempts to reach further allowed destinations, for which the log had no room.
    unlisted_allowed: u64,
    /// Attempts to reach further refused destinations, for which the log had no room.
    unlisted_refused: u64,
}

/// A destination that programs of a sandbox tried to reach.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"address": "203.0.113.7", "port": 443, "protocol": "tcp", "name": "example.com",
    "verdict": "allowed", "attempts": 3, "last_seen_at": "2026-01-05T10:15:00Z"}))]
struct EgressEntry {
    /// IPv4 address.
    address: String,
    /// Port; null if the protocol has none.
    port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, or the name or number of another protocol.
    protocol: String,
    /// Name for which the egress rules allow the address; null for other addresses.
    name: Option<String>,
    /// `allowed` or `refused`.
    #[schema(value_type = String)]
    verdict: EgressVerdict,
    /// Number of connections, including repeated first packets; for refused destinations, the number of packets.
    attempts: u64,
    /// Time of the last attempt, to the second.
    #[schema(value_type = String)]
    last_seen_at: Timestamp,
}

impl EgressEntry {
    fn new(destination: EgressDestination, now: Timestamp) -> EgressEntry {
        let EgressDestination { address, port, protocol, name, verdict, attempts, idle } =
            destination;
        let now = now.round(jiff::Unit::Second).unwrap_or(now);
        EgressEntry {
            address: address.to_string(),
            port,
            protocol,
            name,
            verdict,
            attempts,
            last_seen_at: now.checked_sub(idle).unwrap_or(now),
        }
    }
}

/// List the destinations that programs of a sandbox connected to, and those that were refused.
///
/// The log begins when the sandbox starts and ends when it is suspended. It has at most 512 destinations with
/// ports for each verdict, each for a day after the last attempt. A sandbox without an instance has an empty log and is not
/// started. Providers that do not enforce egress rules themselves answer `not_supported`.
#[utoipa::path(get, path = "/api/sandboxes/{id}/egress", tag = "sandboxes",
    operation_id = "sandboxes.egress", params(SandboxPath),
    responses((status = 200, description = "The egress log", body = EgressLogView)))]
async fn log(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
) -> Result<axum::Json<EgressLogView>, Problem> {
    let missing = || Problem::missing("sandbox", &id);
    let thread = app.store.thread(&id).await?.ok_or_else(missing)?;
    let lease = app.store.lease(&thread.lease_id).await?.ok_or_else(missing)?;
    let log = app.leases.egress_log(&lease).await?;
    let now = app.now().at;
    let items = log.destinations.into_iter();
    Ok(axum::Json(EgressLogView {
        items: items.map(|destination| EgressEntry::new(destination, now)).collect(),
        unlisted_allowed: log.unlisted_allowed,
        unlisted_refused: log.unlisted_refused,
    }))
}
