//! PTYs of a session: one connection to its server of PTYs for each.
//!
//! What the vendor's own client does is all that is known of it: a PTY is created with a shell, is typed into, and
//! tells what it writes and how it ended; it outlives the connection, and is connected to again by its id.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderName, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::super::http::{ANSWER, Fault};
use super::super::socket::Socket;
use super::super::vendor::Sandbox;
use super::{AgentBay, broken, refusal};
use crate::remote::{Hear, Screen, Tell, Wish};

const SERVER: &str = "PTY_SERVER";
/// How often the other end is asked whether it lives, and how long it may be silent.
const PING: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(60);
/// What waits on either side.
const WAITING: usize = 64;
/// The largest screen the vendor has.
const LARGEST: u16 = 500;

impl AgentBay {
    /// A PTY, as [`Vendor::screen`](super::super::vendor::Vendor::screen) wants it.
    pub(super) async fn pty(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        wish: &Wish,
    ) -> Result<Option<Screen>, Fault> {
        let (Some(url), Some(token)) = (&sandbox.ptys, &sandbox.token) else { return Ok(None) };
        let token = token.header("").ok_or_else(|| broken("its token cannot be sent"))?;
        let headers = vec![(HeaderName::from_static("x-access-token"), token)];
        let mut socket = self.client.socket(url, headers).await?;
        let (method, params) = match wish {
            Wish::New { size: (cols, rows), env } => {
                let mut envs = json!({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"});
                for (name, value) in env {
                    envs[name] = value.as_str().into();
                }
                let (cols, rows) = (cols.min(&LARGEST), rows.min(&LARGEST));
                ("pty.create", json!({"cols": cols, "rows": rows, "envs": envs}))
            }
            Wish::Known(id) => ("pty.connect", json!({"ptySessionId": id})),
        };
        let invocation = uuid::Uuid::now_v7().simple().to_string();
        let asked = async {
            let text = message(&invocation, method, params);
            socket.send(text).await.map_err(broken)?;
            answered(&mut socket, &invocation).await
        };
        let late = |_| broken(format!("{method} was not answered"));
        let (said, early) = timeout(ANSWER, asked).await.map_err(late)??;
        let id = match (&said["error"], &said["result"]["ptySessionId"], wish) {
            (Value::Null, Value::String(id), _) => id.clone(),
            (Value::Null, _, Wish::Known(id)) => id.clone(),
            // It is not there any more.
            (_, _, Wish::Known(_)) => return Ok(None),
            (_, _, Wish::New { .. }) => {
                let words = said["error"].as_str().map_or_else(|| said.to_string(), str::to_owned);
                return Err(refusal(StatusCode::BAD_REQUEST, words));
            }
        };
        let (tell, told) = mpsc::channel(WAITING);
        let (heard, hear) = mpsc::channel(WAITING);
        tokio::spawn(talk(socket, id.clone(), early, told, heard));
        Ok(Some(Screen { id, tell, hear }))
    }
}

fn message(invocation: &str, method: &str, params: Value) -> Message {
    let data = json!({"method": method, "params": params});
    let whole =
        json!({"invocationId": invocation, "source": "SDK", "target": SERVER, "data": data});
    Message::Text(whole.to_string().into())
}

/// What a message is about, and its data; `None` for one that says nothing.
fn understood(message: &Message) -> Option<(String, Value)> {
    let Message::Text(text) = message else { return None };
    let mut whole: Value = serde_json::from_str(text).ok()?;
    let invocation = whole["invocationId"].as_str().or(whole["requestId"].as_str())?.to_owned();
    let data = match whole["data"].take() {
        Value::String(text) => serde_json::from_str(&text).ok()?,
        other => other,
    };
    Some((invocation, data))
}

/// The answer to what was asked, and what came before it.
async fn answered(socket: &mut Socket, invocation: &str) -> Result<(Value, Vec<Value>), Fault> {
    let mut early = Vec::new();
    loop {
        let next = socket.next().await.ok_or_else(|| broken("a socket was closed"))?;
        match understood(&next.map_err(broken)?) {
            Some((about, data)) if about == invocation => return Ok((data, early)),
            Some((_, data)) if early.len() < WAITING => early.push(data),
            Some(_) | None => {}
        }
    }
}

/// What is told of the PTY of this id.
fn heard_of(data: &Value, id: &str) -> Option<Hear> {
    if data["ptySessionId"] != id {
        return None;
    }
    match data["eventType"].as_str()? {
        "pty.output" => {
            let text = data["data"].as_str()?;
            Some(Hear::Output(match data["encoding"].as_str() {
                Some("base64") => STANDARD.decode(text).ok()?,
                _ => text.as_bytes().to_vec(),
            }))
        }
        "pty.exit" => Some(Hear::Exit(data["exitCode"].as_i64().unwrap_or(-1) as i32)),
        "pty.error" => Some(Hear::Exit(-1)),
        _ => None,
    }
}

/// Carries everything both ways until either end is over.
async fn talk(
    socket: Socket,
    id: String,
    early: Vec<Value>,
    mut told: mpsc::Receiver<Tell>,
    heard: mpsc::Sender<Hear>,
) {
    let (mut sink, mut stream) = socket.split();
    for event in early.iter().filter_map(|data| heard_of(data, &id)) {
        if heard.send(event).await.is_err() {
            return;
        }
    }
    let mut pings = interval(PING);
    let mut last = Instant::now();
    loop {
        let sent = tokio::select! {
            tell = told.recv() => match tell {
                Some(tell) => sink.send(telling(&id, tell)).await,
                None => break,
            },
            _ = pings.tick() => sink.send(Message::Ping(bytes::Bytes::new())).await,
            () = sleep_until(last + SILENCE) => break,
            next = stream.next() => {
                let Some(Ok(next)) = next else { break };
                last = Instant::now();
                let data = understood(&next).map(|(_, data)| data);
                if let Some(event) = data.and_then(|data| heard_of(&data, &id))
                    && heard.send(event).await.is_err()
                {
                    break;
                }
                Ok(())
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a PTY in a session cannot be written to");
            break;
        }
    }
    let _ = timeout(PING, sink.close()).await;
}

fn telling(id: &str, tell: Tell) -> Message {
    let invocation = uuid::Uuid::now_v7().simple().to_string();
    match tell {
        Tell::Input(bytes) => {
            let (encoding, data) = match String::from_utf8(bytes) {
                Ok(text) => ("utf8", text),
                Err(error) => ("base64", STANDARD.encode(error.as_bytes())),
            };
            let params = json!({"ptySessionId": id, "encoding": encoding, "data": data});
            message(&invocation, "pty.input", params)
        }
        Tell::Size(cols, rows) => {
            let (cols, rows) = (cols.min(LARGEST), rows.min(LARGEST));
            let params = json!({"ptySessionId": id, "cols": cols, "rows": rows});
            message(&invocation, "pty.resize", params)
        }
    }
}
