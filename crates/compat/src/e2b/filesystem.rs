//! The file system service: look, list, make, move, remove.

use std::collections::{BTreeMap, VecDeque};

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    address::E2bGuest,
    connect::{ConnectCode, Failed, Unary},
};
use adapter::Adapter;
use adapter::instance::{Files, absolute, permissions, relative};
use files::{Directory, FileError, FileKind, Stat, memory::Expect};

/// The prefix of the extended attributes that hold a client's metadata of a file.
pub(super) const NOTES: &str = "user.e2b.";
/// Entries of one list.
const MAX_ENTRIES: usize = 100_000;
/// Links on the way of one path, as in the kernel.
const MAX_LINKS: u32 = 40;
/// Levels of one list.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Deserialize)]
pub(super) struct PathRequest {
    path: String,
}

/// What is known of something, as a message.
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

/// What is at a path, and what it leads to if it is a link.
pub(super) fn look(
    directory: &Directory,
    path: &str,
) -> Result<(Stat, Option<FileKind>), FileError> {
    let stat = directory.stat(&relative(path)?)?;
    Ok(as_daemon(directory, stat))
}

/// What the daemon says of an entry: a directory has the size of its own blocks, and a link the path
/// that it leads to in the end.
fn as_daemon(directory: &Directory, mut stat: Stat) -> (Stat, Option<FileKind>) {
    match stat.kind {
        FileKind::Directory => {
            let size = relative(&stat.path).and_then(|path| directory.size_on_disk(&path));
            stat.size = size.unwrap_or_default();
            (stat, None)
        }
        FileKind::Link => {
            let followed = relative(&stat.path).and_then(|path| directory.stat_followed(&path));
            // One that leads nowhere is its own target.
            let end = resolved(directory, &stat.path).filter(|_| followed.is_ok());
            stat.target = Some(end.unwrap_or_else(|| format!("/{}", stat.path)));
            (stat, Some(followed.map_or(FileKind::Other, |stat| stat.kind)))
        }
        FileKind::File | FileKind::Other => (stat, None),
    }
}

/// The path without links that a path leads to, within the root.
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

/// The same error in the daemon's words, which some clients look for.
pub(super) fn failed(error: FileError, path: &str, what: &str) -> Failed {
    match error {
        FileError::Missing { .. } => {
            let message = format!("{what} not found: lstat {path}: no such file or directory");
            Failed::new(ConnectCode::NotFound, message)
        }
        other => other.into(),
    }
}

/// What is known of a file or directory.
pub(super) async fn stat(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, Failed> {
    let path = absolute(&at.path, guest.home()?);
    let files = app.sandbox_files(&guest.sandbox).await?;
    shown(&files, path, "file").await
}

async fn shown(
    files: &Files,
    path: String,
    what: &'static str,
) -> Result<axum::Json<Value>, Failed> {
    let asked = path.clone();
    let found = files.act(move |directory| {
        let (stat, leads_to) = look(directory, &asked)?;
        let notes = notes(directory, &stat);
        Ok((stat, leads_to, notes))
    });
    let (stat, leads_to, notes) = found.await.map_err(|error| failed(error, &path, what))?;
    Ok(axum::Json(json!({"entry": noted(entry(files, &stat, leads_to), &notes)})))
}

/// A client's own notes on a file.
fn notes(directory: &Directory, stat: &Stat) -> BTreeMap<String, String> {
    if stat.kind != FileKind::File {
        return BTreeMap::new();
    }
    // What cannot be opened has none to tell.
    let found = relative(&stat.path).and_then(|path| directory.attributes(&path, NOTES));
    found.unwrap_or_default()
}

/// An entry with these notes.
fn noted(mut entry: Value, notes: &BTreeMap<String, String>) -> Value {
    if !notes.is_empty() {
        entry["metadata"] = json!(notes);
    }
    entry
}

/// Creates a directory and its parents.
pub(super) async fn make_dir(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, Failed> {
    let path = absolute(&at.path, guest.home()?);
    let files = app.sandbox_files(&guest.sandbox).await?;
    let asked = path.clone();
    let made = files.act(move |directory| {
        let path = relative(&asked)?;
        match directory.stat_followed(&path) {
            Ok(found) => Ok(Some(found.kind)),
            Err(FileError::Missing { .. }) => directory.make_directories(&path).map(|()| None),
            Err(error) => Err(error),
        }
    });
    match made.await? {
        None => shown(&files, path, "path").await,
        Some(FileKind::Directory) => Err(Failed::new(
            ConnectCode::AlreadyExists,
            format!("directory already exists: {path}"),
        )),
        Some(_) => {
            let message = format!("path already exists but it is not a directory: {path}");
            Err(Failed::new(ConnectCode::InvalidArgument, message))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct MoveRequest {
    source: String,
    destination: String,
}

/// Gives something another path; a file that is there is replaced.
pub(super) async fn rename(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(asked): Unary<MoveRequest>,
) -> Result<axum::Json<Value>, Failed> {
    let home = guest.home()?;
    let (from, to) = (absolute(&asked.source, home), absolute(&asked.destination, home));
    let files = app.sandbox_files(&guest.sandbox).await?;
    let (source, target) = (from.clone(), to.clone());
    let moved = files.act(move |directory| {
        let (source, target) = (relative(&source)?, relative(&target)?);
        directory.stat(&source)?;
        if let Some((above, _)) = target.split_last() {
            directory.make_directories(&above)?;
        }
        directory.rename(&source, &target, Expect::Anything)
    });
    moved.await.map_err(|error| failed(error, &from, "source file"))?;
    shown(&files, to, "file").await
}

/// Which directory, and how deep.
#[derive(Debug, Deserialize)]
pub(super) struct ListDir {
    path: String,
    depth: Option<u32>,
}

/// What is in a directory.
pub(super) async fn list_dir(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(asked): Unary<ListDir>,
) -> Result<axum::Json<Value>, Failed> {
    let path = absolute(&asked.path, guest.home()?);
    let depth = asked.depth.filter(|depth| *depth > 0).unwrap_or(1).min(MAX_DEPTH);
    let files = app.sandbox_files(&guest.sandbox).await?;
    let place = path.clone();
    let listed = files.act(move |directory| {
        let path = relative(&place)?;
        if directory.stat_followed(&path)?.kind != FileKind::Directory {
            return Ok(None);
        }
        let found = directory.list(&path, depth, None, MAX_ENTRIES + 1)?;
        let whole = found.into_iter().map(|stat| {
            let notes = notes(directory, &stat);
            let (stat, leads_to) = as_daemon(directory, stat);
            (stat, leads_to, notes)
        });
        Ok(Some(whole.collect::<Vec<_>>()))
    });
    let listed = listed.await.map_err(|error| failed(error, &path, "path"))?;
    let Some(listed) = listed else {
        let message = format!("path is not a directory: {path}");
        return Err(Failed::new(ConnectCode::InvalidArgument, message));
    };
    if listed.len() > MAX_ENTRIES {
        let message = format!("there are more than {MAX_ENTRIES} entries; ask for fewer levels");
        return Err(Failed::new(ConnectCode::ResourceExhausted, message));
    }
    let entries =
        listed.iter().map(|(stat, leads_to, notes)| noted(entry(&files, stat, *leads_to), notes));
    Ok(axum::Json(json!({"entries": entries.collect::<Vec<_>>()})))
}

/// Removes a file, or a directory with all below it. What is not there is removed.
pub(super) async fn remove(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(at): Unary<PathRequest>,
) -> Result<axum::Json<Value>, Failed> {
    let path = absolute(&at.path, guest.home()?);
    let files = app.sandbox_files(&guest.sandbox).await?;
    match files.act(move |directory| directory.remove_tree(&relative(&path)?)).await {
        Ok(()) | Err(FileError::Missing { .. }) => Ok(axum::Json(json!({}))),
        Err(error) => Err(error.into()),
    }
}
