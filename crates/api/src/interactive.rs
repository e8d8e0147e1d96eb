//! A terminal as a person uses it: type, resize, look, record.
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
    target::Target,
    ws,
};
use engine::terminal::{Format, Offsets, utf8::Cutter};

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

/// Type into the terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/input", tag = "interactive",
    params(TerminalPath), request_body = TypedInput,
    responses((status = 204, description = "It was typed, once")))]
pub(super) async fn input(
    State(app): State<App>,
    Target(terminal): Target,
    Json(input): Json<TypedInput>,
) -> Result<StatusCode, Problem> {
    let bytes = input.bytes()?;
    app.metrics.bytes_in.inc_by(bytes.len() as u64);
    app.terminals.input(&terminal, input.write_id()?, bytes).await?;
    app.used(&terminal.thread_id).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Give the terminal another size.
#[utoipa::path(post, path = "/api/terminals/{id}/resize", tag = "interactive",
    params(TerminalPath), request_body = TerminalSize,
    responses((status = 200, description = "It has this size", body = TerminalSize)))]
pub(super) async fn resize(
    State(app): State<App>,
    Target(terminal): Target,
    Json(size): Json<TerminalSize>,
) -> Result<axum::Json<TerminalSize>, Problem> {
    let (cols, rows) = size.check()?;
    app.terminals.resize(&terminal, cols, rows).await?;
    Ok(axum::Json(size))
}

/// Signal the program in the foreground.
#[utoipa::path(post, path = "/api/terminals/{id}/signal", tag = "interactive",
    params(TerminalPath), request_body = signal::SignalRequest,
    responses((status = 204, description = "It was sent")))]
pub(super) async fn signal_terminal(
    State(app): State<App>,
    Target(terminal): Target,
    Json(signal): Json<signal::SignalRequest>,
) -> Result<StatusCode, Problem> {
    app.terminals.signal(&terminal, signal.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a picture is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SnapshotQuery {
    /// `ansi` (default), `text` or `html`.
    format: Option<String>,
    /// Lines above the screen; all of them with `ansi`, none with the others by default.
    scrollback: Option<usize>,
}

/// A picture of the terminal.
#[derive(Debug, Serialize, ToSchema)]
struct ScreenSnapshot {
    /// Escape sequences which, written to a fresh terminal of that size, make the same terminal.
    data: String,
    /// The offset of the output up to which it is in the picture.
    offset: u64,
    /// Columns.
    cols: u16,
    /// Rows.
    rows: u16,
    /// Where the cursor is.
    cursor: CursorView,
    /// The window title.
    title: String,
    /// Whether the alternate screen is shown.
    alt_screen: bool,
}

/// A cursor.
#[derive(Debug, Serialize, ToSchema)]
struct CursorView {
    /// Column, from 0.
    x: u16,
    /// Row of the screen, from 0.
    y: u16,
    /// Whether it shows.
    visible: bool,
}

/// What the terminal shows.
#[utoipa::path(get, path = "/api/terminals/{id}/snapshot", tag = "interactive",
    params(TerminalPath, SnapshotQuery),
    responses((status = 200, description = "The picture; `text` and `html` come as they are",
        body = ScreenSnapshot)))]
pub(super) async fn snapshot(
    State(app): State<App>,
    Target(terminal): Target,
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
    // A character that is still being received comes with the output after `offset`.
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

/// How a recording is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordingQuery {
    /// Whether each output carries, as a fourth value, the offset at which it ends.
    offsets: Option<bool>,
}

/// Everything the terminal printed that is still kept, as asciicast v2.
#[utoipa::path(get, path = "/api/terminals/{id}/recording", tag = "interactive",
    params(TerminalPath, RecordingQuery),
    responses((status = 200, description = "One JSON value a line", body = String,
        content_type = "application/x-asciicast")))]
pub(super) async fn recording(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<RecordingQuery>,
    guest: Guest,
) -> Response {
    let offsets = if query.offsets == Some(true) { Offsets::Told } else { Offsets::Untold };
    let lines = app.terminals.recording(&terminal, offsets);
    let body = stream::unfold(lines, |mut lines| async {
        let bytes = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), lines))
    })
    .take_until(Box::pin(guest.over()))
    // Compressing asks once more after the end.
    .fuse();
    let name = format!("attachment; filename=\"{}.cast\"", terminal.terminal_id);
    let headers = [
        (header::CONTENT_TYPE, "application/x-asciicast".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    (headers, Body::from_stream(body)).into_response()
}
