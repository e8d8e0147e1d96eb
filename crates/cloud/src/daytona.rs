//! Sandboxes of Daytona: its control plane, and the toolbox in each of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::apart::{self, APART, COMMAND};
use super::http::{ANSWER, Ask, Client, Fault, Key, Progress, encoded, endpoint, unless_gone};
use super::pipe::Channel;
use super::socket::Socket;
use super::vendor::{
    Answered, CHANGING, Execute, Executed, Labels, Sandbox, Vendor, settings, until,
};
use provider::{Fidelity, Observed};

const VENDOR: &str = "Daytona";
const ENDPOINT: &str = "https://app.daytona.io/api";
/// What the toolbox is told that we do as its own clients of this version do.
const CLIENT: &str = "0.190.0";
/// How long an upload may take.
const UPLOAD: Duration = Duration::from_secs(600);
/// How often the other end is asked whether it lives, and how long it may be silent.
const PING: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(60);
/// The most that goes in one message.
const PIECE: usize = 16 << 10;
/// Pieces that wait on either side.
const WAITING: usize = 16;
/// What an operator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// What opens the vendor.
    pub key: Key,
    /// Where the control plane is; empty for Daytona's own.
    pub endpoint: String,
    /// What a sandbox is made from that names nothing; empty for the vendor's default.
    pub snapshot: String,
    /// How long a sandbox runs on when nobody uses it.
    pub auto_stop: Duration,
}

/// The settings of a lease.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Spec {
    snapshot: Option<String>,
}

/// The vendor.
#[derive(Debug)]
pub(super) struct Daytona {
    options: Options,
    endpoint: String,
    client: Client,
}

/// A sandbox in an answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    id: String,
    #[serde(default)]
    labels: Option<Labels>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    error_reason: Option<String>,
    #[serde(default)]
    toolbox_proxy_url: Option<String>,
}

impl Told {
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

/// A page of sandboxes, as later and as earlier versions tell it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Page {
    Items {
        items: Vec<Told>,
        #[serde(default, rename = "nextCursor")]
        next: Option<String>,
    },
    All(Vec<Told>),
}

impl Daytona {
    pub(super) fn new(options: Options) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: Client::new(VENDOR)? })
    }

    fn control(&self, doing: &'static str, method: Method, path: &str) -> Ask {
        let ask = Ask::new(doing, method, format!("{}{path}", self.endpoint));
        ask.bearer(&self.options.key)
    }

    fn toolbox(&self, doing: &'static str, method: Method, sandbox: &Sandbox, path: &str) -> Ask {
        let ask = Ask::new(doing, method, format!("{}{path}", sandbox.url));
        ask.bearer(&self.options.key).text("x-daytona-sdk-version", CLIENT)
    }

    fn sandbox(&self, told: Told) -> Sandbox {
        let observed = told.observed();
        let base = match told.toolbox_proxy_url.as_deref() {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("{}/toolbox", self.endpoint),
        };
        Sandbox {
            url: format!("{base}/{}", told.id),
            id: told.id,
            labels: told.labels.unwrap_or_default(),
            observed,
            token: None,
            server: None,
            ptys: None,
        }
    }

    async fn told(&self, id: &str) -> Result<Told, Fault> {
        let path = format!("/sandbox/{}", encoded(id));
        self.client.ask_json(&self.control("look", Method::GET, &path)).await
    }

    /// Waits until a sandbox is in one of these states.
    async fn until(&self, id: &str, wanted: &[&str]) -> Result<Told, Fault> {
        until(VENDOR, || async {
            let told = self.told(id).await?;
            if told.observed() == Observed::Gone && !wanted.contains(&told.state()) {
                let why = told.error_reason.as_deref().unwrap_or("no reason is told");
                let words = format!("sandbox {id} is {}: {why}", told.state());
                let status = StatusCode::BAD_GATEWAY;
                return Err(Fault::Status { vendor: VENDOR, status, words });
            }
            Ok(wanted.contains(&told.state()).then_some(told))
        })
        .await
    }

    /// Asks for a change, which the state tells when it has come about.
    async fn change(&self, id: &str, word: &'static str, wanted: &[&str]) -> Result<(), Fault> {
        let path = format!("/sandbox/{}/{word}", encoded(id));
        let ask = self.control(word, Method::POST, &path).safe().within(CHANGING);
        if let Err(fault) = self.client.ask(&ask).await {
            // One that is as it is wanted, or on its way there, may say so by refusing.
            let refused = matches!(
                fault.status(),
                Some(StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN)
            );
            if !refused || !wanted.contains(&self.told(id).await?.state()) {
                return Err(fault);
            }
        }
        self.until(id, wanted).await.map(drop)
    }

    /// A connection to a terminal in a sandbox.
    async fn socket(&self, url: &str) -> Result<Socket, Fault> {
        let mut headers = vec![(
            HeaderName::from_static("x-daytona-sdk-version"),
            HeaderValue::from_static(CLIENT),
        )];
        headers.extend(self.options.key.header("Bearer ").map(|key| (AUTHORIZATION, key)));
        self.client.socket(url, headers).await
    }
}

impl Vendor for Arc<Daytona> {
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
        settings::<Spec>(spec).map(drop)
    }

    fn make<'a>(
        &'a self,
        name: &'a str,
        labels: &'a Labels,
        spec: &'a Value,
    ) -> Answered<'a, Sandbox> {
        Box::pin(async move {
            // Whatever becomes of us, nothing runs for ever.
            let minutes = self.options.auto_stop.as_secs().div_ceil(60);
            let mut body = json!({
                "name": name, "labels": labels, "autoStopInterval": minutes,
            });
            let snapshot = settings::<Spec>(spec).ok().and_then(|spec| spec.snapshot);
            let snapshot = snapshot.unwrap_or_else(|| self.options.snapshot.clone());
            if !snapshot.is_empty() {
                body["snapshot"] = snapshot.into();
            }
            let ask = self.control("make a sandbox", Method::POST, "/sandbox").json(&body);
            let told: Told = self.client.ask_json(&ask.within(CHANGING)).await?;
            let told = self.until(&told.id, &["started"]).await?;
            Ok(Sandbox { labels: labels.clone(), ..self.sandbox(told) })
        })
    }

    fn find<'a>(&'a self, labels: &'a Labels) -> Answered<'a, Vec<Sandbox>> {
        Box::pin(async move {
            let labels = json!(labels).to_string();
            let (mut all, mut cursor) = (Vec::new(), String::new());
            loop {
                let mut path = format!("/sandbox?limit=100&labels={}", encoded(&labels));
                if !cursor.is_empty() {
                    path.push_str(&format!("&cursor={}", encoded(&cursor)));
                }
                let ask = self.control("list", Method::GET, &path);
                let (items, next) = match self.client.ask_json(&ask).await? {
                    Page::Items { items, next } => (items, next),
                    Page::All(items) => (items, None),
                };
                all.extend(items.into_iter().map(|told| self.sandbox(told)));
                match next.filter(|next| !next.is_empty()) {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
            all.retain(|sandbox| sandbox.observed != Observed::Gone);
            Ok(all)
        })
    }

    fn look<'a>(&'a self, id: &'a str) -> Answered<'a, Option<Sandbox>> {
        Box::pin(async move {
            let told = unless_gone(self.told(id).await)?;
            let there = told.filter(|told| told.observed() != Observed::Gone);
            Ok(there.map(|told| self.sandbox(told)))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(self.change(id, "stop", &["stopped", "archived"]))
    }

    fn resume<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(self.change(id, "start", &["started"]))
    }

    fn kill<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(async move {
            let path = format!("/sandbox/{}?force=true", encoded(id));
            let ask = self.control("end", Method::DELETE, &path).within(CHANGING);
            if unless_gone(self.client.ask(&ask).await)?.is_none() {
                return Ok(());
            }
            until(VENDOR, || async { Ok(self.look(id).await?.is_none().then_some(())) }).await
        })
    }

    fn keep<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, ()> {
        Box::pin(async move {
            // Any call to the toolbox is a use.
            let ask = self.toolbox("keep a sandbox", Method::GET, sandbox, "/version");
            self.client.ask(&ask).await.map(drop)
        })
    }

    fn pace(&self) -> Duration {
        match self.options.auto_stop / 3 {
            Duration::ZERO => Duration::from_secs(300),
            pace => pace,
        }
    }

    fn run<'a>(&'a self, sandbox: &'a Sandbox, command: &'a Execute) -> Answered<'a, Executed> {
        Box::pin(async move {
            let mut envs = command.env.clone();
            envs.insert(COMMAND.to_owned(), command.command.clone());
            let mut body = json!({
                "command": APART, "envs": envs, "timeout": command.timeout.as_secs().max(1),
            });
            if let Some(cwd) = &command.cwd {
                body["cwd"] = cwd.as_str().into();
            }
            let ask = self
                .toolbox("run a command", Method::POST, sandbox, "/process/execute")
                .json(&body)
                .within(command.timeout + ANSWER);
            let answer: Value = match self.client.ask_json(&ask).await {
                Ok(answer) => answer,
                Err(fault) if fault.status() == Some(StatusCode::REQUEST_TIMEOUT) => {
                    return Ok(Executed { exit_code: None, stdout: vec![], stderr: vec![] });
                }
                Err(fault) => return Err(fault),
            };
            let said = answer["result"].as_str().unwrap_or_default();
            let exit_code = answer["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
            // What went wrong before our own words was said by the toolbox.
            let other = || Executed { exit_code, stdout: vec![], stderr: said.into() };
            Ok(apart::read(said).unwrap_or_else(other))
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
            let (kind, body) = super::multipart(&[
                ("files[0].path", None, path.as_bytes()),
                ("files[0].file", Some(path), &bytes),
            ]);
            let ask = self
                .toolbox("write a file", Method::POST, sandbox, "/files/bulk-upload")
                .body(&kind, body)
                .within(UPLOAD)
                .telling(progress)
                .safe();
            self.client.ask(&ask).await.map(drop)
        })
    }

    fn attach<'a>(&'a self, sandbox: &'a Sandbox, words: &'a [String]) -> Answered<'a, Channel> {
        Box::pin(async move {
            let name = format!("stead-{}", uuid::Uuid::now_v7().simple());
            let body = json!({"id": name, "cols": 200, "rows": 24, "cwd": "/"});
            let ask = self.toolbox("open a terminal", Method::POST, sandbox, "/process/pty");
            self.client.ask(&ask.json(&body)).await?;
            let socket =
                self.socket(&format!("{}/process/pty/{name}/connect", sandbox.url)).await?;
            let (to_us, output) = mpsc::channel(WAITING);
            let (input, from_us) = mpsc::channel(WAITING);
            // The shell that the terminal comes with becomes the program.
            let line = format!("exec {}\r", words.join(" "));
            tokio::spawn(talk(socket, line, to_us, from_us));
            Ok(Channel { output, input })
        })
    }
}

/// Carries a terminal's bytes both ways until either end is over.
async fn talk(
    socket: Socket,
    line: String,
    to_us: mpsc::Sender<Bytes>,
    mut from_us: mpsc::Receiver<Bytes>,
) {
    let (mut sink, mut stream) = socket.split();
    let tell = async {
        sink.send(Message::Binary(line.into_bytes().into())).await?;
        let mut pings = interval(PING);
        loop {
            let bytes = tokio::select! {
                bytes = from_us.recv() => match bytes { Some(bytes) => bytes, None => break },
                _ = pings.tick() => {
                    sink.send(Message::Ping(Bytes::new())).await?;
                    continue;
                }
            };
            for piece in bytes.chunks(PIECE) {
                sink.send(Message::Binary(Bytes::copy_from_slice(piece))).await?;
            }
        }
        // What reads there ends with its terminal's input.
        sink.close().await
    };
    let hear = async {
        while let Ok(Some(Ok(message))) = timeout(SILENCE, stream.next()).await {
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
        told = tell => if let Err(error) = told {
            tracing::debug!(%error, "a terminal in a sandbox cannot be written to");
        },
        () = hear => {}
        () = to_us.closed() => {}
    }
}

/// Whether a text is about the connection and not of the terminal.
fn is_control(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message["type"] == "control")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_either_version_tells_it() {
        for text in [r#"[{"id":"a"}]"#, r#"{"items":[{"id":"a"}],"nextCursor":null}"#] {
            let page: Page = serde_json::from_str(text).unwrap();
            let items = match page {
                Page::Items { items, next: None } | Page::All(items) => items,
                Page::Items { .. } => panic!("{text}"),
            };
            assert_eq!(items[0].observed(), Observed::Running);
        }
    }
}
