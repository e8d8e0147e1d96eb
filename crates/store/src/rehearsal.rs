//! Tries the migrations of this version on a copy of a database.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use super::{
    check,
    connect::{connect, connect_reader},
    error::{OpenError, StoreError},
    postgres::ConnectionPool,
    schema,
};

/// What this version does with the database of a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rehearsal {
    /// Number of the last migration that the database has.
    pub applied: usize,
    /// Number of the last migration of this version. All from `applied` on succeeded on the copy.
    pub known: usize,
}

/// The name of the copy's directory, before the id of the process.
const SCRATCH: &str = "upgrade-check-";

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the copies of processes that were killed.
fn remove_leftovers(home: &Path) -> io::Result<()> {
    for entry in fs::read_dir(home)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let process = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Copies the database of a home, also while a server uses it, and applies the missing migrations to the copy.
/// Returns `None` if there is no database. Needs as much space beside the database as the database takes.
pub fn rehearse(home: &Path) -> Result<Option<Rehearsal>, OpenError> {
    let path = home.join("stead.db");
    if !path.exists() {
        return Ok(None);
    }
    remove_leftovers(home).map_err(StoreError::unavailable)?;
    let scratch = Scratch(home.join(format!("{SCRATCH}{}", std::process::id())));
    DirBuilder::new().mode(0o700).create(&scratch.0).map_err(StoreError::unavailable)?;
    let copy = scratch.0.join("stead.db");
    let reader = connect_reader(&path)?;
    let applied = schema::applied(&reader)?;
    // Only the copy is written.
    reader.pragma_update(None, "query_only", false).map_err(StoreError::from)?;
    reader
        .execute("VACUUM INTO ?1", [copy.to_string_lossy().as_ref()])
        .map_err(|error| check::named(&path, error.into()))?;
    let connection = connect(&copy)?;
    schema::migrate(&connection)?;
    Ok(Some(Rehearsal { applied, known: schema::applied(&connection)? }))
}

/// Connects to a database of PostgreSQL and compares its schema with the one of this version. Changes nothing. Blocks;
/// not to be called on a thread of a runtime.
pub fn inspect_postgres(url: &str) -> Result<Rehearsal, OpenError> {
    let (applied, known) = ConnectionPool::inspect(url)?;
    Ok(Rehearsal { applied, known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_tried_on_a_copy() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(rehearse(home.path()).unwrap(), None);
        let path = home.path().join("stead.db");
        let connection = connect(&path).unwrap();
        schema::migrate_to(&connection, 9).unwrap();
        // Another check was killed: no process has this number.
        fs::create_dir(home.path().join("upgrade-check-4194305")).unwrap();
        let found = rehearse(home.path()).unwrap().unwrap();
        assert!(found.applied == 9 && found.known > 9, "{found:?}");
        assert_eq!(schema::applied(&connection).unwrap(), 9);
        connection.pragma_update(None, "user_version", 1000).unwrap();
        assert!(matches!(rehearse(home.path()), Err(OpenError::TooNew { .. })));
        assert_eq!(
            fs::read_dir(home.path()).unwrap().flatten().filter(|e| e.path().is_dir()).count(),
            0
        );
    }
}
