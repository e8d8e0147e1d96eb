//! The query parameters of file routes, and their responses.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::daytona::DaytonaRefusal;
use adapter::instance::{Files, absolute, permissions};
use files::{FileError, FileKind, Stat};
use store::SandboxRecord;

/// The query parameters of all file routes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct DaytonaFileQuery {
    pub(super) path: String,
    pub(super) mode: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
    pub(super) recursive: Option<String>,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) pattern: String,
    pub(super) depth: Option<u32>,
}

impl DaytonaFileQuery {
    pub(super) fn absolute_path(&self, sandbox: &SandboxRecord) -> String {
        absolute(&self.path, &sandbox.row.home)
    }
}

pub(super) fn file_view(files: &Files, stat: &Stat) -> Value {
    let (user, group) = stat.owner.unwrap_or(files.owner);
    let bits = stat.mode.unwrap_or(0) & 0o7777;
    let at = stat.modified_at.map(|at| at.to_string()).unwrap_or_default();
    json!({
        "name": stat.path.rsplit('/').next().unwrap_or_default(),
        "path": format!("/{}", stat.path),
        "size": stat.size,
        "mode": permissions(stat.kind, bits & 0o777),
        "modTime": at,
        "modifiedAt": at,
        "isDir": stat.kind == FileKind::Directory,
        "owner": files.name(user, files.owner.0),
        "group": files.name(group, files.owner.1),
        "permissions": format!("{bits:04o}"),
    })
}

pub(super) fn refused(error: FileError, path: &str) -> DaytonaRefusal {
    match error {
        FileError::Missing { .. } => {
            let message = format!("file not found: {path}");
            DaytonaRefusal::coded(StatusCode::NOT_FOUND, "FILE_NOT_FOUND", message)
        }
        other => other.into(),
    }
}
