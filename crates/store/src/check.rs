//! Detects a damaged database file.
//!
//! A small file is checked before use. A large file is checked in the background, so that a server with a
//! long history starts immediately. If the file is damaged, no further change is written.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use rusqlite::Connection;
use tracing::error;

use super::{
    checksum::{DamagedTable, damaged_rows},
    connect::connect_reader,
    error::{OpenError, StoreError},
};

/// Larger files are checked in the background.
const MAX_CHECKED_FIRST_BYTES: u64 = 16 << 20;

/// The reason why this process stopped writing, if it did: damage that the background check found, or a
/// failed sync.
#[derive(Debug, Clone, Default)]
pub(super) struct Checked(Arc<OnceLock<StoreError>>);

impl Checked {
    /// Returns the reason as an error if writing was stopped.
    pub(super) fn verdict(&self) -> Result<(), StoreError> {
        self.0.get().map_or(Ok(()), |reason| Err(reason.clone()))
    }

    /// Stops all writing after a failed sync: the kernel may have dropped the unwritten pages and would
    /// report the next sync as a success.
    pub(super) fn note(&self, failed: &StoreError) {
        if matches!(failed, StoreError::SyncFailed { .. }) && self.0.set(failed.clone()).is_ok() {
            error!(error = %failed, "no more changes are accepted");
        }
    }
}

/// Checks a file that was just opened, or starts the background check.
pub(super) fn at_start(path: &Path, connection: &Connection) -> Result<Checked, OpenError> {
    let checked = Checked::default();
    if is_small(path) {
        let verdict = check(connection).map_err(|error| named(path, error))?;
        return match verdict {
            None => Ok(checked),
            Some(reason) => Err(OpenError::Damaged { path: path.to_owned(), reason }),
        };
    }
    let (file, found) = (path.to_owned(), checked.clone());
    let spawned = std::thread::Builder::new().name("store-check".into()).spawn(move || {
        let verdict = connect_reader(&file).and_then(|connection| check(&connection));
        let reason = match verdict {
            Ok(None) => return,
            Ok(Some(reason)) | Err(StoreError::Damaged { reason, .. }) => reason,
            Err(error) => {
                error!(file = %file.display(), %error, "cannot check the database");
                return;
            }
        };
        error!(file = %file.display(), reason, "the database is damaged; no more changes are accepted");
        let _ = found.0.set(StoreError::Damaged { what: "the database".to_owned(), reason });
    });
    spawned.map_err(StoreError::unavailable)?;
    Ok(checked)
}

/// Logs damaged rows; those of a large file are found in the background. A damaged row is refused when it is read; others
/// work.
pub(super) fn report_damaged_rows(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    if is_small(path) {
        log_damaged(path, damaged_rows(connection));
        return Ok(());
    }
    let path = path.to_owned();
    let check =
        move || log_damaged(&path, connect_reader(&path).and_then(|reader| damaged_rows(&reader)));
    let thread = std::thread::Builder::new().name("store-rows".into());
    thread.spawn(check).map_err(StoreError::unavailable)?;
    Ok(())
}

fn log_damaged(path: &Path, found: Result<Vec<DamagedTable>, StoreError>) {
    match found {
        Ok(damaged) => {
            for DamagedTable { table, rows } in damaged {
                error!(file = %path.display(), table, rows, "the database has damaged rows");
            }
        }
        Err(error) => {
            error!(file = %path.display(), %error, "cannot check the rows of the database");
        }
    }
}

/// Whether a file is checked before it is used.
fn is_small(path: &Path) -> bool {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len()) <= MAX_CHECKED_FIRST_BYTES
}

/// The result of a check of a whole database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCheck {
    /// What is wrong with the structure of the file.
    pub structure: Option<String>,
    pub damaged: Vec<DamagedTable>,
}

/// Checks the structure and all rows of the database in a home, also while a server uses it. Returns `None` if there
/// is no database.
pub fn check_file(home: &Path) -> Result<Option<FileCheck>, StoreError> {
    let path = home.join("stead.db");
    if !path.exists() {
        return Ok(None);
    }
    let connection = connect_reader(&path)?;
    let structure = check(&connection)?;
    let damaged = damaged_rows(&connection)?;
    Ok(Some(FileCheck { structure, damaged }))
}

/// Returns a description of the damage, if there is any.
fn check(connection: &Connection) -> Result<Option<String>, StoreError> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}

/// Adds the path of the file to an error about damage.
pub(super) fn named(path: &Path, error: StoreError) -> OpenError {
    match error {
        StoreError::Damaged { reason, .. } => OpenError::Damaged { path: path.to_owned(), reason },
        error => error.into(),
    }
}
