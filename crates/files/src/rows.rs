//! Small files that are stored as rows of the database.

use bytes::Bytes;

use crate::memory::{HotLimits, Index, MemoryChange, MemoryEntry};
use crate::{FileError, Relative, Stat};
use model::{ProjectId, Timestamp};
use store::{EntryIndex, Store, StoreError};

/// How often a change is validated again after a concurrent change.
const MAX_ATTEMPTS: u32 = 16;

/// The files of a project that are stored as rows.
#[derive(Debug, Clone)]
pub struct Rows {
    store: Store,
    project: ProjectId,
    limits: HotLimits,
}

impl Rows {
    pub fn new(store: Store, project: ProjectId, limits: HotLimits) -> Self {
        Self { store, project, limits }
    }

    async fn index(&self) -> Result<(u64, Index), FileError> {
        let EntryIndex { revision, entries } =
            self.store.entries(&self.project).await.map_err(unavailable)?;
        let mut index = Index::default();
        for row in entries {
            let modified_at = row.modified_at;
            match row.is_directory {
                true => index.add_directory(&row.path, modified_at),
                false => index.add_file(&row.path, row.size, modified_at, row.version),
            }
        }
        Ok((revision, index))
    }

    /// Returns a file with its content.
    pub(crate) async fn get(&self, path: &Relative) -> Result<MemoryEntry, FileError> {
        let stat = self.stat(path).await?;
        let bytes = self.store.entry(&self.project, path.as_str()).await.map_err(unavailable)?;
        match (bytes, stat.version, stat.modified_at) {
            (Some(bytes), Some(version), Some(modified_at)) => {
                Ok(MemoryEntry { bytes: bytes.into(), modified_at, version })
            }
            _ => Err(FileError::IsDirectory { path: path.to_string() }),
        }
    }

    /// Returns the metadata of a path.
    pub(crate) async fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        self.index().await?.1.stat(path)
    }

    /// Lists the entries below a path.
    pub(crate) async fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        self.index().await?.1.list(path, depth, after, limit)
    }

    /// Applies a change and returns the version of the last write.
    pub(crate) async fn change(
        &self,
        change: MemoryChange,
        now: Timestamp,
    ) -> Result<u64, FileError> {
        for _ in 0..MAX_ATTEMPTS {
            let (revision, index) = self.index().await?;
            let (change, version) = index.plan(&change, &self.limits, now)?;
            match self.store.change_entry(&self.project, revision, change).await {
                Err(StoreError::Conflict { .. }) => {}
                done => return done.map(|()| version).map_err(unavailable),
            }
        }
        Err(FileError::Unavailable { reason: "too many concurrent changes".into() })
    }

    /// Returns all files at or below a path.
    pub(crate) async fn files(&self, path: &Relative) -> Result<Vec<(String, Bytes)>, FileError> {
        let mut files = Vec::new();
        for key in self.index().await?.1.files(path) {
            let found = self.store.entry(&self.project, &key).await.map_err(unavailable)?;
            files.extend(found.map(|bytes| (key, bytes.into())));
        }
        Ok(files)
    }
}

fn unavailable(error: StoreError) -> FileError {
    match error {
        StoreError::Missing { what } => FileError::Missing { path: what },
        other => FileError::Unavailable { reason: other.to_string() },
    }
}
