//! Versioned, content-addressed states of terminals.
//!
//! A row of `terminal_sections` contains a section *since* a version, so that a version without changes
//! costs one small row. All terminals share contents, which have a reference count.

use std::collections::BTreeMap;

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json},
    sql::{Db, OptionalExtension, params},
};
use model::{Cause, StateVersion, TerminalId, TerminalState, Timestamp};

/// Larger contents are compressed.
const MAX_UNCOMPRESSED_BYTES: usize = 1024;

/// A section ready to be stored: hashed and possibly compressed, which the caller does instead of the
/// single writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    name: String,
    hash: [u8; 32],
    size: usize,
    compressed: bool,
    bytes: Vec<u8>,
}

impl Section {
    /// Hashes and compresses a section.
    #[must_use]
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        let hash = *blake3::hash(&bytes).as_bytes();
        let size = bytes.len();
        let name = name.into();
        if size > MAX_UNCOMPRESSED_BYTES
            && let Ok(smaller) = zstd::bulk::compress(&bytes, 3)
            && smaller.len() < size
        {
            return Self { name, hash, size, compressed: true, bytes: smaller };
        }
        Self { name, hash, size, compressed: false, bytes }
    }

    /// Hashes and compresses several sections.
    #[must_use]
    pub fn all(sections: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<Self> {
        sections.into_iter().map(|(name, bytes)| Self::new(name, bytes)).collect()
    }
}

/// The next version of a terminal's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// The version that was read; the new version is one higher.
    pub expected: u64,
    /// The cause of the new version.
    pub cause: Cause,
    /// The new and changed sections.
    pub changed: Vec<Section>,
    /// The names of removed sections.
    pub removed: Vec<String>,
    /// The shell's working directory.
    pub cwd: String,
    /// Changes to the shell's initial environment, if the environment changed.
    pub env_delta: Option<BTreeMap<String, Option<String>>>,
    pub at: Timestamp,
}

impl Store {
    /// Adds a version to a terminal's state and returns its number. Refused unless the terminal is at the
    /// version that was read.
    pub async fn add_version(
        &self,
        id: &TerminalId,
        change: StateChange,
    ) -> Result<u64, StoreError> {
        let id = id.clone();
        self.write(move |db| add(db, &id, &change)).await
    }

    /// Restores an earlier version as a new version. Refused unless the terminal is at the version that was
    /// read. `env_delta` is that of the earlier version.
    pub async fn rollback(
        &self,
        id: &TerminalId,
        expected: u64,
        to: u64,
        env_delta: BTreeMap<String, Option<String>>,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let (cwd, wanted) = hashes(db, &id, to)?;
            let (_, present) = hashes(db, &id, expected)?;
            let next = append(
                db,
                &id,
                &StateChange {
                    expected,
                    cause: Cause::Rollback { to },
                    changed: vec![],
                    removed: vec![],
                    cwd,
                    env_delta: Some(env_delta.clone()),
                    at,
                },
            )?;
            for (name, hash) in &wanted {
                if present.get(name) != Some(hash) {
                    retain(db, hash)?;
                    set(db, &id, next, name, Some(hash))?;
                }
            }
            for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
                set(db, &id, next, name, None)?;
            }
            Ok(next)
        })
        .await
    }

    /// Initializes the state of a terminal with a version of another terminal.
    pub async fn fork_state(
        &self,
        from: &TerminalId,
        version: u64,
        to: &TerminalId,
        env_delta: BTreeMap<String, Option<String>>,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let (from, to) = (from.clone(), to.clone());
        self.write(move |db| {
            let (cwd, wanted) = hashes(db, &from, version)?;
            let next = append(
                db,
                &to,
                &StateChange {
                    expected: 0,
                    cause: Cause::Fork { from: from.clone(), version },
                    changed: vec![],
                    removed: vec![],
                    cwd,
                    env_delta: Some(env_delta.clone()),
                    at,
                },
            )?;
            for (name, hash) in &wanted {
                retain(db, hash)?;
                set(db, &to, next, name, Some(hash))?;
            }
            Ok(next)
        })
        .await
    }

    /// Returns a terminal's whole state at a version, or at its last one.
    pub async fn terminal_state(
        &self,
        id: &TerminalId,
        version: Option<u64>,
    ) -> Result<TerminalState, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let version = match version {
                Some(version) => version,
                None => current(db, &id)?,
            };
            if version == 0 {
                current(db, &id)?;
                return Ok(TerminalState::default());
            }
            let (cwd, hashes) = hashes(db, &id, version)?;
            let mut sections = BTreeMap::new();
            for (name, hash) in hashes {
                let bytes = content(db, &hash)?;
                sections.insert(name, bytes);
            }
            Ok(TerminalState { version, cwd, sections })
        })
        .await
    }

    /// Returns the stored versions of a terminal, newest first.
    pub async fn versions(
        &self,
        id: &TerminalId,
        page: PageRequest,
    ) -> Result<Page<StateVersion>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let before = page.after.as_ref().map_or(i64::MAX, |cursor| cursor.at);
            let mut statement = db.prepare_cached(
                "SELECT v.*, (SELECT string_agg(name, '/') FROM terminal_sections s
                              WHERE s.terminal_id = v.terminal_id AND s.version = v.version)
                             AS changed
                 FROM terminal_versions v WHERE terminal_id = ?1 AND version < ?2
                 ORDER BY version DESC LIMIT ?3",
            )?;
            let rows = statement.query_map(
                params![id.as_str(), before, i64::from(page.limit) + 1],
                |row| {
                    checksum::verify(row, "a version")?;
                    Ok(StateVersion {
                        version: row::count(row, "version")?,
                        cwd: row.get("cwd")?,
                        cause: row::json(row, "cause")?,
                        at: row::time(row, "at")?,
                        changed: names(row.get("changed")?),
                    })
                },
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |v: &StateVersion| Cursor {
                at: int(v.version),
                id: String::new(),
            }))
        })
        .await
    }
}

/// Splits the names of sections, which contain no slash.
fn names(joined: Option<String>) -> Vec<String> {
    let mut names: Vec<_> = joined.iter().flat_map(|it| it.split('/')).map(str::to_owned).collect();
    names.sort();
    names
}

/// Returns the current version of a terminal.
fn current(db: &Db, id: &TerminalId) -> Result<u64, StoreError> {
    db.prepare_cached("SELECT version FROM terminals WHERE terminal_id = ?1")?
        .query_row([id.as_str()], |row| row::count(row, "version"))
        .optional()?
        .ok_or_else(|| StoreError::missing("terminal", id))
}

/// Adds a version with its changes.
pub(super) fn add(db: &Db, id: &TerminalId, change: &StateChange) -> Result<u64, StoreError> {
    let next = append(db, id, change)?;
    for section in &change.changed {
        db.prepare_cached(
            "INSERT INTO blobs (hash, refs, size, encoding, bytes) VALUES (?1, 1, ?2, ?3, ?4)
             ON CONFLICT (hash) DO UPDATE SET refs = blobs.refs + 1",
        )?
        .execute(params![
            section.hash,
            section.size as i64,
            section.compressed,
            section.bytes
        ])?;
        set(db, id, next, &section.name, Some(&section.hash))?;
    }
    for name in &change.removed {
        set(db, id, next, name, None)?;
    }
    Ok(next)
}

/// Raises the terminal's version by one and adds its row, without sections.
fn append(db: &Db, id: &TerminalId, change: &StateChange) -> Result<u64, StoreError> {
    let next = change.expected + 1;
    let raised = db
        .prepare_cached(
            "UPDATE terminals SET version = ?2, cwd = ?3, env_delta = coalesce(?4, env_delta),
                    updated_at = ?5, last_activity_at = max(last_activity_at, ?5)
             WHERE terminal_id = ?1 AND version = ?2 - 1",
        )?
        .execute(params![
            id.as_str(),
            int(next),
            change.cwd,
            change.env_delta.as_ref().map(to_json),
            micros(change.at),
        ])?;
    if raised == 0 {
        let found = current(db, id)?;
        let what = format!("terminal {id}");
        return Err(StoreError::Conflict { what, expected: change.expected, found });
    }
    db.prepare_cached(
        "INSERT INTO terminal_versions (terminal_id, version, cwd, cause, at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        id.as_str(),
        int(next),
        change.cwd,
        to_json(&change.cause),
        micros(change.at)
    ])?;
    Ok(next)
}

fn set(
    db: &Db,
    id: &TerminalId,
    version: u64,
    name: &str,
    hash: Option<&[u8; 32]>,
) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO terminal_sections (terminal_id, name, version, hash) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![id.as_str(), name, int(version), hash])?;
    Ok(())
}

fn retain(db: &Db, hash: &[u8; 32]) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE blobs SET refs = refs + 1 WHERE hash = ?1")?.execute([hash])?;
    Ok(())
}

/// Drops one reference to a content and removes it after the last one.
fn release(db: &Db, hash: &[u8; 32]) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE blobs SET refs = refs - 1 WHERE hash = ?1")?.execute([hash])?;
    db.prepare_cached("DELETE FROM blobs WHERE hash = ?1 AND refs <= 0")?.execute([hash])?;
    Ok(())
}

/// Returns the working directory and the hash of every section at a version.
fn hashes(
    db: &Db,
    id: &TerminalId,
    version: u64,
) -> Result<(String, BTreeMap<String, [u8; 32]>), StoreError> {
    if version == 0 {
        return Ok((String::new(), BTreeMap::new()));
    }
    let cwd = db
        .prepare_cached(
            "SELECT cwd FROM terminal_versions WHERE terminal_id = ?1 AND version = ?2",
        )?
        .query_row(params![id.as_str(), int(version)], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::missing(&format!("version {version} of terminal"), id))?;
    let mut statement = db.prepare_cached(
        "SELECT s.name, s.hash
         FROM (SELECT name, max(version) AS version FROM terminal_sections
               WHERE terminal_id = ?1 AND version <= ?2 GROUP BY name) AS latest
         JOIN terminal_sections s
           ON s.terminal_id = ?1 AND s.name = latest.name AND s.version = latest.version",
    )?;
    let rows = statement
        .query_map(params![id.as_str(), int(version)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut hashes = BTreeMap::new();
    for row in rows {
        let (name, hash): (String, Option<[u8; 32]>) = row?;
        if let Some(hash) = hash {
            hashes.insert(name, hash);
        }
    }
    Ok((cwd, hashes))
}

/// Returns a content after checking its hash.
pub(super) fn content(db: &Db, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
    let (size, compressed, bytes): (i64, bool, Vec<u8>) = db
        .prepare_cached("SELECT size, encoding, bytes FROM blobs WHERE hash = ?1")?
        .query_row([hash], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let bytes = if compressed {
        let size = usize::try_from(size).unwrap_or(0);
        zstd::bulk::decompress(&bytes, size).map_err(|e| damaged(hash, &e.to_string()))?
    } else {
        bytes
    };
    if blake3::hash(&bytes).as_bytes() != hash {
        return Err(damaged(hash, "its bytes do not match its hash"));
    }
    Ok(bytes)
}

fn damaged(hash: &[u8; 32], reason: &str) -> StoreError {
    let what = format!("content {}", blake3::Hash::from_bytes(*hash).to_hex());
    StoreError::Damaged { what, reason: reason.into() }
}

/// Removes the versions before `oldest` and sections that no later version needs. Returns the number of
/// removed versions.
pub(super) fn remove_before(db: &Db, id: &TerminalId, oldest: u64) -> Result<u64, StoreError> {
    let removed = db
        .prepare_cached("DELETE FROM terminal_versions WHERE terminal_id = ?1 AND version < ?2")?
        .execute(params![id.as_str(), int(oldest)])?;
    let mut statement = db.prepare_cached(
        "DELETE FROM terminal_sections AS s WHERE terminal_id = ?1 AND version < (
           SELECT max(version) FROM terminal_sections
           WHERE terminal_id = ?1 AND name = s.name AND version <= ?2)
         RETURNING hash",
    )?;
    let rows = statement.query_map(params![id.as_str(), int(oldest)], |row| row.get(0))?;
    let hashes: Vec<Option<[u8; 32]>> = rows.collect::<Read<_>>()?;
    for hash in hashes.into_iter().flatten() {
        release(db, &hash)?;
    }
    Ok(removed as u64)
}

/// Removes every version of a terminal.
pub(super) fn remove_all(db: &Db, id: &TerminalId) -> Result<(), StoreError> {
    let mut statement =
        db.prepare_cached("DELETE FROM terminal_sections WHERE terminal_id = ?1 RETURNING hash")?;
    let rows = statement.query_map([id.as_str()], |row| row.get(0))?;
    let hashes: Vec<Option<[u8; 32]>> = rows.collect::<Read<_>>()?;
    for hash in hashes.into_iter().flatten() {
        release(db, &hash)?;
    }
    db.prepare_cached("DELETE FROM terminal_versions WHERE terminal_id = ?1")?
        .execute([id.as_str()])?;
    Ok(())
}
