//! The content of a volume, for clients with the volume's key. No sandbox needs to run.

use std::fs::File;

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use rustix::fs::{FileType, Stat};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::{E2bJson, E2bRefusal};
use adapter::Adapter;
use adapter::instance::{absolute, relative};
use api::{error::Problem, transfer::Chunks};
use files::{Above, Directory, FileError, PartialFile, Reach, memory::Expect};
use model::Timestamp;

/// The limit of entries in a listing.
const MAX_ENTRIES: usize = 100_000;
/// The limit of directory levels in a listing.
const MAX_DEPTH: u32 = 64;

/// The query parameters of all routes; each route uses some of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentQuery {
    path: String,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

/// A path in a volume.
struct VolumePath {
    app: Adapter,
    id: String,
    path: String,
}

impl VolumePath {
    async fn of(app: Adapter, name: &str, query: &ContentQuery) -> Result<VolumePath, E2bRefusal> {
        let missing = || E2bRefusal::new(StatusCode::NOT_FOUND, format!("volume {name} not found"));
        let id = app.volume(name).await?.ok_or_else(missing)?.id;
        Ok(VolumePath { app, id, path: absolute(&query.path, "/") })
    }

    /// Runs a blocking operation on the files of the volume.
    async fn act<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Directory) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, E2bRefusal> {
        let (volumes, id) = (self.app.volume_store().clone(), self.id.clone());
        let result = base::task::blocking(move || {
            let mounted = volumes.data(&id);
            let root = mounted.map_err(|error| FileError::from_io("mount", "the volume", error))?;
            operation(&Directory::open(&root, None, Reach::InRoot)?.cached())
        });
        let result = result.await.map_err(|error| Problem::internal("access a volume", &error))?;
        result.map_err(|error| match error {
            FileError::Missing { .. } => {
                E2bRefusal::new(StatusCode::NOT_FOUND, format!("path {} not found", self.path))
            }
            other => other.into(),
        })
    }

    /// Sets the requested owner and mode, and returns the metadata.
    async fn update(&self, change: &ContentQuery) -> Result<Value, E2bRefusal> {
        let (volumes, id, path) =
            (self.app.volume_store().clone(), self.id.clone(), self.path.clone());
        let change = change.clone();
        self.act(move |_| {
            let failed = |error| FileError::from_io("access", &path, error);
            volumes
                .set_metadata(&id, &path, (change.uid, change.gid), change.mode)
                .map_err(failed)?;
            let (stat, target) = volumes.metadata(&id, &path).map_err(failed)?;
            Ok(entry_view(&path, &stat, target))
        })
        .await
    }
}

fn entry_view(path: &str, stat: &Stat, target: Option<String>) -> Value {
    let time = |seconds: i64, nanoseconds: i64| {
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
        Timestamp::new(seconds, nanoseconds).unwrap_or_default().to_string()
    };
    let mut view = json!({
        "name": path.rsplit('/').next().unwrap_or_default(),
        "path": path,
        "type": match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => "directory",
            FileType::RegularFile => "file",
            FileType::Symlink => "symlink",
            _ => "unknown",
        },
        "size": stat.st_size,
        "mode": stat.st_mode & 0o7777,
        "uid": stat.st_uid,
        "gid": stat.st_gid,
        "atime": time(stat.st_atime, stat.st_atime_nsec as i64),
        "mtime": time(stat.st_mtime, stat.st_mtime_nsec as i64),
        "ctime": time(stat.st_ctime, stat.st_ctime_nsec as i64),
    });
    if let Some(target) = target {
        view["target"] = target.into();
    }
    view
}

/// Lists a directory, up to the requested depth.
pub(super) async fn list(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let depth = query.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        let message = format!("depth must be 1 to {MAX_DEPTH}");
        return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
    }
    let file = VolumePath::of(app, &name, &query).await?;
    let (volumes, id, path) = (file.app.volume_store().clone(), file.id.clone(), file.path.clone());
    let listed = file.act(move |directory| {
        let mut all = Vec::new();
        for entry in directory.list(&relative(&path)?, depth, None, MAX_ENTRIES)? {
            let path = format!("/{}", entry.path);
            // An entry that was removed meanwhile is skipped.
            if let Ok((stat, target)) = volumes.metadata(&id, &path) {
                all.push(entry_view(&path, &stat, target));
            }
        }
        Ok(all)
    });
    Ok(axum::Json(listed.await?.into()))
}

/// Creates a directory; with `force` its parents, too.
pub(super) async fn make_dir(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
) -> Result<Response, E2bRefusal> {
    let file = VolumePath::of(app, &name, &query).await?;
    let (path, force) = (file.path.clone(), query.force == Some(true));
    let made = file.act(move |directory| match force {
        true => directory.make_directories(&relative(&path)?),
        false => directory.make_directory(&relative(&path)?),
    });
    made.await?;
    Ok((StatusCode::CREATED, axum::Json(file.update(&query).await?)).into_response())
}

/// Returns the metadata of a file or directory.
pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let file = VolumePath::of(app, &name, &query).await?;
    Ok(axum::Json(file.update(&ContentQuery::default()).await?))
}

/// Changes the owner and the mode of a file or directory.
pub(super) async fn change(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
    E2bJson(change): E2bJson<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let file = VolumePath::of(app, &name, &query).await?;
    Ok(axum::Json(file.update(&change).await?))
}

/// Removes a file, or a directory with its content.
pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
) -> Result<StatusCode, E2bRefusal> {
    let file = VolumePath::of(app, &name, &query).await?;
    let path = file.path.clone();
    file.act(move |directory| directory.remove_tree(&relative(&path)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn read(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
) -> Result<Response, E2bRefusal> {
    let file = VolumePath::of(app, &name, &query).await?;
    let path = file.path.clone();
    let (file, _): (File, _) = file.act(move |directory| directory.read(&relative(&path)?)).await?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 256 << 10);
    let content_type = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((content_type, Body::from_stream(stream)).into_response())
}

/// Writes a file; with `force` its parent directories are created.
pub(super) async fn write(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<ContentQuery>,
    body: Body,
) -> Result<Response, E2bRefusal> {
    let mut chunks = Chunks::new(&app, body);
    let file = VolumePath::of(app, &name, &query).await?;
    let path = file.path.clone();
    let above = if query.force == Some(true) { Above::Make } else { Above::MustExist };
    let opened =
        file.act(move |directory| directory.write(&relative(&path)?, above, Expect::Anything));
    let mut part: Box<PartialFile> = Box::new(opened.await?);
    while let Some(piece) = chunks.next().await? {
        part = file.act(move |_| part.write(&piece).map(|()| part)).await?;
    }
    file.act(move |_| part.finish()).await?;
    Ok((StatusCode::CREATED, axum::Json(file.update(&query).await?)).into_response())
}
