//! Numbered migrations. The file's `user_version` is the number of the last applied migration.

use rusqlite::Connection;

use super::error::{OpenError, StoreError};

/// All migrations, in order. A released migration is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
    include_str!("migrations/0007.sql"),
    concat!(include_str!("migrations/0008.sql"), include_str!("migrations/sandbox_labels.sql")),
    include_str!("migrations/0009.sql"),
    include_str!("migrations/0010.sql"),
    include_str!("migrations/0011.sql"),
    include_str!("migrations/0012.sql"),
    include_str!("migrations/0013.sql"),
    include_str!("migrations/0014.sql"),
    include_str!("migrations/0015.sql"),
    concat!(include_str!("migrations/0016.sql"), include_str!("migrations/sandbox_lifetime.sql")),
];

/// Older versions of SQLite can lose commits in the write-ahead log (3.7.0 to 3.51.2 have a race).
const MIN_SQLITE_VERSION: i32 = 3_051_003;

/// Refuses a SQLite version that can lose commits.
pub(super) fn check_library() -> Result<(), OpenError> {
    let version = rusqlite::version_number();
    if version < MIN_SQLITE_VERSION {
        return Err(OpenError::Library { version: rusqlite::version().to_owned() });
    }
    Ok(())
}

/// Number of the last applied migration.
pub(super) fn applied(connection: &Connection) -> Result<usize, StoreError> {
    let applied: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(usize::try_from(applied).unwrap_or(usize::MAX))
}

/// Applies all missing migrations, each in its own transaction.
pub(super) fn migrate(connection: &Connection) -> Result<(), OpenError> {
    migrate_to(connection, MIGRATIONS.len())
}

/// Applies the missing migrations up to this number.
pub(super) fn migrate_to(connection: &Connection, last: usize) -> Result<(), OpenError> {
    let applied = applied(connection)?;
    if applied > MIGRATIONS.len() {
        return Err(OpenError::TooNew { found: applied, known: MIGRATIONS.len() });
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().take(last).skip(applied) {
        let number = index + 1;
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE;\n{migration}\nPRAGMA user_version = {number};\nCOMMIT;"
            ))
            .map_err(StoreError::from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(connection: &Connection, query: &str, at: usize) -> Vec<String> {
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(at)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Without an index, the deletion of one row searches the whole table that refers to it.
    #[test]
    fn every_reference_has_an_index() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection).unwrap();
        let tables = column(&connection, "SELECT name FROM sqlite_schema WHERE type = 'table'", 0);
        let mut references = 0;
        for table in tables {
            for from in column(&connection, &format!("PRAGMA foreign_key_list({table})"), 3) {
                references += 1;
                let indexes =
                    format!("SELECT name FROM pragma_index_list('{table}') WHERE partial = 0");
                let found = column(&connection, &indexes, 0).iter().any(|index| {
                    let columns =
                        column(&connection, &format!("PRAGMA index_info(\"{index}\")"), 2);
                    columns.first() == Some(&from)
                });
                assert!(found, "{table}.{from} refers to another table and has no index");
            }
        }
        assert!(references > 10, "{references} references");
    }
}
