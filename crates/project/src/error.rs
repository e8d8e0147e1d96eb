//! Errors of projects, and helpers for the file operations that cause them.

use std::{io, path::Path};

use rustix::io::Errno;

use files::FileError;
use model::ProjectId;
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A value is invalid.
    #[error("{field}: {why}")]
    Bad { field: String, why: String },
    /// The operation is not possible on the default project.
    #[error("the default project cannot be {0}")]
    Default(&'static str),
    #[error("the limit of {0} projects is reached")]
    TooMany(u64),
    /// The archive is invalid or malicious.
    #[error("the archive is refused: {0}")]
    Archive(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
}

pub(super) fn missing(id: &ProjectId) -> StoreError {
    StoreError::Missing { what: format!("project {id}") }
}

/// Returns an error on a file of the server. Only the log shows its path, because clients do not know it.
pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> ProjectError {
    let path = path.display().to_string();
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            FileError::from_io(doing, &path, source).into()
        }
        _ => FileError::Io { doing, path, source }.into(),
    }
}

pub(super) async fn blocking<T: Send + 'static, E: Send + 'static + From<FileError>>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match base::task::blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(FileError::Unavailable { reason: error.to_string() }.into()),
    }
}
