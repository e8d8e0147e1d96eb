//! Keys under which a client may ask twice and be answered once.

use rusqlite::{OptionalExtension, params};

use super::{
    Store, StoreError,
    row::{self, Read, micros, to_json},
};
use crate::model::Timestamp;

/// How many keys are kept at most; the oldest go first, even before their day is over.
const KEPT: i64 = 100_000;

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
            db.prepare_cached("DELETE FROM idempotency WHERE id <= ?1")?
                .execute([db.last_insert_rowid() - KEPT])?;
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
