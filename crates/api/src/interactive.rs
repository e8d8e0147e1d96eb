//! A terminal as a person uses it: type, resize, look, record.
//!
//! Every route here exists twice, under `/api/terminals/{id}` and, as clients of the older
//! protocol call it, under `/session/{sid}/pty/{id}`.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Query},
    gzip,
    params::OfTerminal,
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
                .layer(gzip::for_those_who_ask()),
        )
}

/// The same under the older names; `openapi` copies their documentation.
pub(super) fn older_routes() -> Router<App> {
    Router::new()
        .route("/session/{sid}/pty/{id}/input", post(input))
        .route("/session/{sid}/pty/{id}/resize", post(resize))
        .route("/session/{sid}/pty/{id}/signal", post(signal_terminal))
        .route("/session/{sid}/pty/{id}/stream", get(sse::watch))
        .route("/session/{sid}/pty/{id}/ws", get(ws::connect))
        .merge(
            Router::new()
                .route("/session/{sid}/pty/{id}/snapshot", get(snapshot))
                .route("/session/{sid}/pty/{id}/recording", get(recording))
                .layer(gzip::for_those_who_ask()),
        )
}

/// What to type. One of `data` and `data_base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Text.
    pub(super) data: Option<String>,
    /// Bytes.
    pub(super) data_base64: Option<String>,
    /// Applied once however often it is sent.
    #[serde(default)]
    pub(super) write_id: Option<String>,
}

impl Input {
    /// The bytes, whichever way they were sent.
    pub(super) fn bytes(&self) -> Result<Bytes, Problem> {
        match (&self.data, &self.data_base64) {
            (Some(text), None) => Ok(Bytes::from(text.clone())),
            (None, Some(text)) => BASE64_STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| Problem::body("/data_base64", error.to_string())),
            (None, None) => Err(Problem::body("/data", "one of data and data_base64 is needed")),
            (Some(_), Some(_)) => {
                Err(Problem::body("/data_base64", "only one of data and data_base64 may be given"))
            }
        }
    }

    /// The write id, checked; empty for none.
    pub(super) fn write_id(&self) -> Result<&str, Problem> {
        let id = self.write_id.as_deref().unwrap_or_default();
        if id.len() > 200 {
            return Err(Problem::body("/write_id", "may have 200 bytes"));
        }
        Ok(id)
    }
}

/// Type into the terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/input", tag = "interactive",
    params(OfTerminal), request_body = Input,
    responses((status = 204, description = "It was typed, once")))]
async fn input(
    State(app): State<App>,
    Target(terminal): Target,
    Json(input): Json<Input>,
) -> Result<StatusCode, Problem> {
    let bytes = input.bytes()?;
    app.metrics.bytes_in.inc_by(bytes.len() as u64);
    app.terminals.input(&terminal, input.write_id()?, bytes).await?;
    app.used(&terminal.thread_id).await;
    Ok(StatusCode::NO_CONTENT)
}

/// A size.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Size {
    /// Columns, 1 to 1000.
    pub(super) cols: u16,
    /// Rows, 1 to 1000.
    pub(super) rows: u16,
}

/// The largest screen; a grid of this size is the most one client can make us hold.
const MAX_SIDE: u16 = 1000;

impl Size {
    /// The size, if it is one.
    pub(super) fn check(self) -> Result<(u16, u16), Problem> {
        for (pointer, side) in [("/cols", self.cols), ("/rows", self.rows)] {
            if side == 0 || side > MAX_SIDE {
                return Err(Problem::body(pointer, format!("must be 1 to {MAX_SIDE}")));
            }
        }
        Ok((self.cols, self.rows))
    }
}

/// Give the terminal another size.
#[utoipa::path(post, path = "/api/terminals/{id}/resize", tag = "interactive",
    params(OfTerminal), request_body = Size,
    responses((status = 200, description = "It has this size", body = Size)))]
async fn resize(
    State(app): State<App>,
    Target(terminal): Target,
    Json(size): Json<Size>,
) -> Result<axum::Json<Size>, Problem> {
    let (cols, rows) = size.check()?;
    app.terminals.resize(&terminal, cols, rows).await?;
    Ok(axum::Json(size))
}

/// Signal the program in the foreground.
#[utoipa::path(post, path = "/api/terminals/{id}/signal", tag = "interactive",
    params(OfTerminal), request_body = signal::Signal,
    responses((status = 204, description = "It was sent")))]
async fn signal_terminal(
    State(app): State<App>,
    Target(terminal): Target,
    Json(signal): Json<signal::Signal>,
) -> Result<StatusCode, Problem> {
    app.terminals.signal(&terminal, signal.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a picture is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SnapshotQuery {
    /// `ansi` (default), `text` or `html`.
    format: Option<String>,
    /// Lines above the screen; all of them with `ansi`, none with the others by default.
    scrollback: Option<usize>,
}

/// A picture of the terminal.
#[derive(Debug, Serialize, ToSchema)]
struct Snapshot {
    /// Escape sequences which, written to a fresh terminal of that size, make the same terminal.
    data: String,
    /// The offset of the output up to which it is in the picture.
    offset: u64,
    /// Columns.
    cols: u16,
    /// Rows.
    rows: u16,
    /// Where the cursor is.
    cursor: Cursor,
    /// The window title.
    title: String,
    /// Whether the alternate screen is shown.
    alt_screen: bool,
}

/// A cursor.
#[derive(Debug, Serialize, ToSchema)]
struct Cursor {
    /// Column, from 0.
    x: u16,
    /// Row of the screen, from 0.
    y: u16,
    /// Whether it shows.
    visible: bool,
}

/// What the terminal shows.
#[utoipa::path(get, path = "/api/terminals/{id}/snapshot", tag = "interactive",
    params(OfTerminal, SnapshotQuery),
    responses((status = 200, description = "The picture; `text` and `html` come as they are",
        body = Snapshot)))]
async fn snapshot(
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
    Ok(axum::Json(Snapshot {
        data,
        offset: picture.offset - cutter.held() as u64,
        cols: picture.cols,
        rows: picture.rows,
        cursor: Cursor { x, y, visible },
        title: picture.title,
        alt_screen: picture.alt_screen,
    })
    .into_response())
}

/// How a recording is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RecordingQuery {
    /// Whether each output carries, as a fourth value, the offset at which it ends.
    offsets: Option<bool>,
}

/// Everything the terminal printed that is still kept, as asciicast v2.
#[utoipa::path(get, path = "/api/terminals/{id}/recording", tag = "interactive",
    params(OfTerminal, RecordingQuery),
    responses((status = 200, description = "One JSON value a line", body = String,
        content_type = "application/x-asciicast")))]
async fn recording(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<RecordingQuery>,
    guest: Guest,
) -> Response {
    let offsets = if query.offsets == Some(true) { Offsets::Include } else { Offsets::Omit };
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
