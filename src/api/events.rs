//! What happens in the server, as it happens.

use std::collections::VecDeque;

use axum::{extract::State, http::HeaderMap, response::Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, error::Problem, extract::Query, sse};
use crate::event::{Event, Heard, Listener};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Where to begin.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct From {
    /// Begin after this event; for clients that cannot send `Last-Event-ID`.
    from: Option<u64>,
}

/// Threads, sessions, terminals, commands, leases and projects as they change. The event's name is its type.
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
    let mut listener = app.events.listen(last.or(query.from));
    let mut ready: VecDeque<sse::Event> = VecDeque::new();
    if listener.gap {
        ready.push_back(sse::event("gap", &json!({"detail": "some events are no longer kept"})));
    }
    ready.extend(std::mem::take(&mut listener.missed).iter().map(shown));
    let events = stream::unfold((listener, ready), async |(mut listener, mut ready)| {
        let event = match ready.pop_front() {
            Some(event) => event,
            None => next(&mut listener).await?,
        };
        Some((event, (listener, ready)))
    });
    Ok(sse::stream(&app, events))
}

async fn next(listener: &mut Listener) -> Option<sse::Event> {
    Some(match listener.next().await? {
        Heard::Event(event) => shown(&event),
        Heard::Missed(count) => sse::event("gap", &json!({"missed": count})),
    })
}

fn shown(event: &Event) -> sse::Event {
    let body = serde_json::to_value(event).unwrap_or_default();
    let name = body["type"].as_str().unwrap_or("event").to_owned();
    sse::event(&name, &body).id(event.id.to_string())
}
