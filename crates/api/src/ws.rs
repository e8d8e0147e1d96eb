//! A terminal as a WebSocket: bytes both ways, control as JSON.
//!
//! Binary frames to the client are output, in order and without a gap; the client derives its offset from
//! them. No frame ends inside a UTF-8 character, unless the output does. A `snapshot` message announces one
//! binary frame that is a snapshot instead, compressed if the message has `"encoding": "gzip"`, which only
//! happens on request; `bytes` is its uncompressed length. Binary frames from the client are typed. See
//! [`ClientMessage`] for the control messages.

use std::time::Duration;

use axum::{
    extract::{
        State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    App,
    error::{Code, Problem},
    extract::{self, Query},
    gzip::{self, SnapshotEncoding},
    input::{TerminalSize, TypedInput},
    params::TerminalPath,
    pass::Guest,
    signal,
    stream::WatchQuery,
    target::TargetTerminal,
};
use base::event::EventKind;
use base::utf8::Cutter;
use engine::terminal::{
    ClientId, ClientMode, OwnerRequest, Picture, WatchEvent, WatchFrom, Watcher, WatcherUpdate,
};
use model::Terminal;

/// How long a client may take to read why its connection ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Control messages queued for a client; one that sends faster than it reads is disconnected.
const MAX_QUEUED_MESSAGES: usize = 64;

/// Connect to a terminal by WebSocket.
///
/// Binary frames carry output and input, text frames carry control messages as JSON.
#[utoipa::path(get, path = "/api/terminals/{id}/ws", tag = "interactive",
    operation_id = "terminals.connect", params(TerminalPath, WatchQuery),
    responses((status = 101, description = "The connection is a WebSocket")))]
pub(super) async fn connect(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<WatchQuery>,
    guest: Guest,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade =
        upgrade.map_err(|refused| Problem::new(Code::InvalidRequest, refused.body_text()))?;
    let mode = query.mode()?;
    let encoding = query.snapshot_encoding()?;
    let from = query.from.map_or(WatchFrom::Picture, WatchFrom::Offset);
    let (mode, watcher, attached) = match &guest.0 {
        Some(pass) => (ClientMode::Viewer, app.watch_as_guest(&terminal, pass, from).await?, None),
        None => {
            let name = query.name()?;
            let (attached, resume) = app.attach(&terminal, query.resume()).await?;
            let watcher = app.terminals.watch(&terminal, name, mode, from, resume).await?;
            app.used(&terminal.thread_id).await;
            (mode, watcher, Some(attached))
        }
    };
    let limit = app.settings.limits.frame_bytes;
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit).write_buffer_size(0);
    Ok(upgrade.on_upgrade(move |socket| {
        let tracker = app.tasks.clone();
        tracker.track_future(async move {
            serve(app, terminal, watcher, (mode, encoding), guest, socket).await;
            drop(attached);
        })
    }))
}

async fn serve(
    app: App,
    terminal: Terminal,
    watcher: Watcher,
    requested: (ClientMode, SnapshotEncoding),
    guest: Guest,
    socket: WebSocket,
) {
    let (sink, stream) = socket.split();
    let (control, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let client = watcher.client();
    let stopping = app.stopping.clone();
    let (asks, permission) =
        (watcher.owner(), if guest.0.is_some() { Permission::View } else { Permission::Control });
    let watched = || EventKind::TerminalWatched {
        thread_id: terminal.thread_id.clone(),
        terminal_id: terminal.terminal_id.clone(),
    };
    app.events.publish(watched());
    tokio::select! {
        () = send(&app, &terminal, watcher, requested, sink, messages) => {}
        () = receive(&app, &terminal, (client, permission), asks, stream, control) => {}
        // The client receives the reason when it reconnects.
        () = guest.ended() => {}
        // `send` notifies the client; this ends one that does not read.
        () = async { stopping.cancelled().await; tokio::time::sleep(STOP_TIMEOUT).await } => {}
    }
    app.events.publish(watched());
}

/// What `receive` has for the client; `send` owns the sink.
enum Control {
    Message(Value),
    Close(CloseFrame),
}

type Sink = SplitSink<WebSocket, Message>;

async fn send(
    app: &App,
    terminal: &Terminal,
    mut watcher: Watcher,
    (mode, encoding): (ClientMode, SnapshotEncoding),
    mut sink: Sink,
    mut messages: mpsc::Receiver<Control>,
) {
    let facts = app.terminals.facts(terminal).await;
    let drives = facts.driving == Some(watcher.client());
    let shown = if drives { ClientMode::Driver } else { ClientMode::Viewer };
    let hello = json!({"type": "hello", "client": watcher.client(), "mode": shown.as_str(),
        "asked": mode.as_str(), "driver": facts.driver, "offset": watcher.offset(),
        "resumed": watcher.resumed(), "cols": facts.cols, "rows": facts.rows,
        "title": facts.title, "live": facts.live});
    if send_text(&mut sink, &hello).await.is_err() {
        return;
    }
    let mut cutter = Cutter::default();
    loop {
        let update = tokio::select! {
            biased;
            Some(message) = messages.recv() => match message {
                Control::Message(message) => {
                    if send_text(&mut sink, &message).await.is_err() { return }
                    continue;
                }
                Control::Close(frame) => {
                    let _ = sink.send(Message::Close(Some(frame))).await;
                    // Closing at once could reset the connection before the client has read the frame.
                    return std::future::pending().await;
                }
            },
            update = watcher.next() => update,
            () = app.stopping.cancelled() => {
                let notice = json!({"type": "notice", "code": "stopping",
                    "text": "the server is stopping; the shell keeps running"});
                let _ = send_text(&mut sink, &notice).await;
                let _ = sink.send(Message::Close(None)).await;
                return;
            }
        };
        let Ok(update) = update else { return };
        let update = match update {
            WatcherUpdate::Picture(mut picture) => {
                cutter = Cutter::default();
                picture.data = cutter.cut_bytes(picture.data).unwrap_or_default();
                picture.offset -= cutter.held() as u64;
                if send_snapshot(&mut sink, picture, encoding).await.is_err() {
                    return;
                }
                continue;
            }
            WatcherUpdate::Event(WatchEvent::Output { offset, bytes }) => {
                let offset = offset - cutter.held() as u64;
                let Some(bytes) = cutter.cut_bytes(bytes) else { continue };
                WatchEvent::Output { offset, bytes }
            }
            WatcherUpdate::Event(event @ (WatchEvent::Gap { .. } | WatchEvent::Exit { .. })) => {
                // The character stays incomplete.
                let rest = cutter.rest();
                if !rest.is_empty() && sink.send(Message::Binary(rest.into())).await.is_err() {
                    return;
                }
                event
            }
            WatcherUpdate::Event(event) => event,
        };
        if send_event(app, &mut sink, update, watcher.client(), terminal).await.is_err() {
            return;
        }
    }
}

async fn send_snapshot(
    sink: &mut Sink,
    picture: Picture,
    encoding: SnapshotEncoding,
) -> Result<(), axum::Error> {
    let mut head = json!({"type": "snapshot", "offset": picture.offset, "cols": picture.cols,
        "rows": picture.rows, "title": picture.title, "bytes": picture.data.len()});
    let compressed = match encoding {
        SnapshotEncoding::Plain => None,
        SnapshotEncoding::Gzip => gzip::compress_snapshot(picture.data.clone()).await,
    };
    if compressed.is_some() {
        head["encoding"] = "gzip".into();
    }
    send_text(sink, &head).await?;
    sink.send(Message::Binary(compressed.unwrap_or(picture.data))).await
}

async fn send_event(
    app: &App,
    sink: &mut Sink,
    event: WatchEvent,
    client: ClientId,
    terminal: &Terminal,
) -> Result<(), axum::Error> {
    let message = match event {
        WatchEvent::Output { bytes, .. } => {
            app.metrics.bytes_out.inc_by(bytes.len() as u64);
            return sink.send(Message::Binary(bytes)).await;
        }
        WatchEvent::Resize { cols, rows } => {
            json!({"type": "resize", "cols": cols, "rows": rows})
        }
        WatchEvent::Gap { from, to } => json!({"type": "gap", "from": from, "to": to}),
        WatchEvent::Title(title) => json!({"type": "title", "title": title}),
        WatchEvent::Notice(text) => json!({"type": "notice", "text": text}),
        WatchEvent::Driver(driver) => {
            let facts = app.terminals.facts(terminal).await;
            let mode =
                if facts.driving == Some(client) { ClientMode::Driver } else { ClientMode::Viewer };
            json!({"type": "driver", "driver": driver, "mode": mode.as_str()})
        }
        WatchEvent::Exit { code, signal } => {
            json!({"type": "exit", "code": code, "signal": signal.map(signal::name)})
        }
    };
    send_text(sink, &message).await
}

async fn send_text(sink: &mut Sink, message: &Value) -> Result<(), axum::Error> {
    sink.send(Message::Text(message.to_string().into())).await
}

/// A message from the client in a text frame.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClientMessage {
    Input(TypedInput),
    Resize(TerminalSize),
    TakeOver,
    HandBack,
    Signal(signal::SignalRequest),
    Ping,
}

async fn receive(
    app: &App,
    terminal: &Terminal,
    (client, permission): (ClientId, Permission),
    asks: mpsc::Sender<Box<OwnerRequest>>,
    mut stream: SplitStream<WebSocket>,
    control: mpsc::Sender<Control>,
) {
    let client = SocketClient { app, terminal, client, permission, asks };
    while let Some(message) = stream.next().await {
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                if let Some(frame) = close_frame(error) {
                    // `send` sends it, and this ends the connection.
                    let _ = control.try_send(Control::Close(frame));
                    tokio::time::sleep(STOP_TIMEOUT).await;
                }
                return;
            }
        };
        let result = match message {
            Message::Binary(bytes) => client.typed("", bytes).await,
            Message::Text(text) => match extract::parse::<ClientMessage>(text.as_bytes()) {
                Ok(ClientMessage::Ping) => {
                    if control.try_send(Control::Message(json!({"type": "pong"}))).is_err() {
                        return;
                    }
                    Ok(())
                }
                Ok(message) => client.handle(message).await,
                Err(problem) => Err(problem),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(problem) = result {
            let error = json!({"type": "error", "code": problem.code().name(),
                "detail": problem.detail()});
            if control.try_send(Control::Message(error)).is_err() {
                return;
            }
        }
    }
}

/// Returns the reason to send for an invalid frame (RFC 6455, 7.4.1); `None` if the connection is lost.
fn close_frame(error: axum::Error) -> Option<CloseFrame> {
    use tungstenite::{Error, error::ProtocolError};
    let error = error.into_inner();
    let error = error.downcast_ref::<Error>()?;
    let code = match error {
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return None,
        Error::Protocol(_) => close_code::PROTOCOL,
        Error::Utf8(_) => close_code::INVALID,
        Error::Capacity(_) => close_code::SIZE,
        _ => return None,
    };
    Some(CloseFrame { code, reason: error.to_string().into() })
}

/// The rights of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Control,
    View,
}

struct SocketClient<'a> {
    app: &'a App,
    terminal: &'a Terminal,
    client: ClientId,
    permission: Permission,
    asks: mpsc::Sender<Box<OwnerRequest>>,
}

impl SocketClient<'_> {
    fn require_control(&self) -> Result<(), Problem> {
        match self.permission {
            Permission::Control => Ok(()),
            Permission::View => Err(Problem::new(Code::Forbidden, "a share link is read-only")),
        }
    }

    async fn typed(&self, write_id: &str, bytes: Bytes) -> Result<(), Problem> {
        self.require_control()?;
        self.app.metrics.bytes_in.inc_by(bytes.len() as u64);
        self.app.terminals.type_as(self.terminal, self.client, write_id, bytes).await?;
        self.app.used(&self.terminal.thread_id).await;
        Ok(())
    }

    async fn handle(&self, message: ClientMessage) -> Result<(), Problem> {
        self.require_control()?;
        let ask = match message {
            ClientMessage::Input(input) => {
                return self.typed(input.write_id()?, input.bytes()?).await;
            }
            ClientMessage::Signal(signal) => {
                let facts = self.app.terminals.facts(self.terminal).await;
                if facts.driving != Some(self.client) {
                    let driver = facts.driver;
                    return Err(engine::terminal::TerminalError::NotDriver { driver }.into());
                }
                return Ok(self.app.terminals.signal(self.terminal, signal.number()?).await?);
            }
            ClientMessage::Resize(size) => OwnerRequest::Resize(self.client, size.check()?),
            ClientMessage::TakeOver => OwnerRequest::TakeOver(self.client),
            ClientMessage::HandBack => OwnerRequest::HandBack(self.client),
            ClientMessage::Ping => return Ok(()),
        };
        self.asks.send(ask.into()).await.map_err(|_| engine::terminal::TerminalError::Gone.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_protocol_is_parsed() {
        for message in [
            json!({"type": "input", "data": "x", "write_id": "w"}),
            json!({"type": "input", "data_base64": "eA=="}),
            json!({"type": "resize", "cols": 80, "rows": 24}),
            json!({"type": "take_over"}),
            json!({"type": "hand_back"}),
            json!({"type": "signal", "signal": "INT"}),
            json!({"type": "ping"}),
        ] {
            let parsed = extract::parse::<ClientMessage>(message.to_string().as_bytes());
            assert!(parsed.is_ok(), "{message}: {parsed:?}");
        }
    }
}
