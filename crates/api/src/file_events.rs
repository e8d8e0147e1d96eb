//! Changes of files as server-sent events.

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
use files::{Below, Happened, TreeWatch, Watched};
use model::ThreadId;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// What to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchFilesQuery {
    /// The file or directory.
    path: String,
    /// Watch all below it, not only what is in it.
    #[serde(default)]
    recursive: bool,
}

/// Changes of files as they happen: `ready` first, then `created`, `modified`, `removed` with
/// `{path}`; `lost` when some were left out, `partial` when there are too many directories, and
/// `gone` at the end.
#[utoipa::path(get, path = "/api/threads/{tid}/fs/watch", tag = "files",
    params(ThreadPath, WatchFilesQuery),
    responses((status = 200, description = "Events", body = String,
        content_type = "text/event-stream")))]
async fn watch(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<WatchFilesQuery>,
) -> Result<Response, Problem> {
    let path = parse(&query.path)?;
    let tree = tree(&app, &id).await?;
    let below = if query.recursive { Below::All } else { Below::Children };
    let watch = tree.watch(&path, below).await?;
    let ready = sse::event("ready", &json!({"path": path.to_string()}));
    let events = stream::unfold((Some(ready), Some(watch)), async |(ready, watch)| {
        if let Some(ready) = ready {
            return Some((ready, (None, watch)));
        }
        let mut watch = watch?;
        let (event, goes_on) = next(&mut watch).await;
        Some((event, (None, goes_on.then_some(watch))))
    });
    Ok(sse::stream(&app, events))
}

/// The next event, and whether others follow.
async fn next(watch: &mut TreeWatch) -> (sse::Event, bool) {
    match watch.next().await {
        Ok(Watched::Event(event)) => {
            let name = match event.what {
                Happened::Created | Happened::Appeared => "created",
                Happened::Modified | Happened::Permitted => "modified",
                Happened::Removed | Happened::MovedAway => "removed",
            };
            (sse::event(name, &json!({"path": event.path})), true)
        }
        Ok(Watched::Lost) => {
            (sse::event("lost", &json!({"detail": "some events were left out; list again"})), true)
        }
        Ok(Watched::Partly) => {
            (sse::event("partial", &json!({"detail": "not all directories are watched"})), true)
        }
        Ok(Watched::Gone) => (sse::event("gone", &json!({"detail": "it is gone"})), false),
        Err(error) => {
            tracing::warn!(%error, "cannot go on watching");
            (sse::event("gone", &json!({"detail": "it cannot be watched any more"})), false)
        }
    }
}
