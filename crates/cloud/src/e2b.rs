//! Sandboxes of E2B: its control plane, and the daemon (envd) in each of them.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::http::{Ask, Client, Fault, Key, Progress, encoded, endpoint, unless_gone};
use super::pipe::Channel;
use super::vendor::{Answered, Execute, Executed, Labels, Sandbox, Vendor, settings};
use provider::{Fidelity, Observed};

const VENDOR: &str = "E2B";
const ENDPOINT: &str = "https://api.e2b.app";
const DOMAIN: &str = "e2b.app";
/// The port of the daemon.
const DAEMON: u16 = 49_983;
/// How long a sandbox may take to come up.
const MAKING: Duration = Duration::from_secs(120);
/// How long an upload may take.
const UPLOAD: Duration = Duration::from_secs(600);
/// How often the daemon says that it lives, in seconds, and how long it may be silent.
const KEEPALIVE: &str = "15";
const SILENCE: Duration = Duration::from_secs(60);
/// The most input that goes in one request.
const INPUT: usize = 256 << 10;
/// Pieces that wait on either side.
const WAITING: usize = 16;
/// The largest message that is understood.
const MESSAGE: usize = 64 << 20;

/// What an operator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// What opens the vendor.
    pub key: Key,
    /// Where the control plane is; empty for E2B's own.
    pub endpoint: String,
    /// Where the daemons are, all under one name; empty for a name each, or for `endpoint` if that was
    /// given.
    pub sandbox_url: String,
    /// What a sandbox is made from that names nothing.
    pub template: String,
    /// How long a sandbox runs on when nobody says that it is needed.
    pub timeout: Duration,
}

/// The settings of a lease.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Spec {
    template: Option<String>,
}

/// The vendor.
#[derive(Debug)]
pub(super) struct E2b {
    options: Options,
    endpoint: String,
    client: Client,
}

/// A sandbox in an answer.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(rename = "sandboxID")]
    id: String,
    #[serde(default)]
    metadata: Option<Labels>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default, rename = "envdAccessToken")]
    token: Option<String>,
}

impl E2b {
    pub(super) fn new(options: Options) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: Client::new(VENDOR)? })
    }

    fn control(&self, doing: &'static str, method: Method, path: &str) -> Ask {
        let ask = Ask::new(doing, method, format!("{}{path}", self.endpoint));
        ask.header("x-api-key", self.options.key.header(""))
    }

    fn daemon(&self, doing: &'static str, sandbox: &Sandbox, path: &str) -> Ask {
        let ask = Ask::new(doing, Method::POST, format!("{}{path}", sandbox.url));
        self.guest(ask, sandbox)
    }

    fn guest(&self, ask: Ask, sandbox: &Sandbox) -> Ask {
        let token = sandbox.token.as_ref().and_then(|token| token.header(""));
        ask.header("x-access-token", token)
            .text("e2b-sandbox-id", &sandbox.id)
            .text("e2b-sandbox-port", &DAEMON.to_string())
            .text("connect-protocol-version", "1")
    }

    fn sandbox(&self, told: Told) -> Sandbox {
        let url = match (self.options.sandbox_url.trim_end_matches('/'), &*self.options.endpoint) {
            ("", "") => {
                let domain = told.domain.as_deref().unwrap_or(DOMAIN);
                format!("https://{DAEMON}-{}.{domain}", told.id)
            }
            ("", _) => self.endpoint.clone(),
            (url, _) => url.to_owned(),
        };
        Sandbox {
            id: told.id,
            labels: told.metadata.unwrap_or_default(),
            observed: match told.state.as_deref() {
                Some("paused") => Observed::Paused,
                Some(_) | None => Observed::Running,
            },
            url,
            token: told.token.map(Key::new),
            server: None,
            ptys: None,
        }
    }

    /// Starts a program; what comes back is what it says.
    async fn start(
        &self,
        sandbox: &Sandbox,
        process: Value,
        stdin: Stdin,
        time: Option<Duration>,
    ) -> Result<Said, Fault> {
        let message = json!({"process": process, "stdin": stdin == Stdin::Open});
        let mut ask = self
            .daemon("start a program", sandbox, "/process.Process/Start")
            .body("application/connect+json", enveloped(&message))
            .text("keepalive-ping-interval", KEEPALIVE);
        if let Some(time) = time {
            ask = ask.text("connect-timeout-ms", &time.as_millis().to_string());
        }
        Ok(Said { body: self.client.open(&ask).await?, buffer: BytesMut::new() })
    }

    async fn feed(&self, sandbox: &Sandbox, pid: u64, bytes: &[u8]) -> Result<(), Fault> {
        let input = json!({"stdin": STANDARD.encode(bytes)});
        let ask = self
            .daemon("feed a program", sandbox, "/process.Process/SendInput")
            .json(&json!({"process": {"pid": pid}, "input": input}))
            // Lines that come twice are known by their offsets.
            .safe();
        self.client.ask(&ask).await.map(drop)
    }

    async fn listed(&self, query: &str) -> Result<Vec<Told>, Fault> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let mut path = format!("/v2/sandboxes?{query}&state=running%2Cpaused&limit=100");
            if !next.is_empty() {
                path.push_str("&nextToken=");
                path.extend(form_urlencoded::byte_serialize(next.as_bytes()));
            }
            let answer = self.client.ask(&self.control("list", Method::GET, &path)).await?;
            let page: Vec<Told> = self.client.understand(&answer)?;
            let full = !page.is_empty();
            all.extend(page);
            let token = answer.headers.get("x-next-token").and_then(|token| token.to_str().ok());
            match token.filter(|token| full && !token.is_empty()) {
                Some(token) => next = token.to_owned(),
                None => return Ok(all),
            }
        }
    }
}

/// Whether a program can be fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stdin {
    Open,
    Closed,
}

/// A message as the daemon takes it: a flag, its length, and the JSON.
fn enveloped(message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(text.len() + 5);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// What a program says, message by message.
struct Said {
    body: Incoming,
    buffer: BytesMut,
}

/// One message.
enum Message {
    Started(u64),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(i64),
    Alive,
}

impl Said {
    /// The next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<Message>, Fault> {
        loop {
            if let Some((flags, message)) = self.whole()? {
                if flags & 2 == 0 {
                    return Ok(Some(meaning(&message["event"])));
                }
                return match message.get("error") {
                    None | Some(Value::Null) => Ok(None),
                    Some(error) => Err(refusal(error)),
                };
            }
            let frame = match timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(broken(&error.to_string())),
                Ok(None) => return Err(broken("the stream ended in the middle")),
                Err(_) => return Err(broken("nothing was heard for a minute")),
            };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn whole(&mut self) -> Result<Option<(u8, Value)>, Fault> {
        let Some(head) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        let [flags, a, b, c, d] = *head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MESSAGE {
            return Err(broken("a message is too large"));
        }
        if self.buffer.len() < 5 + length {
            return Ok(None);
        }
        self.buffer.advance(5);
        let message = self.buffer.split_to(length);
        let message = serde_json::from_slice(&message);
        Ok(Some((flags, message.map_err(|error| broken(&error.to_string()))?)))
    }
}

fn broken(why: &str) -> Fault {
    Fault::Broken { vendor: VENDOR, why: why.to_owned() }
}

/// A refusal at the end of a stream, by the status it would have had.
fn refusal(error: &Value) -> Fault {
    let words = error["message"].as_str().unwrap_or("nothing more").to_owned();
    let status = match error["code"].as_str().unwrap_or_default() {
        "not_found" => StatusCode::NOT_FOUND,
        "unauthenticated" => StatusCode::UNAUTHORIZED,
        "permission_denied" => StatusCode::FORBIDDEN,
        "invalid_argument" | "failed_precondition" => StatusCode::BAD_REQUEST,
        "deadline_exceeded" => StatusCode::REQUEST_TIMEOUT,
        "resource_exhausted" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::BAD_GATEWAY,
    };
    Fault::Status { vendor: VENDOR, status, words }
}

fn meaning(event: &Value) -> Message {
    let bytes = |value: &Value| STANDARD.decode(value.as_str()?).ok();
    if let Some(pid) = event["start"]["pid"].as_u64() {
        return Message::Started(pid);
    }
    if let Some(data) = event.get("data") {
        let told =
            [("stdout", Message::Stdout as fn(Vec<u8>) -> Message), ("stderr", Message::Stderr)];
        for (name, message) in told {
            if let Some(bytes) = bytes(&data[name]) {
                return message(bytes);
            }
        }
    }
    match event.get("end") {
        Some(end) => Message::Ended(end["exitCode"].as_i64().unwrap_or(0)),
        None => Message::Alive,
    }
}

impl Vendor for Arc<E2b> {
    fn name(&self) -> &'static str {
        "e2b"
    }

    fn user(&self) -> (&'static str, &'static str) {
        ("user", "/home/user")
    }

    fn pauses(&self) -> Fidelity {
        Fidelity::Memory
    }

    fn accepts(&self, spec: &Value) -> Result<(), String> {
        settings::<Spec>(spec).map(drop)
    }

    fn make<'a>(
        &'a self,
        name: &'a str,
        labels: &'a Labels,
        spec: &'a Value,
    ) -> Answered<'a, Sandbox> {
        Box::pin(async move {
            let template = settings::<Spec>(spec).ok().and_then(|spec| spec.template);
            let body = json!({
                "templateID": template.as_ref().unwrap_or(&self.options.template),
                "timeout": self.options.timeout.as_secs(),
                // Whatever becomes of us, nothing is lost and nothing costs for ever.
                "autoPause": true,
                "secure": true,
                "metadata": labels,
            });
            let ask = self
                .control("make a sandbox", Method::POST, "/sandboxes")
                .json(&body)
                .text("idempotency-key", name)
                .within(MAKING);
            let told: Told = self.client.ask_json(&ask).await?;
            Ok(Sandbox { labels: labels.clone(), ..self.sandbox(told) })
        })
    }

    fn find<'a>(&'a self, labels: &'a Labels) -> Answered<'a, Vec<Sandbox>> {
        Box::pin(async move {
            // A query in a query.
            let pairs =
                form_urlencoded::Serializer::new(String::new()).extend_pairs(labels).finish();
            let query = format!("metadata={}", encoded(&pairs));
            let found = self.listed(&query).await?;
            Ok(found.into_iter().map(|told| self.sandbox(told)).collect())
        })
    }

    fn look<'a>(&'a self, id: &'a str) -> Answered<'a, Option<Sandbox>> {
        Box::pin(async move {
            let ask = self.control("look", Method::GET, &format!("/sandboxes/{}", encoded(id)));
            let told = unless_gone(self.client.ask_json(&ask).await)?;
            Ok(told.map(|told| self.sandbox(told)))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/pause", encoded(id));
            let ask = self.control("pause", Method::POST, &path).json(&json!({})).safe();
            match self.client.ask(&ask.within(MAKING)).await {
                Ok(_) => Ok(()),
                // It holds still already.
                Err(fault) if fault.status() == Some(StatusCode::CONFLICT) => Ok(()),
                Err(fault) => Err(fault),
            }
        })
    }

    fn resume<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/connect", encoded(id));
            let body = json!({"timeout": self.options.timeout.as_secs()});
            let ask = self.control("resume", Method::POST, &path).json(&body).safe();
            self.client.ask(&ask.within(MAKING)).await.map(drop)
        })
    }

    fn kill<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}", encoded(id));
            let ask = self.control("end", Method::DELETE, &path).within(MAKING);
            unless_gone(self.client.ask(&ask).await).map(drop)
        })
    }

    fn keep<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/timeout", encoded(&sandbox.id));
            let body = json!({"timeout": self.options.timeout.as_secs()});
            let ask = self.control("keep a sandbox", Method::POST, &path).json(&body).safe();
            self.client.ask(&ask).await.map(drop)
        })
    }

    fn pace(&self) -> Duration {
        self.options.timeout / 3
    }

    fn run<'a>(&'a self, sandbox: &'a Sandbox, command: &'a Execute) -> Answered<'a, Executed> {
        Box::pin(async move {
            let mut process = json!({
                "cmd": "/bin/sh", "args": ["-c", command.command], "envs": command.env,
            });
            if let Some(cwd) = &command.cwd {
                process["cwd"] = cwd.as_str().into();
            }
            let time = Some(command.timeout);
            let mut said = self.start(sandbox, process, Stdin::Closed, time).await?;
            let (mut stdout, mut stderr, mut exit_code) = (Vec::new(), Vec::new(), None);
            loop {
                match said.next().await {
                    Ok(Some(Message::Stdout(bytes))) => stdout.extend(bytes),
                    Ok(Some(Message::Stderr(bytes))) => stderr.extend(bytes),
                    Ok(Some(Message::Ended(code))) => exit_code = i32::try_from(code).ok(),
                    Ok(Some(Message::Started(_) | Message::Alive)) => {}
                    Ok(None) => break,
                    Err(fault) if fault.status() == Some(StatusCode::REQUEST_TIMEOUT) => break,
                    Err(fault) => return Err(fault),
                }
            }
            Ok(Executed { exit_code, stdout, stderr })
        })
    }

    fn upload<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<Progress>,
    ) -> Answered<'a, ()> {
        Box::pin(async move {
            let (kind, body) = super::multipart(&[("file", Some(path), &bytes)]);
            let ask = self
                .daemon("write a file", sandbox, &format!("/files?path={}", encoded(path)))
                .body(&kind, body)
                .within(UPLOAD)
                .telling(progress)
                .safe();
            self.client.ask(&ask).await.map(drop)
        })
    }

    fn attach<'a>(&'a self, sandbox: &'a Sandbox, words: &'a [String]) -> Answered<'a, Channel> {
        Box::pin(async move {
            let (cmd, args) = words.split_first().ok_or_else(|| broken("no program is named"))?;
            let process = json!({"cmd": cmd, "args": args, "cwd": "/"});
            let mut said = self.start(sandbox, process, Stdin::Open, None).await?;
            let pid = loop {
                match said.next().await? {
                    Some(Message::Started(pid)) => break pid,
                    Some(_) => {}
                    None => return Err(broken("the program never began")),
                }
            };
            let (to_us, output) = mpsc::channel(WAITING);
            let (input, from_us) = mpsc::channel(WAITING);
            tokio::spawn(hear(said, to_us));
            tokio::spawn(tell(self.clone(), sandbox.clone(), pid, from_us));
            Ok(Channel { output, input })
        })
    }
}

/// Passes on what a program says until nobody listens.
async fn hear(mut said: Said, to_us: mpsc::Sender<Bytes>) {
    loop {
        let message = tokio::select! {
            message = said.next() => message,
            () = to_us.closed() => return,
        };
        match message {
            Ok(Some(Message::Stdout(bytes) | Message::Stderr(bytes))) => {
                if to_us.send(bytes.into()).await.is_err() {
                    return;
                }
            }
            Ok(Some(Message::Started(_) | Message::Alive)) => {}
            Ok(Some(Message::Ended(_)) | None) => return,
            Err(fault) => {
                tracing::debug!(%fault, "a stream from a sandbox broke");
                return;
            }
        }
    }
}

/// Gives a program what comes for it, then the end.
async fn tell(e2b: Arc<E2b>, sandbox: Sandbox, pid: u64, mut from_us: mpsc::Receiver<Bytes>) {
    while let Some(first) = from_us.recv().await {
        let mut bytes = BytesMut::from(first);
        while bytes.len() < INPUT {
            match from_us.try_recv() {
                Ok(more) => bytes.extend_from_slice(&more),
                Err(_) => break,
            }
        }
        if let Err(fault) = e2b.feed(&sandbox, pid, &bytes).await {
            tracing::debug!(%fault, "a program in a sandbox cannot be fed");
            return;
        }
    }
    let ask = e2b
        .daemon("end a program's input", &sandbox, "/process.Process/CloseStdin")
        .json(&json!({"process": {"pid": pid}}));
    // One that cannot be told is ended by the next that takes its place.
    let _ = e2b.client.ask(&ask).await;
}
