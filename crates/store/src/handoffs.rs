//! Hand-offs: requests of agents to people. Deleted with their terminal.

use std::{collections::HashMap, time::Duration};

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json, to_word},
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
};
use model::{Handoff, HandoffEvent, HandoffId, HandoffStatus, TerminalId, ThreadId};

/// How many settled hand-offs of a terminal are kept; the oldest are removed first.
const MAX_SETTLED_PER_TERMINAL: i64 = 1000;

/// Which hand-offs are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandoffFilter {
    pub status: Option<HandoffStatus>,
    pub thread: Option<ThreadId>,
    pub terminal: Option<TerminalId>,
}

/// The most open hand-offs there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoffLimits {
    pub per_terminal: u64,
    pub total: u64,
}

/// The outcome of adding a hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffAdded {
    Added,
    /// The terminal has as many open hand-offs as it may.
    TerminalFull,
    /// The server has as many open hand-offs as it may.
    Full,
}

impl Store {
    /// Stores an open hand-off unless there are too many. Also removes the oldest settled ones of its terminal.
    pub async fn add_handoff(
        &self,
        handoff: &Handoff,
        limits: HandoffLimits,
    ) -> Result<HandoffAdded, StoreError> {
        let handoff = handoff.clone();
        self.write(move |db| {
            db.lock_table("handoffs")?;
            let terminal = handoff.terminal_id.as_str();
            let count = |sql: &str, terminal: &str| -> Read<u64> {
                db.prepare_cached(sql)?.query_row([terminal], |row| row::count(row, "open"))
            };
            let of_terminal =
                "SELECT count(*) AS open FROM handoffs WHERE word = 'open' AND terminal_id = ?1";
            if count(of_terminal, terminal)? >= limits.per_terminal {
                return Ok(HandoffAdded::TerminalFull);
            }
            let of_all =
                "SELECT count(*) AS open FROM handoffs WHERE word = 'open' AND ?1 IS NOT NULL";
            if count(of_all, terminal)? >= limits.total {
                return Ok(HandoffAdded::Full);
            }
            if super::terminals::terminal(db, &handoff.terminal_id)?.is_none() {
                return Err(StoreError::missing("terminal", &handoff.terminal_id));
            }
            db.prepare_cached(
                "DELETE FROM handoffs WHERE handoff_id IN (
                   SELECT handoff_id FROM handoffs WHERE terminal_id = ?1 AND word <> 'open'
                   ORDER BY created_at DESC, handoff_id DESC LIMIT 1000 OFFSET ?2)",
            )?
            .execute(params![terminal, MAX_SETTLED_PER_TERMINAL])?;
            insert(db, &handoff)?;
            Ok(HandoffAdded::Added)
        })
        .await
    }

    /// Returns the hand-off with this id.
    pub async fn handoff(&self, id: &HandoffId) -> Result<Option<Handoff>, StoreError> {
        let id = id.clone();
        self.read(move |db| handoff(db, &id)).await
    }

    /// Returns hand-offs, newest first.
    pub async fn handoffs(
        &self,
        filter: HandoffFilter,
        page: PageRequest,
    ) -> Result<Page<Handoff>, StoreError> {
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MAX, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM handoffs
                 WHERE (:word IS NULL OR word = :word) AND (:thread IS NULL OR thread_id = :thread)
                   AND (:terminal IS NULL OR terminal_id = :terminal)
                   AND (created_at, handoff_id) < (:at, :id)
                 ORDER BY created_at DESC, handoff_id DESC LIMIT :limit",
            )?;
            let rows = statement.query_map(
                named_params! {
                    ":word": filter.status.map(HandoffStatus::word),
                    ":thread": filter.thread.as_ref().map(ThreadId::as_str),
                    ":terminal": filter.terminal.as_ref().map(TerminalId::as_str),
                    ":at": after.at, ":id": after.id, ":limit": i64::from(page.limit) + 1,
                },
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |found: &Handoff| Cursor {
                at: micros(found.created.at),
                id: found.handoff_id.to_string(),
            }))
        })
        .await
    }

    /// Returns all open hand-offs, oldest first. [`HandoffLimits`] bounds them.
    pub async fn open_handoffs(&self) -> Result<Vec<Handoff>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM handoffs WHERE word = 'open' ORDER BY created_at, handoff_id",
            )?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the number of open hand-offs of each thread that has one.
    pub async fn open_handoff_counts(&self) -> Result<HashMap<ThreadId, u64>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT thread_id, count(*) AS open FROM handoffs WHERE word = 'open'
                 GROUP BY thread_id",
            )?;
            let rows = statement.query_map((), |row| {
                Ok((row::parsed(row, "thread_id")?, row::count(row, "open")?))
            })?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Applies an event to the stored hand-off. Refused if its state does not allow the event.
    pub async fn apply_handoff(
        &self,
        id: &HandoffId,
        event: HandoffEvent,
    ) -> Result<Handoff, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let before = handoff(db, &id)?.ok_or_else(|| StoreError::missing("hand-off", &id))?;
            let mut next = before.apply(event.clone())?;
            if next == before {
                return Ok(before);
            }
            next.revision += 1;
            db.prepare_cached(
                "UPDATE handoffs SET word = ?2, state = ?3, notice = ?4, revision = ?5
                 WHERE handoff_id = ?1",
            )?
            .execute(params![
                id.as_str(),
                next.status().word(),
                to_json(&next.state),
                to_word(&next.notice),
                int(next.revision),
            ])?;
            Ok(next)
        })
        .await
    }
}

fn handoff(db: &Db, id: &HandoffId) -> Result<Option<Handoff>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM handoffs WHERE handoff_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

fn insert(db: &Db, handoff: &Handoff) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO handoffs (handoff_id, terminal_id, thread_id, kind, reason, options, word, state,
                               created, timeout_us, notice, created_at, revision)
         VALUES (:id, :terminal, :thread, :kind, :reason, :options, :word, :state,
                 :created, :timeout, :notice, :at, :revision)",
    )?
    .execute(named_params! {
        ":id": handoff.handoff_id.as_str(),
        ":terminal": handoff.terminal_id.as_str(),
        ":thread": handoff.thread_id.as_str(),
        ":kind": to_word(&handoff.kind),
        ":reason": handoff.reason,
        ":options": to_json(&handoff.options),
        ":word": handoff.status().word(),
        ":state": to_json(&handoff.state),
        ":created": to_json(&handoff.created),
        ":timeout": int(u64::try_from(handoff.timeout.as_micros()).unwrap_or(u64::MAX)),
        ":notice": to_word(&handoff.notice),
        ":at": micros(handoff.created.at),
        ":revision": int(handoff.revision),
    })?;
    Ok(())
}

fn from_row(row: &SqlRow<'_>) -> Read<Handoff> {
    checksum::verify(row, "a hand-off")?;
    Ok(Handoff {
        handoff_id: row::parsed(row, "handoff_id")?,
        thread_id: row::parsed(row, "thread_id")?,
        terminal_id: row::parsed(row, "terminal_id")?,
        kind: row::word(row, "kind")?,
        reason: row.get("reason")?,
        options: row::json(row, "options")?,
        state: row::json(row, "state")?,
        created: row::json(row, "created")?,
        timeout: Duration::from_micros(row::count(row, "timeout_us")?),
        notice: row::word(row, "notice")?,
        revision: row::count(row, "revision")?,
    })
}
