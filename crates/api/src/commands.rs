//! Receipts, output by offset, input and signals of commands, and the history.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use host::wire::Stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, Query},
    page::{self, List},
    params::{CommandPath, TerminalPath},
    receipt::{self, CommandReceipt, MAX_RECEIPT_OUTPUT_BYTES, StateChanges},
    signal,
    target::{Target, TargetCommand},
};
use engine::terminal::TerminalError;
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

/// Longest text to search the history for; the store's pattern matching has a limit of its own.
const MAX_SEARCH_BYTES: usize = 1000;
/// The longest wait for output.
const MAX_WAIT_MS: u64 = 60_000;
/// Bytes one answer of `/output` carries at most.
const MAX_LIMIT: u64 = 8 << 20;

/// How a command went, at any time.
#[utoipa::path(get, path = "/api/commands/{id}", tag = "exec",
    params(CommandPath),
    responses((status = 200, description = "Its receipt", body = CommandReceipt)))]
async fn show(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
) -> Result<axum::Json<CommandReceipt>, Problem> {
    Ok(axum::Json(receipt::read_receipt(&app, command, &terminal).await?))
}

/// Which output.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    /// `stdout` (default) or `stderr`.
    stream: Option<String>,
    /// The first byte.
    from: Option<u64>,
    /// How many bytes at most.
    limit: Option<u64>,
    /// How long to wait for the first of them.
    wait_ms: Option<u64>,
}

/// Raw bytes a command wrote, late output of what it left behind included.
#[utoipa::path(get, path = "/api/commands/{id}/output", tag = "exec",
    params(CommandPath, OutputQuery),
    responses((status = 200, description = "Bytes; `X-Offset`, `X-Next-Offset` and `X-End` say \
        where they lie and whether more can come", body = Vec<u8>,
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
    if limit == 0 || limit > MAX_LIMIT {
        return Err(Problem::query("limit", format!("must be 1 to {MAX_LIMIT}")));
    }
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(Problem::query("wait_ms", format!("must be at most {MAX_WAIT_MS}")));
    }
    let from = query.from.unwrap_or(0);
    let mut bytes = Vec::new();
    let (mut offset, mut next, mut end) = (from, from, false);
    let deadline = tokio::time::Instant::now() + Duration::from_millis(wait);
    loop {
        let left = (limit - bytes.len() as u64).min(host::wire::MAX_DATA as u64) as u32;
        let chunk = match app.terminals.output(&terminal, &command, stream, next, left).await {
            Ok(chunk) => chunk,
            Err(TerminalError::NotKept) => {
                return Err(Problem::new(Code::Gone, "the command's output is no longer kept"));
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
            let more = bytes.is_empty()
                && !end
                && app.terminals.more_output(&terminal, &command, stream, next, deadline).await;
            if more {
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

/// Input for a command.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StdinRequest {
    /// Text.
    data: Option<String>,
    /// Bytes.
    data_base64: Option<String>,
    /// Applied once however often it is sent.
    write_id: Option<String>,
    /// Nothing comes after this.
    #[serde(default)]
    eof: bool,
}

/// Feed a command whose input is open (one that was run with `yield_ms` and no `stdin`).
#[utoipa::path(post, path = "/api/commands/{id}/stdin", tag = "exec",
    params(CommandPath), request_body = StdinRequest,
    responses((status = 204, description = "It was written, once")))]
async fn stdin(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Json(feed): Json<StdinRequest>,
) -> Result<StatusCode, Problem> {
    let data = match (feed.data, feed.data_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64_STANDARD
            .decode(text)
            .map_err(|error| Problem::body("/data_base64", error.to_string()))?,
        (None, None) if feed.eof => Vec::new(),
        (None, None) => return Err(Problem::body("/data", "data or eof is needed")),
        (Some(_), Some(_)) => {
            return Err(Problem::body("/data_base64", "only one of data and data_base64"));
        }
    };
    let write_id = feed.write_id.unwrap_or_default();
    if write_id.len() > 200 {
        return Err(Problem::body("/write_id", "may have 200 bytes"));
    }
    app.terminals.feed(&terminal, &command.command_id, write_id, data, feed.eof).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Signal the processes of a command.
#[utoipa::path(post, path = "/api/commands/{id}/signal", tag = "exec",
    params(CommandPath), request_body = signal::SignalRequest,
    responses((status = 204, description = "It was sent")))]
async fn signal_command(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
    Json(signal): Json<signal::SignalRequest>,
) -> Result<StatusCode, Problem> {
    app.terminals.signal_command(&terminal, &command.command_id, signal.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End a command as a time-out does, or drop it if it still waits.
#[utoipa::path(post, path = "/api/commands/{id}/cancel", tag = "exec",
    params(CommandPath),
    responses((status = 204, description = "It is being ended")))]
async fn cancel(
    State(app): State<App>,
    TargetCommand(command, terminal): TargetCommand,
) -> Result<StatusCode, Problem> {
    app.terminals.cancel(&terminal, &command.command_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which part of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Only commands whose text contains this.
    q: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// A command in the history.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CommandView {
    /// Its id.
    command_id: String,
    /// What was run.
    command: String,
    /// `agent` for exec, `person` for what was typed.
    #[schema(value_type = String)]
    source: Source,
    /// Where it is in its life.
    status: &'static str,
    /// Exit code.
    exit_code: Option<i32>,
    /// The signal that ended it.
    signal: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>)]
    finished_at: Option<Timestamp>,
    /// How long it ran.
    duration_ms: Option<u64>,
    /// Bytes written to standard output.
    stdout_bytes: u64,
    /// Bytes written to standard error.
    stderr_bytes: u64,
    /// The version of the terminal's state before it.
    version_before: u64,
    /// The version after it.
    version: Option<u64>,
    /// Where in the terminal's output it begins.
    offset_start: Option<u64>,
    /// Where it ends.
    offset_end: Option<u64>,
    /// The shell's directory after it.
    cwd: Option<String>,
    /// What it changed in the shell.
    changes: StateChanges,
    /// Whether the shell had to be replaced.
    shell_restarted: bool,
    /// The limit of its instance that was met while it ran and failed: `out_of_memory`, `processes`
    /// or `disk_full`.
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
            changes: command.changes.into(),
            shell_restarted: command.shell_restarted,
            limit_reached: command.limit_reached.map(Limit::word),
        }
    }
}

/// What was run in a terminal, newest first.
#[utoipa::path(get, path = "/api/terminals/{id}/commands", tag = "exec",
    params(TerminalPath, HistoryQuery),
    responses((status = 200, description = "A page of the history", body = List<CommandView>)))]
async fn history(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<HistoryQuery>,
) -> Result<axum::Json<List<CommandView>>, Problem> {
    if query.q.as_ref().is_some_and(|text| text.len() > MAX_SEARCH_BYTES) {
        return Err(Problem::query("q", format!("must have at most {MAX_SEARCH_BYTES} bytes")));
    }
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let filter = CommandQuery { containing: query.q };
    let page = app.store.commands(&terminal.terminal_id, filter, request).await?;
    // A row says `queued` until the command has ended: what runs is known in memory alone.
    let current = |row: Command| app.terminals.running(&row.command_id).unwrap_or(row);
    Ok(axum::Json(page.map(|row| CommandView::from(current(row))).into()))
}
