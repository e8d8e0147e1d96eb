//! A bounded log of automatic actions of the server, with their reasons.

use super::{
    Store, StoreError,
    row::{self, Read, micros, to_json},
    sql::params,
};
use model::Timestamp;

/// Older entries are removed.
const MAX_ENTRIES: i64 = 10_000;

/// One automatic action of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// A rising number.
    pub id: u64,
    pub at: Timestamp,
    /// The action, e.g. `orphan_ended`.
    pub kind: String,
    /// The id of the resource that was acted on.
    pub subject: String,
    /// The reason and further details.
    pub detail: serde_json::Value,
}

impl Store {
    /// Appends an entry and returns its number.
    pub async fn record(
        &self,
        at: Timestamp,
        kind: &str,
        subject: &str,
        detail: serde_json::Value,
    ) -> Result<u64, StoreError> {
        let (kind, subject) = (kind.to_owned(), subject.to_owned());
        self.write(move |db| {
            let id: i64 = db
                .prepare_cached(
                    "INSERT INTO ledger (at, kind, subject, detail) VALUES (?1, ?2, ?3, ?4)
                     RETURNING id",
                )?
                .query_row(params![micros(at), kind, subject, to_json(&detail)], |row| {
                    row.get(0)
                })?;
            db.prepare_cached("DELETE FROM ledger WHERE id <= ?1")?.execute([id - MAX_ENTRIES])?;
            Ok(u64::try_from(id).unwrap_or(0))
        })
        .await
    }

    /// Returns the last entries, newest first.
    pub async fn ledger_last(&self, limit: u32) -> Result<Vec<LedgerEntry>, StoreError> {
        self.read(move |db| {
            let mut statement =
                db.prepare_cached("SELECT * FROM ledger ORDER BY id DESC LIMIT ?1")?;
            let rows = statement.query_map([limit], |row| {
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
