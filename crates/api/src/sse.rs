//! Server-sent events, the same way everywhere.
//!
//! A comment every 10 s keeps proxies and dead connections honest. When the server stops, the
//! stream says so and ends; clients come back with `Last-Event-ID`.

use std::{convert::Infallible, time::Duration};

use axum::{
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response, Sse, sse::KeepAlive},
};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

pub use axum::response::sse::Event;

use super::App;

/// Time between two heartbeat comments.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How soon a client should come back after the stream ended, in milliseconds.
const RETRY: Duration = Duration::from_millis(500);

/// An event with JSON data.
pub fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).expect("wire types are plain data");
    Event::default().event(name).data(data)
}

/// Answers with a stream of events that ends when `events` does or the server stops.
pub fn stream(app: &App, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let stopping = app.stopping.clone().cancelled_owned();
    let bye = serde_json::json!({"code": "stopping", "detail": "the server is stopping"});
    let live = stream::once(async { Event::default().comment("stead").retry(RETRY) })
        .chain(events)
        .map(Some)
        .chain(stream::once(async { None }));
    let told = stream::once(async move {
        stopping.await;
        Some(event("notice", &bye))
    })
    .chain(stream::once(async { None }));
    // Either ends the stream: the events by running out, the server by stopping.
    let both = stream::select(live.boxed(), told.boxed())
        .take_while(|event| std::future::ready(event.is_some()))
        .filter_map(|event| async { event.map(Ok::<_, Infallible>) });
    let mut response =
        Sse::new(both).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
