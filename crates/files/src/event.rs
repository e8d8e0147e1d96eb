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
    /// It is there with all that is in it, in place of what may have been there. Told, as what follows,
    /// only to who watches closely.
    Appeared,
    /// It has another name.
    MovedAway,
    /// Others may read or write it, or it has another owner or date.
    Permitted,
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
        Self::of(path, Happened::Created)
    }

    pub(crate) fn modified(path: &str) -> Self {
        Self::of(path, Happened::Modified)
    }

    pub(crate) fn removed(path: &str) -> Self {
        Self::of(path, Happened::Removed)
    }

    pub(crate) fn of(path: &str, what: Happened) -> Self {
        Self { path: path.to_owned(), what }
    }
}
