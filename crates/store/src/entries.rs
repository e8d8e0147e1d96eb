//! Files of a project that are stored as rows.
//!
//! The caller validates a change against the index and passes the revision of that index. The change is
//! refused if the index was changed since.

use super::{
    Store, StoreError, projects,
    row::{self, Read, int, micros},
    sql::{Db, OptionalExtension, params},
};
use model::{ProjectId, Timestamp};

/// The metadata of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRow {
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Size of the content in bytes.
    pub size: u64,
    pub modified_at: Timestamp,
    /// The revision of the index that wrote this file.
    pub version: u64,
}

/// The metadata of all files of a project that are stored as rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryIndex {
    /// The number of changes so far.
    pub revision: u64,
    /// The files, sorted by path.
    pub entries: Vec<EntryRow>,
}

/// A change that the caller has validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryChange {
    /// Writes a file or creates a directory.
    Put { row: EntryRow, bytes: Vec<u8> },
    /// Removes a file, or a directory and everything below it.
    Remove { path: String },
    /// Moves a file, or a directory and everything below it.
    Move { from: String, to: String },
}

impl Store {
    /// Returns the metadata of all files of a project that are stored as rows.
    pub async fn entries(&self, id: &ProjectId) -> Result<EntryIndex, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let revision = revision(db, &id)?;
            let mut statement = db.prepare_cached(
                "SELECT path, is_directory, length(bytes) AS size, modified_at, version
                 FROM project_entries WHERE project_id = ?1 ORDER BY path",
            )?;
            let rows = statement.query_map([id.as_str()], |row| {
                Ok(EntryRow {
                    path: row.get("path")?,
                    is_directory: row.get("is_directory")?,
                    size: row::count(row, "size")?,
                    modified_at: row::time(row, "modified_at")?,
                    version: row::count(row, "version")?,
                })
            })?;
            Ok(EntryIndex { revision, entries: rows.collect::<Read<_>>()? })
        })
        .await
    }

    /// Returns the content of a file that is stored as a row.
    pub async fn entry(&self, id: &ProjectId, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let (id, path) = (id.clone(), path.to_owned());
        self.read(move |db| {
            Ok(db
                .prepare_cached(
                    "SELECT bytes FROM project_entries
                     WHERE project_id = ?1 AND path = ?2 AND is_directory = 0",
                )?
                .query_row([id.as_str(), &path], |row| row.get(0))
                .optional()?)
        })
        .await
    }

    /// Applies a change that was validated against this revision of the index.
    pub async fn change_entry(
        &self,
        id: &ProjectId,
        expected: u64,
        change: EntryChange,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let found = revision(db, &id)?;
            if found != expected {
                let what = format!("the entries of project {id}");
                return Err(StoreError::Conflict { what, expected, found });
            }
            db.prepare_cached(
                "UPDATE projects SET entries_revision = entries_revision + 1
                 WHERE project_id = ?1",
            )?
            .execute([id.as_str()])?;
            apply(db, &id, &change)
        })
        .await
    }
}

fn revision(db: &Db, id: &ProjectId) -> Result<u64, StoreError> {
    db.prepare_cached("SELECT entries_revision FROM projects WHERE project_id = ?1")?
        .query_row([id.as_str()], |row| row::count(row, "entries_revision"))
        .optional()?
        .ok_or_else(|| projects::missing(id))
}

fn apply(db: &Db, id: &ProjectId, change: &EntryChange) -> Result<(), StoreError> {
    match change {
        EntryChange::Put { row, bytes } => {
            db.prepare_cached(
                "INSERT INTO project_entries
                   (project_id, path, is_directory, bytes, modified_at, version)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (project_id, path) DO UPDATE SET is_directory = excluded.is_directory,
                        bytes = excluded.bytes, modified_at = excluded.modified_at,
                        version = excluded.version",
            )?
            .execute(params![
                id.as_str(),
                row.path,
                row.is_directory,
                bytes,
                micros(row.modified_at),
                int(row.version)
            ])?;
        }
        EntryChange::Remove { path } => remove(db, id, path)?,
        EntryChange::Move { from, to } => {
            if from == to {
                return Ok(());
            }
            remove(db, id, to)?;
            db.prepare_cached(
                "UPDATE project_entries SET path = ?3 || substr(path, length(?2) + 1)
                 WHERE project_id = ?1 AND (path = ?2 OR
                   (path >= ?2 || '/' AND path < ?2 || '0'))",
            )?
            .execute([id.as_str(), from, to])?;
        }
    }
    Ok(())
}

fn remove(db: &Db, id: &ProjectId, path: &str) -> Result<(), StoreError> {
    // `0` is the character after `/`.
    db.prepare_cached(
        "DELETE FROM project_entries WHERE project_id = ?1 AND (path = ?2 OR ?2 = '' OR
           (path >= ?2 || '/' AND path < ?2 || '0'))",
    )?
    .execute([id.as_str(), path])?;
    Ok(())
}
