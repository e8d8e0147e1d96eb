//! Directories and metadata: list, create, move, remove, and permissions.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde_json::Value;

use super::{
    query::{DaytonaFileQuery, file_view, refused},
    tool::{existing_path, tool},
};
use crate::daytona::{DaytonaRefusal, ToolboxSandbox};
use adapter::{
    Adapter,
    instance::{absolute, relative},
};
use files::{FileError, FileKind, memory::Expect};
use store::SandboxRecord;

/// The limit of entries in a listing.
const MAX_ENTRIES: usize = 100_000;
/// The limit of directory levels in a listing.
const MAX_DEPTH: u32 = 64;

/// Lists a directory, up to the requested depth.
pub(in crate::daytona) async fn list(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let depth = query.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(DaytonaRefusal::bad(format!("depth must be 1 to {MAX_DEPTH}")));
    }
    let files = app.sandbox_files(&sandbox).await?;
    let target = path.clone();
    let listed = files
        .act(move |directory| directory.list(&relative(&target)?, depth, None, MAX_ENTRIES))
        .await;
    let listed = listed.map_err(|error| refused(error, &path))?;
    Ok(axum::Json(listed.iter().map(|stat| file_view(&files, stat)).collect()))
}

/// Returns the metadata of a file.
pub(in crate::daytona) async fn info(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let target = path.clone();
    let found = files.act(move |directory| directory.stat_followed(&relative(&target)?)).await;
    Ok(axum::Json(file_view(&files, &found.map_err(|error| refused(error, &path))?)))
}

/// Creates a directory and its parents.
pub(in crate::daytona) async fn folder(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let mode = query.mode.as_deref().filter(|mode| !mode.is_empty());
    if let Some(mode) = mode {
        check_mode(mode)?;
    }
    let files = app.sandbox_files(&sandbox).await?;
    let target = path.clone();
    files.act(move |directory| directory.make_directories(&relative(&target)?)).await?;
    if let Some(mode) = mode {
        change(&app, &sandbox, "chmod", mode, &path).await?;
    }
    Ok(StatusCode::CREATED)
}

/// Refuses an invalid file mode.
fn check_mode(mode: &str) -> Result<(), DaytonaRefusal> {
    match u32::from_str_radix(mode, 8) {
        Ok(0..=0o7777) => Ok(()),
        _ => Err(DaytonaRefusal::bad(format!("invalid mode: {mode}"))),
    }
}

/// Removes a file, or a directory if the request is recursive.
pub(in crate::daytona) async fn delete(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let recursive = query.recursive.as_deref() == Some("true");
    let files = app.sandbox_files(&sandbox).await?;
    let target = path.clone();
    let removed = files.act(move |directory| {
        let path = relative(&target)?;
        let kind = directory.stat(&path)?.kind;
        match (kind, recursive) {
            (FileKind::Directory, false) => Err(FileError::IsDirectory { path: target }),
            (_, true) => directory.remove_tree(&path),
            (_, false) => directory.remove(&path),
        }
    });
    removed.await.map_err(|error| refused(error, &path))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves a file or directory.
pub(in crate::daytona) async fn rename(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (from, to) = (
        absolute(&query.source, &sandbox.row.home),
        absolute(&query.destination, &sandbox.row.home),
    );
    let files = app.sandbox_files(&sandbox).await?;
    let source = from.clone();
    let moved = files.act(move |directory| {
        directory.rename(&relative(&source)?, &relative(&to)?, Expect::Anything)
    });
    moved.await.map_err(|error| refused(error, &from))?;
    Ok(StatusCode::OK)
}

/// Runs `chmod`, `chown` or `chgrp` on a path.
async fn change(
    app: &Adapter,
    sandbox: &SandboxRecord,
    program: &str,
    to: &str,
    path: &str,
) -> Result<(), DaytonaRefusal> {
    match tool(app, sandbox, program, &["--", to, path]).await? {
        (0, _) => Ok(()),
        _ => Err(DaytonaRefusal::bad(format!("{program} {to} {path} failed"))),
    }
}

/// Changes the mode, the owner and the group of a file.
pub(in crate::daytona) async fn permissions(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = existing_path(&app, &sandbox, &query).await?;
    if let Some(mode) = query.mode.as_deref().filter(|mode| !mode.is_empty()) {
        check_mode(mode)?;
        change(&app, &sandbox, "chmod", mode, &path).await?;
    }
    for (program, to) in [("chown", &query.owner), ("chgrp", &query.group)] {
        if let Some(to) = to.as_deref().filter(|to| !to.is_empty()) {
            change(&app, &sandbox, program, to, &path).await?;
        }
    }
    Ok(StatusCode::OK)
}
