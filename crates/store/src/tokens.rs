//! Access tokens. Only a hash of each is stored.

use super::{
    Store, StoreError, checksum,
    row::{self, Read, micros},
    sql::{SqlRow, params},
};
use model::{Timestamp, TokenId};

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub token_id: TokenId,
    /// A name chosen by its owner.
    pub name: String,
    /// The permissions of the token, in the terms of the code that checks it.
    pub scope: String,
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl Store {
    /// Stores a token with its hash.
    pub async fn add_token(&self, token: &Token, hash: [u8; 32]) -> Result<(), StoreError> {
        let token = token.clone();
        self.write(move |db| {
            db.prepare_cached(
                "INSERT INTO tokens
                   (token_id, name, hash, scope, created_at, expires_at, revoked_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                token.token_id.as_str(),
                token.name,
                hash,
                token.scope,
                micros(token.created_at),
                token.expires_at.map(micros),
                token.revoked_at.map(micros),
            ])?;
            Ok(())
        })
        .await
    }

    /// Returns the valid tokens with their hashes, oldest first.
    pub async fn live_tokens(&self, now: Timestamp) -> Result<Vec<(Token, [u8; 32])>, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM tokens
                 WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1)
                 ORDER BY created_at, token_id LIMIT 1000",
            )?;
            let rows =
                statement.query_map([micros(now)], |row| Ok((from_row(row)?, row.get("hash")?)))?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns all tokens, oldest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT * FROM tokens ORDER BY created_at, token_id LIMIT 1000")?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Revokes a token. Repeating this keeps the first time.
    pub async fn revoke_token(&self, id: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let changed = db
                .prepare_cached(
                    "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE token_id = ?1",
                )?
                .execute(params![id.as_str(), micros(at)])?;
            if changed == 0 {
                return Err(StoreError::missing("token", &id));
            }
            Ok(())
        })
        .await
    }
}

fn from_row(row: &SqlRow<'_>) -> Read<Token> {
    checksum::verify(row, "a token")?;
    Ok(Token {
        token_id: row::parsed(row, "token_id")?,
        name: row.get("name")?,
        scope: row.get("scope")?,
        created_at: row::time(row, "created_at")?,
        expires_at: row::time_or_none(row, "expires_at")?,
        revoked_at: row::time_or_none(row, "revoked_at")?,
    })
}
