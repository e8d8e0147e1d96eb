//! Commands: receipt, output by offset, standard input, signals, cancellation, history.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use wire::Stream;

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, Query},
    page::{self, List},
    params::{CommandPath, TerminalPath},
    receipt::{self, CommandReceipt, MAX_RECEIPT_OUTPUT_BYTES, StateChanges},
    secrets::Secrets,
    shapes::BinarySchema,
    signal,
    target::{TargetCommand, TargetTerminal},
};
use engine::terminal::{StdinAfterWrite, TerminalError};
use model::{Command, Limit, Source};
use store::CommandQuery;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(output))
        .routes(routes!(stdin))
        .routes(routes!(signal_command))
        .routes(routes!(cancel))
        .routes(routes!(history))
}

/// Longest search text; SQLite limits patterns, too.
const MAX_SEARCH_BYTES: usize = 1000;
/// Longest `wait_ms` that a request may have.
const MAX_WAIT_MS: u64 = 60_000;
/// Largest response of `/output`.
const MAX_OUTPUT_RESPONSE_BYTES: u64 = 8 << 20;

/// Selects how long to wait, and whether secrets are shown.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReceiptQuery {
    /// `true` returns the values of variables whose names suggest a secret (`…KEY`, `…TOKEN`, `…PASSWORD`);
    /// by default they are `***`.
    reveal: Option<bool>,
    /// Time to wait for the end of the command, in milliseconds; at most 60000.
    wait_ms: Option<u64>,
}

/// Returns how long a request may wait.
fn wait_limit(wait_ms: Option<u64>) -> Result<Duration, Problem> {
    match wait_ms.unwrap_or(0) {
        wait if wait > MAX_WAIT_MS => {
            Err(Problem::query("wait_ms", format!("must be at most {MAX_WAIT_MS}")))
        }
        wait => Ok(Duration::from_millis(wait)),
    }
}

/// Get the receipt of a command.
///
/// The receipt is available while the command runs and after it has ended. With `wait_ms` the response is delayed
/// until the command ends.
#[utoipa::path(get, path = "/api/commands/{id}", tag = "exec",
    operation_id = "commands.get", params(CommandPath, ReceiptQuery),
    responses((status = 200, description = "The receipt", body = CommandReceipt)))]
async fn show(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Query(query): Query<ReceiptQuery>,
) -> Result<axum::Json<CommandReceipt>, Problem> {
    let secrets = Secrets::new(query.reveal);
    let wait = wait_limit(query.wait_ms)?;
    if wait > Duration::ZERO
        && !command.status.is_end()
        && let Some(mut execution) = app.terminals.follow(&terminal, &command.command_id).await
    {
        let receipt = receipt::wait(&mut execution, Some(wait)).await?;
        return Ok(axum::Json(CommandReceipt::new(receipt, &terminal, secrets)));
    }
    let receipt = receipt::read_receipt(&app, command, &terminal, secrets).await?;
    Ok(axum::Json(receipt))
}

/// Selects a range of the output.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    /// `stdout` (default) or `stderr`.
    stream: Option<String>,
    /// Offset of the first byte; 0 by default.
    from: Option<u64>,
    /// Maximum number of bytes; 1 MiB by default, 8 MiB at most.
    limit: Option<u64>,
    /// Time to wait for the first byte, in milliseconds; at most 60000.
    wait_ms: Option<u64>,
}

/// Read the output of a command as raw bytes.
///
/// Includes later output of background processes that the command started.
#[utoipa::path(get, path = "/api/commands/{id}/output", tag = "exec",
    operation_id = "commands.output", params(CommandPath, OutputQuery),
    responses((status = 200, description = "The bytes. `X-Offset` and `X-Next-Offset` give their range; `X-End: true` means that no more \
        output can follow", body = BinarySchema,
        content_type = "application/octet-stream")))]
async fn output(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Query(query): Query<OutputQuery>,
) -> Result<Response, Problem> {
    let stream = match query.stream.as_deref() {
        None | Some("stdout") => Stream::Stdout,
        Some("stderr") => Stream::Stderr,
        Some(_) => return Err(Problem::query("stream", "must be stdout or stderr")),
    };
    let limit = query.limit.unwrap_or(MAX_RECEIPT_OUTPUT_BYTES);
    if limit == 0 || limit > MAX_OUTPUT_RESPONSE_BYTES {
        return Err(Problem::query("limit", format!("must be 1 to {MAX_OUTPUT_RESPONSE_BYTES}")));
    }
    let wait = wait_limit(query.wait_ms)?;
    let from = query.from.unwrap_or(0);
    let mut bytes = Vec::new();
    let (mut offset, mut next, mut end) = (from, from, false);
    let mut waited = wait == Duration::ZERO;
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let left = (limit - bytes.len() as u64).min(wire::MAX_DATA as u64) as u32;
        let chunk = match app.terminals.output(&terminal, &command, stream, next, left).await {
            Ok(chunk) => chunk,
            Err(TerminalError::NotKept) => {
                return Err(Problem::new(
                    Code::Gone,
                    "the output of the command is no longer available",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let gap = chunk.offset != next;
        if bytes.is_empty() {
            offset = chunk.offset;
        } else if gap {
            break;
        }
        end = chunk.end;
        if chunk.bytes.is_empty() {
            if bytes.is_empty() && !end && !waited {
                // Also read once more when no more can follow: the last bytes may have come since.
                waited =
                    !app.terminals.more_output(&terminal, &command, stream, next, deadline).await;
                continue;
            }
            next = chunk.next.max(next);
            break;
        }
        next = chunk.next;
        bytes.extend_from_slice(&chunk.bytes);
        if end || bytes.len() as u64 >= limit {
            break;
        }
    }
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (HeaderName::from_static("x-offset"), offset.to_string()),
        (HeaderName::from_static("x-next-offset"), next.to_string()),
        (HeaderName::from_static("x-end"), end.to_string()),
    ];
    Ok((headers, bytes).into_response())
}

/// Standard input for a command. Needs `data`, `data_base64` or `eof`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"data": "yes\n", "write_id": "w1"}))]
struct StdinRequest {
    /// Input as text.
    data: Option<String>,
    /// Input as base64.
    data_base64: Option<String>,
    /// Makes repeated requests safe: input with the same id is written once.
    write_id: Option<String>,
    /// Closes standard input after this data.
    #[serde(default)]
    eof: bool,
}

/// Write to the standard input of a command.
#[utoipa::path(post, path = "/api/commands/{id}/stdin", tag = "exec",
    operation_id = "commands.write_stdin", params(CommandPath), request_body = StdinRequest,
    responses((status = 204, description = "The input was accepted")))]
async fn stdin(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Json(input): Json<StdinRequest>,
) -> Result<StatusCode, Problem> {
    let data = match (input.data, input.data_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64_STANDARD
            .decode(text)
            .map_err(|error| Problem::body("/data_base64", error.to_string()))?,
        (None, None) if input.eof => Vec::new(),
        (None, None) => return Err(Problem::body("/data", "data, data_base64 or eof is required")),
        (Some(_), Some(_)) => {
            return Err(Problem::body("/data_base64", "data and data_base64 exclude each other"));
        }
    };
    let write_id = input.write_id.unwrap_or_default();
    if write_id.len() > 200 {
        return Err(Problem::body("/write_id", "must have at most 200 bytes"));
    }
    let after = if input.eof { StdinAfterWrite::Close } else { StdinAfterWrite::KeepOpen };
    app.terminals.feed(&terminal, &command.command_id, write_id, data, after).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to the processes of a command.
#[utoipa::path(post, path = "/api/commands/{id}/signal", tag = "exec",
    operation_id = "commands.signal", params(CommandPath), request_body = signal::SignalRequest,
    responses((status = 204, description = "The signal was sent")))]
async fn signal_command(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Json(signal): Json<signal::SignalRequest>,
) -> Result<StatusCode, Problem> {
    app.terminals.signal_command(&terminal, &command.command_id, signal.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel a command.
///
/// A running command is ended with all its processes, as after a timeout. A queued one is removed from the
/// queue.
#[utoipa::path(post, path = "/api/commands/{id}/cancel", tag = "exec",
    operation_id = "commands.cancel", params(CommandPath),
    responses((status = 204, description = "The cancellation was accepted")))]
async fn cancel(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
) -> Result<StatusCode, Problem> {
    app.terminals.cancel(&terminal, &command.command_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Filters and pages the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Only commands whose text contains this string.
    q: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A command in the history of a terminal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CommandView {
    /// Id of the command.
    command_id: String,
    /// The command text.
    command: String,
    /// `agent` for exec, `person` for typed commands.
    #[schema(value_type = String)]
    source: Source,
    /// `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: &'static str,
    /// Exit code; null unless the command exited.
    exit_code: Option<i32>,
    /// Name of the signal that ended the command.
    signal: Option<String>,
    /// Time of the request.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of the end; null while the command runs.
    #[schema(value_type = Option<String>)]
    finished_at: Option<Timestamp>,
    /// Duration in milliseconds.
    duration_ms: Option<u64>,
    /// Bytes written to standard output.
    stdout_bytes: u64,
    /// Bytes written to standard error.
    stderr_bytes: u64,
    /// Version of the terminal's state before the command.
    version_before: u64,
    /// Version of the terminal's state after the command.
    version: Option<u64>,
    /// Offset in the terminal's output where the command's output starts.
    offset_start: Option<u64>,
    /// Offset in the terminal's output where the command's output ends.
    offset_end: Option<u64>,
    /// Working directory of the shell after the command.
    cwd: Option<String>,
    /// Changes to the state of the shell.
    changes: StateChanges,
    /// Whether the shell had to be restarted.
    shell_restarted: bool,
    /// The limit of the instance that a failed command ran into: `out_of_memory`, `processes` or
    /// `disk_full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_reached: Option<&'static str>,
}

impl From<Command> for CommandView {
    fn from(command: Command) -> CommandView {
        CommandView {
            command_id: command.command_id.to_string(),
            command: command.text,
            source: command.source,
            status: command.status.word(),
            exit_code: command.exit_code,
            signal: command.signal.map(signal::name),
            created_at: command.created_at,
            finished_at: command.finished_at,
            duration_ms: command.duration_us.map(|micros| micros / 1000),
            stdout_bytes: command.stdout_bytes,
            stderr_bytes: command.stderr_bytes,
            version_before: command.version_before,
            version: command.version_after,
            offset_start: command.offset_start,
            offset_end: command.offset_end,
            cwd: command.cwd,
            changes: StateChanges::new(command.changes, Secrets::Masked),
            shell_restarted: command.shell_restarted,
            limit_reached: command.limit_reached.map(Limit::word),
        }
    }
}

/// List the commands of a terminal, newest first.
#[utoipa::path(get, path = "/api/terminals/{id}/commands", tag = "exec",
    operation_id = "terminals.list_commands", params(TerminalPath, HistoryQuery),
    responses((status = 200, description = "A page of commands", body = List<CommandView>)))]
async fn history(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<HistoryQuery>,
) -> Result<axum::Json<List<CommandView>>, Problem> {
    if query.q.as_ref().is_some_and(|text| text.len() > MAX_SEARCH_BYTES) {
        return Err(Problem::query("q", format!("must have at most {MAX_SEARCH_BYTES} bytes")));
    }
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = CommandQuery { containing: query.q };
    let page = app.store.commands(&terminal.terminal_id, filter, request).await?;
    // A row stays `queued` until the command has ended; running commands are only known in memory.
    let current = |row: Command| app.terminals.running(&row.command_id).unwrap_or(row);
    Ok(axum::Json(page.map(|row| CommandView::from(current(row))).into()))
}
