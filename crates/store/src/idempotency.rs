//! Keys under which a client may ask twice and be answered once.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Store, StoreError,
    row::{self, Read, micros, to_json},
};
use model::Timestamp;

/// How many keys of the owner are kept at most, and of all others together; the oldest go first, even
/// before their day is over.
const KEPT: i64 = 100_000;
/// How many of one other caller.
const KEPT_OF_CALLER: i64 = 1_000;
/// Counting many keys takes long: that is done once in so many.
const TRIM_EVERY: i64 = 1_024;
/// Before and behind the name of a caller in a key; no header can carry it.
const SEPARATOR: char = '\n';

/// How long an answer is kept.
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

/// An answer that can be given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status code.
    pub status: u16,
    /// The headers worth repeating.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nobody used it; it is the caller's, who has to finish or forget it.
    Fresh,
    /// The same request was answered.
    Answered(StoredResponse),
    /// The same request was begun and not answered: it goes on, or its server died. `subject` is
    /// what it was about to make, if that was written down.
    Unfinished {
        /// E.g. the command's id.
        subject: Option<String>,
    },
    /// Another request used it.
    OtherRequest,
}

/// The key of a caller other than the owner.
pub fn scoped_key(caller: &str, key: &str) -> String {
    format!("{SEPARATOR}{caller}{SEPARATOR}{key}")
}

/// Drops the oldest keys between two, but for so many.
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
        trim(db, &from, &format!("{from}\u{10ffff}"), KEPT_OF_CALLER)?;
    }
    if db.last_insert_rowid() % TRIM_EVERY == 0 {
        trim(db, "\n", "\u{b}", KEPT)?;
        trim(db, " ", "\u{10ffff}", KEPT)?;
    }
    Ok(())
}

impl Store {
    /// Takes a key for a request, whose hash tells it from others.
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

    /// Writes down what the request with this key is about to make.
    pub async fn name_key(&self, key: &str, subject: &str) -> Result<(), StoreError> {
        let (key, subject) = (key.to_owned(), subject.to_owned());
        self.write(move |db| {
            db.prepare_cached("UPDATE idempotency SET subject = ?2 WHERE key = ?1")?
                .execute(params![key, subject])?;
            Ok(())
        })
        .await
    }

    /// Keeps the answer to the request with this key.
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

    /// Lets go of a key whose request had no effect, so that it can be asked again.
    pub async fn forget_key(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency WHERE key = ?1")?.execute([key])?;
            Ok(())
        })
        .await
    }

    /// How many keys are kept.
    pub async fn key_count(&self) -> Result<u64, StoreError> {
        self.read(|db| {
            let count: Read<u64> =
                db.query_row("SELECT count(*) AS n FROM idempotency", [], |r| row::count(r, "n"));
            Ok(count?)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_cannot_make_the_keys_of_another_go() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let now = Timestamp::now();
        let claim = async |key: &str| store.claim_key(key, [0; 32], now).await.unwrap();
        assert_eq!(claim("owner's").await, Claim::Fresh);
        assert_eq!(claim(&scoped_key("sandbox a", "k")).await, Claim::Fresh);
        // Rows that are there, without a transaction for each.
        store
            .write(|db| {
                let mut insert = db.prepare(
                    "INSERT INTO idempotency (key, request, created_at) VALUES (?1, ?2, ?3)",
                )?;
                for at in 0..KEPT_OF_CALLER {
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
        assert_eq!(store.key_count().await, Ok(2 + KEPT_OF_CALLER as u64));
        let known = Claim::Unfinished { subject: None };
        assert_eq!(claim("owner's").await, known);
        assert_eq!(claim(&scoped_key("sandbox a", "k")).await, known);
        assert_eq!(claim(&scoped_key("sandbox b", "more 0")).await, known);
        assert_eq!(claim(&scoped_key("sandbox b", "0")).await, Claim::Fresh, "the oldest went");
    }
}
