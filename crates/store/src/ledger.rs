//! What the server did by itself, and why: a bounded list.

use rusqlite::params;

use super::{
    Store, StoreError,
    row::{self, Read, int, micros, to_json},
};
use model::Timestamp;

/// How many entries are kept; older ones go first.
const KEPT: i64 = 10_000;

/// One thing the server did by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// Its number; rises.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// What was done, e.g. `orphan_ended`.
    pub kind: String,
    /// To what.
    pub subject: String,
    /// Why, and whatever else is known.
    pub detail: serde_json::Value,
}

impl Store {
    /// Writes down something the server did; answers its number.
    pub async fn record(
        &self,
        at: Timestamp,
        kind: &str,
        subject: &str,
        detail: serde_json::Value,
    ) -> Result<u64, StoreError> {
        let (kind, subject) = (kind.to_owned(), subject.to_owned());
        self.write(move |db| {
            db.prepare_cached(
                "INSERT INTO ledger (at, kind, subject, detail) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![micros(at), kind, subject, to_json(&detail)])?;
            let id = db.last_insert_rowid();
            db.prepare_cached("DELETE FROM ledger WHERE id <= ?1")?.execute([id - KEPT])?;
            Ok(u64::try_from(id).unwrap_or(0))
        })
        .await
    }

    /// Entries after this number, oldest first.
    pub async fn ledger_after(&self, id: u64, limit: u32) -> Result<Vec<LedgerEntry>, StoreError> {
        self.ledger("id > ?1 ORDER BY id", int(id), limit).await
    }

    /// The last entries, newest first.
    pub async fn ledger_last(&self, limit: u32) -> Result<Vec<LedgerEntry>, StoreError> {
        self.ledger("id > ?1 ORDER BY id DESC", 0, limit).await
    }

    async fn ledger(
        &self,
        which: &'static str,
        id: i64,
        limit: u32,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.read(move |db| {
            let sql = format!("SELECT * FROM ledger WHERE {which} LIMIT ?2");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map(params![id, limit], |row| {
                Ok(LedgerEntry {
                    id: row::count(row, "id")?,
                    at: row::time(row, "at")?,
                    kind: row.get("kind")?,
                    subject: row.get("subject")?,
                    detail: row::json(row, "detail")?,
                })
            })?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }
}
