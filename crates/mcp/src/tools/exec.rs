//! `exec`: runs a command in a live shell, and reports its progress.
//!
//! ```text
//! started ──▶ exit                 the result
//!    ├──────▶ wait is over         a task, or the result `running`
//!    ├──────▶ client cancelled     the command is cancelled
//!    └──────▶ server stops         the command continues; its id remains valid
//! ```

use std::{collections::BTreeMap, time::Duration};

use axum::response::Response;
use http::{Method, header};
use rmcp::model::CreateTaskResult;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    progress::CallProgress,
    tool::{ToolCall, ToolError, ToolReply},
};
use crate::{
    command::{CommandRecord, CommandResult, MAX_RESULT_BYTES},
    events::{NativeEvent, NativeEvents},
    native::{NativeApi, escape, read},
};

/// How long a call waits for a command by default. Most clients give up after 60 seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(50);
/// The same for a client that receives progress, which extends its timeout.
const WAIT_WITH_PROGRESS: Duration = Duration::from_secs(600);
/// How long a call waits before the command becomes a task, for a client that supports tasks.
const WAIT_BEFORE_TASK: Duration = Duration::from_secs(2);
const MAX_WAIT_MS: u64 = 600_000;
/// How often the receipt of a command is read that another request started.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Selects a shell, and a command for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecArguments {
    /// Shell command; may have several lines.
    command: String,
    /// Id of the thread whose default terminal runs the command; it is created on first use. `main` by default.
    thread: Option<String>,
    /// Id of another terminal, instead of a thread.
    terminal_id: Option<String>,
    /// Ends the command and all its processes after this time, in milliseconds.
    timeout_ms: Option<u64>,
    /// Returns with status `running` after this time, in milliseconds; the command continues. At most 600000.
    yield_ms: Option<u64>,
    /// Standard input; empty by default.
    stdin: Option<String>,
    /// Keeps standard input open for `command_input`.
    #[serde(default)]
    keep_stdin_open: bool,
    /// Environment variables for this command only.
    env: Option<BTreeMap<String, String>>,
    /// Working directory for this command only.
    cwd: Option<String>,
}

impl ExecArguments {
    fn target(&self, call: &ToolCall) -> String {
        match &self.terminal_id {
            Some(id) => format!("/api/terminals/{}/exec", escape(id)),
            None => {
                let thread = call.native.thread(self.thread.as_deref());
                format!("/api/threads/{}/exec", escape(thread))
            }
        }
    }

    fn body(&self) -> Value {
        let mut body = json!({
            "command": self.command,
            "max_output_bytes": MAX_RESULT_BYTES,
            // The command stays queued if this client disconnects; a cancellation is explicit.
            "yield_ms": 1,
        });
        if !self.keep_stdin_open {
            body["stdin"] = json!(self.stdin.as_deref().unwrap_or_default());
        }
        for (key, value) in [
            ("timeout_ms", self.timeout_ms.map(Value::from)),
            ("env", self.env.as_ref().map(|env| json!(env))),
            ("cwd", self.cwd.as_ref().map(|cwd| json!(cwd))),
        ] {
            if let Some(value) = value {
                body[key] = value;
            }
        }
        body
    }

    /// Returns how long the call waits for the end of the command.
    fn wait(&self, progress: &CallProgress, long: LongCommands) -> Duration {
        match (self.yield_ms, long) {
            (Some(ms), _) => Duration::from_millis(ms.min(MAX_WAIT_MS)),
            (None, LongCommands::AreTasks) => WAIT_BEFORE_TASK,
            (None, LongCommands::KeepRunning) if progress.is_wanted() => WAIT_WITH_PROGRESS,
            (None, LongCommands::KeepRunning) => DEFAULT_WAIT,
        }
    }
}

/// What becomes of a command that takes longer than the call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongCommands {
    /// The client supports tasks.
    AreTasks,
    KeepRunning,
}

impl LongCommands {
    fn of(call: &ToolCall) -> LongCommands {
        match call.context.client_capabilities().is_some_and(|client| client.supports_tasks()) {
            true => LongCommands::AreTasks,
            false => LongCommands::KeepRunning,
        }
    }
}

/// Why a call stopped waiting.
enum Waited {
    Ended(Box<CommandRecord>),
    /// The command continues after the call.
    Continues {
        command_id: String,
    },
    Cancelled {
        command_id: String,
    },
}

pub(crate) async fn exec(
    call: ToolCall,
    arguments: ExecArguments,
) -> Result<ToolReply<CommandResult>, ToolError> {
    if arguments.keep_stdin_open && arguments.stdin.is_some() {
        return Err(ToolError::Arguments("stdin excludes keep_stdin_open".into()));
    }
    if arguments.thread.is_some() && arguments.terminal_id.is_some() {
        return Err(ToolError::Arguments("thread excludes terminal_id".into()));
    }
    let long = LongCommands::of(&call);
    let mut progress = CallProgress::new(&call);
    let deadline = Instant::now() + arguments.wait(&progress, long);
    let (target, body) = (arguments.target(&call), arguments.body());
    let response = call.native.stream(Method::POST, &target, Some(&body)).await?;
    let waited = match is_stream(&response) {
        true => follow(&call, response, deadline, &mut progress).await?,
        // A repeated request: the first one started the command.
        false => {
            let record = CommandRecord::parse(read(response).await?.json())?;
            poll(&call, record, deadline, &mut progress).await?
        }
    };
    let record = match waited {
        Waited::Ended(record) => *record,
        Waited::Continues { command_id } => CommandRecord::read(&call.native, &command_id).await?,
        Waited::Cancelled { command_id } => {
            cancel(&call.native, &command_id).await?;
            CommandRecord::read(&call.native, &command_id).await?
        }
    };
    if record.is_running() && long == LongCommands::AreTasks && arguments.yield_ms.is_none() {
        return Ok(ToolReply::Task(CreateTaskResult::new(record.task())));
    }
    record.reply(&call.native).await
}

/// Cancels a command; one that has ended stays as it is.
pub(crate) async fn cancel(native: &NativeApi, command_id: &str) -> Result<(), ToolError> {
    let target = format!("/api/commands/{}/cancel", escape(command_id));
    native.post(&target, &json!({})).await?;
    Ok(())
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Follows the events of a command until it ends, the deadline, or the client's cancellation.
async fn follow(
    call: &ToolCall,
    response: Response,
    deadline: Instant,
    progress: &mut CallProgress,
) -> Result<Waited, ToolError> {
    let mut events = NativeEvents::new(response.into_body());
    let mut command_id = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep_until(deadline), if command_id.is_some() => break,
            () = call.context.ct.cancelled(), if command_id.is_some() => {
                let command_id = command_id.unwrap_or_default();
                // A server that stops closes its connections, which is no wish of the client.
                return Ok(match call.stopping.is_cancelled() {
                    true => Waited::Continues { command_id },
                    false => Waited::Cancelled { command_id },
                });
            }
            () = progress.due() => {
                progress.send(call).await;
                continue;
            }
        };
        let Some(NativeEvent { name, data }) = event else { break };
        match name.as_str() {
            "started" => command_id = data["command_id"].as_str().map(str::to_owned),
            "stdout" | "stderr" => show_last_line(progress, &data),
            "exit" => return Ok(Waited::Ended(Box::new(CommandRecord::parse(data)?))),
            "error" => return Err(ToolError::Failed(detail(&data))),
            // A gap, or the notice that the server stops.
            _ => {}
        }
    }
    let command_id = command_id
        .ok_or_else(|| ToolError::Failed("the server stopped before the command started".into()))?;
    Ok(Waited::Continues { command_id })
}

/// Makes the last line of some output the message of the progress.
fn show_last_line(progress: &mut CallProgress, data: &Value) {
    let lines = data["data"].as_str().unwrap_or_default().lines();
    if let Some(line) = lines.rev().map(str::trim).find(|line| !line.is_empty()) {
        progress.set_message(line);
    }
}

fn detail(data: &Value) -> String {
    data["detail"].as_str().unwrap_or("the command failed").to_owned()
}

/// Waits for a command by reading its receipt.
async fn poll(
    call: &ToolCall,
    mut record: CommandRecord,
    deadline: Instant,
    progress: &mut CallProgress,
) -> Result<Waited, ToolError> {
    loop {
        let command_id = record.command_id.clone();
        if !record.is_running() {
            return Ok(Waited::Ended(Box::new(record)));
        }
        if Instant::now() >= deadline {
            return Ok(Waited::Continues { command_id });
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = progress.due() => progress.send(call).await,
            () = call.context.ct.cancelled() => {
                return Ok(match call.stopping.is_cancelled() {
                    true => Waited::Continues { command_id },
                    false => Waited::Cancelled { command_id },
                });
            }
        }
        record = CommandRecord::read(&call.native, &command_id).await?;
    }
}
