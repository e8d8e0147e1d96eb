//! What a watcher is told.

use serde::Serialize;

/// What happened to something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Happened {
    /// It is there and was not before, or has another name.
    Created,
    /// Its content is another.
    Modified,
    /// It is gone, or has another name.
    Removed,
}

/// Something happened to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// Its path below the root that is watched.
    pub path: String,
    /// What happened.
    pub what: Happened,
}

impl FileEvent {
    pub(crate) fn created(path: &str) -> Self {
        Self { path: path.to_owned(), what: Happened::Created }
    }

    pub(crate) fn modified(path: &str) -> Self {
        Self { path: path.to_owned(), what: Happened::Modified }
    }

    pub(crate) fn removed(path: &str) -> Self {
        Self { path: path.to_owned(), what: Happened::Removed }
    }
}
