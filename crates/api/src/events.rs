//! Events of the server, and the ledger of its automatic actions.

use std::collections::VecDeque;

use axum::{extract::State, http::HeaderMap, response::Response};
use futures_util::stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::Query,
    page::{self, List},
    sse,
};
use base::event::{Delivery, EventSubscription, InstanceMeasurement, PublishedEvent};
use store::LedgerEntry;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events)).routes(routes!(ledger))
}

/// Selects the first event.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Start after this event id; for clients that cannot send `Last-Event-ID`.
    from: Option<u64>,
}

/// Stream the events of the server.
///
/// Reports changes of threads, sessions, terminals, commands, hand-offs, leases and projects. The event name is the
/// event type. `instance_measured` reports the resource usage of an instance while one of its terminals is
/// watched; it has no id and is not replayed.
#[utoipa::path(get, path = "/api/events", tag = "server",
    operation_id = "events.stream", params(EventsQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last received event")),
    responses((status = 200, description = "A stream of server-sent events", body = String,
        content_type = "text/event-stream")))]
async fn events(
    State(app): State<App>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let measurements = app.events.subscribe_measurements();
    let mut listener = app.events.subscribe(last.or(query.from));
    let mut ready: VecDeque<sse::Event> = VecDeque::new();
    if listener.gap {
        ready.push_back(sse::event(
            "gap",
            &json!({"detail": "some events are no longer available"}),
        ));
    }
    ready.extend(std::mem::take(&mut listener.missed).iter().map(to_sse));
    let state = (listener, measurements, ready);
    let events = stream::unfold(state, async |(mut listener, mut measurements, mut ready)| {
        let event = match ready.pop_front() {
            Some(event) => event,
            None => tokio::select! {
                event = next(&mut listener) => event?,
                measured = latest(&mut measurements) => measured?,
            },
        };
        Some((event, (listener, measurements, ready)))
    });
    Ok(sse::stream(&app, events))
}

async fn next(listener: &mut EventSubscription) -> Option<sse::Event> {
    Some(match listener.next().await? {
        Delivery::Event(event) => to_sse(&event),
        Delivery::Missed(count) => sse::event("gap", &json!({"missed": count})),
    })
}

async fn latest(measurements: &mut Receiver<InstanceMeasurement>) -> Option<sse::Event> {
    loop {
        match measurements.recv().await {
            Ok(measured) => return Some(sse::event("instance_measured", &measured)),
            // Only the latest measurement matters.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn to_sse(event: &PublishedEvent) -> sse::Event {
    let body = serde_json::to_value(event).unwrap_or_default();
    let name = body["type"].as_str().unwrap_or("event").to_owned();
    sse::event(&name, &body).id(event.id.to_string())
}

/// An automatic action of the server.
#[derive(Debug, Serialize, ToSchema)]
struct LedgerView {
    /// Number of the entry; increases.
    id: u64,
    /// Time of the action.
    #[schema(value_type = String)]
    at: Timestamp,
    /// The action: `orphan_ended`, `session_expired` or `project_deleted`.
    kind: String,
    /// Id of the affected resource.
    subject: String,
    /// The reason and other details.
    #[schema(value_type = BTreeMap<String, Value>)]
    detail: Value,
}

impl From<LedgerEntry> for LedgerView {
    fn from(LedgerEntry { id, at, kind, subject, detail }: LedgerEntry) -> Self {
        LedgerView { id, at, kind, subject, detail }
    }
}

/// Limits the number of entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LedgerQuery {
    /// Maximum number of entries; 100 by default, 1000 at most.
    limit: Option<u32>,
}

/// List automatic deletions and shutdowns, newest first.
///
/// The ledger survives restarts.
#[utoipa::path(get, path = "/api/ledger", tag = "server",
    operation_id = "ledger.list", params(LedgerQuery),
    responses((status = 200, description = "The most recent entries", body = List<LedgerView>)))]
async fn ledger(
    State(app): State<App>,
    Query(query): Query<LedgerQuery>,
) -> Result<axum::Json<List<LedgerView>>, Problem> {
    let limit = page::request(query.limit, None)?.limit;
    let entries = app.store.ledger_last(limit).await?;
    Ok(axum::Json(List::whole(entries.into_iter().map(LedgerView::from).collect())))
}
