//! A terminal as a WebSocket: bytes both ways, control as JSON.
//!
//! Binary frames to the client are output, in order and without a gap; it counts its offset by
//! them. No frame ends inside a UTF-8 character, unless the output does. A `snapshot` message announces one binary frame that is a picture instead, as gzip when it
//! says `"encoding": "gzip"`, which only a client that asked for it is told; `bytes` is the length
//! of the picture itself. Binary frames from the client are typed. See the messages below for the rest.

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
    extract::Query,
    gzip::{self, Pictures},
    interactive::{Input, Size},
    params::OfTerminal,
    pass::Guest,
    signal,
    stream::WatchQuery,
    target::Target,
};
use base::event::EventKind;
use engine::terminal::{
    ClientId, ClientMode, OwnerRequest, Picture, WatchEvent, WatchFrom, Watcher, WatcherUpdate,
    utf8::Cutter,
};
use model::Terminal;

/// Control messages that wait to be sent; a client that asks faster is cut off.
const CONTROL: usize = 64;

/// Drive or view the terminal.
#[utoipa::path(get, path = "/api/terminals/{id}/ws", tag = "interactive",
    params(OfTerminal, WatchQuery),
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
    let from = query.from.map_or(WatchFrom::Picture, WatchFrom::Offset);
    let (mode, watcher, attached) = match &guest.0 {
        Some(pass) => (ClientMode::Viewer, app.look(&terminal, pass, from).await?, None),
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
    asked: (ClientMode, Pictures),
    guest: Guest,
    socket: WebSocket,
) {
    let (sink, stream) = socket.split();
    let (control, messages) = mpsc::channel(CONTROL);
    let client = watcher.client();
    let stopping = app.stopping.clone();
    let (asks, may) = (watcher.owner(), if guest.0.is_some() { May::Look } else { May::Act });
    let watched = || EventKind::TerminalWatched {
        thread_id: terminal.thread_id.clone(),
        terminal_id: terminal.terminal_id.clone(),
    };
    app.events.publish(watched());
    tokio::select! {
        () = tell(&app, &terminal, watcher, asked, sink, messages) => {}
        () = listen(&app, &terminal, (client, may), asks, stream, control) => {}
        // The client finds out why when it comes back.
        () = guest.over() => {}
        // `tell` says so to the client; this is for one that does not read.
        () = async { stopping.cancelled().await; tokio::time::sleep(super::GRACE).await } => {}
    }
    app.events.publish(watched());
}

type Sink = SplitSink<WebSocket, Message>;

async fn tell(
    app: &App,
    terminal: &Terminal,
    mut watcher: Watcher,
    (mode, pictures): (ClientMode, Pictures),
    mut sink: Sink,
    mut messages: mpsc::Receiver<Value>,
) {
    let facts = app.terminals.facts(terminal).await;
    let drives = facts.driving == Some(watcher.client());
    let shown = if drives { ClientMode::Driver } else { ClientMode::Viewer };
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
            WatcherUpdate::Picture(mut picture) => {
                cutter = Cutter::default();
                picture.data = cutter.cut_bytes(picture.data).unwrap_or_default();
                picture.offset -= cutter.held() as u64;
                if show(&mut sink, picture, pictures).await.is_err() {
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
                // Nothing will complete the character.
                let rest = cutter.rest();
                if !rest.is_empty() && sink.send(Message::Binary(rest.into())).await.is_err() {
                    return;
                }
                event
            }
            WatcherUpdate::Event(event) => event,
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
    say(sink, &message).await
}

async fn say(sink: &mut Sink, message: &Value) -> Result<(), axum::Error> {
    sink.send(Message::Text(message.to_string().into())).await
}

/// What a client may say in a text frame.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    Input(Input),
    Resize(Size),
    TakeOver,
    HandBack,
    Signal(signal::Signal),
    Ping,
}

async fn listen(
    app: &App,
    terminal: &Terminal,
    (client, may): (ClientId, May),
    asks: mpsc::Sender<Box<OwnerRequest>>,
    mut stream: SplitStream<WebSocket>,
    control: mpsc::Sender<Value>,
) {
    let me = Client { app, terminal, client, may, asks };
    while let Some(Ok(message)) = stream.next().await {
        let result = match message {
            Message::Binary(bytes) => me.typed("", bytes).await,
            Message::Text(text) => match super::extract::parse::<Said>(text.as_bytes()) {
                Ok(Said::Ping) => {
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
enum May {
    Act,
    Look,
}

struct Client<'a> {
    app: &'a App,
    terminal: &'a Terminal,
    client: ClientId,
    may: May,
    asks: mpsc::Sender<Box<OwnerRequest>>,
}

impl Client<'_> {
    fn may_act(&self) -> Result<(), Problem> {
        match self.may {
            May::Act => Ok(()),
            May::Look => Err(Problem::new(Code::Forbidden, "a share link only looks")),
        }
    }

    async fn typed(&self, write_id: &str, bytes: Bytes) -> Result<(), Problem> {
        self.may_act()?;
        self.app.metrics.bytes_in.inc_by(bytes.len() as u64);
        self.app.terminals.type_as(self.terminal, self.client, write_id, bytes).await?;
        self.app.used(&self.terminal.thread_id).await;
        Ok(())
    }

    async fn hear(&self, said: Said) -> Result<(), Problem> {
        self.may_act()?;
        let ask = match said {
            Said::Input(input) => {
                return self.typed(input.write_id()?, input.bytes()?).await;
            }
            Said::Signal(signal) => {
                let facts = self.app.terminals.facts(self.terminal).await;
                if facts.driving != Some(self.client) {
                    let driver = facts.driver;
                    return Err(engine::terminal::TerminalError::NotDriver { driver }.into());
                }
                return Ok(self.app.terminals.signal(self.terminal, signal.number()?).await?);
            }
            Said::Resize(size) => OwnerRequest::Resize(self.client, size.check()?),
            Said::TakeOver => OwnerRequest::TakeOver(self.client),
            Said::HandBack => OwnerRequest::HandBack(self.client),
            Said::Ping => return Ok(()),
        };
        self.asks.send(ask.into()).await.map_err(|_| engine::terminal::TerminalError::Gone.into())
    }
}
