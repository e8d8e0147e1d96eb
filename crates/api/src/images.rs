//! Builds of images from Dockerfiles.

use std::sync::Arc;

use axum::{Extension, body::Body, extract::State, http::StatusCode, response::Response};
use futures_util::{future::BoxFuture, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Path, Query},
    page::List,
    shapes::BinarySchema,
    sse,
    terminals::check_env,
};
use model::{BuildId, Env};

/// Builds images. The crate that knows the steps of builds implements it.
pub trait ImageBuilder: Send + Sync {
    /// Starts a build with the files of an archive.
    fn start(
        &self,
        new: NewImageBuild,
        files: Body,
    ) -> BoxFuture<'_, Result<ImageBuildView, Problem>>;

    /// All builds that are remembered, the latest first.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageBuildView>, Problem>>;

    fn find<'a>(&'a self, id: &'a BuildId) -> BoxFuture<'a, Result<ImageBuildView, Problem>>;

    /// Lines of a build's log, from a line on. Waits for one; none means that the build has ended.
    fn lines<'a>(
        &'a self,
        id: &'a BuildId,
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<ImageBuildLine>, Problem>>;
}

/// An image to build.
#[derive(Debug, Clone)]
pub struct NewImageBuild {
    pub name: String,
    /// The path of the Dockerfile among the files.
    pub file: String,
    pub args: Env,
}

/// The state of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageBuildStatus {
    /// It runs, or waits for other builds.
    Running,
    /// The image exists.
    Succeeded,
    /// The image of this name has not changed.
    Failed,
}

/// A build of an image.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ImageBuildView {
    /// Id of the build.
    pub build_id: String,
    /// Full reference of the image.
    pub image: String,
    pub status: ImageBuildStatus,
    /// Why the build failed, with the line of the Dockerfile; null if it did not.
    pub error: Option<String>,
    /// Creation time.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// Time of the last change.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
}

/// A line of a build's log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ImageBuildLine {
    /// When it was written.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    pub text: String,
}

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(get)).routes(routes!(log))
}

/// Describes an image to build.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct NewImageBuildQuery {
    /// Name of the image, as `sandbox.image` names it later: `NAME`, `NAME:TAG` or `REGISTRY/NAME:TAG`.
    #[param(example = "tools")]
    name: String,
    /// Path of the Dockerfile among the files.
    #[serde(default = "default_file")]
    #[param(default = "Dockerfile")]
    file: String,
    /// Values for `ARG`, as a JSON object of strings.
    #[param(example = json!("{\"VERSION\":\"3\"}"))]
    args: Option<String>,
}

fn default_file() -> String {
    "Dockerfile".to_owned()
}

/// Build an image from a Dockerfile.
///
/// The body is a tar archive, compressed with gzip or not, of the files that `COPY` and `ADD` may use, and of the
/// Dockerfile. The build runs in a sandbox. When it succeeds, the image replaces the one of its name in one step;
/// until then, and if it fails, that one is unchanged. Sandboxes keep the image that they were created from. A Dockerfile
/// that is not supported is refused with the number of its line.
#[utoipa::path(post, path = "/api/images/builds", tag = "images",
    operation_id = "images.build", params(NewImageBuildQuery),
    request_body(content = BinarySchema, content_type = "application/octet-stream"),
    responses((status = 201, description = "The build, which has started", body = ImageBuildView)))]
async fn create(
    Extension(builder): Extension<Arc<dyn ImageBuilder>>,
    Query(query): Query<NewImageBuildQuery>,
    body: Body,
) -> Result<(StatusCode, axum::Json<ImageBuildView>), Problem> {
    let args: Option<Env> = match &query.args {
        Some(text) => Some(serde_json::from_str(text).map_err(|error| {
            Problem::query("args", format!("must be a JSON object of strings: {error}"))
        })?),
        None => None,
    };
    check_env(args.as_ref(), "/args")?;
    let NewImageBuildQuery { name, file, .. } = query;
    let new = NewImageBuild { name, file, args: args.unwrap_or_default() };
    Ok((StatusCode::CREATED, axum::Json(builder.start(new, body).await?)))
}

/// List builds of images.
#[utoipa::path(get, path = "/api/images/builds", tag = "images",
    operation_id = "images.list_builds", responses((status = 200, description = "The latest builds of each image", body = List<ImageBuildView>)))]
async fn list(
    Extension(builder): Extension<Arc<dyn ImageBuilder>>,
) -> Result<axum::Json<List<ImageBuildView>>, Problem> {
    Ok(axum::Json(List::whole(builder.list().await?)))
}

/// The build that a path names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ImageBuildPath {
    /// Id of the build.
    #[param(value_type = String)]
    id: BuildId,
}

/// Get a build of an image.
#[utoipa::path(get, path = "/api/images/builds/{id}", tag = "images",
    operation_id = "images.get_build", params(ImageBuildPath),
    responses((status = 200, description = "The build", body = ImageBuildView)))]
async fn get(
    Extension(builder): Extension<Arc<dyn ImageBuilder>>,
    Path(ImageBuildPath { id }): Path<ImageBuildPath>,
) -> Result<axum::Json<ImageBuildView>, Problem> {
    Ok(axum::Json(builder.find(&id).await?))
}

/// Selects lines of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ImageBuildLogQuery {
    /// Number of lines to skip.
    #[serde(default)]
    from: u64,
}

/// Stream the log of a build.
///
/// Sends each line as `line` with `{at, level, text}`; the id of the event is the number of lines until there. `end` with
/// the build follows the last line.
#[utoipa::path(get, path = "/api/images/builds/{id}/log", tag = "images",
    operation_id = "images.stream_build_log", params(ImageBuildPath, ImageBuildLogQuery),
    responses((status = 200, description = "A stream of server-sent events", body = String,
        content_type = "text/event-stream")))]
async fn log(
    State(app): State<App>,
    Extension(builder): Extension<Arc<dyn ImageBuilder>>,
    Path(ImageBuildPath { id }): Path<ImageBuildPath>,
    Query(ImageBuildLogQuery { from }): Query<ImageBuildLogQuery>,
) -> Result<Response, Problem> {
    builder.find(&id).await?;
    let events = stream::unfold(Some(from), move |from| {
        let (builder, id) = (builder.clone(), id.clone());
        async move {
            let from = from?;
            let events = match builder.lines(&id, from).await {
                Ok(lines) if lines.is_empty() => None,
                Ok(lines) => {
                    let numbered = (from + 1..).zip(&lines);
                    let event = |(number, line): (u64, &ImageBuildLine)| {
                        sse::event("line", line).id(number.to_string())
                    };
                    let events: Vec<_> = numbered.map(event).collect();
                    let next = from + lines.len() as u64;
                    Some((stream::iter(events), Some(next)))
                }
                Err(_) => None,
            };
            if events.is_some() {
                return events;
            }
            let end = match builder.find(&id).await {
                Ok(build) => vec![sse::event("end", &build)],
                // The client sees a stream without an end, and asks again.
                Err(_) => vec![],
            };
            Some((stream::iter(end), None))
        }
    });
    Ok(sse::stream(&app, futures_util::StreamExt::flatten(events)))
}
