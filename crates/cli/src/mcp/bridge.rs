//! Passes MCP messages between standard input and output and the server's `/mcp`.
//!
//! A server that is killed and started again is found again. A client with a session (2025-11-25 and before) gets
//! another session, and its unanswered requests are sent again. A tool call that changes something has an
//! idempotency key, so that the server continues the first attempt instead of running a command twice. A stateless
//! request (2026-07-28) is cancelled by closing its response and has no key: it is sent again if it changes nothing or
//! was not sent, and fails otherwise.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};
use uuid::Uuid;

use super::args::BridgeArgs;
use crate::{
    client::{NoServer, escape},
    server_link::ServerLink,
};

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Messages that may wait for a client that does not read; then the bridge waits, too.
const MAX_QUEUED_MESSAGES: usize = 64;
/// How often an unanswered request is sent again.
const MAX_ATTEMPTS: u32 = 10;
/// How long requests may take to be answered after the end of the input.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Error codes of JSON-RPC.
const INTERNAL_ERROR: i64 = -32603;
const PARSE_ERROR: i64 = -32700;

/// The tools that change nothing, whose calls can be repeated as they are.
const READ_ONLY_TOOLS: [&str; 8] = [
    "command_output",
    "screen",
    "read_file",
    "list_files",
    "search_files",
    "ports",
    "sandbox_list",
    "memory_read",
];

/// A message of the client.
struct BridgeMessage {
    text: String,
    json: Value,
}

impl BridgeMessage {
    fn method(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }

    /// Returns the id of a request; `None` for a notification or a response.
    fn request_id(&self) -> Option<&Value> {
        self.json.get("id").filter(|id| !id.is_null() && !self.method().is_empty())
    }

    /// Whether the request must not be carried out twice.
    fn changes(&self) -> bool {
        let tool = self.json["params"]["name"].as_str().unwrap_or_default();
        self.method() == "tools/call" && !READ_ONLY_TOOLS.contains(&tool)
    }

    /// Whether the request can be sent again as it is. A client whose subscription is lost must hear of it, because
    /// it may have missed changes.
    fn is_repeatable(&self) -> bool {
        !self.changes() && self.method() != "subscriptions/listen"
    }

    /// Returns the version of a stateless request.
    fn version(&self) -> Option<&str> {
        self.json["params"]["_meta"][VERSION_KEY].as_str()
    }

    /// Returns the headers of a stateless request, which repeat what its body says.
    fn stateless_headers(&self, version: &str) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(VERSION_HEADER, HeaderValue::try_from(version)?);
        headers.insert("mcp-method", HeaderValue::try_from(self.method())?);
        let key = match self.method() {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return Ok(headers),
        };
        if let Some(name) = self.json["params"][key].as_str() {
            headers.insert("mcp-name", HeaderValue::try_from(header_text(name))?);
        }
        Ok(headers)
    }
}

/// Encodes a header value that is not plain text.
fn header_text(text: &str) -> String {
    let is_plain = text.chars().all(|c| (' '..='~').contains(&c)) && text.trim() == text;
    let is_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    match is_plain && !is_encoded {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", BASE64_STANDARD.encode(text)),
    }
}

/// The session of a client that sent `initialize`.
#[derive(Debug, Clone)]
struct BridgeSession {
    /// The request, which is repeated for another server.
    initialize: String,
    id: Option<HeaderValue>,
    version: String,
    /// Counts the sessions of this client.
    generation: u64,
}

struct Bridge {
    link: ServerLink,
    /// The path of the server's MCP endpoint, with the default thread.
    path: String,
    output: mpsc::Sender<String>,
    session: Mutex<Option<BridgeSession>>,
    /// Held while another session is initialized.
    renewal: tokio::sync::Mutex<()>,
    /// Unanswered requests by the JSON of their ids.
    running: Mutex<HashMap<String, Running>>,
    /// The prefix of idempotency keys, unique to this process.
    key: String,
    next_key: AtomicU64,
}

/// A request that is not answered yet.
struct Running {
    task: AbortHandle,
    lifecycle: SessionLifecycle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionLifecycle {
    Session,
    Stateless,
}

pub(super) async fn run(args: BridgeArgs) -> anyhow::Result<ExitCode> {
    let (output, mut messages) = mpsc::channel::<String>(MAX_QUEUED_MESSAGES);
    let writer = tokio::spawn(async move {
        let mut out = stdout();
        while let Some(message) = messages.recv().await {
            out.write_all(message.as_bytes()).await?;
            out.write_all(b"\n").await?;
            out.flush().await?;
        }
        Ok::<_, std::io::Error>(())
    });
    let bridge = Arc::new(Bridge {
        link: ServerLink::new(args.target),
        path: args
            .thread
            .map_or_else(|| "/mcp".to_owned(), |thread| format!("/mcp?thread={}", escape(&thread))),
        output,
        session: Mutex::new(None),
        renewal: tokio::sync::Mutex::default(),
        running: Mutex::default(),
        key: format!("mcp-{}", Uuid::now_v7().simple()),
        next_key: AtomicU64::new(0),
    });
    let (mut requests, mut streams) = (JoinSet::new(), JoinSet::new());
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await.context("cannot read standard input")? {
        while requests.try_join_next().is_some() {}
        if line.trim().is_empty() {
            continue;
        }
        let Ok(json) = serde_json::from_str(&line) else {
            bridge.answer_error(&Value::Null, PARSE_ERROR, "the message is not JSON").await;
            continue;
        };
        let message = BridgeMessage { text: line, json };
        if message.method() == "initialize" && message.request_id().is_some() {
            bridge.initialize(message, &mut streams).await;
        } else {
            bridge.receive(message, &mut requests).await;
        }
    }
    // The client has ended. Commands of a session continue; what is answered soon is still sent.
    let answered = async { while requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(END_TIMEOUT, answered).await;
    drop((requests, streams, bridge));
    match writer.await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl Bridge {
    /// Sends a message, or opens the stream of the server if there is no body. Any failure means that the
    /// connection was lost; the next call finds the server again.
    async fn send(&self, body: Option<String>, headers: HeaderMap) -> anyhow::Result<Response> {
        let sent = self.link.client().await?.open(&self.path, body, headers).await;
        if sent.is_err() {
            self.link.lost().await;
        }
        sent
    }

    async fn receive(self: &Arc<Self>, message: BridgeMessage, requests: &mut JoinSet<()>) {
        let id = message.request_id().map(Value::to_string);
        match (message.method(), id) {
            (_, Some(id)) => {
                let lifecycle = match message.version() {
                    Some(_) => SessionLifecycle::Stateless,
                    None => SessionLifecycle::Session,
                };
                let (bridge, key) = (self.clone(), id.clone());
                let task = requests.spawn(async move {
                    bridge.request(message, lifecycle).await;
                    bridge.running.lock().remove(&key);
                });
                self.running.lock().insert(id, Running { task, lifecycle });
            }
            ("notifications/cancelled", None) => {
                let of = message.json["params"]["requestId"].to_string();
                let running = self.running.lock().remove(&of);
                match running {
                    Some(Running { task, lifecycle: SessionLifecycle::Stateless }) => task.abort(),
                    Some(Running { lifecycle: SessionLifecycle::Session, .. }) | None => {
                        self.notify(message).await;
                    }
                }
            }
            (_, None) => self.notify(message).await,
        }
    }

    /// Begins the session of a client, and passes on what the server sends without a request.
    async fn initialize(self: &Arc<Self>, message: BridgeMessage, streams: &mut JoinSet<()>) {
        let id = message.json["id"].clone();
        match self.open_session(&message.text, 0).await {
            Ok(answer) => {
                let _ = self.output.send(answer.to_string()).await;
                let bridge = self.clone();
                streams.spawn(async move { bridge.standalone_stream().await });
            }
            Err(error) => self.answer_error(&id, INTERNAL_ERROR, &format!("{error:#}")).await,
        }
    }

    /// Sends an `initialize` request and keeps the session. Returns the response of the server.
    async fn open_session(&self, initialize: &str, generation: u64) -> anyhow::Result<Value> {
        let response = self.send(Some(initialize.to_owned()), accept()).await?;
        let session_id = response.headers().get(SESSION_HEADER).cloned();
        let mut answer = Value::Null;
        let mut messages = ResponseMessages::new(response);
        while let Some(text) = messages.next().await? {
            answer = serde_json::from_str(&text).context("the response is not JSON")?;
        }
        let version = answer["result"]["protocolVersion"].as_str();
        if let Some(version) = version {
            let (initialize, version) = (initialize.to_owned(), version.to_owned());
            *self.session.lock() =
                Some(BridgeSession { initialize, id: session_id, version, generation });
        }
        Ok(answer)
    }

    /// Begins another session after `lost`, unless another request did.
    async fn renew_session(&self, lost: u64) -> anyhow::Result<()> {
        let _renewal = self.renewal.lock().await;
        let session = self.session.lock().clone();
        let Some(session) = session.filter(|session| session.generation == lost) else {
            return Ok(());
        };
        self.open_session(&session.initialize, lost + 1).await?;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let headers = self.session_headers()?.1;
        self.send(Some(initialized.to_string()), headers).await?;
        Ok(())
    }

    /// Returns the number of the session and the headers of its requests.
    fn session_headers(&self) -> anyhow::Result<(u64, HeaderMap)> {
        let mut headers = accept();
        let session = self.session.lock();
        let Some(session) = &*session else { return Ok((0, headers)) };
        headers.insert(VERSION_HEADER, HeaderValue::try_from(&session.version)?);
        if let Some(id) = &session.id {
            headers.insert(SESSION_HEADER, id.clone());
        }
        Ok((session.generation, headers))
    }

    /// Sends a request and passes on everything that the server sends for it.
    async fn request(&self, message: BridgeMessage, lifecycle: SessionLifecycle) {
        let outcome = match lifecycle {
            SessionLifecycle::Session => self.session_request(&message).await,
            SessionLifecycle::Stateless => self.stateless_request(&message).await,
        };
        if let Err(error) = outcome {
            let id = &message.json["id"];
            self.answer_error(id, INTERNAL_ERROR, &format!("{error:#}")).await;
        }
    }

    async fn stateless_request(&self, message: &BridgeMessage) -> anyhow::Result<()> {
        let mut headers = accept();
        headers.extend(message.stateless_headers(message.version().unwrap_or_default())?);
        let mut attempts = 0;
        loop {
            attempts += 1;
            // Waits until a server is ready.
            self.link.client().await?;
            let sent = self.send(Some(message.text.clone()), headers.clone()).await;
            let may_repeat = match &sent {
                // The server that was known has ended, and has not received the request.
                Err(error) if error.is::<NoServer>() => true,
                Ok(_) | Err(_) => message.is_repeatable(),
            };
            let outcome = match sent {
                Ok(response) => self.pass_on(response, message).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(Answered::Yes) => return Ok(()),
                Ok(Answered::No | Answered::SessionLost) | Err(_)
                    if may_repeat && attempts < MAX_ATTEMPTS => {}
                Ok(Answered::No | Answered::SessionLost) => {
                    anyhow::bail!("the connection to the server was lost before it answered")
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn session_request(&self, message: &BridgeMessage) -> anyhow::Result<()> {
        let number = self.next_key.fetch_add(1, Ordering::Relaxed);
        let key = message
            .changes()
            .then(|| HeaderValue::try_from(format!("{}-{number}", self.key)))
            .transpose()?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (generation, mut headers) = self.session_headers()?;
            if let Some(key) = &key {
                headers.insert("idempotency-key", key.clone());
            }
            let sent = self.send(Some(message.text.clone()), headers).await;
            let outcome = match sent {
                Ok(response) => self.pass_on(response, message).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(Answered::Yes) => return Ok(()),
                Ok(Answered::SessionLost) if attempts < MAX_ATTEMPTS => {
                    self.renew_session(generation).await?;
                }
                Ok(Answered::No) | Err(_) if attempts < MAX_ATTEMPTS => {
                    // Waits until a server is ready.
                    self.link.client().await?;
                }
                Ok(_) => anyhow::bail!("the server did not answer after {attempts} attempts"),
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes on the messages of a response.
    async fn pass_on(
        &self,
        response: Response,
        message: &BridgeMessage,
    ) -> anyhow::Result<Answered> {
        let status = response.status();
        let has_session = self.session.lock().is_some();
        if status == StatusCode::NOT_FOUND && has_session && message.version().is_none() {
            return Ok(Answered::SessionLost);
        }
        let mut messages = ResponseMessages::new(response);
        while let Ok(Some(text)) = messages.next().await {
            let Ok(mut json) = serde_json::from_str::<Value>(&text) else { continue };
            if json.get("jsonrpc").is_none() {
                // A refusal of the server before the protocol.
                let detail = json["detail"].as_str().unwrap_or("the server refused the request");
                let detail = format!("{detail} ({})", status.as_u16());
                json = error(&message.json["id"], INTERNAL_ERROR, &detail);
            }
            let is_answer = json.get("method").is_none() && json["id"] == message.json["id"];
            let _ = self.output.send(json.to_string()).await;
            if is_answer {
                return Ok(Answered::Yes);
            }
        }
        if status.is_client_error() || status.is_server_error() {
            anyhow::bail!("the server answered {status}");
        }
        Ok(Answered::No)
    }

    /// Sends a notification or a response, which has no answer.
    async fn notify(&self, message: BridgeMessage) {
        let headers = match message.version() {
            Some(version) => message.stateless_headers(version).map(|mut headers| {
                headers.extend(accept());
                headers
            }),
            None => self.session_headers().map(|(_, headers)| headers),
        };
        let sent = match headers {
            Ok(headers) => self.send(Some(message.text), headers).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            eprintln!("stead mcp: {error:#}");
        }
    }

    /// Passes on what the server sends without a request, such as changes of subscribed resources.
    async fn standalone_stream(&self) {
        loop {
            let Ok((generation, headers)) = self.session_headers() else { return };
            let Ok(response) = self.send(None, headers).await else {
                if self.link.client().await.is_err() {
                    return;
                }
                continue;
            };
            match response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND if self.renew_session(generation).await.is_ok() => continue,
                _ => return,
            }
            let mut messages = ResponseMessages::new(response);
            while let Ok(Some(text)) = messages.next().await {
                let _ = self.output.send(text).await;
            }
        }
    }

    async fn answer_error(&self, id: &Value, code: i64, message: &str) {
        let _ = self.output.send(error(id, code, message).to_string()).await;
    }
}

/// Whether a request was answered.
enum Answered {
    Yes,
    /// The response ended before the answer.
    No,
    /// The server does not know the session.
    SessionLost,
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn accept() -> HeaderMap {
    let both = HeaderValue::from_static("application/json, text/event-stream");
    HeaderMap::from_iter([(http::header::ACCEPT, both)])
}

/// The messages of a response: one as JSON, or any number as events.
struct ResponseMessages {
    response: Response,
    buffer: Vec<u8>,
    is_stream: bool,
    is_over: bool,
}

impl ResponseMessages {
    fn new(response: Response) -> ResponseMessages {
        let kind = response.headers().get(http::header::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        ResponseMessages { response, buffer: Vec::new(), is_stream, is_over: false }
    }

    /// Returns the next message as one line; `None` at the end.
    async fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if self.is_stream {
                while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                    let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                    if let Some(data) = event_data(&String::from_utf8_lossy(&event)) {
                        return Ok(Some(data));
                    }
                }
            }
            if self.is_over {
                let rest = std::mem::take(&mut self.buffer);
                let is_message = !self.is_stream && !rest.trim_ascii().is_empty();
                return Ok(is_message.then(|| String::from_utf8_lossy(&rest).trim().to_owned()));
            }
            match self.response.chunk().await.context("the response was cut off")? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => self.is_over = true,
            }
        }
    }
}

/// Returns the data of an event; `None` if it has none.
fn event_data(event: &str) -> Option<String> {
    let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
    let data: String = lines.map(str::trim).collect();
    (!data.is_empty()).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_carries_any_name() {
        let check = |text: &str, expected: &str| assert_eq!(header_text(text), expected);
        check("exec", "exec");
        check("stead://threads/main/files/a b", "stead://threads/main/files/a b");
        check("é", "=?base64?w6k=?=");
        check(" a", "=?base64?IGE=?=");
        check("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?=");
    }

    #[test]
    fn a_stateless_request_repeats_its_method_and_name() {
        let json = json!({"id": 1, "method": "tools/call", "params": {
            "name": "exec", "_meta": {VERSION_KEY: "2026-07-28"}}});
        let message = BridgeMessage { text: json.to_string(), json };
        assert_eq!(message.version(), Some("2026-07-28"));
        let headers = message.stateless_headers("2026-07-28").unwrap();
        let names = ["mcp-protocol-version", "mcp-method", "mcp-name"];
        let values = names.map(|name| headers[name].to_str().unwrap().to_owned());
        assert_eq!(values, ["2026-07-28", "tools/call", "exec"]);
    }

    #[test]
    fn events_without_data_are_skipped() {
        assert_eq!(event_data("id: 0\nretry: 3000\ndata: \n\n"), None);
        assert_eq!(event_data(": ping\n\n"), None);
        assert_eq!(event_data("data: {\"a\":1}\n\n"), Some("{\"a\":1}".into()));
    }
}
