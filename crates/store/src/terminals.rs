//! Terminals, without the history of their states.

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum, leases,
    removals::{self, DeletedRows},
    row::{self, Read, int, micros, to_json, to_word},
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
    versions,
};
use model::{Terminal, TerminalEvent, TerminalId, TerminalStatus, ThreadId, Timestamp};

impl Store {
    /// Returns the terminal with this id, even if it is closed.
    pub async fn terminal(&self, id: &TerminalId) -> Result<Option<Terminal>, StoreError> {
        let id = id.clone();
        self.read(move |db| terminal(db, &id)).await
    }

    /// Returns the open terminals of a thread, oldest first.
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

    /// Returns a page of the open terminals of a thread.
    pub async fn thread_terminals_page(
        &self,
        id: &ThreadId,
        page: PageRequest,
    ) -> Result<Page<Terminal>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
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

    /// Returns the open terminals of all threads, oldest first.
    pub async fn terminals(&self, page: PageRequest) -> Result<Page<Terminal>, StoreError> {
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
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

    /// Returns the number of open terminals of a thread.
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

    /// Returns all terminals with status live, which a starting server has to recover.
    pub async fn live_terminals(&self) -> Result<Vec<Terminal>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM terminals WHERE is_open = 1 AND json_extract(status, '$.status') = 'live'",
            )?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the ids of all open terminals, whose directories have to be kept.
    pub async fn terminal_ids(&self) -> Result<Vec<TerminalId>, StoreError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT terminal_id FROM terminals WHERE is_open = 1")?;
            let rows = statement.query_map((), |row| row::parsed(row, "terminal_id"))?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Adds a terminal to an existing thread. A second default terminal is refused.
    pub async fn add_terminal(&self, terminal: &Terminal) -> Result<(), StoreError> {
        let terminal = terminal.clone();
        self.write(move |db| insert(db, &terminal)).await
    }

    /// Applies an event to the stored terminal.
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

    /// Removes a terminal with its state, history and commands. Returns its lease if no thread or terminal
    /// uses it any more; the lease is then marked for destruction.
    pub async fn delete_terminal(
        &self,
        id: &TerminalId,
        at: Timestamp,
    ) -> Result<DeletedRows, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let lease = require(db, &id)?.lease_id;
            delete(db, &id)?;
            let mut deleted = DeletedRows::default();
            if leases::release(db, &lease, at)? {
                deleted.leases.push(lease.clone());
            }
            deleted.terminals.push((id.clone(), lease));
            removals::record(db, "terminal", &id, deleted)
        })
        .await
    }
}

pub(super) fn terminal(db: &Db, id: &TerminalId) -> Result<Option<Terminal>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM terminals WHERE terminal_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

pub(super) fn require(db: &Db, id: &TerminalId) -> Result<Terminal, StoreError> {
    terminal(db, id)?.ok_or_else(|| StoreError::missing("terminal", id))
}

/// Removes a terminal's rows. Contents that other terminals share stay.
pub(super) fn delete(db: &Db, id: &TerminalId) -> Result<(), StoreError> {
    versions::remove_all(db, id)?;
    db.prepare_cached("DELETE FROM terminals WHERE terminal_id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

pub(super) fn insert(db: &Db, terminal: &Terminal) -> Result<(), StoreError> {
    // History of a missing terminal row is stale, and its version numbers would conflict with new ones.
    if terminal.version == 0 {
        versions::remove_all(db, &terminal.terminal_id)?;
    }
    // Checked first: in PostgreSQL, a refused statement ends the transaction.
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

fn from_row(row: &SqlRow<'_>) -> Read<Terminal> {
    checksum::verify(row, "a terminal")?;
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
