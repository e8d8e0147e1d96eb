//! Changes of files as server-sent events.

use std::ops::ControlFlow;

use axum::{extract::State, response::Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    files::{parse, tree},
    params::ThreadPath,
    sse,
};
use files::{Below, FileEventKind, TreeWatch, Watched};
use model::ThreadId;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// Selects the files to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchFilesQuery {
    /// Path of the file or directory.
    path: String,
    /// Watch all levels below a directory, not only its entries.
    #[serde(default)]
    recursive: bool,
}

/// Stream changes of files.
///
/// Sends `ready` first, then `created`, `modified` and `removed` with `{path}`. `lost` means that events were
/// dropped, `partial` that there are too many directories to watch all; `gone` ends the stream.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/watch", tag = "files",
    operation_id = "files.watch", params(ThreadPath, WatchFilesQuery),
    responses((status = 200, description = "A stream of server-sent events", body = String,
        content_type = "text/event-stream")))]
async fn watch(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<WatchFilesQuery>,
) -> Result<Response, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id, &[&path]).await?;
    let below = if query.recursive { Below::All } else { Below::Children };
    let watch = tree.watch(&path, below).await?;
    let ready = sse::event("ready", &json!({"path": path.to_string()}));
    let events = stream::unfold((Some(ready), Some(watch)), async |(ready, watch)| {
        if let Some(ready) = ready {
            return Some((ready, (None, watch)));
        }
        let mut watch = watch?;
        let (event, flow) = next(&mut watch).await;
        Some((event, (None, flow.is_continue().then_some(watch))))
    });
    Ok(sse::stream(&app, events))
}

/// Returns the next event, and whether the stream continues after it.
async fn next(watch: &mut TreeWatch) -> (sse::Event, ControlFlow<()>) {
    match watch.next().await {
        Ok(Watched::Event(event)) => {
            let name = match event.kind {
                FileEventKind::Created | FileEventKind::Appeared => "created",
                FileEventKind::Modified | FileEventKind::Permitted => "modified",
                FileEventKind::Removed | FileEventKind::MovedAway => "removed",
            };
            (sse::event(name, &json!({"path": event.path})), ControlFlow::Continue(()))
        }
        Ok(Watched::Lost) => (
            sse::event(
                "lost",
                &json!({"detail": "some events were dropped; list the directory again"}),
            ),
            ControlFlow::Continue(()),
        ),
        Ok(Watched::Partly) => (
            sse::event("partial", &json!({"detail": "not all directories are watched"})),
            ControlFlow::Continue(()),
        ),
        Ok(Watched::Gone) => (
            sse::event("gone", &json!({"detail": "the watched path was removed"})),
            ControlFlow::Break(()),
        ),
        Err(error) => {
            tracing::warn!(%error, "cannot watch files any longer");
            (
                sse::event("gone", &json!({"detail": "the path cannot be watched any longer"})),
                ControlFlow::Break(()),
            )
        }
    }
}
