//! Server-sent events, in the form that all streams share.
//!
//! A comment every 10 s keeps proxies from closing the stream and detects dead connections. When the server
//! stops, the stream sends a notice and ends; clients reconnect with `Last-Event-ID`.

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
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before a client reconnects after the stream ended.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Creates an event with JSON data.
pub fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).expect("wire types are plain data");
    Event::default().event(name).data(data)
}

/// Responds with a stream of events that ends when `events` does or the server stops.
pub fn stream(app: &App, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let stopping = app.stopping.clone().cancelled_owned();
    let notice = serde_json::json!({"code": "stopping", "detail": "the server is stopping"});
    let live = stream::once(async { Event::default().comment("stead").retry(RECONNECT_DELAY) })
        .chain(events)
        .map(Some)
        .chain(stream::once(async { None }));
    let stop_notice = stream::once(async move {
        stopping.await;
        Some(event("notice", &notice))
    })
    .chain(stream::once(async { None }));
    // Each of the two ends the stream with `None`.
    let both = stream::select(live.boxed(), stop_notice.boxed())
        .take_while(|event| std::future::ready(event.is_some()))
        .filter_map(|event| async { event.map(Ok::<_, Infallible>) });
    let mut response =
        Sse::new(both).keep_alive(KeepAlive::new().interval(HEARTBEAT_INTERVAL)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
