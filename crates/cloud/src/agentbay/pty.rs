//! PTYs of a session: one WebSocket to its PTY server for each.
//!
//! The protocol is that of the vendor's own client: a PTY is created with a shell, takes input, and reports output
//! and its exit code. It outlives the connection and can be connected to again by its id.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::super::http::{RESPONSE_TIMEOUT, VendorFault};
use super::super::vendor::VendorSandbox;
use super::super::websocket::WebSocket;
use super::api::{AgentBayVendor, broken, refusal};
use crate::remote::{PtyEvent, PtyInput, PtyRequest, RemotePty};

const SERVER: &str = "PTY_SERVER";
/// How often we ping the PTY server, and how long it may be silent.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Messages queued in each direction.
const MAX_QUEUED: usize = 64;
/// The vendor's limit for columns and for rows.
const MAX_SCREEN_SIDE: u16 = 500;

impl AgentBayVendor {
    pub(super) async fn pty(
        self: &Arc<Self>,
        sandbox: &VendorSandbox,
        request: &PtyRequest,
    ) -> Result<Option<RemotePty>, VendorFault> {
        let (Some(url), Some(token)) = (&sandbox.pty_url, &sandbox.token) else { return Ok(None) };
        let token =
            token.header("").ok_or_else(|| broken("its token is not a valid header value"))?;
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-access-token"), token)]);
        let mut socket = self.client.websocket(url, headers).await?;
        let (method, params) = match request {
            PtyRequest::New { size: (cols, rows), env } => {
                let mut envs = json!({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"});
                for (name, value) in env {
                    envs[name] = value.as_str().into();
                }
                let (cols, rows) = (cols.min(&MAX_SCREEN_SIDE), rows.min(&MAX_SCREEN_SIDE));
                ("pty.create", json!({"cols": cols, "rows": rows, "envs": envs}))
            }
            PtyRequest::Existing(id) => ("pty.connect", json!({"ptySessionId": id})),
        };
        let invocation = uuid::Uuid::now_v7().simple().to_string();
        let invoked = async {
            let text = message(&invocation, method, params);
            socket.send(text).await.map_err(broken)?;
            await_reply(&mut socket, &invocation).await
        };
        let late = |_| broken(format!("{method} timed out"));
        let (response, early) = timeout(RESPONSE_TIMEOUT, invoked).await.map_err(late)??;
        let id = match (&response["error"], &response["result"]["ptySessionId"], request) {
            (Value::Null, Value::String(id), _) => id.clone(),
            (Value::Null, _, PtyRequest::Existing(id)) => id.clone(),
            // The PTY no longer exists.
            (_, _, PtyRequest::Existing(_)) => return Ok(None),
            (_, _, PtyRequest::New { .. }) => {
                let message =
                    response["error"].as_str().map_or_else(|| response.to_string(), str::to_owned);
                return Err(refusal(StatusCode::BAD_REQUEST, message));
            }
        };
        let (input, queued_input) = mpsc::channel(MAX_QUEUED);
        let (queued_events, events) = mpsc::channel(MAX_QUEUED);
        tokio::spawn(forward(socket, id.clone(), early, queued_input, queued_events));
        Ok(Some(RemotePty { id, input, events }))
    }
}

fn message(invocation: &str, method: &str, params: Value) -> Message {
    let data = json!({"method": method, "params": params});
    let whole =
        json!({"invocationId": invocation, "source": "SDK", "target": SERVER, "data": data});
    Message::Text(whole.to_string().into())
}

/// Returns the invocation that a message belongs to, and its data.
fn parse(message: &Message) -> Option<(String, Value)> {
    let Message::Text(text) = message else { return None };
    let mut whole: Value = serde_json::from_str(text).ok()?;
    let invocation = whole["invocationId"].as_str().or(whole["requestId"].as_str())?.to_owned();
    let data = match whole["data"].take() {
        Value::String(text) => serde_json::from_str(&text).ok()?,
        other => other,
    };
    Some((invocation, data))
}

/// Waits for the reply to an invocation. Also returns the messages that came before it.
async fn await_reply(
    socket: &mut WebSocket,
    invocation: &str,
) -> Result<(Value, Vec<Value>), VendorFault> {
    let mut early = Vec::new();
    loop {
        let next = socket.next().await.ok_or_else(|| broken("the connection was closed"))?;
        match parse(&next.map_err(broken)?) {
            Some((about, data)) if about == invocation => return Ok((data, early)),
            Some((_, data)) if early.len() < MAX_QUEUED => early.push(data),
            Some(_) | None => {}
        }
    }
}

/// Returns the event in a message, if it belongs to this PTY.
fn event_of(data: &Value, id: &str) -> Option<PtyEvent> {
    if data["ptySessionId"] != id {
        return None;
    }
    match data["eventType"].as_str()? {
        "pty.output" => {
            let text = data["data"].as_str()?;
            Some(PtyEvent::Output(match data["encoding"].as_str() {
                Some("base64") => STANDARD.decode(text).ok()?,
                _ => text.as_bytes().to_vec(),
            }))
        }
        "pty.exit" => Some(PtyEvent::Exit(data["exitCode"].as_i64().unwrap_or(-1) as i32)),
        "pty.error" => Some(PtyEvent::Exit(-1)),
        _ => None,
    }
}

/// Forwards both ways until either end closes.
async fn forward(
    socket: WebSocket,
    id: String,
    early: Vec<Value>,
    mut input: mpsc::Receiver<PtyInput>,
    events: mpsc::Sender<PtyEvent>,
) {
    let (mut sink, mut stream) = socket.split();
    for event in early.iter().filter_map(|data| event_of(data, &id)) {
        if events.send(event).await.is_err() {
            return;
        }
    }
    let mut pings = interval(PING_INTERVAL);
    let mut last = Instant::now();
    loop {
        let sent = tokio::select! {
            next = input.recv() => match next {
                Some(input) => sink.send(encode(&id, input)).await,
                None => break,
            },
            _ = pings.tick() => sink.send(Message::Ping(bytes::Bytes::new())).await,
            () = sleep_until(last + SILENCE_TIMEOUT) => break,
            next = stream.next() => {
                let Some(Ok(next)) = next else { break };
                last = Instant::now();
                let data = parse(&next).map(|(_, data)| data);
                if let Some(event) = data.and_then(|data| event_of(&data, &id))
                    && events.send(event).await.is_err()
                {
                    break;
                }
                Ok(())
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot write to a PTY in a session");
            break;
        }
    }
    let _ = timeout(PING_INTERVAL, sink.close()).await;
}

fn encode(id: &str, input: PtyInput) -> Message {
    let invocation = uuid::Uuid::now_v7().simple().to_string();
    match input {
        PtyInput::Data(bytes) => {
            let (encoding, data) = match String::from_utf8(bytes) {
                Ok(text) => ("utf8", text),
                Err(error) => ("base64", STANDARD.encode(error.as_bytes())),
            };
            let params = json!({"ptySessionId": id, "encoding": encoding, "data": data});
            message(&invocation, "pty.input", params)
        }
        PtyInput::Resize(cols, rows) => {
            let (cols, rows) = (cols.min(MAX_SCREEN_SIDE), rows.min(MAX_SCREEN_SIDE));
            let params = json!({"ptySessionId": id, "cols": cols, "rows": rows});
            message(&invocation, "pty.resize", params)
        }
    }
}
