//! A terminal as server-sent events: a snapshot, then everything after it.
//!
//! The id of an event is the offset after what it carries, so that `Last-Event-ID` asks for
//! exactly the rest. Text is cut between characters; what is not text comes as base64.

use std::collections::VecDeque;

use axum::{extract::State, http::HeaderMap, response::Response};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{
    App, error::Problem, extract::Query, gzip::Pictures, params::OfTerminal, pass::Guest, signal,
    sse, target::Target,
};
use engine::project::Attached;
use engine::terminal::{
    ClientMode, Resume, WatchEvent, WatchFrom, Watcher, WatcherUpdate,
    utf8::{Cutter, Piece},
};

/// Where and how to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// Begin after this offset instead of with a snapshot; for clients that cannot send
    /// `Last-Event-ID`.
    pub(super) from: Option<u64>,
    /// `driver` or `viewer`. A stream of events only looks, whichever is said.
    pub(super) mode: Option<String>,
    /// What others see this client as.
    pub(super) name: Option<String>,
    /// Whether a paused instance is resumed; true by default.
    pub(super) resume: Option<bool>,
    /// `gzip`: pictures on a WebSocket may come compressed, and say so. Events are compressed for a
    /// client that sends `Accept-Encoding: gzip`.
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
            return Err(Problem::query("name", "may have 64 characters, none of them control"));
        }
        Ok(name)
    }

    pub(super) fn pictures(&self) -> Result<Pictures, Problem> {
        match self.compress.as_deref() {
            None => Ok(Pictures::Plain),
            Some("gzip") => Ok(Pictures::Gzip),
            Some(_) => Err(Problem::query("compress", "must be gzip")),
        }
    }

    pub(super) fn resume(&self) -> Resume {
        if self.resume == Some(false) { Resume::No } else { Resume::Yes }
    }
}

/// Watch the terminal: `snapshot`, `data`, `resize`, `title`, `notice`, `gap`, `driver`, `exit`.
#[utoipa::path(get, path = "/api/terminals/{id}/stream", tag = "interactive",
    params(OfTerminal, WatchQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Events", body = String,
        content_type = "text/event-stream")))]
pub(super) async fn watch(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<WatchQuery>,
    guest: Guest,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    query.mode()?;
    query.pictures()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let from = last.or(query.from).map_or(WatchFrom::Picture, WatchFrom::Offset);
    let (watcher, attached) = match &guest.0 {
        Some(pass) => (app.look(&terminal, pass, from).await?, None),
        None => {
            let name = query.name()?;
            let (attached, resume) = app.attend(&terminal, query.resume()).await?;
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
                    Ok(told) => {
                        if let WatcherUpdate::Event(WatchEvent::Output { bytes, .. }) = &told {
                            metrics.bytes_out.inc_by(bytes.len() as u64);
                        }
                        state.take(told);
                    }
                    Err(_) => return None,
                }
            }
        }
    });
    Ok(sse::stream(&app, events.take_until(guest.over())))
}

struct Watching {
    watcher: Watcher,
    _attached: Option<Attached>,
    cutter: Cutter,
    ready: VecDeque<sse::Event>,
    over: bool,
}

impl Watching {
    fn take(&mut self, told: WatcherUpdate) {
        let end = self.watcher.offset();
        match told {
            WatcherUpdate::Picture(picture) => {
                // A character that is still being received comes whole with the next `data`.
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
                    Piece::Text(text) => json!({"data": text, "offset": start}),
                    Piece::Binary(bytes) => {
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
