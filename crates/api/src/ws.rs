//! A terminal as a WebSocket: bytes both ways, control as JSON.
//!
//! Binary frames to the client are output, in order and without a gap; it counts its offset by
//! them. No frame ends inside a UTF-8 character, unless the output does. A `snapshot` message announces one binary frame that is a picture instead, as gzip when it
//! says `"encoding": "gzip"`, which only a client that asked for it is told; `bytes` is the length
//! of the picture itself. Binary frames from the client are typed. See the messages below for the rest.

use std::time::Duration;

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade},
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
    gzip::{self, Pictures},
    input::{TerminalSize, TypedInput},
    params::TerminalPath,
    pass::Guest,
    signal,
    stream::WatchQuery,
    target::Target,
};
use base::event::Happened;
use engine::terminal::{Ask, ClientId, Event, From, Mode, Picture, Told, Watcher, utf8::Cutter};
use model::Terminal;

/// How long a client may take to read that the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Control messages that wait to be sent; a client that asks faster is cut off.
const CONTROL: usize = 64;

/// Drive or view the terminal.
#[utoipa::path(get, path = "/api/terminals/{id}/ws", tag = "interactive",
    params(TerminalPath, WatchQuery),
    responses((status = 101, description = "A WebSocket")))]
pub(super) async fn connect(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<WatchQuery>,
    guest: Guest,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade =
        upgrade.map_err(|refused| Problem::new(Code::InvalidRequest, refused.body_text()))?;
    let mode = query.mode()?;
    let pictures = query.pictures()?;
    let from = query.from.map_or(From::Picture, From::Offset);
    let (mode, watcher, attached) = match &guest.0 {
        Some(pass) => (Mode::Viewer, app.look(&terminal, pass, from).await?, None),
        None => {
            let name = query.name()?;
            let (attached, resume) = app.attend(&terminal, query.resume()).await?;
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
            serve(app, terminal, watcher, (mode, pictures), guest, socket).await;
            drop(attached);
        })
    }))
}

async fn serve(
    app: App,
    terminal: Terminal,
    watcher: Watcher,
    asked: (Mode, Pictures),
    guest: Guest,
    socket: WebSocket,
) {
    let (sink, stream) = socket.split();
    let (control, messages) = mpsc::channel(CONTROL);
    let client = watcher.client();
    let stopping = app.stopping.clone();
    let (asks, may) =
        (watcher.asks(), if guest.0.is_some() { Permission::Look } else { Permission::Act });
    let watched = || Happened::TerminalWatched {
        thread_id: terminal.thread_id.clone(),
        terminal_id: terminal.terminal_id.clone(),
    };
    app.events.tell(watched());
    tokio::select! {
        () = tell(&app, &terminal, watcher, asked, sink, messages) => {}
        () = listen(&app, &terminal, (client, may), asks, stream, control) => {}
        // The client finds out why when it comes back.
        () = guest.over() => {}
        // `tell` says so to the client; this is for one that does not read.
        () = async { stopping.cancelled().await; tokio::time::sleep(STOP_TIMEOUT).await } => {}
    }
    app.events.tell(watched());
}

type Sink = SplitSink<WebSocket, Message>;

async fn tell(
    app: &App,
    terminal: &Terminal,
    mut watcher: Watcher,
    (mode, pictures): (Mode, Pictures),
    mut sink: Sink,
    mut messages: mpsc::Receiver<Value>,
) {
    let facts = app.terminals.facts(terminal).await;
    let drives = facts.driving == Some(watcher.client());
    let shown = if drives { Mode::Driver } else { Mode::Viewer };
    let hello = json!({"type": "hello", "client": watcher.client(), "mode": shown.as_str(),
        "asked": mode.as_str(), "driver": facts.driver, "offset": watcher.offset(),
        "resumed": watcher.resumed(), "cols": facts.cols, "rows": facts.rows,
        "title": facts.title, "live": facts.live});
    if say(&mut sink, &hello).await.is_err() {
        return;
    }
    let mut cutter = Cutter::default();
    loop {
        let told = tokio::select! {
            biased;
            Some(message) = messages.recv() => {
                if say(&mut sink, &message).await.is_err() { return }
                continue;
            }
            told = watcher.next() => told,
            () = app.stopping.cancelled() => {
                let notice = json!({"type": "notice", "code": "stopping",
                    "text": "the server is stopping; the shell runs on"});
                let _ = say(&mut sink, &notice).await;
                let _ = sink.send(Message::Close(None)).await;
                return;
            }
        };
        let Ok(told) = told else { return };
        let told = match told {
            Told::Picture(mut picture) => {
                cutter = Cutter::default();
                picture.data = cutter.cut_bytes(picture.data).unwrap_or_default();
                picture.offset -= cutter.held() as u64;
                if show(&mut sink, picture, pictures).await.is_err() {
                    return;
                }
                continue;
            }
            Told::Event(Event::Output { offset, bytes }) => {
                let offset = offset - cutter.held() as u64;
                let Some(bytes) = cutter.cut_bytes(bytes) else { continue };
                Event::Output { offset, bytes }
            }
            Told::Event(event @ (Event::Gap { .. } | Event::Exit { .. })) => {
                // Nothing will complete the character.
                let rest = cutter.rest();
                if !rest.is_empty() && sink.send(Message::Binary(rest.into())).await.is_err() {
                    return;
                }
                event
            }
            Told::Event(event) => event,
        };
        if pass_on(app, &mut sink, told, watcher.client(), terminal).await.is_err() {
            return;
        }
    }
}

async fn show(sink: &mut Sink, picture: Picture, pictures: Pictures) -> Result<(), axum::Error> {
    let mut head = json!({"type": "snapshot", "offset": picture.offset, "cols": picture.cols,
        "rows": picture.rows, "title": picture.title, "bytes": picture.data.len()});
    let squeezed = match pictures {
        Pictures::Plain => None,
        Pictures::Gzip => gzip::squeeze(picture.data.clone()).await,
    };
    if squeezed.is_some() {
        head["encoding"] = "gzip".into();
    }
    say(sink, &head).await?;
    sink.send(Message::Binary(squeezed.unwrap_or(picture.data))).await
}

async fn pass_on(
    app: &App,
    sink: &mut Sink,
    event: Event,
    client: ClientId,
    terminal: &Terminal,
) -> Result<(), axum::Error> {
    let message = match event {
        Event::Output { bytes, .. } => {
            app.metrics.bytes_out.inc_by(bytes.len() as u64);
            return sink.send(Message::Binary(bytes)).await;
        }
        Event::Resize { cols, rows } => {
            json!({"type": "resize", "cols": cols, "rows": rows})
        }
        Event::Gap { from, to } => json!({"type": "gap", "from": from, "to": to}),
        Event::Title(title) => json!({"type": "title", "title": title}),
        Event::Notice(text) => json!({"type": "notice", "text": text}),
        Event::Driver(driver) => {
            let facts = app.terminals.facts(terminal).await;
            let mode = if facts.driving == Some(client) { Mode::Driver } else { Mode::Viewer };
            json!({"type": "driver", "driver": driver, "mode": mode.as_str()})
        }
        Event::Exit { code, signal } => {
            json!({"type": "exit", "code": code, "signal": signal.map(signal::name)})
        }
    };
    say(sink, &message).await
}

async fn say(sink: &mut Sink, message: &Value) -> Result<(), axum::Error> {
    sink.send(Message::Text(message.to_string().into())).await
}

/// What a client may say in a text frame.
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

async fn listen(
    app: &App,
    terminal: &Terminal,
    (client, may): (ClientId, Permission),
    asks: mpsc::Sender<Box<Ask>>,
    mut stream: SplitStream<WebSocket>,
    control: mpsc::Sender<Value>,
) {
    let me = SocketClient { app, terminal, client, may, asks };
    while let Some(Ok(message)) = stream.next().await {
        let result = match message {
            Message::Binary(bytes) => me.typed("", bytes).await,
            Message::Text(text) => match extract::parse::<ClientMessage>(text.as_bytes()) {
                Ok(ClientMessage::Ping) => {
                    if control.try_send(json!({"type": "pong"})).is_err() {
                        return;
                    }
                    Ok(())
                }
                Ok(said) => me.hear(said).await,
                Err(problem) => Err(problem),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(problem) = result {
            let error = json!({"type": "error", "code": problem.code().name(),
                "detail": problem.detail()});
            if control.try_send(error).is_err() {
                return;
            }
        }
    }
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Act,
    Look,
}

struct SocketClient<'a> {
    app: &'a App,
    terminal: &'a Terminal,
    client: ClientId,
    may: Permission,
    asks: mpsc::Sender<Box<Ask>>,
}

impl SocketClient<'_> {
    fn may_act(&self) -> Result<(), Problem> {
        match self.may {
            Permission::Act => Ok(()),
            Permission::Look => Err(Problem::new(Code::Forbidden, "a share link only looks")),
        }
    }

    async fn typed(&self, write_id: &str, bytes: Bytes) -> Result<(), Problem> {
        self.may_act()?;
        self.app.metrics.bytes_in.inc_by(bytes.len() as u64);
        self.app.terminals.type_as(self.terminal, self.client, write_id, bytes).await?;
        self.app.used(&self.terminal.thread_id).await;
        Ok(())
    }

    async fn hear(&self, said: ClientMessage) -> Result<(), Problem> {
        self.may_act()?;
        let ask = match said {
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
            ClientMessage::Resize(size) => Ask::Resize(self.client, size.check()?),
            ClientMessage::TakeOver => Ask::TakeOver(self.client),
            ClientMessage::HandBack => Ask::HandBack(self.client),
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
