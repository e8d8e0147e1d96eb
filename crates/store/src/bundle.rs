//! Bundles of all rows of a project, for the trash and for exports to other machines.
//!
//! A bundle is imported completely or not at all. An imported bundle is not trusted: only the columns
//! listed here are used, contents are hashed again, and every row is parsed as on later reads before the
//! transaction commits.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    Store, StoreError, commands, leases, projects,
    removals::{self, DeletedRows},
    row::{Read, micros, to_json},
    sandboxes, sessions,
    sql::{Db, OptionalExtension, SqlValue as Sql, ValueRef, params},
    terminals, threads, versions,
};
use model::{
    CommandId, Lease, LeaseId, MessageId, Project, ProjectId, Refused, SessionId, TerminalId,
    TerminalStatus, ThreadId, Timestamp,
};

/// The version of the bundle format.
const FORMAT: u32 = 1;

/// Each table with the query for a project's rows and its columns, in insertion order.
const TABLES: &[(&str, &str, &[&str])] = &[
    (
        "threads",
        "SELECT * FROM threads WHERE project_id = ?1",
        &[
            "thread_id",
            "project_id",
            "terminal_id",
            "lease_id",
            "provider",
            "policy",
            "env",
            "cwd",
            "labels",
            "created_at",
            "updated_at",
            "revision",
        ],
    ),
    (
        "sandboxes",
        "SELECT * FROM sandboxes WHERE project_id = ?1",
        &[
            "thread_id",
            "project_id",
            "name",
            "origin",
            "template",
            "build_id",
            "user",
            "home",
            "state",
            "started_at",
            "lifetime_s",
            "expires_at",
            "on_expiry",
            "expires_while_paused",
            "delete_after_stop_s",
            "auto_resume",
            "port_access",
            "labels",
            "extra",
            "created_at",
            "updated_at",
            "revision",
        ],
    ),
    (
        "messages",
        "SELECT m.* FROM messages m JOIN threads USING (thread_id) WHERE project_id = ?1",
        &["message_id", "thread_id", "role", "content", "at"],
    ),
    (
        "sessions",
        "SELECT s.* FROM sessions s JOIN threads USING (thread_id) WHERE project_id = ?1",
        &[
            "session_id",
            "thread_id",
            "terminal_id",
            "is_open",
            "state",
            "policy",
            "created",
            "last_active",
            "created_at",
            "revision",
        ],
    ),
    (
        "session_records",
        "SELECT * FROM session_records WHERE project_id = ?1",
        &["session_id", "project_id", "thread_id", "state", "created", "last_active", "created_at"],
    ),
    (
        "terminals",
        "SELECT t.* FROM terminals t JOIN threads USING (thread_id) WHERE project_id = ?1",
        &[
            "terminal_id",
            "thread_id",
            "lease_id",
            "is_default",
            "is_open",
            "argv",
            "shell",
            "cols",
            "rows",
            "env",
            "cwd",
            "env_delta",
            "version",
            "title",
            "status",
            "created_at",
            "updated_at",
            "last_activity_at",
            "revision",
        ],
    ),
    (
        "terminal_versions",
        "SELECT v.* FROM terminal_versions v JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1",
        &["terminal_id", "version", "cwd", "cause", "at"],
    ),
    (
        "terminal_sections",
        "SELECT s.* FROM terminal_sections s JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1",
        &["terminal_id", "name", "version", "hash"],
    ),
    (
        "commands",
        "SELECT c.* FROM commands c JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1",
        &[
            "command_id",
            "terminal_id",
            "text",
            "source",
            "status",
            "exit_code",
            "signal",
            "created_at",
            "started_at",
            "finished_at",
            "duration_us",
            "stdout_bytes",
            "stderr_bytes",
            "truncated",
            "version_before",
            "version_after",
            "offset_start",
            "offset_end",
            "cwd",
            "changes",
            "shell_restarted",
            "limit_reached",
        ],
    ),
    (
        "command_output",
        "SELECT o.* FROM command_output o JOIN commands USING (command_id)
         JOIN terminals USING (terminal_id) JOIN threads USING (thread_id) WHERE project_id = ?1",
        &["command_id", "stdout", "stderr"],
    ),
    (
        "project_entries",
        "SELECT * FROM project_entries WHERE project_id = ?1",
        &["project_id", "path", "is_directory", "bytes", "modified_at", "version"],
    ),
];

/// All rows of a project.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bundle {
    format: u32,
    pub project: Project,
    /// The provider of each referenced lease.
    leases: BTreeMap<String, String>,
    pub(super) tables: BTreeMap<String, Vec<Map<String, Value>>>,
    /// Contents of the terminals' states, by hexadecimal hash.
    pub(super) contents: BTreeMap<String, String>,
    /// The directory that contained the project's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<String>,
}

/// The ids of the imported rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// The original ids.
    Keep,
    /// This id for the project, original ids for threads where they are free, new ids for all other rows.
    Fresh(ProjectId),
}

impl Store {
    /// Returns all rows of a project.
    pub async fn bundle(&self, id: &ProjectId) -> Result<Bundle, StoreError> {
        let id = id.clone();
        self.read(move |db| export_rows(db, &id)).await
    }

    /// Inserts the rows of a bundle and returns the project. Refused if there are `limit` projects, or if
    /// an
    /// id to be kept is taken.
    pub async fn add_bundle(
        &self,
        bundle: Bundle,
        ids: Ids,
        limit: u64,
        now: Timestamp,
    ) -> Result<Project, StoreError> {
        self.write(move |db| {
            db.lock_table("projects")?;
            let count: i64 =
                db.prepare_cached("SELECT count(*) FROM projects")?.query_row((), |r| r.get(0))?;
            if u64::try_from(count).unwrap_or(0) >= limit {
                return Err(refused("the number of projects", "at its limit", "grow"));
            }
            import_rows(db, &bundle, &ids, now)
        })
        .await
    }

    /// Moves a project to the trash in one transaction; it can be restored. With `unused_since`, refused if
    /// the project was used after that time or is in use.
    pub async fn trash_project(
        &self,
        id: &ProjectId,
        reason: &str,
        unused_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<DeletedRows, StoreError> {
        let (id, reason) = (id.clone(), reason.to_owned());
        self.write(move |db| {
            let project = projects::project(db, &id)?.ok_or_else(|| projects::missing(&id))?;
            if let Some(since) = unused_since {
                let is_used = projects::project_use(db, &id)?.commands > 0;
                if is_used || project.last_used_at > since || project.pinned {
                    return Err(refused(&format!("project {id}"), "in use", "be cleaned up"));
                }
            }
            let bundle = to_json(&export_rows(db, &id)?);
            let packed = zstd::bulk::compress(bundle.as_bytes(), 3)
                .map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
            db.prepare_cached(
                "INSERT INTO trash (project_id, description, deleted_at, reason, rows)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                id.as_str(),
                project.description,
                micros(now),
                reason,
                packed
            ])?;
            let mut deleted = DeletedRows::default();
            for thread in thread_ids(db, &id)? {
                deleted.extend(threads::delete(db, &thread, now)?);
            }
            db.prepare_cached("DELETE FROM projects WHERE project_id = ?1")?
                .execute([id.as_str()])?;
            removals::record(db, "project", &id, deleted)
        })
        .await
    }

    /// Restores a project from the trash with its original ids.
    pub async fn restore_project(
        &self,
        id: &ProjectId,
        now: Timestamp,
    ) -> Result<Project, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let packed: Vec<u8> = db
                .prepare_cached("SELECT rows FROM trash WHERE project_id = ?1")?
                .query_row([id.as_str()], |row| row.get(0))
                .optional()?
                .ok_or_else(|| StoreError::missing("deleted project", &id))?;
            let bundle: Bundle = zstd::stream::decode_all(&*packed)
                .map_err(serde_json::Error::io)
                .and_then(|text| serde_json::from_slice(&text))
                .map_err(|error| damaged(error.to_string()))?;
            let project = import_rows(db, &bundle, &Ids::Keep, now)?;
            db.prepare_cached("DELETE FROM trash WHERE project_id = ?1")?.execute([id.as_str()])?;
            Ok(project)
        })
        .await
    }
}

fn export_rows(db: &Db, id: &ProjectId) -> Result<Bundle, StoreError> {
    let project = projects::project(db, id)?.ok_or_else(|| projects::missing(id))?;
    let mut tables = BTreeMap::new();
    for (table, sql, columns) in TABLES {
        let mut statement = db.prepare_cached(sql)?;
        let rows = statement.query_map([id.as_str()], |row| {
            let value = |column: &&str| Ok(((*column).to_owned(), from_sql(row.value(*column)?)));
            columns.iter().map(value).collect::<Read<Map<String, Value>>>()
        })?;
        tables.insert((*table).to_owned(), rows.collect::<Read<_>>()?);
    }
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT lease_id, provider FROM leases WHERE lease_id IN (
           SELECT lease_id FROM threads WHERE project_id = ?1
           UNION SELECT t.lease_id FROM terminals t JOIN threads USING (thread_id)
                 WHERE project_id = ?1)",
    )?;
    let rows = statement.query_map([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let leases = rows.collect::<Read<_>>()?;
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT hash FROM terminal_sections JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1 AND hash IS NOT NULL",
    )?;
    let hashes = statement.query_map([id.as_str()], |row| row.get(0))?;
    let mut contents = BTreeMap::new();
    for hash in hashes.collect::<Read<Vec<[u8; 32]>>>()? {
        let name = blake3::Hash::from_bytes(hash).to_hex().to_string();
        contents.insert(name, STANDARD.encode(versions::content(db, &hash)?));
    }
    Ok(Bundle { format: FORMAT, project, leases, tables, contents, root: None })
}

/// Inserts the rows of a bundle and parses them again.
fn import_rows(db: &Db, bundle: &Bundle, ids: &Ids, now: Timestamp) -> Result<Project, StoreError> {
    if bundle.format != FORMAT {
        return Err(damaged(format!("its format is {}, not {FORMAT}", bundle.format)));
    }
    let mut project = bundle.project.clone();
    let mut id_map = IdMap { db, ids: ids.clone(), mapped: BTreeMap::new() };
    if let Ids::Fresh(id) = ids {
        project.project_id = id.clone();
    }
    project.last_used_at = project.last_used_at.max(now);
    project.warned_at = None;
    projects::insert(db, &project)?;
    for (lease, provider) in &bundle.leases {
        let id: LeaseId = id_map.map("lease_id", lease)?.parse().map_err(damaged)?;
        leases::insert(db, &Lease::new(id, provider.clone(), now))?;
    }
    for (table, _, columns) in TABLES {
        for row in bundle.tables.get(*table).into_iter().flatten() {
            if let ("terminal_sections", Some(hash)) = (*table, blob(row.get("hash"))) {
                insert_content(db, &hash, &bundle.contents)?;
            }
            insert(db, table, columns, row, &project.project_id, &mut id_map, now)?;
        }
    }
    if !bundle.tables.contains_key("sandboxes") {
        // Exported by a version that stored sandboxes as labels of their threads.
        sandboxes::move_labels(db)?;
    }
    db.execute_batch(sandboxes::LIFETIMES)?;
    projects::fold_activity(db, &project.project_id)?;
    // Triggers counted the inserted rows, but the statistics already include them.
    let Project { statistics, last_used_at, .. } = &project;
    db.execute(
        "UPDATE projects SET sessions = ?2, commands = ?3, output_bytes = ?4, last_used_at = ?5
         WHERE project_id = ?1",
        params![
            project.project_id.as_str(),
            super::row::int(statistics.sessions),
            super::row::int(statistics.commands),
            super::row::int(statistics.output_bytes),
            micros(*last_used_at)
        ],
    )?;
    read_back(db, &project.project_id)
}

fn insert(
    db: &Db,
    table: &str,
    columns: &[&str],
    row: &Map<String, Value>,
    project: &ProjectId,
    id_map: &mut IdMap<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_open = row.get("is_open") == Some(&json!(1));
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let value = row.get(*column).unwrap_or(&Value::Null);
        let value = match (table, *column, value) {
            (_, "project_id", _) => project.to_string().into(),
            (_, column, Value::String(id)) if column.ends_with("_id") => {
                id_map.map(column, id)?.into()
            }
            // The processes of the exporting machine do not run here.
            ("terminals", "status", Value::String(status)) if status.contains("\"live\"") => {
                to_json(&TerminalStatus::Restorable).into()
            }
            ("sessions", "is_open", _) => Sql::Integer(0),
            ("sessions", "state", _) if is_open => {
                json!({"status": "closed", "at": now}).to_string().into()
            }
            ("commands", "status", Value::String(status))
                if matches!(status.as_str(), "queued" | "running") =>
            {
                "lost".to_owned().into()
            }
            (_, _, value) => to_sql(value)?,
        };
        values.push(value);
    }
    let marks = (1..=columns.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
    let quoted = columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>();
    let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", quoted.join(", "));
    db.prepare_cached(&sql)?.execute(&values[..]).map_err(|error| {
        match StoreError::from(error) {
            StoreError::Exists { what } if what.contains("UNIQUE") => {
                StoreError::Exists { what: format!("{table}: {what}") }
            }
            StoreError::Exists { what } => damaged(what),
            StoreError::Unavailable { reason } => damaged(reason),
            other => other,
        }
    })?;
    Ok(())
}

fn insert_content(
    db: &Db,
    hash: &[u8],
    contents: &BTreeMap<String, String>,
) -> Result<(), StoreError> {
    let hash: [u8; 32] = hash.try_into().map_err(|_| damaged("a hash has the wrong length"))?;
    let name = blake3::Hash::from_bytes(hash).to_hex();
    let text = contents.get(name.as_str()).ok_or_else(|| damaged("a content is missing"))?;
    let bytes = STANDARD.decode(text).map_err(damaged)?;
    if *blake3::hash(&bytes).as_bytes() != hash {
        return Err(damaged("a content does not match its hash"));
    }
    let size = bytes.len();
    let packed = zstd::bulk::compress(&bytes, 3).map_err(damaged)?;
    let (is_packed, stored) = if packed.len() < size { (true, packed) } else { (false, bytes) };
    db.prepare_cached(
        "INSERT INTO blobs (hash, refs, size, encoding, bytes) VALUES (?1, 1, ?2, ?3, ?4)
         ON CONFLICT (hash) DO UPDATE SET refs = blobs.refs + 1",
    )?
    .execute(params![hash, size as i64, is_packed, stored])?;
    Ok(())
}

/// Parses every row of a project as the rest of the store does, so that a malformed row is refused before
/// it is committed.
fn read_back(db: &Db, id: &ProjectId) -> Result<Project, StoreError> {
    let column = |sql: &str| -> Result<Vec<String>, StoreError> {
        let mut statement = db.prepare_cached(sql)?;
        let rows = statement.query_map([id.as_str()], |row| row.get(0))?;
        Ok(rows.collect::<Read<_>>()?)
    };
    for thread in thread_ids(db, id)? {
        threads::thread(db, &thread)?;
    }
    sandboxes::of_project(db, id)?;
    for terminal in column(
        "SELECT terminals.terminal_id FROM terminals JOIN threads USING (thread_id) WHERE project_id = ?1",
    )? {
        terminals::require(db, &terminal.parse().map_err(damaged)?)?;
    }
    for command in column(
        "SELECT command_id FROM commands JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1",
    )? {
        commands::command(db, &command.parse().map_err(damaged)?)?;
    }
    for session in column(
        "SELECT session_id FROM sessions JOIN threads USING (thread_id) WHERE project_id = ?1",
    )? {
        sessions::session(db, &session.parse().map_err(damaged)?)?;
    }
    for cause in column(
        "SELECT cause FROM terminal_versions JOIN terminals USING (terminal_id)
         JOIN threads USING (thread_id) WHERE project_id = ?1",
    )? {
        serde_json::from_str::<model::Cause>(&cause).map_err(damaged)?;
    }
    for message in column(
        "SELECT message_id FROM messages JOIN threads USING (thread_id) WHERE project_id = ?1",
    )? {
        message.parse::<MessageId>().map_err(damaged)?;
    }
    projects::project(db, id)?.ok_or_else(|| projects::missing(id))
}

fn thread_ids(db: &Db, id: &ProjectId) -> Result<Vec<ThreadId>, StoreError> {
    let mut statement = db.prepare_cached("SELECT thread_id FROM threads WHERE project_id = ?1")?;
    let rows = statement.query_map([id.as_str()], |row| super::row::parsed(row, "thread_id"))?;
    Ok(rows.collect::<Read<_>>()?)
}

/// Maps the ids of a bundle to ids in this store.
struct IdMap<'a> {
    db: &'a Db,
    ids: Ids,
    mapped: BTreeMap<String, String>,
}

impl IdMap<'_> {
    fn map(&mut self, column: &str, id: &str) -> Result<String, StoreError> {
        if let Some(mapped) = self.mapped.get(id) {
            return Ok(mapped.clone());
        }
        let name = match (column, &self.ids) {
            // The lease of the deleted thread may still be in the process of being destroyed.
            ("lease_id", _) => LeaseId::fresh().to_string(),
            (_, Ids::Keep) => id.to_owned(),
            ("terminal_id", Ids::Fresh(_)) => TerminalId::fresh().to_string(),
            ("session_id", Ids::Fresh(_)) => SessionId::fresh().to_string(),
            ("message_id", Ids::Fresh(_)) => MessageId::fresh().to_string(),
            ("command_id", Ids::Fresh(_)) => CommandId::fresh().to_string(),
            ("thread_id", Ids::Fresh(project)) => self.thread(id, project)?,
            (_, Ids::Fresh(_)) => id.to_owned(),
        };
        self.mapped.insert(id.to_owned(), name.clone());
        Ok(name)
    }

    /// Returns the id that the client chose for a thread, or a variant if it is taken.
    fn thread(&self, id: &str, project: &ProjectId) -> Result<String, StoreError> {
        let id: ThreadId = id.parse().map_err(damaged)?;
        if threads::thread(self.db, &id)?.is_none() {
            return Ok(id.to_string());
        }
        let suffix = project.as_str().rsplit('-').next().unwrap_or_default();
        let mut short = id.to_string();
        while short.len() + 1 + suffix.len() > 200 {
            short.pop();
        }
        Ok(format!("{short}-{suffix}"))
    }
}

fn from_sql(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(&text).into(),
        ValueRef::Blob(bytes) => json!({"base64": STANDARD.encode(bytes)}),
    }
}

fn to_sql(value: &Value) -> Result<Sql, StoreError> {
    Ok(match value {
        Value::Null => Sql::Null,
        Value::Number(number) => {
            Sql::Integer(number.as_i64().ok_or_else(|| damaged("a number is too large"))?)
        }
        Value::String(text) => Sql::Text(text.clone()),
        Value::Object(_) => {
            Sql::Blob(blob(Some(value)).ok_or_else(|| damaged("a value is not base64"))?)
        }
        Value::Bool(_) | Value::Array(_) => return Err(damaged("a value has an unexpected type")),
    })
}

fn blob(value: Option<&Value>) -> Option<Vec<u8>> {
    STANDARD.decode(value?.get("base64")?.as_str()?).ok()
}

fn refused(noun: &str, state: &'static str, event: &'static str) -> StoreError {
    StoreError::Refused(Refused { noun: noun.to_owned(), state, event })
}

fn damaged(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: "the bundle of a project".into(), reason: reason.to_string() }
}
