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
    projects::{ProjectView, shown},
    transfer::{BodyReader, BodyWriter, Chunks},
};
use engine::project::ImportLimits;
use model::ProjectId;
use store::{PageRequest, ThreadFilter};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(import)).routes(routes!(export))
}

/// The whole project in one file: a tar compressed with zstd.
#[utoipa::path(get, path = "/api/projects/{id}/export", tag = "projects",
    params(ProjectPath),
    responses((status = 200, description = "The archive", body = Vec<u8>,
        content_type = "application/zstd")))]
async fn export(State(app): State<App>, Path(id): Path<ProjectId>) -> Result<Response, Problem> {
    app.projects.project(&id).await?;
    let estimate = app.projects.disk_bytes(&id).await?;
    let (writer, failure, body) = BodyWriter::new();
    let (projects, project) = (app.projects.clone(), id.clone());
    app.tasks.spawn(async move {
        if let Err(error) = projects.export(&project, writer).await {
            tracing::warn!(%project, %error, "an export was not finished");
            // The client sees a broken body, not one that merely ends.
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

/// What an archive came to.
#[derive(Debug, Serialize, ToSchema)]
struct ImportedProject {
    /// The project as it is here.
    project: ProjectView,
    /// Its threads here.
    threads: Vec<String>,
    /// Files, directories and links that came in.
    entries: u64,
    /// Their bytes.
    bytes: u64,
    /// What the exporting machine could not take along.
    left_out: Vec<String>,
}

/// Take in a project that was exported. It keeps its id where that is free.
#[utoipa::path(post, path = "/api/projects/import", tag = "projects",
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 201, description = "It is here", body = ImportedProject)))]
async fn import(
    State(app): State<App>,
    body: Body,
) -> Result<(StatusCode, axum::Json<ImportedProject>), Problem> {
    let limits =
        ImportLimits { bytes: app.settings.project.import_bytes, ..ImportLimits::default() };
    let (reader, pieces) = BodyReader::new();
    let projects = app.projects.clone();
    let importing = tokio::spawn(async move { projects.import(reader, limits).await });
    let mut chunks = Chunks::new(&app, body);
    loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                // It needs no more, or has refused: its answer says which.
                if pieces.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(problem) => {
                let _ = pieces.send(Err(std::io::Error::other("the upload broke off"))).await;
                drop(pieces);
                let _ = importing.await;
                return Err(problem);
            }
        }
    }
    drop(pieces);
    let imported =
        importing.await.map_err(|error| Problem::internal("an import did not end", &error))??;
    let filter = ThreadFilter { project_id: Some(imported.project.project_id.clone()) };
    let threads = app.store.threads(filter, PageRequest::first(1000)).await?;
    let arrived = ImportedProject {
        threads: threads.items.into_iter().map(|thread| thread.thread_id.to_string()).collect(),
        project: shown(&app, imported.project),
        entries: imported.entries,
        bytes: imported.bytes,
        left_out: imported.left_out,
    };
    Ok((StatusCode::CREATED, axum::Json(arrived)))
}
