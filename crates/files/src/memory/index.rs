//! Applies the rules of memories to files that are stored elsewhere, from their names and sizes.

use bytes::Bytes;

use crate::memory::{
    map::{HotLimits, Map, MemoryChange, MemoryEntry, Node},
    record::Op,
};
use crate::{FileError, Relative, Stat};
use model::Timestamp;
use store::{EntryChange, EntryRow};

/// The metadata of a project's files.
#[derive(Debug, Default)]
pub(crate) struct Index(Map);

impl Index {
    pub(crate) fn add_directory(&mut self, path: &str, at: Timestamp) {
        self.0.insert(path.into(), Node::Directory(at));
    }

    pub(crate) fn add_file(&mut self, path: &str, size: u64, at: Timestamp, version: u64) {
        let entry = MemoryEntry { bytes: Bytes::new(), modified_at: at, version };
        self.0.insert(path.into(), Node::File(entry, size));
        self.0.raise(version);
    }

    pub(crate) fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        self.0.stat(path)
    }

    pub(crate) fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        self.0.list(path, depth, after, limit)
    }

    /// Returns the paths of all files at or below a path.
    pub(crate) fn files(&self, path: &Relative) -> Vec<String> {
        self.0.files(path).into_iter().map(|(key, _)| key.into()).collect()
    }

    /// Validates a change. Returns the resulting change of rows and the version of the last write.
    pub(crate) fn plan(
        &self,
        change: &MemoryChange,
        limits: &HotLimits,
        now: Timestamp,
    ) -> Result<(EntryChange, u64), FileError> {
        let version = self.0.version();
        Ok(match self.0.plan(change, limits, now)? {
            Op::Put { key, bytes, at, version } => {
                let row = row(&key, bytes.len() as u64, at, Some(version));
                (put(row, &bytes), version)
            }
            Op::MakeDirectory { key, at } => (put(row(&key, 0, at, None), &Bytes::new()), version),
            Op::Remove { key } => (EntryChange::Remove { path: key.into() }, version),
            Op::Move { from, to } => {
                (EntryChange::Move { from: from.into(), to: to.into() }, version)
            }
            Op::Begin { .. } | Op::End { .. } => unreachable!("no change is planned as these"),
        })
    }
}

/// Returns the row of a planned change.
fn row(path: &str, size: u64, at: Timestamp, version: Option<u64>) -> EntryRow {
    EntryRow {
        path: path.to_owned(),
        is_directory: version.is_none(),
        size,
        modified_at: at,
        version: version.unwrap_or(0),
    }
}

/// Converts a planned change for the store.
fn put(row: EntryRow, bytes: &Bytes) -> EntryChange {
    EntryChange::Put { row, bytes: bytes.to_vec() }
}
