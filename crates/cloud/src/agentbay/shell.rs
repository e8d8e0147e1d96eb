//! The shell tool of a session, and files by means of it.
//!
//! A session that has a data plane of its own is asked there, any other through the API, which takes less
//! at once: so what is large goes in pieces, either way. Pieces are files of their own that come together
//! at the end, so that each may be sent again.

use std::path::Path;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::apart::{self, quoted};
use super::super::http::{ANSWER, Ask, Fault, Key, Progress, Repeat};
use super::super::vendor::{Execute, Executed, Sandbox, Vendor};
use super::{AgentBay, broken, meaning, read, refusal};

/// The longest that a command may take, whatever is asked: the vendor's own limit.
const LONGEST: Duration = Duration::from_secs(50);
/// The most that goes in one call, of the 63 KiB that the API takes.
const MOST_ARGS: usize = 60 << 10;
/// How much of a file goes in one call.
pub(super) const SENT: usize = 32 << 10;
/// How many pieces of a file are on their way at once.
const AT_ONCE: usize = 4;

/// What the tool says where it tells the parts; some images tell only what was written.
#[derive(Debug, Deserialize)]
struct Parts {
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default, alias = "errorCode")]
    exit_code: Option<i32>,
}

impl AgentBay {
    /// Runs a command to its end, as [`Vendor::run`] does.
    pub(super) async fn execute(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
        command: &Execute,
    ) -> Result<Executed, Fault> {
        let text = apart::text(command);
        if json!(text).to_string().len() <= MOST_ARGS {
            return self.shell(sandbox, &text, command.timeout, Repeat::Once).await;
        }
        let file = format!("/tmp/stead-{}", uuid::Uuid::now_v7().simple());
        self.put(sandbox, &file, text.into(), None).await?;
        let text = format!("sh {file}; c=$?; rm -f {file}; exit $c");
        self.shell(sandbox, &text, command.timeout, Repeat::Once).await
    }

    /// Writes a file whole or not at all, with the directories that it needs.
    pub(super) async fn put(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
        path: &str,
        bytes: Bytes,
        progress: Option<Progress>,
    ) -> Result<(), Fault> {
        let dir = Path::new(path).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let made = format!("mkdir -p -- {}", quoted(&dir));
        let beside = quoted(&format!("{path}.{}", uuid::Uuid::now_v7().simple()));
        let path = quoted(path);
        let (whole, mut sent) = (bytes.len(), 0);
        let piece = |(index, at): (usize, usize)| {
            let piece = STANDARD.encode(&bytes[at..(at + SENT).min(whole)]);
            let text = format!("{made} && printf %s '{piece}' | base64 -d >{beside}.{index:05}");
            async move { self.own(sandbox, text).await.map(drop) }
        };
        let pieces = stream::iter((0..whole.max(1)).step_by(SENT).enumerate()).map(piece);
        let mut pieces = pieces.buffer_unordered(AT_ONCE);
        while pieces.try_next().await?.is_some() {
            sent = (sent + SENT).min(whole);
            if let Some(progress) = &progress {
                progress(sent as u64);
            }
        }
        let count = whole.div_ceil(SENT).max(1);
        // Asked again after it was done, it finds the file in place and not all of the pieces.
        let text = format!(
            "set -- {beside}.*; if [ $# -eq {count} ] && [ -e \"$1\" ]; then \
             cat -- \"$@\" >{beside} && mv -f -- {beside} {path} || exit; fi; \
             rm -f -- {beside}.*; [ -e {path} ]"
        );
        self.own(sandbox, text).await.map(drop)
    }

    /// What a command of our own writes, which may be run again.
    async fn own(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
        command: String,
    ) -> Result<Vec<u8>, Fault> {
        let command = Execute { command, env: Default::default(), cwd: None, timeout: LONGEST };
        let ran = self.shell(sandbox, &apart::text(&command), LONGEST, Repeat::Safe).await?;
        if ran.exit_code == Some(0) {
            return Ok(ran.stdout);
        }
        let words = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        Err(refusal(StatusCode::BAD_REQUEST, words))
    }

    async fn shell(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
        text: &str,
        time: Duration,
        repeat: Repeat,
    ) -> Result<Executed, Fault> {
        let time = time.min(LONGEST);
        let args = json!({"command": text, "timeout_ms": time.as_millis() as u64});
        let began = Instant::now();
        let said = self.call(sandbox, args, time, repeat).await?;
        let parts = serde_json::from_str::<Parts>(&said).unwrap_or_else(|_| Parts {
            stdout: said,
            stderr: String::new(),
            exit_code: None,
        });
        if let Some(ran) = apart::read(&parts.stdout) {
            return Ok(ran);
        }
        if began.elapsed() >= time {
            return Ok(Executed { exit_code: None, stdout: vec![], stderr: vec![] });
        }
        // What went wrong before our own words was said by the session.
        let stderr = [parts.stdout, parts.stderr].concat().into_bytes();
        Ok(Executed { exit_code: Some(parts.exit_code.unwrap_or(1)), stdout: vec![], stderr })
    }

    /// Calls the tool; what it says. Where a session is reached changes with a pause, and one that is gone
    /// says so only through the API.
    async fn call(
        self: &std::sync::Arc<Self>,
        sandbox: &Sandbox,
        args: Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<String, Fault> {
        let fault = match self.call_at(sandbox, &args, time, repeat).await {
            Ok(said) => return Ok(said),
            Err(fault @ Fault::Status { status, .. })
                if status.is_client_error() && !sandbox.url.is_empty() =>
            {
                fault
            }
            Err(fault) => return Err(fault),
        };
        let gone = || refusal(StatusCode::NOT_FOUND, format!("session {} is gone", sandbox.id));
        let now = self.look(&sandbox.id).await?.ok_or_else(gone)?;
        let reveal = |key: &Option<Key>| key.as_ref().map(|key| key.reveal().to_owned());
        if (&now.url, reveal(&now.token)) == (&sandbox.url, reveal(&sandbox.token)) {
            return Err(fault);
        }
        self.call_at(&now, &args, time, repeat).await
    }

    async fn call_at(
        &self,
        sandbox: &Sandbox,
        args: &Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<String, Fault> {
        let result = match &sandbox.token {
            Some(token) if !sandbox.url.is_empty() => {
                let body = json!({
                    "args": args, "server": sandbox.server, "tool": "shell", "token": token.reveal(),
                    "requestId": format!("stead-{}", uuid::Uuid::now_v7().simple()),
                });
                let url = format!("{}/callTool", sandbox.url);
                let ask = Ask::new("callTool", Method::POST, url)
                    .header("x-access-token", token.header(""))
                    .json(&body)
                    .within(time + ANSWER);
                let ask = if repeat == Repeat::Safe { ask.safe() } else { ask };
                let answer: Value = self.client.ask_json(&ask).await?;
                unpacked(&answer["data"])?["result"].clone()
            }
            Some(_) | None => self.tool(&sandbox.id, "shell", args, time, repeat).await?,
        };
        text_of(&result)
    }

    /// What a tool says that is called through the API.
    pub(super) async fn tool(
        &self,
        id: &str,
        name: &str,
        args: &Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<Value, Fault> {
        let args = args.to_string();
        let fields =
            [("SessionId", id), ("Name", name), ("Args", &args), ("AutoGenSession", "false")];
        let ask = self.control("CallMcpTool", &fields).within(time + ANSWER);
        let ask = if repeat == Repeat::Safe { ask.safe() } else { ask };
        unpacked(&self.said(&ask).await?.data)
    }
}

/// The text that a tool says.
pub(super) fn text_of(result: &Value) -> Result<String, Fault> {
    let content = result["content"].as_array().and_then(|content| content.first());
    let text = content.and_then(|first| first["text"].as_str().or(first.as_str()));
    Ok(text.ok_or_else(|| broken("a tool said nothing"))?.to_owned())
}

/// JSON, or JSON as a text.
fn unpacked(value: &Value) -> Result<Value, Fault> {
    match value {
        Value::String(text) => read(text),
        other => meaning(other.clone()),
    }
}
