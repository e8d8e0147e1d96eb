//! Share links to single terminals. Only a hash of each secret is stored.

use std::time::Duration;

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, micros, to_json},
    sql::{OptionalExtension, SqlRow, ValueRef, named_params, params},
};
use model::{Moment, ShareId, TerminalId, Timestamp};

/// How long a share is listed after its end.
const RETENTION_US: i64 = 30 * 24 * 3600 * 1_000_000;

/// A share, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub share_id: ShareId,
    pub terminal_id: TerminalId,
    /// A name chosen by its creator.
    pub name: String,
    pub created: Moment,
    /// The expiry by the wall clock, to be shown; [`Share::left`] decides.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl Share {
    /// How long the share is still valid, unless it is revoked. Jumps of the wall clock change nothing until the
    /// machine boots again.
    #[must_use]
    pub fn left(&self, now: &Moment) -> Duration {
        let lifetime = self.expires_at.duration_since(self.created.at);
        Duration::try_from(lifetime).unwrap_or_default().saturating_sub(now.since(&self.created))
    }
}

impl Store {
    /// Stores a share with the hash of its secret. An existing share gets the new hash, so that its old
    /// link
    /// stops working. Also removes shares that ended long ago.
    pub async fn put_share(&self, share: &Share, hash: [u8; 32]) -> Result<(), StoreError> {
        let share = share.clone();
        self.write(move |db| {
            let created = micros(share.created.at);
            db.prepare_cached(
                "DELETE FROM shares WHERE min(coalesce(revoked_at, expires_at), expires_at) < ?1",
            )?
            .execute([created - RETENTION_US])?;
            db.prepare_cached(
                "INSERT INTO shares
                   (share_id, terminal_id, name, hash, created_at, expires_at, revoked_at, created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (share_id) DO UPDATE SET hash = excluded.hash",
            )?
            .execute(params![
                share.share_id.as_str(),
                share.terminal_id.as_str(),
                share.name,
                hash,
                created,
                micros(share.expires_at),
                share.revoked_at.map(micros),
                to_json(&share.created),
            ])?;
            Ok(())
        })
        .await
    }

    /// Returns the share with this id.
    pub async fn share(&self, id: &ShareId) -> Result<Option<Share>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached("SELECT * FROM shares WHERE share_id = ?1")?;
            Ok(statement.query_row([id.as_str()], from_row).optional()?)
        })
        .await
    }

    /// Returns the valid shares with their hashes.
    pub async fn live_shares(&self, now: Moment) -> Result<Vec<(Share, [u8; 32])>, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT shares.* FROM shares JOIN terminals USING (terminal_id)
                 WHERE revoked_at IS NULL AND is_open = 1",
            )?;
            let rows = statement.query_map((), |row| Ok((from_row(row)?, row.get("hash")?)))?;
            let mut shares: Vec<(Share, _)> = rows.collect::<Read<_>>()?;
            shares.retain(|(share, _)| !share.left(&now).is_zero());
            Ok(shares)
        })
        .await
    }

    /// Returns the shares of one or all open terminals, including ended ones, newest first.
    pub async fn shares(
        &self,
        terminal: Option<&TerminalId>,
        page: PageRequest,
    ) -> Result<Page<Share>, StoreError> {
        let terminal = terminal.cloned();
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MAX, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT shares.* FROM shares JOIN terminals USING (terminal_id)
                 WHERE (:terminal IS NULL OR terminal_id = :terminal) AND is_open = 1
                   AND (shares.created_at, share_id) < (:at, :id)
                 ORDER BY shares.created_at DESC, share_id DESC LIMIT :limit",
            )?;
            let rows = statement.query_map(
                named_params! {":terminal": terminal.as_ref().map(TerminalId::as_str),
                ":at": after.at, ":id": after.id, ":limit": i64::from(page.limit) + 1},
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |share: &Share| Cursor {
                at: micros(share.created.at),
                id: share.share_id.to_string(),
            }))
        })
        .await
    }

    /// Revokes a share. Repeating this keeps the first time.
    pub async fn revoke_share(&self, id: &ShareId, at: Timestamp) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let changed = db
                .prepare_cached(
                    "UPDATE shares SET revoked_at = coalesce(revoked_at, ?2) WHERE share_id = ?1",
                )?
                .execute(params![id.as_str(), micros(at)])?;
            if changed == 0 {
                return Err(StoreError::missing("share", &id));
            }
            Ok(())
        })
        .await
    }
}

fn from_row(row: &SqlRow<'_>) -> Read<Share> {
    checksum::verify(row, "a share")?;
    Ok(Share {
        share_id: row::parsed(row, "share_id")?,
        terminal_id: row::parsed(row, "terminal_id")?,
        name: row.get("name")?,
        created: match row.value("created")? {
            ValueRef::Null => Moment::wall(row::time(row, "created_at")?),
            _ => row::json(row, "created")?,
        },
        expires_at: row::time(row, "expires_at")?,
        revoked_at: row::time_or_none(row, "revoked_at")?,
    })
}
