//! Commands by the shell tool of a session, and files by commands.
//!
//! The tool is called on the session's own data plane if it has one, else through the API, whose requests are
//! limited in size. So large files are sent in chunks, each a separate file that can be sent again; the last
//! command concatenates them.

use std::path::Path;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::capture::{self, quoted};
use super::super::http::{
    RESPONSE_TIMEOUT, Repeat, UploadProgress, VendorFault, VendorKey, VendorRequest,
};
use super::super::vendor::{Execute, Executed, Vendor, VendorSandbox};
use super::api::{AgentBayVendor, broken, decode, parse, refusal};

/// The vendor's limit for one command.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(50);
/// The maximum size of the arguments of one call; the API accepts 63 KiB.
const MAX_ARGUMENT_BYTES: usize = 60 << 10;
/// The size of the chunks of a file, one per call.
pub(super) const UPLOAD_CHUNK_BYTES: usize = 32 << 10;
const MAX_CONCURRENT_CHUNKS: usize = 4;

/// The result of the tool. Some images return only the output.
#[derive(Debug, Deserialize)]
struct ShellResult {
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default, alias = "errorCode")]
    exit_code: Option<i32>,
}

impl AgentBayVendor {
    pub(super) async fn execute(
        self: &std::sync::Arc<Self>,
        sandbox: &VendorSandbox,
        command: &Execute,
    ) -> Result<Executed, VendorFault> {
        let text = capture::script(command);
        if json!(text).to_string().len() <= MAX_ARGUMENT_BYTES {
            return self.shell(sandbox, &text, command.timeout, Repeat::Once).await;
        }
        let file = format!("/tmp/stead-{}", uuid::Uuid::now_v7().simple());
        self.put(sandbox, &file, text.into(), None).await?;
        let text = format!("sh {file}; c=$?; rm -f {file}; exit $c");
        self.shell(sandbox, &text, command.timeout, Repeat::Once).await
    }

    /// Writes a file atomically, and creates its directory.
    pub(super) async fn put(
        self: &std::sync::Arc<Self>,
        sandbox: &VendorSandbox,
        path: &str,
        bytes: Bytes,
        progress: Option<UploadProgress>,
    ) -> Result<(), VendorFault> {
        let dir = Path::new(path).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let made = format!("mkdir -p -- {}", quoted(&dir));
        let beside = quoted(&format!("{path}.{}", uuid::Uuid::now_v7().simple()));
        let path = quoted(path);
        let (whole, mut sent) = (bytes.len(), 0);
        let piece = |(index, at): (usize, usize)| {
            let piece = STANDARD.encode(&bytes[at..(at + UPLOAD_CHUNK_BYTES).min(whole)]);
            let text = format!("{made} && printf %s '{piece}' | base64 -d >{beside}.{index:05}");
            async move { self.run_own(sandbox, text).await.map(drop) }
        };
        let pieces =
            stream::iter((0..whole.max(1)).step_by(UPLOAD_CHUNK_BYTES).enumerate()).map(piece);
        let mut pieces = pieces.buffer_unordered(MAX_CONCURRENT_CHUNKS);
        while pieces.try_next().await?.is_some() {
            sent = (sent + UPLOAD_CHUNK_BYTES).min(whole);
            if let Some(progress) = &progress {
                progress(sent as u64);
            }
        }
        let count = whole.div_ceil(UPLOAD_CHUNK_BYTES).max(1);
        // If this is repeated after it succeeded, the file is in place and chunks are missing.
        let text = format!(
            "set -- {beside}.*; if [ $# -eq {count} ] && [ -e \"$1\" ]; then \
             cat -- \"$@\" >{beside} && mv -f -- {beside} {path} || exit; fi; \
             rm -f -- {beside}.*; [ -e {path} ]"
        );
        self.run_own(sandbox, text).await.map(drop)
    }

    /// Runs an idempotent command of our own and returns its standard output.
    async fn run_own(
        self: &std::sync::Arc<Self>,
        sandbox: &VendorSandbox,
        command: String,
    ) -> Result<Vec<u8>, VendorFault> {
        let command =
            Execute { command, env: Default::default(), cwd: None, timeout: MAX_COMMAND_TIME };
        let ran =
            self.shell(sandbox, &capture::script(&command), MAX_COMMAND_TIME, Repeat::Safe).await?;
        if ran.exit_code == Some(0) {
            return Ok(ran.stdout);
        }
        let message = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        Err(refusal(StatusCode::BAD_REQUEST, message))
    }

    async fn shell(
        self: &std::sync::Arc<Self>,
        sandbox: &VendorSandbox,
        text: &str,
        time: Duration,
        repeat: Repeat,
    ) -> Result<Executed, VendorFault> {
        let time = time.min(MAX_COMMAND_TIME);
        let args = json!({"command": text, "timeout_ms": time.as_millis() as u64});
        let began = Instant::now();
        let response = self.call(sandbox, args, time, repeat).await?;
        let parts = serde_json::from_str::<ShellResult>(&response).unwrap_or_else(|_| {
            ShellResult { stdout: response, stderr: String::new(), exit_code: None }
        });
        if let Some(ran) = capture::parse(&parts.stdout) {
            return Ok(ran);
        }
        if began.elapsed() >= time {
            return Ok(Executed { exit_code: None, stdout: vec![], stderr: vec![] });
        }
        // Without our format, the output is an error message of the session.
        let stderr = [parts.stdout, parts.stderr].concat().into_bytes();
        Ok(Executed { exit_code: Some(parts.exit_code.unwrap_or(1)), stdout: vec![], stderr })
    }

    /// Calls the shell tool and returns its text. The address of a session changes when it is paused, and only
    /// the API knows whether a session still exists.
    async fn call(
        self: &std::sync::Arc<Self>,
        sandbox: &VendorSandbox,
        args: Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<String, VendorFault> {
        let fault = match self.call_at(sandbox, &args, time, repeat).await {
            Ok(response) => return Ok(response),
            Err(fault @ VendorFault::Status { status, .. })
                if status.is_client_error() && !sandbox.url.is_empty() =>
            {
                fault
            }
            Err(fault) => return Err(fault),
        };
        let missing =
            || refusal(StatusCode::NOT_FOUND, format!("session {} does not exist", sandbox.id));
        let now = self.get(&sandbox.id).await?.ok_or_else(missing)?;
        let reveal = |key: &Option<VendorKey>| key.as_ref().map(|key| key.reveal().to_owned());
        if (&now.url, reveal(&now.token)) == (&sandbox.url, reveal(&sandbox.token)) {
            return Err(fault);
        }
        self.call_at(&now, &args, time, repeat).await
    }

    async fn call_at(
        &self,
        sandbox: &VendorSandbox,
        args: &Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<String, VendorFault> {
        let result = match &sandbox.token {
            Some(token) if !sandbox.url.is_empty() => {
                let body = json!({
                    "args": args, "server": sandbox.server, "tool": "shell", "token": token.reveal(),
                    "requestId": format!("stead-{}", uuid::Uuid::now_v7().simple()),
                });
                let url = format!("{}/callTool", sandbox.url);
                let request = VendorRequest::new("callTool", Method::POST, url)
                    .header("x-access-token", token.header(""))
                    .json(&body)
                    .timeout(time + RESPONSE_TIMEOUT);
                let request = if repeat == Repeat::Safe { request.idempotent() } else { request };
                let answer: Value = self.client.send_json(&request).await?;
                unwrap_json(&answer["data"])?["result"].clone()
            }
            Some(_) | None => self.tool(&sandbox.id, "shell", args, time, repeat).await?,
        };
        text_of(&result)
    }

    /// Calls a tool through the API.
    pub(super) async fn tool(
        &self,
        id: &str,
        name: &str,
        args: &Value,
        time: Duration,
        repeat: Repeat,
    ) -> Result<Value, VendorFault> {
        let args = args.to_string();
        let fields =
            [("SessionId", id), ("Name", name), ("Args", &args), ("AutoGenSession", "false")];
        let request = self.control("CallMcpTool", &fields).timeout(time + RESPONSE_TIMEOUT);
        let request = if repeat == Repeat::Safe { request.idempotent() } else { request };
        unwrap_json(&self.send(&request).await?.data)
    }
}

/// The text in the result of a tool.
pub(super) fn text_of(result: &Value) -> Result<String, VendorFault> {
    let content = result["content"].as_array().and_then(|content| content.first());
    let text = content.and_then(|first| first["text"].as_str().or(first.as_str()));
    Ok(text.ok_or_else(|| broken("a tool returned nothing"))?.to_owned())
}

/// Returns JSON that may be encoded as a string.
fn unwrap_json(value: &Value) -> Result<Value, VendorFault> {
    match value {
        Value::String(text) => parse(text),
        other => decode(other.clone()),
    }
}
