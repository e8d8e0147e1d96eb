//! Sandboxes of E2B: its control plane, and the daemon (envd) in each of them.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode};
use reqwest::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::http::{
    UploadProgress, VendorClient, VendorFault, VendorKey, VendorRequest, endpoint, none_if_missing,
    url_encoded,
};
use super::multipart::multipart;
use super::pipe::Channel;
use super::vendor::{
    Execute, Executed, Vendor, VendorLabels, VendorReply, VendorSandbox, settings,
};
use provider::{Fidelity, Observed};

const VENDOR: &str = "E2B";
const ENDPOINT: &str = "https://api.e2b.app";
const DOMAIN: &str = "e2b.app";
const DAEMON_PORT: u16 = 49_983;
const START_TIMEOUT: Duration = Duration::from_secs(120);
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// How often the daemon sends a keep-alive, in seconds, and how long its stream may be silent.
const KEEPALIVE_SECONDS: &str = "15";
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of input bytes per request.
const MAX_INPUT_BYTES: usize = 256 << 10;
/// Chunks queued in each direction.
const MAX_QUEUED_CHUNKS: usize = 16;
const MAX_MESSAGE_BYTES: usize = 64 << 20;

#[derive(Debug, Clone)]
pub struct E2bOptions {
    pub key: VendorKey,
    /// The control plane; empty for E2B's own.
    pub endpoint: String,
    /// The URL of all daemons; empty for one host name per sandbox, or for `endpoint` if that is set.
    pub sandbox_url: String,
    /// The default template.
    pub template: String,
    /// How long a sandbox runs without a keep-alive.
    pub timeout: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct E2bSpec {
    template: Option<String>,
}

#[derive(Debug)]
pub(super) struct E2bVendor {
    options: E2bOptions,
    endpoint: String,
    client: VendorClient,
}

/// A sandbox in a response.
#[derive(Debug, Deserialize)]
struct E2bSandbox {
    #[serde(rename = "sandboxID")]
    id: String,
    #[serde(default)]
    metadata: Option<VendorLabels>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default, rename = "envdAccessToken")]
    token: Option<String>,
}

impl E2bVendor {
    pub(super) fn new(options: E2bOptions) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: VendorClient::new(VENDOR)? })
    }

    fn control(&self, doing: &'static str, method: Method, path: &str) -> VendorRequest {
        let request = VendorRequest::new(doing, method, format!("{}{path}", self.endpoint));
        request.header("x-api-key", self.options.key.header(""))
    }

    fn daemon(&self, doing: &'static str, sandbox: &VendorSandbox, path: &str) -> VendorRequest {
        let request = VendorRequest::new(doing, Method::POST, format!("{}{path}", sandbox.url));
        self.authorize(request, sandbox)
    }

    fn authorize(&self, request: VendorRequest, sandbox: &VendorSandbox) -> VendorRequest {
        let token = sandbox.token.as_ref().and_then(|token| token.header(""));
        request
            .header("x-access-token", token)
            .text("e2b-sandbox-id", &sandbox.id)
            .text("e2b-sandbox-port", &DAEMON_PORT.to_string())
            .text("connect-protocol-version", "1")
    }

    fn sandbox(&self, sandbox: E2bSandbox) -> VendorSandbox {
        let url = match (self.options.sandbox_url.trim_end_matches('/'), &*self.options.endpoint) {
            ("", "") => {
                let domain = sandbox.domain.as_deref().unwrap_or(DOMAIN);
                format!("https://{DAEMON_PORT}-{}.{domain}", sandbox.id)
            }
            ("", _) => self.endpoint.clone(),
            (url, _) => url.to_owned(),
        };
        VendorSandbox {
            id: sandbox.id,
            labels: sandbox.metadata.unwrap_or_default(),
            observed: match sandbox.state.as_deref() {
                Some("paused") => Observed::Paused,
                Some(_) | None => Observed::Running,
            },
            url,
            token: sandbox.token.map(VendorKey::new),
            server: None,
            pty_url: None,
            program: None,
        }
    }

    /// Starts a program and returns the stream of its events.
    async fn start(
        &self,
        sandbox: &VendorSandbox,
        process: Value,
        stdin: ProcessStdin,
        time: Option<Duration>,
    ) -> Result<ProcessStream, VendorFault> {
        let message = json!({"process": process, "stdin": stdin == ProcessStdin::Open});
        let mut request = self
            .daemon("start a program", sandbox, "/process.Process/Start")
            .body("application/connect+json", enveloped(&message))
            .text("keepalive-ping-interval", KEEPALIVE_SECONDS);
        if let Some(time) = time {
            request = request.text("connect-timeout-ms", &time.as_millis().to_string());
        }
        Ok(ProcessStream {
            body: self.client.open_stream(&request).await?,
            buffer: BytesMut::new(),
        })
    }

    async fn feed(
        &self,
        sandbox: &VendorSandbox,
        pid: u64,
        bytes: &[u8],
    ) -> Result<(), VendorFault> {
        let input = json!({"stdin": STANDARD.encode(bytes)});
        let request = self
            .daemon("write to a program", sandbox, "/process.Process/SendInput")
            .json(&json!({"process": {"pid": pid}, "input": input}))
            // The bridge ignores lines with a known offset.
            .idempotent();
        self.client.send(&request).await.map(drop)
    }

    async fn list_sandboxes(&self, query: &str) -> Result<Vec<E2bSandbox>, VendorFault> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let mut path = format!("/v2/sandboxes?{query}&state=running%2Cpaused&limit=100");
            if !next.is_empty() {
                path.push_str("&nextToken=");
                path.extend(form_urlencoded::byte_serialize(next.as_bytes()));
            }
            let answer =
                self.client.send(&self.control("list sandboxes", Method::GET, &path)).await?;
            let page: Vec<E2bSandbox> = self.client.decode(&answer)?;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessStdin {
    Open,
    Closed,
}

/// A message of the Connect protocol: a flag, the length, and the JSON.
fn enveloped(message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(text.len() + 5);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// The event stream of a program.
struct ProcessStream {
    body: Response,
    buffer: BytesMut,
}

enum ProcessEvent {
    Started(u64),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(i64),
    Alive,
}

impl ProcessStream {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Result<Option<ProcessEvent>, VendorFault> {
        loop {
            if let Some((flags, message)) = self.whole()? {
                if flags & 2 == 0 {
                    return Ok(Some(event_of(&message["event"])));
                }
                return match message.get("error") {
                    None | Some(Value::Null) => Ok(None),
                    Some(error) => Err(refusal(error)),
                };
            }
            match timeout(SILENCE_TIMEOUT, self.body.chunk()).await {
                Ok(Ok(Some(data))) => self.buffer.extend_from_slice(&data),
                Ok(Ok(None)) => return Err(broken("the stream ended early")),
                Ok(Err(error)) => return Err(broken(&error.to_string())),
                Err(_) => return Err(broken("the stream was silent for a minute")),
            }
        }
    }

    fn whole(&mut self) -> Result<Option<(u8, Value)>, VendorFault> {
        let Some(head) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        let [flags, a, b, c, d] = *head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_MESSAGE_BYTES {
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

fn broken(why: &str) -> VendorFault {
    VendorFault::Transport { vendor: VENDOR, reason: why.to_owned() }
}

/// Converts an error at the end of a stream to the status it stands for.
fn refusal(error: &Value) -> VendorFault {
    let message = error["message"].as_str().unwrap_or("no details").to_owned();
    let status = match error["code"].as_str().unwrap_or_default() {
        "not_found" => StatusCode::NOT_FOUND,
        "unauthenticated" => StatusCode::UNAUTHORIZED,
        "permission_denied" => StatusCode::FORBIDDEN,
        "invalid_argument" | "failed_precondition" => StatusCode::BAD_REQUEST,
        "deadline_exceeded" => StatusCode::REQUEST_TIMEOUT,
        "resource_exhausted" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::BAD_GATEWAY,
    };
    VendorFault::Status { vendor: VENDOR, status, message }
}

fn event_of(event: &Value) -> ProcessEvent {
    let bytes = |value: &Value| STANDARD.decode(value.as_str()?).ok();
    if let Some(pid) = event["start"]["pid"].as_u64() {
        return ProcessEvent::Started(pid);
    }
    if let Some(data) = event.get("data") {
        let sandbox = [
            ("stdout", ProcessEvent::Stdout as fn(Vec<u8>) -> ProcessEvent),
            ("stderr", ProcessEvent::Stderr),
        ];
        for (name, message) in sandbox {
            if let Some(bytes) = bytes(&data[name]) {
                return message(bytes);
            }
        }
    }
    match event.get("end") {
        Some(end) => ProcessEvent::Ended(end["exitCode"].as_i64().unwrap_or(0)),
        None => ProcessEvent::Alive,
    }
}

impl Vendor for Arc<E2bVendor> {
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
        settings::<E2bSpec>(spec).map(drop)
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        labels: &'a VendorLabels,
        spec: &'a Value,
    ) -> VendorReply<'a, VendorSandbox> {
        Box::pin(async move {
            let template = settings::<E2bSpec>(spec).ok().and_then(|spec| spec.template);
            let body = json!({
                "templateID": template.as_ref().unwrap_or(&self.options.template),
                "timeout": self.options.timeout.as_secs(),
                // If the server dies, sandboxes are paused: nothing is lost, and costs end.
                "autoPause": true,
                "secure": true,
                "metadata": labels,
            });
            let request = self
                .control("create a sandbox", Method::POST, "/sandboxes")
                .json(&body)
                .text("idempotency-key", name)
                .timeout(START_TIMEOUT);
            let sandbox: E2bSandbox = self.client.send_json(&request).await?;
            Ok(VendorSandbox { labels: labels.clone(), ..self.sandbox(sandbox) })
        })
    }

    fn find<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorSandbox>> {
        Box::pin(async move {
            // The filter is a query string inside a query parameter.
            let pairs =
                form_urlencoded::Serializer::new(String::new()).extend_pairs(labels).finish();
            let query = format!("metadata={}", url_encoded(&pairs));
            let found = self.list_sandboxes(&query).await?;
            Ok(found.into_iter().map(|sandbox| self.sandbox(sandbox)).collect())
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> VendorReply<'a, Option<VendorSandbox>> {
        Box::pin(async move {
            let request = self.control(
                "get a sandbox",
                Method::GET,
                &format!("/sandboxes/{}", url_encoded(id)),
            );
            let sandbox = none_if_missing(self.client.send_json(&request).await)?;
            Ok(sandbox.map(|sandbox| self.sandbox(sandbox)))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/pause", url_encoded(id));
            let request =
                self.control("pause a sandbox", Method::POST, &path).json(&json!({})).idempotent();
            match self.client.send(&request.timeout(START_TIMEOUT)).await {
                Ok(_) => Ok(()),
                // It is already paused.
                Err(fault) if fault.status() == Some(StatusCode::CONFLICT) => Ok(()),
                Err(fault) => Err(fault),
            }
        })
    }

    fn resume<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/connect", url_encoded(id));
            let body = json!({"timeout": self.options.timeout.as_secs()});
            let request =
                self.control("resume a sandbox", Method::POST, &path).json(&body).idempotent();
            self.client.send(&request.timeout(START_TIMEOUT)).await.map(drop)
        })
    }

    fn delete<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}", url_encoded(id));
            let request =
                self.control("delete a sandbox", Method::DELETE, &path).timeout(START_TIMEOUT);
            none_if_missing(self.client.send(&request).await).map(drop)
        })
    }

    fn keep_alive<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandboxes/{}/timeout", url_encoded(&sandbox.id));
            let body = json!({"timeout": self.options.timeout.as_secs()});
            let request =
                self.control("keep a sandbox", Method::POST, &path).json(&body).idempotent();
            self.client.send(&request).await.map(drop)
        })
    }

    fn keep_alive_interval(&self) -> Duration {
        self.options.timeout / 3
    }

    fn run<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        command: &'a Execute,
    ) -> VendorReply<'a, Executed> {
        Box::pin(async move {
            let mut process = json!({
                "cmd": "/bin/sh", "args": ["-c", command.command], "envs": command.env,
            });
            if let Some(cwd) = &command.cwd {
                process["cwd"] = cwd.as_str().into();
            }
            let time = Some(command.timeout);
            let mut stream = self.start(sandbox, process, ProcessStdin::Closed, time).await?;
            let (mut stdout, mut stderr, mut exit_code) = (Vec::new(), Vec::new(), None);
            loop {
                match stream.next().await {
                    Ok(Some(ProcessEvent::Stdout(bytes))) => stdout.extend(bytes),
                    Ok(Some(ProcessEvent::Stderr(bytes))) => stderr.extend(bytes),
                    Ok(Some(ProcessEvent::Ended(code))) => exit_code = i32::try_from(code).ok(),
                    Ok(Some(ProcessEvent::Started(_) | ProcessEvent::Alive)) => {}
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
        sandbox: &'a VendorSandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<UploadProgress>,
    ) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let (kind, body) = multipart(&[("file", Some(path), &bytes)]);
            let request = self
                .daemon("write a file", sandbox, &format!("/files?path={}", url_encoded(path)))
                .body(&kind, body)
                .timeout(UPLOAD_TIMEOUT)
                .progress(progress)
                .idempotent();
            self.client.send(&request).await.map(drop)
        })
    }

    fn attach<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        argv: &'a [String],
    ) -> VendorReply<'a, Channel> {
        Box::pin(async move {
            let (cmd, args) = argv.split_first().ok_or_else(|| broken("no program was named"))?;
            let process = json!({"cmd": cmd, "args": args, "cwd": "/"});
            let mut stream = self.start(sandbox, process, ProcessStdin::Open, None).await?;
            let pid = loop {
                match stream.next().await? {
                    Some(ProcessEvent::Started(pid)) => break pid,
                    Some(_) => {}
                    None => return Err(broken("the program did not start")),
                }
            };
            let (to_us, output) = mpsc::channel(MAX_QUEUED_CHUNKS);
            let (input, from_us) = mpsc::channel(MAX_QUEUED_CHUNKS);
            tokio::spawn(forward_output(stream, to_us));
            tokio::spawn(forward_input(self.clone(), sandbox.clone(), pid, from_us));
            Ok(Channel { output, input })
        })
    }
}

/// Forwards the output of a program.
async fn forward_output(mut stream: ProcessStream, to_us: mpsc::Sender<Bytes>) {
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = to_us.closed() => return,
        };
        match message {
            Ok(Some(ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes))) => {
                if to_us.send(bytes.into()).await.is_err() {
                    return;
                }
            }
            Ok(Some(ProcessEvent::Started(_) | ProcessEvent::Alive)) => {}
            Ok(Some(ProcessEvent::Ended(_)) | None) => return,
            Err(fault) => {
                tracing::debug!(%fault, "the output of a program in a sandbox was cut off");
                return;
            }
        }
    }
}

/// Forwards input to a program, then closes its standard input.
async fn forward_input(
    e2b: Arc<E2bVendor>,
    sandbox: VendorSandbox,
    pid: u64,
    mut from_us: mpsc::Receiver<Bytes>,
) {
    while let Some(first) = from_us.recv().await {
        let mut bytes = BytesMut::from(first);
        while bytes.len() < MAX_INPUT_BYTES {
            match from_us.try_recv() {
                Ok(more) => bytes.extend_from_slice(&more),
                Err(_) => break,
            }
        }
        if let Err(fault) = e2b.feed(&sandbox, pid, &bytes).await {
            tracing::debug!(%fault, "cannot write to a program in a sandbox");
            return;
        }
    }
    let request = e2b
        .daemon("end a program's input", &sandbox, "/process.Process/CloseStdin")
        .json(&json!({"process": {"pid": pid}}));
    // If this fails, the next bridge ends this one.
    let _ = e2b.client.send(&request).await;
}
