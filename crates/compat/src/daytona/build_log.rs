//! The logs of builds, of snapshots and of the images that sandboxes wait for.

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DaytonaRefusal, ORIGIN, image::missing, view::find, waiting_sandbox::awaited_build};
use adapter::{Adapter, build::log::Level};
use api::error::Problem;
use model::{BuildId, USUAL_TAG};

/// The limit of log lines per chunk of the response.
const MAX_LINES_PER_CHUNK: usize = 200;

/// Whether the log is followed until the build ends.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogQuery {
    follow: Option<bool>,
}

impl LogQuery {
    fn follow(&self) -> Follow {
        match self.follow {
            Some(true) => Follow::UntilEnd,
            Some(false) | None => Follow::No,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    UntilEnd,
    No,
}

/// Returns the URL of the log of a snapshot's build.
pub(super) async fn logs_url(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let template = app.store.template(ORIGIN, &name).await?.ok_or_else(|| missing(&name))?;
    let id = &template.template_id;
    Ok(axum::Json(json!({"url": format!("{}/daytona/snapshots/{id}/build-logs", app.url)})))
}

/// Returns the log of a snapshot's build.
pub(super) async fn logs(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, DaytonaRefusal> {
    let template = app.store.template(ORIGIN, &name).await?.ok_or_else(|| missing(&name))?;
    let build = template.builds.last().ok_or_else(|| missing(&name))?.build_id.clone();
    Ok(log(app, build, query.follow()))
}

/// Returns the URL of the log of the build that a sandbox waits for.
pub(super) async fn sandbox_logs_url(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if awaited_build(&app, &name).await?.is_none() {
        find(&app, &name).await?;
    }
    Ok(axum::Json(json!({"url": format!("{}/daytona/sandbox/{name}/build-logs", app.url)})))
}

/// Returns the log of the build that a sandbox waits for or was created from.
pub(super) async fn sandbox_logs(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, DaytonaRefusal> {
    let build = match awaited_build(&app, &name).await? {
        Some((_, build, _)) => Some(build.build_id),
        None => {
            let sandbox = find(&app, &name).await?;
            let template = app.store.template(ORIGIN, &sandbox.row.template).await?;
            template.and_then(|it| Some(it.tagged(USUAL_TAG)?.build_id.clone()))
        }
    };
    match build {
        Some(build) => Ok(log(app, build, query.follow())),
        None => Ok(text(Body::empty())),
    }
}

fn text(body: Body) -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], body).into_response()
}

/// The log of a build as text.
fn log(app: Adapter, build: BuildId, follow: Follow) -> Response {
    let lines = match follow {
        Follow::UntilEnd => app.builds().lines(&build),
        Follow::No => None,
    };
    let state = (app, build, lines, 0_u64);
    let body = stream::unfold(state, async |(app, build, mut lines, from)| {
        loop {
            // The log of a build that has ended is complete.
            let has_ended = lines.as_ref().is_none_or(|lines| lines.has_changed().is_err());
            let read: Result<_, Problem> =
                app.build_log(&build, from, MAX_LINES_PER_CHUNK, Level::Debug).await;
            let read = match read {
                Ok(read) => read,
                Err(problem) => {
                    let error = std::io::Error::other(problem.detail().to_owned());
                    return Some((Err(error), (app, build, None, u64::MAX)));
                }
            };
            if !read.is_empty() {
                let text: String = read.iter().map(|line| format!("{}\n", line.message)).collect();
                let next = from + read.len() as u64;
                return Some((Ok(Bytes::from(text)), (app, build, lines, next)));
            }
            let lines = lines.as_mut().filter(|_| !has_ended)?;
            tokio::select! {
                _ = lines.changed() => {}
                () = app.stopping.cancelled() => return None,
            }
        }
    });
    text(Body::from_stream(body))
}
