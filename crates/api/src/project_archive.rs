//! Export and import of whole projects as archives.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::Path,
    params::ProjectPath,
    projects::{ProjectView, project_view},
    shapes::BinarySchema,
    transfer::{BodyReader, BodyWriter, Chunks},
};
use model::ProjectId;
use project::ImportLimits;
use store::{PageRequest, ThreadFilter};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(import)).routes(routes!(export))
}

/// Export a project as a zstd-compressed tar archive.
#[utoipa::path(get, path = "/api/projects/{id}/export", tag = "projects",
    operation_id = "projects.export", params(ProjectPath),
    responses((status = 200, description = "The archive. `X-Disk-Bytes` is the size of the project on disk", body = BinarySchema,
        content_type = "application/zstd")))]
async fn export(State(app): State<App>, Path(id): Path<ProjectId>) -> Result<Response, Problem> {
    app.projects.project(&id).await?;
    let estimate = app.projects.disk_bytes(&id).await?;
    let (writer, failure, body) = BodyWriter::new();
    let (projects, project) = (app.projects.clone(), id.clone());
    app.tasks.spawn(async move {
        if let Err(error) = projects.export(&project, writer).await {
            tracing::warn!(%project, %error, "an export failed");
            // The client sees a broken body instead of a short archive.
            let _ = failure.send(Err(std::io::Error::other("the export failed"))).await;
        }
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    let name = format!("attachment; filename=\"{id}.tar.zst\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    headers.insert("x-disk-bytes", estimate.into());
    Ok(response)
}

/// The result of an import.
#[derive(Debug, Serialize, ToSchema)]
struct ImportedProject {
    /// The imported project.
    project: ProjectView,
    /// Ids of its threads.
    threads: Vec<String>,
    /// Number of imported files, directories and links.
    entries: u64,
    /// Total size in bytes.
    bytes: u64,
    /// What the export could not include.
    left_out: Vec<String>,
}

/// Import an exported project.
///
/// The project keeps its id unless the id is taken.
#[utoipa::path(post, path = "/api/projects/import", tag = "projects",
    operation_id = "projects.import", request_body(content = BinarySchema, content_type = "application/zstd"),
    responses((status = 201, description = "The imported project", body = ImportedProject)))]
async fn import(
    State(app): State<App>,
    body: Body,
) -> Result<(StatusCode, axum::Json<ImportedProject>), Problem> {
    let limits =
        ImportLimits { bytes: app.settings.project.import_bytes, ..ImportLimits::default() };
    let (reader, sender) = BodyReader::new();
    let projects = app.projects.clone();
    let importing = tokio::spawn(async move { projects.import(reader, limits).await });
    let mut chunks = Chunks::new(&app, body);
    loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                // The import has ended: its result says why.
                if sender.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(problem) => {
                let _ = sender.send(Err(std::io::Error::other("the upload was interrupted"))).await;
                drop(sender);
                let _ = importing.await;
                return Err(problem);
            }
        }
    }
    drop(sender);
    let imported =
        importing.await.map_err(|error| Problem::internal("an import failed", &error))??;
    let filter = ThreadFilter { project_id: Some(imported.project.project_id.clone()) };
    let threads = app.store.threads(filter, PageRequest::first(1000)).await?;
    let result = ImportedProject {
        threads: threads.items.into_iter().map(|thread| thread.thread_id.to_string()).collect(),
        project: project_view(&app, imported.project),
        entries: imported.entries,
        bytes: imported.bytes,
        left_out: imported.left_out,
    };
    Ok((StatusCode::CREATED, axum::Json(result)))
}
