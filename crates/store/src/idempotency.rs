//! Idempotency keys: a repeated request gets the first response.

use super::{
    Store, StoreError,
    row::{self, Read, micros, to_json},
    sql::{Db, OptionalExtension, params},
};
use model::Timestamp;

/// How many keys of the owner are kept, and of all other callers together. The oldest are removed first,
/// even before they expire.
const MAX_KEYS: i64 = 100_000;
/// How many keys of one other caller are kept.
const MAX_KEYS_PER_CALLER: i64 = 1_000;
/// Bytes of the responses that are kept for the owner, and for all other callers together.
const MAX_BYTES: i64 = 128 << 20;
/// Bytes of the responses that are kept for one other caller.
const MAX_BYTES_PER_CALLER: i64 = 8 << 20;
/// The name of the owner among the callers.
const OWNER: &str = "";
/// The total is checked once per this many keys, because counting is slow.
const TRIM_EVERY: i64 = 1_024;
/// The number of responses that one query finds to be released.
const RELEASED_PER_STEP: u32 = 256;
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
    /// The same request was started and has no response: it is still running, its server died, or the response was
    /// too large to be kept. `subject` is what it was about to create, if that was recorded.
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

/// The name of a key's caller.
fn caller_of(key: &str) -> &str {
    key.strip_prefix(SEPARATOR)
        .and_then(|rest| rest.split_once(SEPARATOR))
        .map_or(OWNER, |(caller, _)| caller)
}

/// Selects the keys of one caller, or those of all callers but one.
#[derive(Debug, Clone, Copy)]
enum Callers<'a> {
    One(&'a str),
    AllBut(&'a str),
}

impl<'a> Callers<'a> {
    /// The condition in SQL, and its first parameter.
    fn condition(self) -> (&'static str, &'a str) {
        match self {
            Callers::One(caller) => ("caller = ?1", caller),
            Callers::AllBut(caller) => ("caller != ?1", caller),
        }
    }
}

/// Removes the oldest keys, except for the newest `kept`.
fn trim(db: &Db, callers: Callers<'_>, kept: i64) -> Read<()> {
    let (condition, caller) = callers.condition();
    db.prepare_cached(&format!(
        "DELETE FROM idempotency WHERE {condition} AND id <= (
            SELECT id FROM idempotency WHERE {condition} ORDER BY id DESC LIMIT 1 OFFSET ?2)"
    ))?
    .execute(params![caller, kept])?;
    Ok(())
}

/// Bounds the keys of each caller after one was added with this id.
fn bound_keys(db: &Db, caller: &str, id: i64) -> Read<()> {
    if caller != OWNER {
        trim(db, Callers::One(caller), MAX_KEYS_PER_CALLER)?;
    }
    if id % TRIM_EVERY == 0 {
        trim(db, Callers::One(OWNER), MAX_KEYS)?;
        trim(db, Callers::AllBut(OWNER), MAX_KEYS)?;
        db.on_postgres("SELECT fold_idempotency_bytes()", ())?;
    }
    Ok(())
}

/// Releases the oldest responses until at most `max` bytes are left. Their keys stay, so that no request is executed
/// again.
fn release(db: &Db, callers: Callers<'_>, max: i64) -> Read<()> {
    let (condition, caller) = callers.condition();
    let sum = format!(
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM idempotency_bytes WHERE {condition}"
    );
    let bytes: i64 = db.prepare_cached(&sum)?.query_row([caller], |row| row.get(0))?;
    let mut excess = bytes - max;
    if excess <= 0 {
        return Ok(());
    }
    let answered = format!(
        "SELECT id, length(headers) + coalesce(length(body), 0) FROM idempotency
         WHERE {condition} AND status IS NOT NULL ORDER BY id LIMIT {RELEASED_PER_STEP}"
    );
    let release = "UPDATE idempotency SET status = NULL, headers = '[]', body = NULL WHERE id = ?1";
    while excess > 0 {
        let mut statement = db.prepare_cached(&answered)?;
        let rows = statement.query_map([caller], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let oldest: Vec<(i64, i64)> = rows.collect::<Read<_>>()?;
        if oldest.is_empty() {
            break;
        }
        for (id, bytes) in oldest {
            if excess > 0 {
                db.prepare_cached(release)?.execute([id])?;
                excess -= bytes;
            }
        }
    }
    Ok(())
}

/// Bounds the responses that are kept after one was added.
fn bound_bytes(db: &Db, caller: &str) -> Read<()> {
    if caller == OWNER {
        return release(db, Callers::One(OWNER), MAX_BYTES);
    }
    release(db, Callers::One(caller), MAX_BYTES_PER_CALLER)?;
    release(db, Callers::AllBut(OWNER), MAX_BYTES)
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
                    let same = row.get::<[u8; 32]>("request")? == request;
                    let status: Option<u16> = row.get("status")?;
                    Ok(match (same, status) {
                        (false, _) => Claim::OtherRequest,
                        (true, None) => Claim::Unfinished { subject: row.get("subject")? },
                        (true, Some(status)) => Claim::Answered(StoredResponse {
                            status,
                            headers: row::json(row, "headers")?,
                            body: row.get::<Option<Vec<u8>>>("body")?.unwrap_or_default(),
                        }),
                    })
                })
                .optional()?;
            if let Some(found) = found {
                return Ok(found);
            }
            let id = db
                .prepare_cached(
                    "INSERT INTO idempotency (key, caller, request, created_at)
                     VALUES (?1, ?2, ?3, ?4) RETURNING id",
                )?
                .query_row(params![key, caller_of(&key), request, micros(now)], |row| row.get(0))?;
            bound_keys(db, caller_of(&key), id)?;
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
            bound_bytes(db, caller_of(&key))?;
            Ok(())
        })
        .await
    }

    /// Removes a key whose request had no effect, so that it can be used again.
    pub async fn forget_key(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency WHERE key = ?1")?.execute([&key])?;
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
                let mut insert = db.prepare_cached(
                    "INSERT INTO idempotency (key, caller, request, created_at)
                     VALUES (?1, 'sandbox b', ?2, ?3)",
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
            .read(|db| {
                let mut count = db.prepare_cached("SELECT count(*) FROM idempotency")?;
                Ok(count.query_row((), |row| row.get(0))?)
            })
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

    #[tokio::test]
    async fn the_oldest_responses_of_a_caller_are_released_and_their_keys_stay() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let now = Timestamp::now();
        let claim = async |key: &str| store.claim_key(key, [0; 32], now).await.unwrap();
        let body = vec![b'x'; 1 << 20];
        let response = StoredResponse { status: 200, headers: Vec::new(), body };
        let answer = async |key: &str| {
            assert_eq!(claim(key).await, Claim::Fresh);
            store.answer_key(key, response.clone()).await.unwrap();
        };
        answer("owner's").await;
        answer(&scoped_key("sandbox a", "k")).await;
        for at in 0..20 {
            answer(&scoped_key("sandbox b", &at.to_string())).await;
        }
        let released = Claim::Unfinished { subject: None };
        let kept = Claim::Answered(response.clone());
        for (key, expected) in [("0", &released), ("12", &released), ("13", &kept), ("19", &kept)] {
            assert_eq!(claim(&scoped_key("sandbox b", key)).await, *expected, "{key}");
        }
        assert_eq!(claim("owner's").await, kept);
        assert_eq!(claim(&scoped_key("sandbox a", "k")).await, kept);
        let recorded = "SELECT caller, bytes FROM idempotency_bytes ORDER BY caller";
        let actual = "SELECT caller, sum(length(headers) + length(body)) FROM idempotency
                      WHERE status IS NOT NULL GROUP BY caller ORDER BY caller";
        let sums = async |sql: &'static str| {
            store
                .read(move |db| {
                    let mut statement = db.prepare_cached(sql)?;
                    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
                    Ok(rows.collect::<Read<Vec<(String, i64)>>>()?)
                })
                .await
                .unwrap()
        };
        assert_eq!(sums(recorded).await, sums(actual).await);
        store.forget_key("owner's").await.unwrap();
        assert_eq!(sums(recorded).await, sums(actual).await);
    }
}
