//! What happens in the server, as it happens, and what it did by itself.

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
use base::event::{Delivery, Event, EventSubscription, InstanceMeasurement};
use store::LedgerEntry;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events)).routes(routes!(ledger))
}

/// Where to begin.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct From {
    /// Begin after this event; for clients that cannot send `Last-Event-ID`.
    from: Option<u64>,
}

/// Threads, sessions, terminals, commands, leases and projects as they change. The event's name is
/// its type. `instance_measured` tells what an instance uses while a terminal on it is watched; it
/// has no id and is not sent again.
#[utoipa::path(get, path = "/api/events", tag = "server",
    params(From, ("Last-Event-ID" = Option<u64>, Header, description = "The last event seen")),
    responses((status = 200, description = "Events", body = String,
        content_type = "text/event-stream")))]
async fn events(
    State(app): State<App>,
    Query(query): Query<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let measurements = app.events.subscribe_measurements();
    let mut listener = app.events.subscribe(last.or(query.from));
    let mut ready: VecDeque<sse::Event> = VecDeque::new();
    if listener.gap {
        ready.push_back(sse::event("gap", &json!({"detail": "some events are no longer kept"})));
    }
    ready.extend(std::mem::take(&mut listener.missed).iter().map(shown));
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
        Delivery::Event(event) => shown(&event),
        Delivery::Missed(count) => sse::event("gap", &json!({"missed": count})),
    })
}

async fn latest(measurements: &mut Receiver<InstanceMeasurement>) -> Option<sse::Event> {
    loop {
        match measurements.recv().await {
            Ok(measured) => return Some(sse::event("instance_measured", &measured)),
            // Only the last one counts.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn shown(event: &Event) -> sse::Event {
    let body = serde_json::to_value(event).unwrap_or_default();
    let name = body["type"].as_str().unwrap_or("event").to_owned();
    sse::event(&name, &body).id(event.id.to_string())
}

/// Something the server did by itself.
#[derive(Debug, Serialize, ToSchema)]
struct Entry {
    /// Its number; rises.
    id: u64,
    /// When.
    #[schema(value_type = String)]
    at: Timestamp,
    /// What was done: `orphan_ended`, `session_expired`, `project_deleted`.
    kind: String,
    /// To what.
    subject: String,
    /// Why, and whatever else is known.
    #[schema(value_type = Object)]
    detail: Value,
}

impl std::convert::From<LedgerEntry> for Entry {
    fn from(LedgerEntry { id, at, kind, subject, detail }: LedgerEntry) -> Self {
        Entry { id, at, kind, subject, detail }
    }
}

/// How much of the ledger.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Last {
    /// Most entries of the answer.
    limit: Option<u32>,
}

/// What the server ended by itself and why, newest first. It outlives a restart.
#[utoipa::path(get, path = "/api/ledger", tag = "server", params(Last),
    responses((status = 200, description = "The last entries", body = List<Entry>)))]
async fn ledger(
    State(app): State<App>,
    Query(query): Query<Last>,
) -> Result<axum::Json<List<Entry>>, Problem> {
    let limit = page::request(query.limit, None)?.limit;
    let entries = app.store.ledger_last(limit).await?;
    Ok(axum::Json(List::whole(entries.into_iter().map(Entry::from).collect())))
}
