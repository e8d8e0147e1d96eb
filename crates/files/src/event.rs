//! Events of file watchers.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileEventKind {
    /// The file exists and did not before, or was renamed to this name.
    Created,
    /// The content changed.
    Modified,
    /// The file was removed, or renamed to another name.
    Removed,
    /// The file appeared with all its content, and may have replaced another. This and the following kinds
    /// are reported only to detailed watches.
    Appeared,
    /// The file was renamed to another name.
    MovedAway,
    /// Permissions, owner or times changed.
    Permitted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// The path relative to the watched root.
    pub path: String,
    pub kind: FileEventKind,
}

impl FileEvent {
    pub(crate) fn created(path: &str) -> Self {
        Self::of(path, FileEventKind::Created)
    }

    pub(crate) fn modified(path: &str) -> Self {
        Self::of(path, FileEventKind::Modified)
    }

    pub(crate) fn removed(path: &str) -> Self {
        Self::of(path, FileEventKind::Removed)
    }

    pub(crate) fn of(path: &str, kind: FileEventKind) -> Self {
        Self { path: path.to_owned(), kind }
    }
}
