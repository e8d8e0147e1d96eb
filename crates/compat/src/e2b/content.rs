//! The content of a volume, for clients with its key; no sandbox needs to run.

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

/// Entries of one list.
const MAX_ENTRIES: usize = 100_000;
/// Directories below each other that are listed at once.
const MAX_DEPTH: u32 = 64;

/// What may be asked; which of it means something depends on the call.
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

/// A volume's files, and a path in them.
struct VolumePlace {
    app: Adapter,
    id: String,
    path: String,
}

impl VolumePlace {
    async fn of(app: Adapter, name: &str, asked: &ContentQuery) -> Result<VolumePlace, E2bRefusal> {
        let missing = || E2bRefusal::new(StatusCode::NOT_FOUND, format!("volume {name} not found"));
        let id = app.volume(name).await?.ok_or_else(missing)?.id;
        Ok(VolumePlace { app, id, path: absolute(&asked.path, "/") })
    }

    /// Does something with the files. It may block.
    async fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Directory) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, E2bRefusal> {
        let root = self.app.volume_store().data(&self.id);
        let done = tokio::task::spawn_blocking(move || {
            act(&Directory::open(&root, None, Reach::InRoot)?.cached())
        });
        let done = done.await.map_err(|error| Problem::internal("look at a volume", &error))?;
        done.map_err(|error| match error {
            FileError::Missing { .. } => {
                E2bRefusal::new(StatusCode::NOT_FOUND, format!("path {} not found", self.path))
            }
            other => other.into(),
        })
    }

    /// What is known of what is there, after its owner and mode were made these.
    async fn shown(&self, asked: &ContentQuery) -> Result<Value, E2bRefusal> {
        let (volumes, id, path) =
            (self.app.volume_store().clone(), self.id.clone(), self.path.clone());
        let asked = asked.clone();
        self.act(move |_| {
            let failed = |error| FileError::from_io("look at", &path, error);
            volumes.set_metadata(&id, &path, (asked.uid, asked.gid), asked.mode).map_err(failed)?;
            let (stat, target) = volumes.metadata(&id, &path).map_err(failed)?;
            Ok(told(&path, &stat, target))
        })
        .await
    }
}

fn told(path: &str, stat: &Stat, target: Option<String>) -> Value {
    let time = |seconds: i64, nanoseconds: i64| {
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
        Timestamp::new(seconds, nanoseconds).unwrap_or_default().to_string()
    };
    let mut told = json!({
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
        told["target"] = target.into();
    }
    told
}

/// What is in a directory.
pub(super) async fn list(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let depth = asked.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        let message = format!("depth must be 1 to {MAX_DEPTH}");
        return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
    }
    let place = VolumePlace::of(app, &name, &asked).await?;
    let (volumes, id, path) =
        (place.app.volume_store().clone(), place.id.clone(), place.path.clone());
    let listed = place.act(move |directory| {
        let mut all = Vec::new();
        for entry in directory.list(&relative(&path)?, depth, None, MAX_ENTRIES)? {
            let path = format!("/{}", entry.path);
            // One that went meanwhile is not there.
            if let Ok((stat, target)) = volumes.metadata(&id, &path) {
                all.push(told(&path, &stat, target));
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
    Query(asked): Query<ContentQuery>,
) -> Result<Response, E2bRefusal> {
    let place = VolumePlace::of(app, &name, &asked).await?;
    let (path, force) = (place.path.clone(), asked.force == Some(true));
    let made = place.act(move |directory| match force {
        true => directory.make_directories(&relative(&path)?),
        false => directory.make_directory(&relative(&path)?),
    });
    made.await?;
    Ok((StatusCode::CREATED, axum::Json(place.shown(&asked).await?)).into_response())
}

/// What is known of something.
pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let place = VolumePlace::of(app, &name, &asked).await?;
    Ok(axum::Json(place.shown(&ContentQuery::default()).await?))
}

/// Changes whose something is, and who may do what with it.
pub(super) async fn change(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
    E2bJson(to): E2bJson<ContentQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let place = VolumePlace::of(app, &name, &asked).await?;
    Ok(axum::Json(place.shown(&to).await?))
}

/// Removes something, and what is in it.
pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
) -> Result<StatusCode, E2bRefusal> {
    let place = VolumePlace::of(app, &name, &asked).await?;
    let path = place.path.clone();
    place.act(move |directory| directory.remove_tree(&relative(&path)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn read(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
) -> Result<Response, E2bRefusal> {
    let place = VolumePlace::of(app, &name, &asked).await?;
    let path = place.path.clone();
    let (file, _): (File, _) =
        place.act(move |directory| directory.read(&relative(&path)?)).await?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 256 << 10);
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// Writes a file; with `force` what is above it is made.
pub(super) async fn write(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<ContentQuery>,
    body: Body,
) -> Result<Response, E2bRefusal> {
    let mut chunks = Chunks::new(&app, body);
    let place = VolumePlace::of(app, &name, &asked).await?;
    let path = place.path.clone();
    let above = if asked.force == Some(true) { Above::Make } else { Above::MustExist };
    let begun =
        place.act(move |directory| directory.write(&relative(&path)?, above, Expect::Anything));
    let mut part: Box<PartialFile> = Box::new(begun.await?);
    while let Some(piece) = chunks.next().await? {
        part = place.act(move |_| part.write(&piece).map(|()| part)).await?;
    }
    place.act(move |_| part.finish()).await?;
    Ok((StatusCode::CREATED, axum::Json(place.shown(&asked).await?)).into_response())
}
