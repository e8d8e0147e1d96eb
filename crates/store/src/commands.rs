//! Commands and their receipts.

use super::{
    Cursor, Page, PageRequest, StateChange, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json, to_word},
    sessions,
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
    terminals, versions,
};
use model::{Command, CommandId, Limit, Moment, Refused, SessionId, TerminalId, ThreadId};

/// All changes at the end of a command, made in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishCommand {
    /// The finished command; its row need not exist. `version_after` is filled in.
    pub command: Command,
    /// The terminal's state after the command, if it changed.
    pub state: Option<StateChange>,
    /// The output of the command, if it is small enough to be stored with the receipt.
    pub output: Option<Outputs>,
    /// The session that the command keeps alive.
    pub touch: Option<(SessionId, Moment)>,
}

/// The output of a command until its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outputs {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The result of recording the end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The command as stored.
    pub command: Command,
    /// The version of the terminal's state after the command.
    pub version: u64,
}

/// A filter for the commands of a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandQuery {
    /// Only commands whose text contains this, ignoring case.
    pub containing: Option<String>,
}

/// Selects commands of all threads, in the order of their ids, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentCommands {
    /// Only commands of this thread.
    pub thread: Option<ThreadId>,
    /// Only commands with smaller ids.
    pub before: Option<CommandId>,
    /// The maximum number of commands.
    pub limit: u32,
}

/// A command with its thread and the output that is stored with its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentCommand {
    pub thread_id: ThreadId,
    pub command: Command,
    pub output: Option<Outputs>,
}

impl Store {
    /// Returns the command with this id.
    pub async fn command(&self, id: &CommandId) -> Result<Option<Command>, StoreError> {
        let id = id.clone();
        self.read(move |db| command(db, &id)).await
    }

    /// Inserts or updates a command. Refused if the stored command has ended.
    pub async fn save_command(&self, next: &Command) -> Result<(), StoreError> {
        let next = next.clone();
        self.write(move |db| upsert(db, &next)).await
    }

    /// Records the end of a command, the state after it and the session's activity in one transaction. If
    /// the
    /// command is already stored with the same end, returns that; a different end is refused. Also refused
    /// if
    /// the terminal is not at the expected version.
    pub async fn finish_command(&self, finish: FinishCommand) -> Result<Finished, StoreError> {
        self.write(move |db| {
            let mut next = finish.command.clone();
            let stored = command(db, &next.command_id)?;
            if let Some(stored) = stored.filter(|stored| stored.status.is_end()) {
                if stored.status != next.status || stored.exit_code != next.exit_code {
                    return Err(ended(&stored));
                }
                let version = stored.version_after.unwrap_or(stored.version_before);
                return Ok(Finished { command: stored, version });
            }
            let version = match &finish.state {
                Some(change) => versions::add(db, &next.terminal_id, change)?,
                None => next.version_before,
            };
            next.version_after = Some(version);
            upsert(db, &next)?;
            if let Some(output) = &finish.output {
                db.prepare_cached(
                    "INSERT INTO command_output (command_id, stdout, stderr) VALUES (?1, ?2, ?3)
                     ON CONFLICT (command_id) DO UPDATE SET stdout = excluded.stdout,
                            stderr = excluded.stderr",
                )?
                .execute(params![
                    next.command_id.as_str(),
                    output.stdout,
                    output.stderr
                ])?;
            }
            if let Some((session, now)) = &finish.touch {
                sessions::touch(db, session, *now)?;
            }
            Ok(Finished { command: next, version })
        })
        .await
    }

    /// Returns the output of a command until its end, if it was small enough to be stored here.
    pub async fn command_output(&self, id: &CommandId) -> Result<Option<Outputs>, StoreError> {
        let id = id.clone();
        self.read(move |db| output(db, &id)).await
    }

    /// Returns the newest commands of all threads, or of one. Those of closed terminals are left out.
    pub async fn recent_commands(
        &self,
        wanted: RecentCommands,
    ) -> Result<Vec<RecentCommand>, StoreError> {
        self.read(move |db| {
            // `|| ''` keeps the planner from walking the commands of all threads in order of their ids.
            let sql = match wanted.thread {
                None => {
                    "SELECT * FROM commands WHERE (?1 IS NULL OR command_id < ?1) AND ?2 IS NULL
                       AND (SELECT is_open FROM terminals
                            WHERE terminals.terminal_id = commands.terminal_id) = 1
                     ORDER BY command_id DESC LIMIT ?3"
                }
                Some(_) => {
                    "SELECT * FROM commands WHERE (?1 IS NULL OR command_id || '' < ?1)
                       AND terminal_id IN (SELECT terminal_id FROM terminals
                                           WHERE thread_id = ?2 AND is_open = 1)
                     ORDER BY command_id || '' DESC LIMIT ?3"
                }
            };
            let before = wanted.before.as_ref().map(CommandId::as_str);
            let thread = wanted.thread.as_ref().map(ThreadId::as_str);
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map(params![before, thread, wanted.limit], from_row)?;
            let commands = rows.collect::<Read<Vec<Command>>>()?;
            let mut found = Vec::with_capacity(commands.len());
            for command in commands {
                let Some(terminal) = terminals::terminal(db, &command.terminal_id)? else {
                    continue;
                };
                let output = output(db, &command.command_id)?;
                found.push(RecentCommand { thread_id: terminal.thread_id, command, output });
            }
            Ok(found)
        })
        .await
    }

    /// Returns the latest command of a thread's open terminals.
    pub async fn latest_command(&self, thread: &ThreadId) -> Result<Option<Command>, StoreError> {
        let thread = thread.clone();
        self.read(move |db| {
            // The index has the latest of each terminal, however many commands there are.
            let mut statement = db.prepare_cached(
                "SELECT * FROM commands WHERE command_id IN (
                   SELECT (SELECT command_id FROM commands
                           WHERE commands.terminal_id = terminals.terminal_id
                           ORDER BY created_at DESC, command_id DESC LIMIT 1)
                   FROM terminals WHERE thread_id = ?1 AND is_open = 1)
                 ORDER BY created_at DESC, command_id DESC LIMIT 1",
            )?;
            Ok(statement.query_row([thread.as_str()], from_row).optional()?)
        })
        .await
    }

    /// Records output that a background process of a finished command wrote.
    pub async fn note_late_output(
        &self,
        id: &CommandId,
        stdout_bytes: u64,
        stderr_bytes: u64,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            db.prepare_cached(
                "UPDATE commands SET stdout_bytes = max(stdout_bytes, ?2),
                        stderr_bytes = max(stderr_bytes, ?3)
                 WHERE command_id = ?1",
            )?
            .execute(params![id.as_str(), int(stdout_bytes), int(stderr_bytes)])?;
            Ok(())
        })
        .await
    }

    /// Returns the unfinished commands of a terminal, oldest first.
    pub async fn unfinished_commands(&self, id: &TerminalId) -> Result<Vec<Command>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM commands WHERE terminal_id = ?1
                   AND status IN ('queued', 'running') ORDER BY created_at, command_id",
            )?;
            Ok(statement.query_map([id.as_str()], from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the commands of all terminals that are not known to have started.
    pub async fn queued_commands(&self) -> Result<Vec<Command>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM commands
                 WHERE status IN ('queued', 'running') AND status = 'queued'",
            )?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the history of a terminal, newest first.
    pub async fn commands(
        &self,
        id: &TerminalId,
        query: CommandQuery,
        page: PageRequest,
    ) -> Result<Page<Command>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let before = page.after.clone().unwrap_or(Cursor { at: i64::MAX, id: String::new() });
            let pattern = query.containing.as_deref().map(like);
            let mut statement = db.prepare_cached(
                "SELECT * FROM commands WHERE terminal_id = ?1
                   AND (created_at, command_id) < (?2, ?3)
                   AND (?4 IS NULL OR lower(text) LIKE ?4 ESCAPE '\\')
                 ORDER BY created_at DESC, command_id DESC LIMIT ?5",
            )?;
            let rows = statement.query_map(
                params![id.as_str(), before.at, before.id, pattern, i64::from(page.limit) + 1],
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |c: &Command| Cursor {
                at: micros(c.created_at),
                id: c.command_id.to_string(),
            }))
        })
        .await
    }
}

/// Returns a `LIKE` pattern that matches this text literally, in lower case.
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character.to_ascii_lowercase());
    }
    pattern.push('%');
    pattern
}

fn ended(stored: &Command) -> StoreError {
    StoreError::Refused(Refused {
        noun: format!("command {}", stored.command_id),
        state: stored.status.word(),
        event: "change",
    })
}

fn output(db: &Db, id: &CommandId) -> Result<Option<Outputs>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM command_output WHERE command_id = ?1")?;
    let output = |row: &SqlRow<'_>| {
        checksum::verify(row, "the output of a command")?;
        Ok(Outputs { stdout: row.get("stdout")?, stderr: row.get("stderr")? })
    };
    Ok(statement.query_row([id.as_str()], output).optional()?)
}

pub(super) fn command(db: &Db, id: &CommandId) -> Result<Option<Command>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM commands WHERE command_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

fn upsert(db: &Db, command: &Command) -> Result<(), StoreError> {
    let result = db
        .prepare_cached(
            "INSERT INTO commands (command_id, terminal_id, text, source, status, exit_code,
                    signal, created_at, started_at, finished_at, duration_us, stdout_bytes,
                    stderr_bytes, truncated, version_before, version_after, offset_start,
                    offset_end, cwd, changes, shell_restarted, limit_reached, idempotency_key)
             VALUES (:id, :terminal, :text, :source, :status, :exit_code, :signal, :created,
                     :started, :finished, :duration, :stdout, :stderr, :truncated, :before, :after,
                     :start, :end, :cwd, :changes, :restarted, :limit, :key)
             ON CONFLICT (command_id) DO UPDATE SET status = :status, exit_code = :exit_code,
                    signal = :signal, started_at = :started, finished_at = :finished,
                    duration_us = :duration, stdout_bytes = :stdout, stderr_bytes = :stderr,
                    truncated = :truncated, version_before = :before, version_after = :after,
                    offset_start = :start, offset_end = :end, cwd = :cwd, changes = :changes,
                    shell_restarted = :restarted, limit_reached = :limit
             WHERE commands.status IN ('queued', 'running')",
        )?
        .execute(named_params! {
            ":id": command.command_id.as_str(),
            ":terminal": command.terminal_id.as_str(),
            ":text": command.text,
            ":source": to_word(&command.source),
            ":status": command.status.word(),
            ":exit_code": command.exit_code,
            ":signal": command.signal,
            ":created": micros(command.created_at),
            ":started": command.started_at.map(micros),
            ":finished": command.finished_at.map(micros),
            ":duration": command.duration_us.map(int),
            ":stdout": int(command.stdout_bytes),
            ":stderr": int(command.stderr_bytes),
            ":truncated": command.truncated,
            ":before": int(command.version_before),
            ":after": command.version_after.map(int),
            ":start": command.offset_start.map(int),
            ":end": command.offset_end.map(int),
            ":cwd": command.cwd,
            ":changes": to_json(&command.changes),
            ":restarted": command.shell_restarted,
            ":limit": command.limit_reached.map(Limit::word),
            ":key": command.idempotency_key,
        });
    match result.map_err(StoreError::from) {
        Ok(0) => Err(ended(command)),
        Ok(_) => Ok(()),
        Err(StoreError::Exists { .. }) => {
            Err(StoreError::missing("terminal", &command.terminal_id))
        }
        Err(error) => Err(error),
    }
}

fn from_row(row: &SqlRow<'_>) -> Read<Command> {
    checksum::verify(row, "a command")?;
    Ok(Command {
        command_id: row::parsed(row, "command_id")?,
        terminal_id: row::parsed(row, "terminal_id")?,
        text: row.get("text")?,
        source: row::word(row, "source")?,
        status: row::word(row, "status")?,
        exit_code: row.get("exit_code")?,
        signal: row.get("signal")?,
        created_at: row::time(row, "created_at")?,
        started_at: row::time_or_none(row, "started_at")?,
        finished_at: row::time_or_none(row, "finished_at")?,
        duration_us: row::count_or_none(row, "duration_us")?,
        stdout_bytes: row::count(row, "stdout_bytes")?,
        stderr_bytes: row::count(row, "stderr_bytes")?,
        truncated: row.get("truncated")?,
        version_before: row::count(row, "version_before")?,
        version_after: row::count_or_none(row, "version_after")?,
        offset_start: row::count_or_none(row, "offset_start")?,
        offset_end: row::count_or_none(row, "offset_end")?,
        cwd: row.get("cwd")?,
        changes: row::json(row, "changes")?,
        shell_restarted: row.get("shell_restarted")?,
        limit_reached: row::word_or_none(row, "limit_reached")?,
        idempotency_key: row.get("idempotency_key")?,
    })
}
