//! Tools for terminals: the screen, typing, ports, rollback, fork.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tool::{ToolCall, ToolError, ToolReply};
use crate::native::{NativeApi, NativeProblem, escape, target};

/// Most lines of scrollback in one call.
const MAX_SCROLLBACK_LINES: u64 = 1000;
/// How long `type` waits by default before it returns the screen.
const DEFAULT_SETTLE_MS: u64 = 200;
const MAX_SETTLE_MS: u64 = 10_000;

/// Whether a thread that does not exist is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingThread {
    Create,
    Refuse,
}

/// Returns the given terminal, or the default terminal of the thread.
pub(super) async fn terminal_id(
    native: &NativeApi,
    terminal_id: Option<String>,
    thread: Option<&str>,
    missing: MissingThread,
) -> Result<String, ToolError> {
    if let Some(id) = terminal_id {
        return Ok(id);
    }
    let thread = escape(native.thread(thread));
    if missing == MissingThread::Create {
        ensure_thread(native, &thread).await?;
    }
    let terminal = native.get(&format!("/api/threads/{thread}/terminal")).await?.json();
    Ok(terminal["terminal_id"].as_str().unwrap_or_default().to_owned())
}

/// Creates a thread if it does not exist.
pub(crate) async fn ensure_thread(native: &NativeApi, thread: &str) -> Result<(), NativeProblem> {
    match native.get(&format!("/api/threads/{thread}/terminal")).await {
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            native.put(&format!("/api/threads/{thread}")).await.map(drop)
        }
        Err(problem) => Err(problem),
        Ok(_) => Ok(()),
    }
}

/// Selects a terminal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScreenArguments {
    /// Id of the thread whose default terminal is read; `main` by default.
    thread: Option<String>,
    /// Id of another terminal, instead of a thread.
    terminal_id: Option<String>,
    /// Number of lines above the screen; 0 by default, 1000 at most.
    scrollback: Option<u64>,
}

/// The screen of a terminal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScreenText {
    /// Id of the terminal.
    terminal_id: String,
    /// The text of the screen, one line per row.
    screen: String,
    /// Offset of the output that the screen includes.
    offset: u64,
}

/// Reads the text of a screen.
pub(crate) async fn screen_text(
    native: &NativeApi,
    terminal_id: String,
    scrollback: u64,
) -> Result<ScreenText, NativeProblem> {
    let lines = scrollback.min(MAX_SCROLLBACK_LINES);
    let path = format!("/api/terminals/{}/snapshot", escape(&terminal_id));
    let reply = native.get(&format!("{path}?format=text&scrollback={lines}")).await?;
    let screen = String::from_utf8_lossy(&reply.body).trim_end().to_owned();
    Ok(ScreenText { terminal_id, screen, offset: reply.header("x-offset").parse().unwrap_or(0) })
}

impl ScreenText {
    pub(crate) fn into_text(self) -> String {
        self.screen
    }
}

pub(crate) async fn screen(
    call: ToolCall,
    arguments: ScreenArguments,
) -> Result<ToolReply<ScreenText>, ToolError> {
    let ScreenArguments { thread, terminal_id: id, scrollback } = arguments;
    let id = terminal_id(&call.native, id, thread.as_deref(), MissingThread::Refuse).await?;
    let screen = screen_text(&call.native, id, scrollback.unwrap_or(0)).await?;
    Ok(ToolReply::Done { text: screen.screen.clone(), data: screen })
}

/// What to type, and where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypeArguments {
    /// Text to type, as it is. A carriage return (`\r`) is the Enter key.
    #[serde(default)]
    text: String,
    /// Keys to press after the text: `Enter`, `Tab`, `Escape`, `Backspace`, `Up`, `Down`, `Left`, `Right`,
    /// or `C-a` to `C-z`.
    #[serde(default)]
    keys: Vec<String>,
    /// Id of the thread whose default terminal is typed into; `main` by default.
    thread: Option<String>,
    /// Id of another terminal, instead of a thread.
    terminal_id: Option<String>,
    /// Time to wait before the screen is returned, in milliseconds; 200 by default, 10000 at most.
    wait_ms: Option<u64>,
}

pub(crate) async fn type_text(
    call: ToolCall,
    arguments: TypeArguments,
) -> Result<ToolReply<ScreenText>, ToolError> {
    let mut data = arguments.text;
    for key in &arguments.keys {
        data.push_str(&sequence(key).ok_or_else(|| {
            ToolError::Arguments(format!("{key:?} is not a key; see the description of keys"))
        })?);
    }
    if data.is_empty() {
        return Err(ToolError::Arguments("text or keys is required".into()));
    }
    let (id, thread) = (arguments.terminal_id, arguments.thread.as_deref());
    let id = terminal_id(&call.native, id, thread, MissingThread::Create).await?;
    let target = format!("/api/terminals/{}/input", escape(&id));
    call.native.post(&target, &json!({"data": data})).await?;
    let wait = arguments.wait_ms.unwrap_or(DEFAULT_SETTLE_MS).min(MAX_SETTLE_MS);
    tokio::time::sleep(Duration::from_millis(wait)).await;
    let screen = screen_text(&call.native, id, 0).await?;
    Ok(ToolReply::Done { text: screen.screen.clone(), data: screen })
}

/// Returns what a terminal receives for a key.
fn sequence(key: &str) -> Option<String> {
    Some(match key {
        "Enter" => "\r".into(),
        "Tab" => "\t".into(),
        "Escape" => "\u{1b}".into(),
        "Backspace" => "\u{7f}".into(),
        "Up" => "\u{1b}[A".into(),
        "Down" => "\u{1b}[B".into(),
        "Right" => "\u{1b}[C".into(),
        "Left" => "\u{1b}[D".into(),
        _ => {
            let letter = key.strip_prefix("C-")?;
            let [letter @ b'a'..=b'z'] = letter.as_bytes() else { return None };
            char::from(letter - b'a' + 1).into()
        }
    })
}

/// Selects a thread.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortsArguments {
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// The ports of a thread's sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListeningPorts {
    /// TCP ports that programs listen on, in ascending order.
    ports: Vec<u16>,
}

pub(crate) async fn ports(
    call: ToolCall,
    arguments: PortsArguments,
) -> Result<ToolReply<ListeningPorts>, ToolError> {
    let thread = escape(call.native.thread(arguments.thread.as_deref()));
    let listed = call.native.get(&format!("/api/threads/{thread}/ports")).await?.json();
    let items = listed["items"].as_array().into_iter().flatten();
    let ports: Vec<u16> = items.filter_map(|item| item["port"].as_u64()?.try_into().ok()).collect();
    let text = match ports.is_empty() {
        true => "no program listens on a port".to_owned(),
        false => ports.iter().map(u16::to_string).collect::<Vec<_>>().join("\n"),
    };
    Ok(ToolReply::Done { text, data: ListeningPorts { ports } })
}

/// Selects a port of a thread.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortLinkArguments {
    /// The TCP port, 1 to 65535.
    port: u16,
    /// Lifetime of the link in milliseconds, 1000 to 2592000000; a day by default.
    expires_in_ms: Option<u64>,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// A link that opens one port.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CreatedPortLink {
    /// URL of the link.
    url: String,
    /// Time of its expiry.
    expires_at: String,
}

pub(crate) async fn port_link(
    call: ToolCall,
    arguments: PortLinkArguments,
) -> Result<ToolReply<CreatedPortLink>, ToolError> {
    let thread = escape(call.native.thread(arguments.thread.as_deref()));
    let path = format!("/api/threads/{thread}/ports/{}/links", arguments.port);
    let body = json!({"expires_in_ms": arguments.expires_in_ms});
    let made = call.native.post(&path, &body).await?.json();
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    let data = CreatedPortLink { url: text("url"), expires_at: text("expires_at") };
    Ok(ToolReply::Done { text: data.url.clone(), data })
}

/// Selects a version of a terminal's state.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackArguments {
    /// The version to restore; results of `exec` contain versions.
    version: u64,
    /// Id of the thread whose default terminal is restored; `main` by default.
    thread: Option<String>,
    /// Id of another terminal, instead of a thread.
    terminal_id: Option<String>,
}

/// The state of a terminal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RestoredTerminal {
    /// Id of the terminal.
    terminal_id: String,
    /// Number of the version that has the restored state.
    version: u64,
    /// Working directory of the shell.
    cwd: String,
}

pub(crate) async fn rollback(
    call: ToolCall,
    arguments: RollbackArguments,
) -> Result<ToolReply<RestoredTerminal>, ToolError> {
    let (id, thread) = (arguments.terminal_id, arguments.thread.as_deref());
    let id = terminal_id(&call.native, id, thread, MissingThread::Refuse).await?;
    let target = format!("/api/terminals/{}/rollback", escape(&id));
    let state = call.native.post(&target, &json!({"version": arguments.version})).await?.json();
    let data = RestoredTerminal {
        terminal_id: id,
        version: state["version"].as_u64().unwrap_or_default(),
        cwd: state["cwd"].as_str().unwrap_or_default().to_owned(),
    };
    let text = format!("restored as version {} in {}", data.version, data.cwd);
    Ok(ToolReply::Done { text, data })
}

/// What to copy: a sandbox with its files, or the state of a shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkArguments {
    /// Id of the sandbox to copy with its files.
    sandbox_id: Option<String>,
    /// Name of the new sandbox, unique within its project.
    name: Option<String>,
    /// Id of the terminal whose shell state is copied within its sandbox, instead of a sandbox.
    terminal_id: Option<String>,
    /// Version of the terminal's state; the current one by default.
    version: Option<u64>,
}

/// The copy.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ForkedTerminal {
    /// Id of the new sandbox; null if only a shell was copied.
    sandbox_id: Option<String>,
    /// Id of the thread of the copy, for other tools.
    thread_id: String,
    /// Id of the terminal of the copy.
    terminal_id: String,
}

pub(crate) async fn fork(
    call: ToolCall,
    arguments: ForkArguments,
) -> Result<ToolReply<ForkedTerminal>, ToolError> {
    let ForkArguments { sandbox_id, name, terminal_id, version } = arguments;
    let (path, body) = match (&sandbox_id, &terminal_id) {
        (Some(id), None) => (format!("/api/sandboxes/{}/fork", escape(id)), json!({"name": name})),
        (None, Some(id)) => {
            (format!("/api/terminals/{}/fork", escape(id)), json!({"version": version}))
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(ToolError::Arguments("give either sandbox_id or terminal_id".into()));
        }
    };
    let made: Value = call.native.post(&target(path, &[]), &body).await?.json();
    let text_of = |key: &str| made[key].as_str().map(str::to_owned);
    let data = ForkedTerminal {
        sandbox_id: text_of("sandbox_id"),
        thread_id: text_of("thread_id").unwrap_or_default(),
        terminal_id: text_of("terminal_id").unwrap_or_default(),
    };
    let text = format!("forked: thread {}, terminal {}", data.thread_id, data.terminal_id);
    Ok(ToolReply::Done { text, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names() {
        assert_eq!(sequence("Enter"), Some("\r".into()));
        assert_eq!(sequence("C-c"), Some("\u{3}".into()));
        assert_eq!(sequence("Up"), Some("\u{1b}[A".into()));
        assert_eq!(sequence("C-1"), None);
        assert_eq!(sequence("Entre"), None);
    }
}
