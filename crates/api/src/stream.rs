//! A terminal as server-sent events: a snapshot, then all output after it.
//!
//! The id of an event is the offset after its data, so that `Last-Event-ID` requests exactly the rest. Text
//! is split between characters; binary data is sent as base64.

use std::collections::VecDeque;

use axum::{extract::State, http::HeaderMap, response::Response};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{
    App, error::Problem, extract::Query, gzip::SnapshotEncoding, params::TerminalPath, pass::Guest,
    signal, sse, target::TargetTerminal,
};
use base::utf8::{Cutter, Utf8Piece};
use engine::terminal::{ClientMode, Resume, WatchEvent, WatchFrom, Watcher, WatcherUpdate};
use project::Attached;

/// Selects where the stream starts and how the client attaches.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// Start after this offset instead of with a snapshot; for clients that cannot send `Last-Event-ID`.
    pub(super) from: Option<u64>,
    /// `driver` (default) or `viewer`. A stream of events is always read-only.
    pub(super) mode: Option<String>,
    /// Name of this client, shown to other clients.
    pub(super) name: Option<String>,
    /// Whether to resume a paused instance; true by default.
    pub(super) resume: Option<bool>,
    /// `gzip`: snapshots on a WebSocket may be compressed, and are marked as such. Server-sent events are
    /// compressed for clients that send `Accept-Encoding: gzip`.
    pub(super) compress: Option<String>,
}

impl WatchQuery {
    pub(super) fn mode(&self) -> Result<ClientMode, Problem> {
        match self.mode.as_deref() {
            None | Some("driver") => Ok(ClientMode::Driver),
            Some("viewer") => Ok(ClientMode::Viewer),
            Some(_) => Err(Problem::query("mode", "must be driver or viewer")),
        }
    }

    pub(super) fn name(&self) -> Result<String, Problem> {
        let name = self.name.clone().unwrap_or_else(|| "client".to_owned());
        if name.chars().count() > 64 || name.chars().any(char::is_control) {
            return Err(Problem::query(
                "name",
                "must have at most 64 characters and no control characters",
            ));
        }
        Ok(name)
    }

    pub(super) fn snapshot_encoding(&self) -> Result<SnapshotEncoding, Problem> {
        match self.compress.as_deref() {
            None => Ok(SnapshotEncoding::Plain),
            Some("gzip") => Ok(SnapshotEncoding::Gzip),
            Some(_) => Err(Problem::query("compress", "must be gzip")),
        }
    }

    pub(super) fn resume(&self) -> Resume {
        if self.resume == Some(false) { Resume::No } else { Resume::Yes }
    }
}

/// Stream the output of a terminal.
///
/// Sends `snapshot` first, then `data`, `resize`, `title`, `notice`, `gap`, `driver` and `exit`. The id of an
/// event is the offset after it.
#[utoipa::path(get, path = "/api/terminals/{id}/stream", tag = "interactive",
    operation_id = "terminals.stream", params(TerminalPath, WatchQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last received event")),
    responses((status = 200, description = "A stream of server-sent events", body = String,
        content_type = "text/event-stream")))]
pub(super) async fn watch(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<WatchQuery>,
    guest: Guest,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    query.mode()?;
    query.snapshot_encoding()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let from = last.or(query.from).map_or(WatchFrom::Picture, WatchFrom::Offset);
    let (watcher, attached) = match &guest.0 {
        Some(pass) => (app.watch_as_guest(&terminal, pass, from).await?, None),
        None => {
            let name = query.name()?;
            let (attached, resume) = app.attach(&terminal, query.resume()).await?;
            let watcher =
                app.terminals.watch(&terminal, name, ClientMode::Viewer, from, resume).await?;
            app.used(&terminal.thread_id).await;
            (watcher, Some(attached))
        }
    };
    let state = Watching {
        watcher,
        _attached: attached,
        cutter: Cutter::default(),
        ready: VecDeque::new(),
        over: false,
    };
    let metrics = app.metrics.clone();
    let events = stream::unfold(state, move |mut state| {
        let metrics = metrics.clone();
        async move {
            loop {
                if let Some(event) = state.ready.pop_front() {
                    return Some((event, state));
                }
                if state.over {
                    return None;
                }
                match state.watcher.next().await {
                    Ok(update) => {
                        if let WatcherUpdate::Event(WatchEvent::Output { bytes, .. }) = &update {
                            metrics.bytes_out.inc_by(bytes.len() as u64);
                        }
                        state.take(update);
                    }
                    Err(_) => return None,
                }
            }
        }
    });
    Ok(sse::stream(&app, events.take_until(guest.ended())))
}

struct Watching {
    watcher: Watcher,
    _attached: Option<Attached>,
    cutter: Cutter,
    ready: VecDeque<sse::Event>,
    over: bool,
}

impl Watching {
    fn take(&mut self, update: WatcherUpdate) {
        let end = self.watcher.offset();
        match update {
            WatcherUpdate::Picture(picture) => {
                // An incomplete character is sent whole with the next `data`.
                self.cutter = Cutter::default();
                let data = self.cutter.lossy(&picture.data);
                let offset = picture.offset - self.cutter.held() as u64;
                let body = json!({"data": data, "offset": offset,
                    "cols": picture.cols, "rows": picture.rows});
                self.push("snapshot", &body, Some(offset));
            }
            WatcherUpdate::Event(WatchEvent::Output { bytes, .. }) => {
                let held = self.cutter.held() as u64;
                let whole = held + bytes.len() as u64;
                let Some(piece) = self.cutter.cut(&bytes) else { return };
                let (start, end) = (end - whole, end - self.cutter.held() as u64);
                let body = match piece {
                    Utf8Piece::Text(text) => json!({"data": text, "offset": start}),
                    Utf8Piece::Binary(bytes) => {
                        json!({"data_base64": BASE64_STANDARD.encode(bytes), "offset": start})
                    }
                };
                self.push("data", &body, Some(end));
            }
            WatcherUpdate::Event(WatchEvent::Resize { cols, rows }) => {
                self.push("resize", &json!({"cols": cols, "rows": rows}), None);
            }
            WatcherUpdate::Event(WatchEvent::Gap { from, to }) => {
                self.cutter = Cutter::default();
                self.push("gap", &json!({"from": from, "to": to}), Some(to));
            }
            WatcherUpdate::Event(WatchEvent::Title(title)) => {
                self.push("title", &json!({"title": title}), None)
            }
            WatcherUpdate::Event(WatchEvent::Notice(text)) => {
                self.push("notice", &json!({"code": "notice", "detail": text}), None);
            }
            WatcherUpdate::Event(WatchEvent::Driver(name)) => {
                self.push("driver", &json!({"driver": name}), None);
            }
            WatcherUpdate::Event(WatchEvent::Exit { code, signal }) => {
                let rest = self.cutter.rest();
                if !rest.is_empty() {
                    let start = end - rest.len() as u64;
                    let data = BASE64_STANDARD.encode(rest);
                    self.push("data", &json!({"data_base64": data, "offset": start}), Some(end));
                }
                let signal = signal.map(signal::name);
                self.push("exit", &json!({"code": code, "signal": signal}), None);
                self.over = true;
            }
        }
    }

    fn push(&mut self, name: &str, body: &serde_json::Value, id: Option<u64>) {
        let event = sse::event(name, body);
        self.ready.push_back(match id {
            Some(id) => event.id(id.to_string()),
            None => event,
        });
    }
}
