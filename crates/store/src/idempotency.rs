//! Idempotency keys: a repeated request gets the first response.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Store, StoreError,
    row::{self, micros, to_json},
};
use model::Timestamp;

/// How many keys of the owner are kept, and of all other callers together. The oldest are removed first,
/// even before they expire.
const MAX_KEYS: i64 = 100_000;
/// How many keys of one other caller are kept.
const MAX_KEYS_PER_CALLER: i64 = 1_000;
/// The total is checked once per this many keys, because counting is slow.
const TRIM_EVERY: i64 = 1_024;
/// Encloses the name of a caller in a key; a header value cannot contain it.
const SEPARATOR: char = '\n';

/// How long a response is kept.
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

/// A response that can be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// The headers to send again.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The key is new. The caller must answer or forget it.
    Fresh,
    Answered(StoredResponse),
    /// The same request was started and has no response: it is still running, or its server died. `subject`
    /// is what it was about to create, if that was recorded.
    Unfinished {
        /// E.g. the command's id.
        subject: Option<String>,
    },
    /// A different request used the key.
    OtherRequest,
}

/// The key of a caller other than the owner.
pub fn scoped_key(caller: &str, key: &str) -> String {
    format!("{SEPARATOR}{caller}{SEPARATOR}{key}")
}

/// Removes the oldest keys of a range, except for the newest `kept`.
fn trim(db: &Connection, from: &str, to: &str, kept: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM idempotency WHERE key >= ?1 AND key < ?2 AND id <= (
            SELECT id FROM idempotency WHERE key >= ?1 AND key < ?2
            ORDER BY id DESC LIMIT 1 OFFSET ?3)",
    )?
    .execute(params![from, to, kept])?;
    Ok(())
}

/// Bounds the keys of each caller after one was added.
fn bound(db: &Connection, key: &str) -> rusqlite::Result<()> {
    let caller = key.strip_prefix(SEPARATOR).and_then(|rest| rest.split_once(SEPARATOR));
    if let Some((caller, _)) = caller {
        let from = scoped_key(caller, "");
        trim(db, &from, &format!("{from}\u{10ffff}"), MAX_KEYS_PER_CALLER)?;
    }
    if db.last_insert_rowid() % TRIM_EVERY == 0 {
        trim(db, "\n", "\u{b}", MAX_KEYS)?;
        trim(db, " ", "\u{10ffff}", MAX_KEYS)?;
    }
    Ok(())
}

impl Store {
    /// Claims a key for a request, which is identified by its hash.
    pub async fn claim_key(
        &self,
        key: &str,
        request: [u8; 32],
        now: Timestamp,
    ) -> Result<Claim, StoreError> {
        let key = key.to_owned();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency WHERE created_at <= ?1")?
                .execute([micros(now) - DAY_US])?;
            let found = db
                .prepare_cached("SELECT * FROM idempotency WHERE key = ?1")?
                .query_row([&key], |row| {
                    let same = row.get::<_, [u8; 32]>("request")? == request;
                    let status: Option<u16> = row.get("status")?;
                    Ok(match (same, status) {
                        (false, _) => Claim::OtherRequest,
                        (true, None) => Claim::Unfinished { subject: row.get("subject")? },
                        (true, Some(status)) => Claim::Answered(StoredResponse {
                            status,
                            headers: row::json(row, "headers")?,
                            body: row.get::<_, Option<Vec<u8>>>("body")?.unwrap_or_default(),
                        }),
                    })
                })
                .optional()?;
            if let Some(found) = found {
                return Ok(found);
            }
            db.prepare_cached(
                "INSERT INTO idempotency (key, request, created_at) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![key, request, micros(now)])?;
            bound(db, &key)?;
            Ok(Claim::Fresh)
        })
        .await
    }

    /// Records what the request with this key is about to create.
    pub async fn name_key(&self, key: &str, subject: &str) -> Result<(), StoreError> {
        let (key, subject) = (key.to_owned(), subject.to_owned());
        self.write(move |db| {
            db.prepare_cached("UPDATE idempotency SET subject = ?2 WHERE key = ?1")?
                .execute(params![key, subject])?;
            Ok(())
        })
        .await
    }

    /// Stores the response to the request with this key.
    pub async fn answer_key(&self, key: &str, response: StoredResponse) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.write(move |db| {
            db.prepare_cached(
                "UPDATE idempotency SET status = ?2, headers = ?3, body = ?4 WHERE key = ?1",
            )?
            .execute(params![
                key,
                response.status,
                to_json(&response.headers),
                response.body
            ])?;
            Ok(())
        })
        .await
    }

    /// Removes a key whose request had no effect, so that it can be used again.
    pub async fn forget_key(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency WHERE key = ?1")?.execute([key])?;
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_cannot_evict_the_keys_of_another() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let now = Timestamp::now();
        let claim = async |key: &str| store.claim_key(key, [0; 32], now).await.unwrap();
        assert_eq!(claim("owner's").await, Claim::Fresh);
        assert_eq!(claim(&scoped_key("sandbox a", "k")).await, Claim::Fresh);
        // Inserts rows directly, without a transaction for each.
        store
            .write(|db| {
                let mut insert = db.prepare(
                    "INSERT INTO idempotency (key, request, created_at) VALUES (?1, ?2, ?3)",
                )?;
                for at in 0..MAX_KEYS_PER_CALLER {
                    let key = scoped_key("sandbox b", &at.to_string());
                    insert.execute(params![key, [0_u8; 32], micros(Timestamp::now())])?;
                }
                Ok(())
            })
            .await
            .unwrap();
        for at in 0..5 {
            assert_eq!(claim(&scoped_key("sandbox b", &format!("more {at}"))).await, Claim::Fresh);
        }
        let count = store
            .read(|db| Ok(db.query_row("SELECT count(*) FROM idempotency", [], |r| r.get(0))?))
            .await;
        assert_eq!(count, Ok(2 + MAX_KEYS_PER_CALLER));
        let known = Claim::Unfinished { subject: None };
        assert_eq!(claim("owner's").await, known);
        assert_eq!(claim(&scoped_key("sandbox a", "k")).await, known);
        assert_eq!(claim(&scoped_key("sandbox b", "more 0")).await, known);
        assert_eq!(
            claim(&scoped_key("sandbox b", "0")).await,
            Claim::Fresh,
            "the oldest was evicted"
        );
    }
}
