//! Sessions.

use std::time::Duration;

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json},
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
};
use model::{ChatSession, Moment, SessionEvent, SessionId, ThreadId};

/// A filter for sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFilter {
    All,
    Open,
    /// Expired or closed.
    Ended,
}

impl Store {
    /// Returns the session with this id.
    pub async fn session(&self, id: &SessionId) -> Result<Option<ChatSession>, StoreError> {
        let id = id.clone();
        self.read(move |db| session(db, &id)).await
    }

    /// Returns the open session of a thread, or else its last one.
    pub async fn last_session(&self, id: &ThreadId) -> Result<Option<ChatSession>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM sessions WHERE thread_id = ?1
                 ORDER BY is_open DESC, created_at DESC, session_id DESC LIMIT 1",
            )?;
            Ok(statement.query_row([id.as_str()], from_row).optional()?)
        })
        .await
    }

    /// Returns the sessions of all threads, newest first.
    pub async fn sessions(
        &self,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<ChatSession>, StoreError> {
        let open = match filter {
            SessionFilter::All => None,
            SessionFilter::Open => Some(true),
            SessionFilter::Ended => Some(false),
        };
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MAX, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM sessions WHERE (?1 IS NULL OR is_open = ?1)
                   AND (created_at, session_id) < (?2, ?3)
                 ORDER BY created_at DESC, session_id DESC LIMIT ?4",
            )?;
            let rows = statement.query_map(
                params![open, after.at, after.id, i64::from(page.limit) + 1],
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |s: &ChatSession| Cursor {
                at: micros(s.created.at),
                id: s.session_id.to_string(),
            }))
        })
        .await
    }

    /// Returns all open sessions.
    pub async fn open_sessions(&self) -> Result<Vec<ChatSession>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached("SELECT * FROM sessions WHERE is_open = 1")?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Applies an event to the stored session and returns the result, or refuses the event. If two callers
    /// expire the same session, one is refused.
    pub async fn apply_session(
        &self,
        id: &SessionId,
        event: SessionEvent,
    ) -> Result<ChatSession, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let before = session(db, &id)?.ok_or_else(|| StoreError::missing("session", &id))?;
            let next = before.apply(event)?;
            if next == before { Ok(before) } else { save(db, next) }
        })
        .await
    }
}

pub(super) fn session(db: &Db, id: &SessionId) -> Result<Option<ChatSession>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM sessions WHERE session_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

pub(super) fn open_session(db: &Db, thread: &ThreadId) -> Result<Option<ChatSession>, StoreError> {
    let mut statement =
        db.prepare_cached("SELECT * FROM sessions WHERE thread_id = ?1 AND is_open = 1")?;
    Ok(statement.query_row([thread.as_str()], from_row).optional()?)
}

pub(super) fn insert(db: &Db, session: &ChatSession) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO sessions (session_id, thread_id, terminal_id, is_open, state, policy,
                               created, last_active, ran_before_us, created_at, revision)
         VALUES (:id, :thread, :terminal, :open, :state, :policy, :created, :active, :ran, :at,
                 :rev)",
    )?
    .execute(named_params! {
        ":id": session.session_id.as_str(),
        ":thread": session.thread_id.as_str(),
        ":terminal": session.terminal_id.as_str(),
        ":open": session.is_open(),
        ":state": to_json(&session.state),
        ":policy": to_json(&session.policy),
        ":created": to_json(&session.created),
        ":active": to_json(&session.last_active),
        ":ran": int(u64::try_from(session.ran_before.as_micros()).unwrap_or(u64::MAX)),
        ":at": micros(session.created.at),
        ":rev": int(session.revision),
    })?;
    Ok(())
}

pub(super) fn save(db: &Db, mut next: ChatSession) -> Result<ChatSession, StoreError> {
    let read = next.revision;
    next.revision += 1;
    let changed = db
        .prepare_cached(
            "UPDATE sessions SET is_open = :open, state = :state, policy = :policy,
                    last_active = :active, revision = :revision
             WHERE session_id = :id AND revision = :read",
        )?
        .execute(named_params! {
            ":id": next.session_id.as_str(),
            ":open": next.is_open(),
            ":state": to_json(&next.state),
            ":policy": to_json(&next.policy),
            ":active": to_json(&next.last_active),
            ":revision": int(next.revision),
            ":read": int(read),
        })?;
    if changed == 1 {
        return Ok(next);
    }
    match session(db, &next.session_id)? {
        None => Err(StoreError::missing("session", &next.session_id)),
        Some(found) => Err(StoreError::Conflict {
            what: format!("session {}", next.session_id),
            expected: read,
            found: found.revision,
        }),
    }
}

/// Touches a session if it is open. A session that has ended stays ended, which is not an error for the
/// caller.
pub(super) fn touch(db: &Db, id: &SessionId, now: Moment) -> Result<(), StoreError> {
    let Some(before) = session(db, id)? else { return Ok(()) };
    if now.since(&before.last_active).is_zero() {
        return Ok(());
    }
    if let Ok(next) = before.apply(SessionEvent::Touched(now)) {
        save(db, next)?;
    }
    Ok(())
}

fn from_row(row: &SqlRow<'_>) -> Read<ChatSession> {
    checksum::verify(row, "a session")?;
    Ok(ChatSession {
        session_id: row::parsed(row, "session_id")?,
        thread_id: row::parsed(row, "thread_id")?,
        terminal_id: row::parsed(row, "terminal_id")?,
        state: row::json(row, "state")?,
        policy: row::json(row, "policy")?,
        created: row::json(row, "created")?,
        last_active: row::json(row, "last_active")?,
        ran_before: Duration::from_micros(row::count(row, "ran_before_us")?),
        revision: row::count(row, "revision")?,
    })
}
