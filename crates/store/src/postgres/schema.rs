//! Numbered migrations of PostgreSQL, and what the server must be set to.

use crate::{
    error::{OpenError, StoreError},
    sql::{Db, PostgresSession},
};

/// All migrations, in order. A released migration is never changed.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001.sql")];

/// The key of the advisory lock under which one process migrates at a time.
const MIGRATION_LOCK: i64 = 0x5354_4541_4400;

/// The oldest version of PostgreSQL that the statements and migrations need.
const MIN_VERSION: u32 = 140_000;

/// What every connection is set to. The server ends what takes too long, also if this process is stopped.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s';
     SET idle_in_transaction_session_timeout = '20s'; SET client_min_messages = 'warning';
     SET timezone = 'UTC'; SET default_transaction_isolation = 'repeatable read'";

/// Sets a new connection up, and refuses a server that would lose acknowledged changes or order text differently.
pub(super) fn set_up(session: &PostgresSession) -> Result<(), OpenError> {
    let refused = |reason: String| OpenError::Unsuitable { reason };
    session.batch(SETTINGS).map_err(StoreError::from)?;
    let show = |name: &str| -> Result<String, OpenError> {
        let value = session.batch_value(&format!("SHOW {name}")).map_err(StoreError::from)?;
        Ok(value.unwrap_or_default())
    };
    for name in ["synchronous_commit", "fsync"] {
        if show(name)? == "off" {
            let lost = "acknowledged changes would be lost when the database server crashes";
            return Err(refused(format!("{name} is off: {lost}; set it to on")));
        }
    }
    let encoding = show("server_encoding")?;
    if encoding != "UTF8" {
        return Err(refused(format!("its encoding is {encoding}; create the database with UTF8")));
    }
    let version = show("server_version_num")?;
    if version.parse().unwrap_or(0) < MIN_VERSION {
        return Err(refused(format!("its version is {version}; PostgreSQL 14 or later is needed")));
    }
    Ok(())
}

/// Returns the number of the last applied migration and the number of the last known one.
pub(super) fn versions(session: &PostgresSession) -> Result<(usize, usize), StoreError> {
    let exists = session.batch_value("SELECT to_regclass('schema_migrations') IS NOT NULL")?;
    let applied = match exists.as_deref() {
        Some("t") => {
            session.batch_value("SELECT coalesce(max(number), 0) FROM schema_migrations")?
        }
        _ => None,
    };
    let applied = applied.and_then(|number| number.parse().ok()).unwrap_or(0);
    Ok((applied, MIGRATIONS.len()))
}

/// Applies the missing migrations, each in a transaction, while no other process does.
pub(super) fn migrate(session: &PostgresSession) -> Result<(), OpenError> {
    let (applied, known) = versions(session)?;
    if applied == known {
        return Ok(());
    }
    let lock = format!("SET lock_timeout = '60s'; SELECT pg_advisory_lock({MIGRATION_LOCK})");
    session.batch(&lock).map_err(StoreError::from)?;
    let done = apply(session);
    let unlock = format!("SET lock_timeout = '5s'; SELECT pg_advisory_unlock({MIGRATION_LOCK})");
    session.batch(&unlock).map_err(StoreError::from)?;
    done
}

fn apply(session: &PostgresSession) -> Result<(), OpenError> {
    // Another process may have done it while this one waited.
    let (applied, known) = versions(session)?;
    if applied > known {
        return Err(OpenError::TooNew { found: applied, known });
    }
    let table = "CREATE TABLE IF NOT EXISTS schema_migrations (number BIGINT PRIMARY KEY,
                   applied_at TIMESTAMPTZ NOT NULL DEFAULT now())";
    session.batch(table).map_err(StoreError::from)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(applied) {
        let number = index + 1;
        let transaction = format!(
            "BEGIN; SET LOCAL statement_timeout = 0;\n{migration}\n
             INSERT INTO schema_migrations (number) VALUES ({number}); COMMIT"
        );
        if let Err(error) = session.batch(&transaction) {
            // The connection is closed after an error anyway.
            let _ = session.batch("ROLLBACK");
            return Err(StoreError::from(error).into());
        }
    }
    Ok(())
}

/// Registers a connection and returns its id.
pub(super) fn register(db: &Db) -> Result<String, StoreError> {
    let sql = "INSERT INTO connections (connection_id, commits, used_at)
               VALUES (gen_random_uuid()::text, 0, now()) RETURNING connection_id";
    Ok(db.prepare_cached(sql)?.query_row((), |row| row.get(0))?)
}

/// Forgets connections that have not been used for a day.
pub(super) fn forget_connections(session: &PostgresSession) -> Result<(), StoreError> {
    let sql = "DELETE FROM connections WHERE used_at < now() - interval '1 day'";
    Ok(session.batch(sql)?)
}
