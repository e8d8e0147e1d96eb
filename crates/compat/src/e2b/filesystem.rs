//! The file system service: stat, list, create, move and remove.

use std::collections::{BTreeMap, VecDeque};

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    address::DaemonCall,
    connect::{ConnectCode, ConnectError, Unary},
};
use adapter::Adapter;
use adapter::instance::{Files, absolute, permissions, relative};
use files::{Directory, FileError, FileKind, Stat, memory::Expect};

/// The prefix of the extended attributes that hold a client's metadata of a file.
pub(super) const METADATA_PREFIX: &str = "user.e2b.";
/// The limit of entries in a listing.
const MAX_ENTRIES: usize = 100_000;
/// The limit of symbolic links in the resolution of a path, as in the kernel.
const MAX_LINKS: u32 = 40;
/// The limit of directory levels in a listing.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Deserialize)]
pub(super) struct PathRequest {
    path: String,
}

/// The message about a file. `leads_to` is the type of a link's target.
pub(super) fn entry(files: &Files, stat: &Stat, leads_to: Option<FileKind>) -> Value {
    let (name, path) = match stat.path.rsplit('/').next() {
        Some(name) if !name.is_empty() => (name, format!("/{}", stat.path)),
        _ => ("/", "/".to_owned()),
    };
    let (user, group) = stat.owner.unwrap_or(files.owner);
    let bits = stat.mode.unwrap_or(0) & 0o777;
    let mut entry = json!({
        "name": name,
        "path": path,
        "size": stat.size.to_string(),
        "mode": bits,
        "permissions": permissions(stat.kind, bits),
        "owner": files.name(user, files.owner.0),
        "group": files.name(group, files.owner.1),
    });
    let kind = leads_to.unwrap_or(stat.kind);
    match kind {
        FileKind::File => entry["type"] = "FILE_TYPE_FILE".into(),
        FileKind::Directory => entry["type"] = "FILE_TYPE_DIRECTORY".into(),
        FileKind::Link if leads_to.is_none() => entry["type"] = "FILE_TYPE_SYMLINK".into(),
        FileKind::Link | FileKind::Other => {}
    }
    if let Some(at) = stat.modified_at {
        entry["modifiedTime"] = at.to_string().into();
    }
    if let Some(target) = &stat.target {
        entry["symlinkTarget"] = target.as_str().into();
    }
    entry
}

/// The metadata of a path, and the type of its target if it is a link.
pub(super) fn daemon_stat(
    directory: &Directory,
    path: &str,
) -> Result<(Stat, Option<FileKind>), FileError> {
    let stat = directory.stat(&relative(path)?)?;
    Ok(as_daemon(directory, stat))
}

/// Adapts metadata to what the daemon reports: a directory has the size of its own blocks, and the target of a link
/// is fully resolved.
fn as_daemon(directory: &Directory, mut stat: Stat) -> (Stat, Option<FileKind>) {
    match stat.kind {
        FileKind::Directory => {
            let size = relative(&stat.path).and_then(|path| directory.size_on_disk(&path));
            stat.size = size.unwrap_or_default();
            (stat, None)
        }
        FileKind::Link => {
            let followed = relative(&stat.path).and_then(|path| directory.stat_followed(&path));
            // A broken link is its own target.
            let target = resolved(directory, &stat.path).filter(|_| followed.is_ok());
            stat.target = Some(target.unwrap_or_else(|| format!("/{}", stat.path)));
            (stat, Some(followed.map_or(FileKind::Other, |stat| stat.kind)))
        }
        FileKind::File | FileKind::Other => (stat, None),
    }
}

/// Resolves all symbolic links of a path within the root.
fn resolved(directory: &Directory, path: &str) -> Option<String> {
    let mut left: VecDeque<String> = path.split('/').map(str::to_owned).collect();
    let mut names: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                names.pop();
                continue;
            }
            _ => names.push(name),
        }
        let stat = directory.stat(&relative(&names.join("/")).ok()?).ok()?;
        if stat.kind != FileKind::Link {
            continue;
        }
        links += 1;
        let target = stat.target.filter(|_| links <= MAX_LINKS)?;
        if target.starts_with('/') {
            names.clear();
        } else {
            names.pop();
        }
        for name in target.split('/').rev() {
            left.push_front(name.to_owned());
        }
    }
    Some(format!("/{}", names.join("/")))
}

/// The error with the daemon's message, which some clients compare.
pub(super) fn failed(error: FileError, path: &str, what: &str) -> ConnectError {
    match error {
        FileError::Missing { .. } => {
            let message = format!("{what} not found: lstat {path}: no such file or directory");
            ConnectError::new(ConnectCode::NotFound, message)
        }
        other => other.into(),
    }
}

/// Returns the metadata of a file or directory.
pub(super) async fn stat(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, ConnectError> {
    let path = absolute(&at.path, call.home()?);
    let files = app.sandbox_files(&call.sandbox).await?;
    entry_response(&files, path, "file").await
}

async fn entry_response(
    files: &Files,
    path: String,
    what: &'static str,
) -> Result<axum::Json<Value>, ConnectError> {
    let target = path.clone();
    let found = files.act(move |directory| {
        let (stat, leads_to) = daemon_stat(directory, &target)?;
        let metadata = metadata(directory, &stat);
        Ok((stat, leads_to, metadata))
    });
    let (stat, leads_to, metadata) = found.await.map_err(|error| failed(error, &path, what))?;
    Ok(axum::Json(json!({"entry": with_metadata(entry(files, &stat, leads_to), &metadata)})))
}

/// The metadata that a client attached to a file.
fn metadata(directory: &Directory, stat: &Stat) -> BTreeMap<String, String> {
    if stat.kind != FileKind::File {
        return BTreeMap::new();
    }
    // An unreadable file has no metadata.
    let found = relative(&stat.path).and_then(|path| directory.attributes(&path, METADATA_PREFIX));
    found.unwrap_or_default()
}

fn with_metadata(mut entry: Value, metadata: &BTreeMap<String, String>) -> Value {
    if !metadata.is_empty() {
        entry["metadata"] = json!(metadata);
    }
    entry
}

/// Creates a directory and its parents.
pub(super) async fn make_dir(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, ConnectError> {
    let path = absolute(&at.path, call.home()?);
    let files = app.sandbox_files(&call.sandbox).await?;
    let target = path.clone();
    let created = files.act(move |directory| {
        let path = relative(&target)?;
        match directory.stat_followed(&path) {
            Ok(found) => Ok(Some(found.kind)),
            Err(FileError::Missing { .. }) => directory.make_directories(&path).map(|()| None),
            Err(error) => Err(error),
        }
    });
    match created.await? {
        None => entry_response(&files, path, "path").await,
        Some(FileKind::Directory) => Err(ConnectError::new(
            ConnectCode::AlreadyExists,
            format!("directory already exists: {path}"),
        )),
        Some(_) => {
            let message = format!("path already exists but it is not a directory: {path}");
            Err(ConnectError::new(ConnectCode::InvalidArgument, message))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct MoveRequest {
    source: String,
    destination: String,
}

/// Moves a file or directory; an existing file is replaced.
pub(super) async fn rename(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<MoveRequest>,
) -> Result<axum::Json<Value>, ConnectError> {
    let home = call.home()?;
    let (from, to) = (absolute(&request.source, home), absolute(&request.destination, home));
    let files = app.sandbox_files(&call.sandbox).await?;
    let (source, target) = (from.clone(), to.clone());
    let moved = files.act(move |directory| {
        let (source, target) = (relative(&source)?, relative(&target)?);
        directory.stat(&source)?;
        if let Some((parent, _)) = target.split_last() {
            directory.make_directories(&parent)?;
        }
        directory.rename(&source, &target, Expect::Anything)
    });
    moved.await.map_err(|error| failed(error, &from, "source file"))?;
    entry_response(&files, to, "file").await
}

/// A request to list a directory.
#[derive(Debug, Deserialize)]
pub(super) struct ListDir {
    path: String,
    depth: Option<u32>,
}

/// Lists a directory, up to the requested depth.
pub(super) async fn list_dir(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<ListDir>,
) -> Result<axum::Json<Value>, ConnectError> {
    let path = absolute(&request.path, call.home()?);
    let depth = request.depth.filter(|depth| *depth > 0).unwrap_or(1).min(MAX_DEPTH);
    let files = app.sandbox_files(&call.sandbox).await?;
    let target = path.clone();
    let listed = files.act(move |directory| {
        let path = relative(&target)?;
        if directory.stat_followed(&path)?.kind != FileKind::Directory {
            return Ok(None);
        }
        let found = directory.list(&path, depth, None, MAX_ENTRIES + 1)?;
        let entries = found.into_iter().map(|stat| {
            let metadata = metadata(directory, &stat);
            let (stat, leads_to) = as_daemon(directory, stat);
            (stat, leads_to, metadata)
        });
        Ok(Some(entries.collect::<Vec<_>>()))
    });
    let listed = listed.await.map_err(|error| failed(error, &path, "path"))?;
    let Some(listed) = listed else {
        let message = format!("path is not a directory: {path}");
        return Err(ConnectError::new(ConnectCode::InvalidArgument, message));
    };
    if listed.len() > MAX_ENTRIES {
        let message =
            format!("the directory has more than {MAX_ENTRIES} entries; request fewer levels");
        return Err(ConnectError::new(ConnectCode::ResourceExhausted, message));
    }
    let entries = listed
        .iter()
        .map(|(stat, leads_to, metadata)| with_metadata(entry(&files, stat, *leads_to), metadata));
    Ok(axum::Json(json!({"entries": entries.collect::<Vec<_>>()})))
}

/// Removes a file, or a directory with its content. Succeeds if the path does not exist.
pub(super) async fn remove(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, ConnectError> {
    let path = absolute(&at.path, call.home()?);
    let files = app.sandbox_files(&call.sandbox).await?;
    match files.act(move |directory| directory.remove_tree(&relative(&path)?)).await {
        Ok(()) | Err(FileError::Missing { .. }) => Ok(axum::Json(json!({}))),
        Err(error) => Err(error.into()),
    }
}
