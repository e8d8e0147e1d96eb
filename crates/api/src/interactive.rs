//! Interactive use of a terminal: input, size, signals, screen, recording.
//!
//! `older` serves the same handlers under `/session/{sid}/pty/{id}`.

use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Query},
    gzip,
    input::{TerminalSize, TypedInput},
    params::TerminalPath,
    pass::Guest,
    signal, stream as sse,
    target::TargetTerminal,
    ws,
};
use base::utf8::Cutter;
use engine::terminal::{Format, Offsets};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(input))
        .routes(routes!(resize))
        .routes(routes!(signal_terminal))
        .routes(routes!(sse::watch))
        .routes(routes!(ws::connect))
        .merge(
            OpenApiRouter::new()
                .routes(routes!(snapshot))
                .routes(routes!(recording))
                .layer(gzip::responses()),
        )
}

/// Type into a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/input", tag = "interactive",
    operation_id = "terminals.input", params(TerminalPath), request_body = TypedInput,
    responses((status = 204, description = "The input was accepted")))]
pub(super) async fn input(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Json(input): Json<TypedInput>,
) -> Result<StatusCode, Problem> {
    let bytes = input.bytes()?;
    app.metrics.bytes_in.inc_by(bytes.len() as u64);
    app.terminals.input(&terminal, input.write_id()?, bytes).await?;
    app.used(&terminal.thread_id).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Resize a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/resize", tag = "interactive",
    operation_id = "terminals.resize", params(TerminalPath), request_body = TerminalSize,
    responses((status = 200, description = "The new size", body = TerminalSize)))]
pub(super) async fn resize(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Json(size): Json<TerminalSize>,
) -> Result<axum::Json<TerminalSize>, Problem> {
    let (cols, rows) = size.check()?;
    app.terminals.resize(&terminal, cols, rows).await?;
    Ok(axum::Json(size))
}

/// Send a signal to the foreground program of a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/signal", tag = "interactive",
    operation_id = "terminals.signal", params(TerminalPath), request_body = signal::SignalRequest,
    responses((status = 204, description = "The signal was sent")))]
pub(super) async fn signal_terminal(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Json(signal): Json<signal::SignalRequest>,
) -> Result<StatusCode, Problem> {
    app.terminals.signal(&terminal, signal.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Selects the format of the screen.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SnapshotQuery {
    /// `ansi` (default), `text` or `html`.
    format: Option<String>,
    /// Number of scrollback lines; by default all with `ansi`, none with `text` and `html`.
    scrollback: Option<usize>,
}

/// The screen of a terminal.
#[derive(Debug, Serialize, ToSchema)]
struct ScreenSnapshot {
    /// Escape sequences that reproduce the screen in a new terminal of the same size.
    data: String,
    /// Offset of the output that the screen includes.
    offset: u64,
    /// Number of columns.
    cols: u16,
    /// Number of rows.
    rows: u16,
    /// Position of the cursor.
    cursor: CursorView,
    /// Window title.
    title: String,
    /// Whether the alternate screen is active.
    alt_screen: bool,
}

/// The cursor of a terminal.
#[derive(Debug, Serialize, ToSchema)]
struct CursorView {
    /// Column, from 0.
    x: u16,
    /// Row of the screen, from 0.
    y: u16,
    /// Whether the cursor is visible.
    visible: bool,
}

/// Get the screen of a terminal.
#[utoipa::path(get, path = "/api/terminals/{id}/snapshot", tag = "interactive",
    operation_id = "terminals.snapshot", params(TerminalPath, SnapshotQuery),
    responses((status = 200, description = "The screen. With `format=text` or `format=html` the body is the text or HTML itself",
        body = ScreenSnapshot)))]
pub(super) async fn snapshot(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<SnapshotQuery>,
) -> Result<Response, Problem> {
    let (format, kind) = match query.format.as_deref() {
        None | Some("ansi") => (Format::Ansi, ""),
        Some("text") => (Format::Text, "text/plain; charset=utf-8"),
        Some("html") => (Format::Html, "text/html; charset=utf-8"),
        Some(_) => return Err(Problem::query("format", "must be ansi, text or html")),
    };
    let picture = app.terminals.picture(&terminal, format, query.scrollback).await?;
    if format != Format::Ansi {
        let offset = picture.offset.to_string();
        let headers = [(header::CONTENT_TYPE.as_str(), kind), ("x-offset", &offset)];
        return Ok((headers, picture.data).into_response());
    }
    let (x, y, visible) = picture.cursor;
    // An incomplete character belongs to the output after `offset`.
    let mut cutter = Cutter::default();
    let data = cutter.lossy(&picture.data);
    Ok(axum::Json(ScreenSnapshot {
        data,
        offset: picture.offset - cutter.held() as u64,
        cols: picture.cols,
        rows: picture.rows,
        cursor: CursorView { x, y, visible },
        title: picture.title,
        alt_screen: picture.alt_screen,
    })
    .into_response())
}

/// Selects the format of the recording.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordingQuery {
    /// Add the offset after each output event as a fourth value.
    offsets: Option<bool>,
}

/// Download the recording of a terminal in asciicast v2 format.
///
/// Contains all output that is still kept.
#[utoipa::path(get, path = "/api/terminals/{id}/recording", tag = "interactive",
    operation_id = "terminals.recording", params(TerminalPath, RecordingQuery),
    responses((status = 200, description = "One JSON value per line", body = String,
        content_type = "application/x-asciicast")))]
pub(super) async fn recording(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<RecordingQuery>,
    guest: Guest,
) -> Response {
    let offsets = if query.offsets == Some(true) { Offsets::Include } else { Offsets::Omit };
    let lines = app.terminals.recording(&terminal, offsets);
    let body = stream::unfold(lines, |mut lines| async {
        let bytes = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), lines))
    })
    .take_until(Box::pin(guest.ended()))
    // Compression polls once more after the end.
    .fuse();
    let name = format!("attachment; filename=\"{}.cast\"", terminal.terminal_id);
    let headers = [
        (header::CONTENT_TYPE, "application/x-asciicast".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    (headers, Body::from_stream(body)).into_response()
}
