//! Terminals: everything of them but their state's history.

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::{
    Cursor, Page, PageRequest, Store, StoreError, leases,
    row::{self, Read, int, micros, to_json, to_word},
    versions,
};
use model::{LeaseId, Terminal, TerminalEvent, TerminalId, TerminalStatus, ThreadId, Timestamp};

impl Store {
    /// The terminal with this id, closed ones too.
    pub async fn terminal(&self, id: &TerminalId) -> Result<Option<Terminal>, StoreError> {
        let id = id.clone();
        self.read(move |db| terminal(db, &id)).await
    }

    /// The terminals of a thread that are not closed, oldest first.
    pub async fn thread_terminals(&self, id: &ThreadId) -> Result<Vec<Terminal>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM terminals WHERE thread_id = ?1 AND is_open = 1
                 ORDER BY created_at, terminal_id",
            )?;
            Ok(statement.query_map([id.as_str()], from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// The same, a page at a time.
    pub async fn thread_terminals_page(
        &self,
        id: &ThreadId,
        page: PageRequest,
    ) -> Result<Page<Terminal>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let after = page.after.unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM terminals WHERE thread_id = ?1 AND is_open = 1
                   AND (created_at, terminal_id) > (?2, ?3)
                 ORDER BY created_at, terminal_id LIMIT ?4",
            )?;
            let rows = statement.query_map(
                params![id.as_str(), after.at, after.id, i64::from(page.limit) + 1],
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |row: &Terminal| Cursor {
                at: micros(row.created_at),
                id: row.terminal_id.to_string(),
            }))
        })
        .await
    }

    /// The terminals of all threads, oldest first.
    pub async fn terminals(&self, page: PageRequest) -> Result<Page<Terminal>, StoreError> {
        self.read(move |db| {
            let after = page.after.unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM terminals WHERE is_open = 1
                   AND (created_at, terminal_id) > (?1, ?2)
                 ORDER BY created_at, terminal_id LIMIT ?3",
            )?;
            let rows = statement
                .query_map(params![after.at, after.id, i64::from(page.limit) + 1], from_row)?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |row: &Terminal| Cursor {
                at: micros(row.created_at),
                id: row.terminal_id.to_string(),
            }))
        })
        .await
    }

    /// How many terminals of a thread are not closed.
    pub async fn count_terminals(&self, id: &ThreadId) -> Result<usize, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let count = "SELECT count(*) FROM terminals WHERE thread_id = ?1 AND is_open = 1";
            let count: i64 =
                db.prepare_cached(count)?.query_row([id.as_str()], |row| row.get(0))?;
            Ok(usize::try_from(count).unwrap_or(0))
        })
        .await
    }

    /// Every terminal that is said to be live: what a server that starts has to look for.
    pub async fn live_terminals(&self) -> Result<Vec<Terminal>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM terminals WHERE is_open = 1 AND status ->> 'status' = 'live'",
            )?;
            Ok(statement.query_map([], from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// The ids of all terminals that are not closed: whose directories may stay.
    pub async fn terminal_ids(&self) -> Result<Vec<TerminalId>, StoreError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT terminal_id FROM terminals WHERE is_open = 1")?;
            let rows = statement.query_map([], |row| row::parsed(row, "terminal_id"))?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Adds a terminal to a thread that exists. A second default one is refused.
    pub async fn add_terminal(&self, terminal: &Terminal) -> Result<(), StoreError> {
        let terminal = terminal.clone();
        self.write(move |db| insert(db, &terminal)).await
    }

    /// Lets something happen to a terminal as it is stored at that instant.
    pub async fn apply_terminal(
        &self,
        id: &TerminalId,
        event: TerminalEvent,
        at: Timestamp,
    ) -> Result<Terminal, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let before = require(db, &id)?;
            let mut next = before.apply(event)?;
            if next == before {
                return Ok(before);
            }
            next.revision += 1;
            next.updated_at = at;
            db.prepare_cached(
                "UPDATE terminals SET status = ?2, is_open = ?3, updated_at = ?4, revision = ?5
                 WHERE terminal_id = ?1",
            )?
            .execute(params![
                id.as_str(),
                to_json(&next.status),
                next.status != TerminalStatus::Closed,
                micros(at),
                int(next.revision),
            ])?;
            Ok(next)
        })
        .await
    }

    /// Removes a terminal with its state, its history and its commands. Answers its lease, if
    /// nobody stands on that any more: it is then wanted gone.
    pub async fn delete_terminal(
        &self,
        id: &TerminalId,
        at: Timestamp,
    ) -> Result<Option<LeaseId>, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let terminal = require(db, &id)?;
            delete(db, &id)?;
            let gone = leases::release(db, &terminal.lease_id, at)?;
            Ok(gone.then_some(terminal.lease_id))
        })
        .await
    }
}

pub(super) fn terminal(db: &Connection, id: &TerminalId) -> Result<Option<Terminal>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM terminals WHERE terminal_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

pub(super) fn require(db: &Connection, id: &TerminalId) -> Result<Terminal, StoreError> {
    terminal(db, id)?.ok_or_else(|| StoreError::missing("terminal", id))
}

/// Removes a terminal's rows; what others share of its state stays.
pub(super) fn delete(db: &Connection, id: &TerminalId) -> Result<(), StoreError> {
    versions::forget_all(db, id)?;
    db.prepare_cached("DELETE FROM terminals WHERE terminal_id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

pub(super) fn insert(db: &Connection, terminal: &Terminal) -> Result<(), StoreError> {
    // History without a row is nobody's, and its version numbers would stand in the way of the first.
    if terminal.version == 0 {
        versions::forget_all(db, &terminal.terminal_id)?;
    }
    let result = db
        .prepare_cached(
            "INSERT INTO terminals (terminal_id, thread_id, lease_id, is_default, is_open, argv,
                    shell, cols, rows, env, cwd, env_delta, version, title, status, created_at,
                    updated_at, last_activity_at, revision)
             VALUES (:id, :thread, :lease, :default, :open, :argv, :shell, :cols, :rows, :env,
                     :cwd, :delta, :version, :title, :status, :created, :updated, :active, :rev)",
        )?
        .execute(named_params! {
            ":id": terminal.terminal_id.as_str(),
            ":thread": terminal.thread_id.as_str(),
            ":lease": terminal.lease_id.as_str(),
            ":default": terminal.is_default,
            ":open": terminal.status != TerminalStatus::Closed,
            ":argv": to_json(&terminal.argv),
            ":shell": to_word(&terminal.shell),
            ":cols": terminal.cols,
            ":rows": terminal.rows,
            ":env": to_json(&terminal.env),
            ":cwd": terminal.cwd,
            ":delta": to_json(&terminal.env_delta),
            ":version": int(terminal.version),
            ":title": terminal.title,
            ":status": to_json(&terminal.status),
            ":created": micros(terminal.created_at),
            ":updated": micros(terminal.updated_at),
            ":active": micros(terminal.last_activity_at),
            ":rev": int(terminal.revision),
        });
    match result.map_err(StoreError::from) {
        Err(StoreError::Exists { .. }) => {
            let thread = db
                .prepare_cached("SELECT 1 FROM threads WHERE thread_id = ?1")?
                .query_row([terminal.thread_id.as_str()], |_| Ok(()))
                .optional()?;
            if thread.is_none() {
                return Err(StoreError::missing("thread", &terminal.thread_id));
            }
            if leases::lease(db, &terminal.lease_id)?.is_none() {
                return Err(StoreError::missing("lease", &terminal.lease_id));
            }
            let noun = if terminal.is_default { "default terminal of thread" } else { "terminal" };
            let id: &str = if terminal.is_default {
                terminal.thread_id.as_str()
            } else {
                terminal.terminal_id.as_str()
            };
            Err(StoreError::Exists { what: format!("{noun} {id}") })
        }
        other => other.map(drop),
    }
}

fn from_row(row: &Row<'_>) -> Read<Terminal> {
    Ok(Terminal {
        terminal_id: row::parsed(row, "terminal_id")?,
        thread_id: row::parsed(row, "thread_id")?,
        lease_id: row::parsed(row, "lease_id")?,
        is_default: row.get("is_default")?,
        argv: row::json(row, "argv")?,
        shell: row::word(row, "shell")?,
        cols: row.get("cols")?,
        rows: row.get("rows")?,
        env: row::json(row, "env")?,
        cwd: row.get("cwd")?,
        env_delta: row::json(row, "env_delta")?,
        version: row::count(row, "version")?,
        title: row.get("title")?,
        status: row::json(row, "status")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        last_activity_at: row::time(row, "last_activity_at")?,
        revision: row::count(row, "revision")?,
    })
}
