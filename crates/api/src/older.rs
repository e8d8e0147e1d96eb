//! The routes of the older protocol: terminals under `/session/{sid}/pty`, where the session is a thread.
//!
//! They are kept for existing clients and are not part of the API document.

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};

use super::{
    App,
    error::Problem,
    extract::{OptionalJson, Path, Query},
    gzip,
    interactive::{input, recording, resize, signal_terminal, snapshot},
    page::{List, PageQuery},
    removal::RemovalQuery,
    secrets::RevealQuery,
    stream,
    target::{Deletable, TargetTerminal},
    terminals::{self, CreateTerminal, TerminalView},
    ws,
};
use model::ThreadId;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/session/{sid}/pty", get(list).post(create))
        .route("/session/{sid}/pty/{id}", get(show).delete(delete))
        .route("/session/{sid}/pty/{id}/input", post(input))
        .route("/session/{sid}/pty/{id}/resize", post(resize))
        .route("/session/{sid}/pty/{id}/signal", post(signal_terminal))
        .route("/session/{sid}/pty/{id}/stream", get(stream::watch))
        .route("/session/{sid}/pty/{id}/ws", get(ws::connect))
        .merge(
            Router::new()
                .route("/session/{sid}/pty/{id}/snapshot", get(snapshot))
                .route("/session/{sid}/pty/{id}/recording", get(recording))
                .layer(gzip::responses()),
        )
}

async fn list(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<TerminalView>>, Problem> {
    Ok(axum::Json(terminals::list_page(&app, &thread, query.request()?).await?))
}

async fn create(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    OptionalJson(new): OptionalJson<CreateTerminal>,
) -> Result<(StatusCode, axum::Json<TerminalView>), Problem> {
    terminals::open(&app, &thread, new).await
}

async fn show(
    app: State<App>,
    target: TargetTerminal,
    query: Query<RevealQuery>,
) -> axum::Json<TerminalView> {
    terminals::show(app, target, query).await
}

async fn delete(
    app: State<App>,
    target: Deletable,
    query: Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    terminals::delete(app, target, query).await
}
