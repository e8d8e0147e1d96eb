//! Sandboxes of Daytona: its control plane, and the toolbox in each of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::capture::{self, CAPTURE_SCRIPT, COMMAND_VARIABLE};
use super::http::{
    RESPONSE_TIMEOUT, UploadProgress, VendorClient, VendorFault, VendorKey, VendorRequest,
    endpoint, none_if_missing, url_encoded,
};
use super::multipart::multipart;
use super::pipe::Channel;
use super::vendor::{
    Execute, Executed, TRANSITION_TIMEOUT, Vendor, VendorLabels, VendorReply, VendorSandbox,
    poll_until, settings,
};
use super::websocket::WebSocket;
use provider::{Fidelity, Observed};

const VENDOR: &str = "Daytona";
const ENDPOINT: &str = "https://app.daytona.io/api";
/// The client version that we announce to the toolbox, which behaves accordingly.
const CLIENT_VERSION: &str = "0.190.0";
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// How often we ping a terminal's WebSocket, and how long it may be silent.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of input bytes per message.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Chunks queued in each direction.
const MAX_QUEUED_CHUNKS: usize = 16;
#[derive(Debug, Clone)]
pub struct DaytonaOptions {
    pub key: VendorKey,
    /// The control plane; empty for Daytona's own.
    pub endpoint: String,
    /// The default snapshot; empty for the vendor's default.
    pub snapshot: String,
    /// How long an unused sandbox runs.
    pub auto_stop: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DaytonaSpec {
    snapshot: Option<String>,
}

#[derive(Debug)]
pub(super) struct DaytonaVendor {
    options: DaytonaOptions,
    endpoint: String,
    client: VendorClient,
}

/// A sandbox in a response.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaytonaSandbox {
    id: String,
    #[serde(default)]
    labels: Option<VendorLabels>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    error_reason: Option<String>,
    #[serde(default)]
    toolbox_proxy_url: Option<String>,
}

impl DaytonaSandbox {
    fn state(&self) -> &str {
        self.state.as_deref().unwrap_or("unknown")
    }

    fn observed(&self) -> Observed {
        match self.state() {
            "stopped" | "stopping" | "archived" | "archiving" | "paused" | "pausing" => {
                Observed::Paused
            }
            "destroyed" | "destroying" | "error" | "build_failed" => Observed::Gone,
            _ => Observed::Running,
        }
    }
}

/// A page of sandboxes, as newer and older versions of the API return it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SandboxPage {
    Items {
        items: Vec<DaytonaSandbox>,
        #[serde(default, rename = "nextCursor")]
        next: Option<String>,
    },
    All(Vec<DaytonaSandbox>),
}

impl DaytonaVendor {
    pub(super) fn new(options: DaytonaOptions) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: VendorClient::new(VENDOR)? })
    }

    fn control(&self, doing: &'static str, method: Method, path: &str) -> VendorRequest {
        let request = VendorRequest::new(doing, method, format!("{}{path}", self.endpoint));
        request.bearer(&self.options.key)
    }

    fn toolbox(
        &self,
        doing: &'static str,
        method: Method,
        sandbox: &VendorSandbox,
        path: &str,
    ) -> VendorRequest {
        let request = VendorRequest::new(doing, method, format!("{}{path}", sandbox.url));
        request.bearer(&self.options.key).text("x-daytona-sdk-version", CLIENT_VERSION)
    }

    fn sandbox(&self, sandbox: DaytonaSandbox) -> VendorSandbox {
        let observed = sandbox.observed();
        let base = match sandbox.toolbox_proxy_url.as_deref() {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("{}/toolbox", self.endpoint),
        };
        VendorSandbox {
            url: format!("{base}/{}", sandbox.id),
            id: sandbox.id,
            labels: sandbox.labels.unwrap_or_default(),
            observed,
            token: None,
            server: None,
            pty_url: None,
            program: None,
        }
    }

    async fn fetch(&self, id: &str) -> Result<DaytonaSandbox, VendorFault> {
        let path = format!("/sandbox/{}", url_encoded(id));
        self.client.send_json(&self.control("get a sandbox", Method::GET, &path)).await
    }

    /// Waits until a sandbox is in one of these states.
    async fn wait_for_state(
        &self,
        id: &str,
        wanted: &[&str],
    ) -> Result<DaytonaSandbox, VendorFault> {
        poll_until(VENDOR, || async {
            let sandbox = self.fetch(id).await?;
            if sandbox.observed() == Observed::Gone && !wanted.contains(&sandbox.state()) {
                let why = sandbox.error_reason.as_deref().unwrap_or("no reason given");
                let message = format!("sandbox {id} is {}: {why}", sandbox.state());
                let status = StatusCode::BAD_GATEWAY;
                return Err(VendorFault::Status { vendor: VENDOR, status, message });
            }
            Ok(wanted.contains(&sandbox.state()).then_some(sandbox))
        })
        .await
    }

    /// Requests a change of state and waits for it.
    async fn change(
        &self,
        id: &str,
        action: &'static str,
        wanted: &[&str],
    ) -> Result<(), VendorFault> {
        let path = format!("/sandbox/{}/{action}", url_encoded(id));
        let request =
            self.control(action, Method::POST, &path).idempotent().timeout(TRANSITION_TIMEOUT);
        if let Err(fault) = self.client.send(&request).await {
            // A sandbox that already is in that state may refuse.
            let refused = matches!(
                fault.status(),
                Some(StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN)
            );
            if !refused || !wanted.contains(&self.fetch(id).await?.state()) {
                return Err(fault);
            }
        }
        self.wait_for_state(id, wanted).await.map(drop)
    }

    async fn socket(&self, url: &str) -> Result<WebSocket, VendorFault> {
        let mut headers = HeaderMap::new();
        headers.insert("x-daytona-sdk-version", HeaderValue::from_static(CLIENT_VERSION));
        headers.extend(self.options.key.header("Bearer ").map(|key| (AUTHORIZATION, key)));
        self.client.websocket(url, headers).await
    }
}

impl Vendor for Arc<DaytonaVendor> {
    fn name(&self) -> &'static str {
        "daytona"
    }

    fn user(&self) -> (&'static str, &'static str) {
        ("daytona", "/home/daytona")
    }

    fn pauses(&self) -> Fidelity {
        Fidelity::Filesystem
    }

    fn accepts(&self, spec: &Value) -> Result<(), String> {
        settings::<DaytonaSpec>(spec).map(drop)
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        labels: &'a VendorLabels,
        spec: &'a Value,
    ) -> VendorReply<'a, VendorSandbox> {
        Box::pin(async move {
            // If the server dies, the vendor stops its sandboxes.
            let minutes = self.options.auto_stop.as_secs().div_ceil(60);
            let mut body = json!({
                "name": name, "labels": labels, "autoStopInterval": minutes,
            });
            let snapshot = settings::<DaytonaSpec>(spec).ok().and_then(|spec| spec.snapshot);
            let snapshot = snapshot.unwrap_or_else(|| self.options.snapshot.clone());
            if !snapshot.is_empty() {
                body["snapshot"] = snapshot.into();
            }
            let request = self.control("create a sandbox", Method::POST, "/sandbox").json(&body);
            let sandbox: DaytonaSandbox =
                self.client.send_json(&request.timeout(TRANSITION_TIMEOUT)).await?;
            let sandbox = self.wait_for_state(&sandbox.id, &["started"]).await?;
            Ok(VendorSandbox { labels: labels.clone(), ..self.sandbox(sandbox) })
        })
    }

    fn find<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorSandbox>> {
        Box::pin(async move {
            let labels = json!(labels).to_string();
            let (mut all, mut cursor) = (Vec::new(), String::new());
            loop {
                let mut path = format!("/sandbox?limit=100&labels={}", url_encoded(&labels));
                if !cursor.is_empty() {
                    path.push_str(&format!("&cursor={}", url_encoded(&cursor)));
                }
                let request = self.control("list sandboxes", Method::GET, &path);
                let (items, next) = match self.client.send_json(&request).await? {
                    SandboxPage::Items { items, next } => (items, next),
                    SandboxPage::All(items) => (items, None),
                };
                all.extend(items.into_iter().map(|sandbox| self.sandbox(sandbox)));
                match next.filter(|next| !next.is_empty()) {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
            all.retain(|sandbox| sandbox.observed != Observed::Gone);
            Ok(all)
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> VendorReply<'a, Option<VendorSandbox>> {
        Box::pin(async move {
            let sandbox = none_if_missing(self.fetch(id).await)?;
            let there = sandbox.filter(|sandbox| sandbox.observed() != Observed::Gone);
            Ok(there.map(|sandbox| self.sandbox(sandbox)))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(self.change(id, "stop", &["stopped", "archived"]))
    }

    fn resume<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(self.change(id, "start", &["started"]))
    }

    fn delete<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandbox/{}?force=true", url_encoded(id));
            let request =
                self.control("delete a sandbox", Method::DELETE, &path).timeout(TRANSITION_TIMEOUT);
            if none_if_missing(self.client.send(&request).await)?.is_none() {
                return Ok(());
            }
            poll_until(VENDOR, || async { Ok(self.get(id).await?.is_none().then_some(())) }).await
        })
    }

    fn keep_alive<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, ()> {
        Box::pin(async move {
            // Any call to the toolbox counts as use.
            let request = self.toolbox("keep a sandbox", Method::GET, sandbox, "/version");
            self.client.send(&request).await.map(drop)
        })
    }

    fn keep_alive_interval(&self) -> Duration {
        match self.options.auto_stop / 3 {
            Duration::ZERO => Duration::from_secs(300),
            pace => pace,
        }
    }

    fn run<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        command: &'a Execute,
    ) -> VendorReply<'a, Executed> {
        Box::pin(async move {
            let mut envs = command.env.clone();
            envs.insert(COMMAND_VARIABLE.to_owned(), command.command.clone());
            let mut body = json!({
                "command": CAPTURE_SCRIPT, "envs": envs, "timeout": command.timeout.as_secs().max(1),
            });
            if let Some(cwd) = &command.cwd {
                body["cwd"] = cwd.as_str().into();
            }
            let request = self
                .toolbox("run a command", Method::POST, sandbox, "/process/execute")
                .json(&body)
                .timeout(command.timeout + RESPONSE_TIMEOUT);
            let answer: Value = match self.client.send_json(&request).await {
                Ok(answer) => answer,
                Err(fault) if fault.status() == Some(StatusCode::REQUEST_TIMEOUT) => {
                    return Ok(Executed { exit_code: None, stdout: vec![], stderr: vec![] });
                }
                Err(fault) => return Err(fault),
            };
            let output = answer["result"].as_str().unwrap_or_default();
            let exit_code = answer["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
            // Without our format, the output is an error message of the toolbox.
            let other = || Executed { exit_code, stdout: vec![], stderr: output.into() };
            Ok(capture::parse(output).unwrap_or_else(other))
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
            let (kind, body) = multipart(&[
                ("files[0].path", None, path.as_bytes()),
                ("files[0].file", Some(path), &bytes),
            ]);
            let request = self
                .toolbox("write a file", Method::POST, sandbox, "/files/bulk-upload")
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
            let name = format!("stead-{}", uuid::Uuid::now_v7().simple());
            let body = json!({"id": name, "cols": 200, "rows": 24, "cwd": "/"});
            let request = self.toolbox("open a terminal", Method::POST, sandbox, "/process/pty");
            self.client.send(&request.json(&body)).await?;
            let socket =
                self.socket(&format!("{}/process/pty/{name}/connect", sandbox.url)).await?;
            let (to_us, output) = mpsc::channel(MAX_QUEUED_CHUNKS);
            let (input, from_us) = mpsc::channel(MAX_QUEUED_CHUNKS);
            // The shell of the terminal is replaced by the program.
            let line = format!("exec {}\r", argv.join(" "));
            tokio::spawn(forward(socket, line, to_us, from_us));
            Ok(Channel { output, input })
        })
    }
}

/// Forwards bytes both ways until either end closes.
async fn forward(
    socket: WebSocket,
    line: String,
    to_us: mpsc::Sender<Bytes>,
    mut from_us: mpsc::Receiver<Bytes>,
) {
    let (mut sink, mut stream) = socket.split();
    let write = async {
        sink.send(Message::Binary(line.into_bytes().into())).await?;
        let mut pings = interval(PING_INTERVAL);
        loop {
            let bytes = tokio::select! {
                bytes = from_us.recv() => match bytes { Some(bytes) => bytes, None => break },
                _ = pings.tick() => {
                    sink.send(Message::Ping(Bytes::new())).await?;
                    continue;
                }
            };
            for piece in bytes.chunks(MAX_MESSAGE_BYTES) {
                sink.send(Message::Binary(Bytes::copy_from_slice(piece))).await?;
            }
        }
        // The program ends with the input of its terminal.
        sink.close().await
    };
    let forward_output = async {
        while let Ok(Some(Ok(message))) = timeout(SILENCE_TIMEOUT, stream.next()).await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) if is_control(&text) => continue,
                Message::Text(text) => Bytes::from(text),
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            if to_us.send(bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        written = write => if let Err(error) = written {
            tracing::debug!(%error, "cannot write to a terminal in a sandbox");
        },
        () = forward_output => {}
        () = to_us.closed() => {}
    }
}

/// Whether a text message is about the connection rather than output.
fn is_control(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message["type"] == "control")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_either_version_is_parsed() {
        for text in [r#"[{"id":"a"}]"#, r#"{"items":[{"id":"a"}],"nextCursor":null}"#] {
            let page: SandboxPage = serde_json::from_str(text).unwrap();
            let items = match page {
                SandboxPage::Items { items, next: None } | SandboxPage::All(items) => items,
                SandboxPage::Items { .. } => panic!("{text}"),
            };
            assert_eq!(items[0].observed(), Observed::Running);
        }
    }
}
