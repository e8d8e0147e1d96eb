//! The receipt of a command, while it runs and after it has ended.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use base::utf8;
use base64::{Engine, prelude::BASE64_STANDARD};
use engine::terminal::{Execution, Receipt, TerminalError};
use model::{Changes, Command, CommandId, CommandStatus, CwdChange, EnvChange, Limit, Terminal};
use serde::Serialize;
use utoipa::ToSchema;
use wire::Stream;

use super::{
    App,
    error::Problem,
    secrets::Secrets,
    shapes::{CwdChangeSchema, EnvChangeSchema},
    signal,
};

/// Most bytes of each stream in a receipt; `/output` has the rest.
pub(super) const MAX_RECEIPT_OUTPUT_BYTES: u64 = 1 << 20;

/// Most output that is written as JSON between other work.
const MAX_QUICK_BYTES: usize = 256 << 10;

/// The receipt of a command.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CommandReceipt {
    /// Id of the command.
    command_id: String,
    /// `finished`, `running`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: &'static str,
    /// Exit code; null unless the command exited.
    exit_code: Option<i32>,
    /// Name of the signal that ended the command.
    signal: Option<String>,
    /// Whether the command exceeded `timeout_ms`.
    timed_out: bool,
    /// Standard output, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    /// Standard output as base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    /// Standard error, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    /// Standard error as base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
    /// Bytes written to standard output.
    stdout_bytes: u64,
    /// Bytes written to standard error.
    stderr_bytes: u64,
    /// Whether the output is truncated; `/output` has all of it.
    truncated: bool,
    /// Duration in milliseconds.
    duration_ms: u64,
    /// The limit of the instance that a failed command ran into: `out_of_memory`, `processes` or
    /// `disk_full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_reached: Option<&'static str>,
    /// Whether the shell had to be restarted; its state was restored.
    shell_restarted: bool,
    /// Whether the command waits for input on the terminal.
    waiting_for_input: bool,
    /// Id of the terminal.
    terminal_id: String,
    /// Version of the terminal's state after the command.
    version: u64,
    /// Working directory of the shell after the command.
    cwd: String,
    /// Changes to the state of the shell.
    changes: StateChanges,
}

/// Changes of a command to the state of its shell.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StateChanges {
    /// Change of the working directory, `{from, to}`; null if there is none.
    #[schema(value_type = Option<CwdChangeSchema>)]
    cwd: Option<CwdChange>,
    /// Changes of the exported environment, `{set, unset}`.
    #[schema(value_type = EnvChangeSchema)]
    env: EnvChange,
}

impl StateChanges {
    pub(super) fn new(Changes { cwd, env }: Changes, secrets: Secrets) -> StateChanges {
        let EnvChange { set, unset } = env;
        StateChanges { cwd, env: EnvChange { set: secrets.env(set), unset } }
    }
}

impl CommandReceipt {
    pub(super) fn new(receipt: Receipt, terminal: &Terminal, secrets: Secrets) -> CommandReceipt {
        let Receipt { command, stdout, stderr, truncated, waiting_for_input } = receipt;
        let end = if truncated { OutputEnd::Truncated } else { OutputEnd::Complete };
        let (stdout, stdout_base64) = text_or_base64(stdout, end);
        let (stderr, stderr_base64) = text_or_base64(stderr, end);
        CommandReceipt {
            command_id: command.command_id.to_string(),
            status: match command.status {
                CommandStatus::Queued => CommandStatus::Running.word(),
                status => status.word(),
            },
            exit_code: command.exit_code,
            signal: command.signal.map(signal::name),
            timed_out: command.status == CommandStatus::TimedOut,
            stdout,
            stdout_base64,
            stderr,
            stderr_base64,
            stdout_bytes: command.stdout_bytes,
            stderr_bytes: command.stderr_bytes,
            truncated,
            duration_ms: command.duration_us.unwrap_or_else(|| running_us(&command)) / 1000,
            limit_reached: command.limit_reached.map(Limit::word),
            shell_restarted: command.shell_restarted,
            waiting_for_input,
            terminal_id: command.terminal_id.to_string(),
            version: command.version_after.unwrap_or(command.version_before),
            cwd: command.cwd.unwrap_or_else(|| terminal.cwd.clone()),
            changes: StateChanges::new(command.changes, secrets),
        }
    }
}

/// Returns how long a command has been running, in microseconds.
fn running_us(command: &Command) -> u64 {
    let started = command.started_at.unwrap_or(command.created_at);
    u64::try_from(
        (jiff::Timestamp::now() - started).total(jiff::Unit::Microsecond).unwrap_or(0.0) as i64
    )
    .unwrap_or(0)
}

/// How captured output ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputEnd {
    Complete,
    Truncated,
}

/// Returns UTF-8 as text, other bytes as base64. Truncation may split a character; the text before it still
/// counts as UTF-8.
fn text_or_base64(mut bytes: Vec<u8>, end: OutputEnd) -> (Option<String>, Option<String>) {
    if end == OutputEnd::Truncated {
        let mut cutter = utf8::Cutter::default();
        if let Some(utf8::Utf8Piece::Text(text)) = cutter.cut(&bytes) {
            return (Some(text), None);
        }
    }
    match String::from_utf8(std::mem::take(&mut bytes)) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.into_bytes()))),
    }
}

/// The response with a receipt. A long one is written on a thread of its own, because it would delay other requests.
pub(super) async fn respond(receipt: Receipt, terminal: &Terminal) -> Result<Response, Problem> {
    let write = |receipt, terminal: &Terminal| {
        axum::Json(CommandReceipt::new(receipt, terminal, Secrets::Masked)).into_response()
    };
    if receipt.stdout.len() + receipt.stderr.len() <= MAX_QUICK_BYTES {
        return Ok(write(receipt, terminal));
    }
    let terminal = terminal.clone();
    let written = base::task::blocking(move || write(receipt, &terminal)).await;
    written.map_err(|error| Problem::internal("write a receipt", &error))
}

/// Reads the receipt of a command with the first bytes of its output.
pub(super) async fn read_receipt(
    app: &App,
    command: Command,
    terminal: &Terminal,
    secrets: Secrets,
) -> Result<CommandReceipt, Problem> {
    let mut command = command;
    let stdout = head(app, &command, terminal, Stream::Stdout).await?;
    let stderr = head(app, &command, terminal, Stream::Stderr).await?;
    command.stdout_bytes = command.stdout_bytes.max(stdout.len() as u64);
    command.stderr_bytes = command.stderr_bytes.max(stderr.len() as u64);
    let truncated =
        command.stdout_bytes > stdout.len() as u64 || command.stderr_bytes > stderr.len() as u64;
    let waiting_for_input = app.terminals.waits(&command, terminal).await;
    let receipt = Receipt { command, stdout, stderr, truncated, waiting_for_input };
    Ok(CommandReceipt::new(receipt, terminal, secrets))
}

/// Responds to a repeated request with the command that the first one started; returns `None` if the host never
/// received it.
pub(super) async fn of_started(
    app: &App,
    started: &str,
    terminal: &Terminal,
    yield_after: Option<Duration>,
) -> Result<Option<Response>, Problem> {
    let id: CommandId = started.parse().map_err(|_| Problem::missing("command", started))?;
    let command = app.store.command(&id).await?.ok_or_else(|| Problem::missing("command", &id))?;
    if app.terminals.never_began(terminal, &command).await? {
        return Ok(None);
    }
    if let Some(mut execution) = app.terminals.follow(terminal, &id).await {
        let receipt = wait(&mut execution, yield_after).await?;
        return respond(receipt, terminal).await.map(Some);
    }
    let command = app.store.command(&id).await?.ok_or_else(|| Problem::missing("command", &id))?;
    let receipt = read_receipt(app, command, terminal, Secrets::Masked).await?;
    Ok(Some(axum::Json(receipt).into_response()))
}

/// Waits until a command has ended, or for `yield_after`, and returns its receipt.
pub(super) async fn wait(
    execution: &mut Execution,
    yield_after: Option<Duration>,
) -> Result<Receipt, Problem> {
    let Some(wait) = yield_after else { return Ok(execution.finished().await?) };
    match tokio::time::timeout(wait, execution.ended()).await {
        Ok(ended) => {
            ended?;
            Ok(execution.finished().await?)
        }
        Err(_) => Ok(execution.so_far().await?),
    }
}

async fn head(
    app: &App,
    command: &Command,
    terminal: &Terminal,
    stream: Stream,
) -> Result<Vec<u8>, Problem> {
    let mut all = Vec::new();
    while (all.len() as u64) < MAX_RECEIPT_OUTPUT_BYTES {
        let from = all.len() as u64;
        let limit = (MAX_RECEIPT_OUTPUT_BYTES - from).min(wire::MAX_DATA as u64) as u32;
        let chunk = match app.terminals.output(terminal, command, stream, from, limit).await {
            Ok(chunk) => chunk,
            Err(TerminalError::NotKept) => break,
            Err(error) => return Err(error.into()),
        };
        if chunk.bytes.is_empty() || chunk.offset != from {
            break;
        }
        all.extend_from_slice(&chunk.bytes);
    }
    Ok(all)
}
