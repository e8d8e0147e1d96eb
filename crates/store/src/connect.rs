//! Connections to the database file.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use super::{checksum, error::StoreError};

/// Opens a connection for writing.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // The checkpointer runs earlier; this bounds the log if it falls behind.
    connection.pragma_update(None, "wal_autocheckpoint", 16 * 1024)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    checksum::register(&connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Opens a connection for reading. It lacks the read-only flag, because a read-only connection cannot
/// create the shared memory of the write-ahead log if it is the first one.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    checksum::register(&connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}
