//! Rows of sandboxes. `sandbox_records` reads them with their threads and leases.

use std::time::Duration;

use super::{
    Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json, to_word},
    sql::{self, Db, OptionalExtension, SqlRow, named_params},
};
use model::{Sandbox, Thread, ThreadId};

/// Migrates sandboxes that are stored as labels of threads into rows.
const FROM_LABELS: &str = include_str!("migrations/sandbox_labels.sql");
/// Migrates lifetimes that are stored among the values of an API into their column.
pub(super) const LIFETIMES: &str = include_str!("migrations/sandbox_lifetime.sql");

impl Store {
    /// Saves a sandbox. Refused if the stored sandbox was changed since it was read.
    pub async fn save_sandbox(&self, next: &Sandbox) -> Result<Sandbox, StoreError> {
        let next = next.clone();
        self.write(move |db| save(db, next.clone())).await
    }
}

fn sandbox(db: &Db, id: &ThreadId) -> Result<Option<Sandbox>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM sandboxes WHERE thread_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

/// Creates the sandboxes that are stored as labels of threads.
pub(super) fn move_labels(db: &Db) -> Result<(), StoreError> {
    match db {
        Db::Sqlite(_) => Ok(db.execute_batch(FROM_LABELS)?),
        Db::Postgres(_) => {
            let what = "the bundle of a project".to_owned();
            let reason =
                "it is from a version without sandboxes; import it into a server that uses \
                          SQLite, and export it again"
                    .to_owned();
            Err(StoreError::Damaged { what, reason })
        }
    }
}

/// Returns all sandboxes of a project.
pub(super) fn of_project(db: &Db, project: &model::ProjectId) -> Result<Vec<Sandbox>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM sandboxes WHERE project_id = ?1")?;
    let rows = statement.query_map([project.as_str()], from_row)?;
    Ok(rows.collect::<Read<_>>()?)
}

/// Inserts a sandbox in the transaction that inserted its thread.
pub(super) fn insert(db: &Db, sandbox: &Sandbox) -> Result<(), StoreError> {
    let added = db
        .prepare_cached(
            "INSERT INTO sandboxes (thread_id, project_id, name, origin, template, build_id, \"user\", home,
                    state, started_at, lifetime_s, expires_at, on_expiry, expires_while_paused,
                    delete_after_stop_s, auto_resume, port_access, labels, extra, created_at,
                    updated_at, revision)
             VALUES (:id, :project, :name, :origin, :template, :build, :user, :home, :state, :started,
                    :lifetime, :expires, :on_expiry, :while_paused, :after_stop, :auto_resume, :port_access,
                    :labels, :extra, :created, :updated, :revision)",
        )?
        .execute(named_params! {
            ":id": sandbox.thread_id.as_str(),
            ":project": sandbox.project_id.as_str(),
            ":name": sandbox.name,
            ":origin": sandbox.origin,
            ":template": sandbox.template,
            ":build": sandbox.build_id.as_ref().map(model::BuildId::as_str),
            ":user": sandbox.user,
            ":home": sandbox.home,
            ":state": to_word(&sandbox.state),
            ":started": micros(sandbox.started_at),
            ":lifetime": sandbox.lifetime.map(|lifetime| int(lifetime.as_secs())),
            ":expires": sandbox.expires_at.map(micros),
            ":on_expiry": to_word(&sandbox.on_expiry),
            ":while_paused": sandbox.expires_while_paused,
            ":after_stop": sandbox.delete_after_stop.map(|after| int(after.as_secs())),
            ":auto_resume": sandbox.auto_resume,
            ":port_access": to_word(&sandbox.port_access),
            ":labels": to_json(&sandbox.labels),
            ":extra": to_json(&sandbox.extra),
            ":created": micros(sandbox.created_at),
            ":updated": micros(sandbox.updated_at),
            ":revision": int(sandbox.revision),
        });
    added.map(drop).map_err(|error| taken(error, sandbox))
}

fn save(db: &Db, mut next: Sandbox) -> Result<Sandbox, StoreError> {
    let read = next.revision;
    next.revision += 1;
    let changed = db
        .prepare_cached(
            "UPDATE sandboxes SET name = :name, template = :template, \"user\" = :user, home = :home,
                    state = :state, started_at = :started, lifetime_s = :lifetime, expires_at = :expires,
                    on_expiry = :on_expiry, expires_while_paused = :while_paused,
                    delete_after_stop_s = :after_stop, auto_resume = :auto_resume,
                    port_access = :port_access, labels = :labels, extra = :extra,
                    updated_at = :updated, revision = :revision
             WHERE thread_id = :id AND revision = :read",
        )?
        .execute(named_params! {
            ":id": next.thread_id.as_str(),
            ":name": next.name,
            ":template": next.template,
            ":user": next.user,
            ":home": next.home,
            ":state": to_word(&next.state),
            ":started": micros(next.started_at),
            ":lifetime": next.lifetime.map(|lifetime| int(lifetime.as_secs())),
            ":expires": next.expires_at.map(micros),
            ":on_expiry": to_word(&next.on_expiry),
            ":while_paused": next.expires_while_paused,
            ":after_stop": next.delete_after_stop.map(|after| int(after.as_secs())),
            ":auto_resume": next.auto_resume,
            ":port_access": to_word(&next.port_access),
            ":labels": to_json(&next.labels),
            ":extra": to_json(&next.extra),
            ":updated": micros(next.updated_at),
            ":revision": int(next.revision),
            ":read": int(read),
        })
        .map_err(|error| taken(error, &next))?;
    if changed == 1 {
        return Ok(next);
    }
    match sandbox(db, &next.thread_id)? {
        None => Err(StoreError::missing("sandbox", &next.thread_id)),
        Some(found) => Err(StoreError::Conflict {
            what: format!("sandbox {}", next.thread_id),
            expected: read,
            found: found.revision,
        }),
    }
}

/// Moves the sandbox of a thread, if there is one, to the thread's project.
pub(super) fn move_to_project(db: &Db, thread: &Thread) -> Result<(), StoreError> {
    let Some(mut moved) = sandbox(db, &thread.thread_id)? else { return Ok(()) };
    moved.project_id = thread.project_id.clone();
    db.prepare_cached(
        "UPDATE sandboxes SET project_id = ?2, revision = revision + 1 WHERE thread_id = ?1",
    )?
    .execute([thread.thread_id.as_str(), thread.project_id.as_str()])
    .map(drop)
    .map_err(|error| taken(error, &moved))
}

/// Adds the sandbox's name to the error that it is taken.
fn taken(error: sql::Error, sandbox: &Sandbox) -> StoreError {
    match (StoreError::from(error), &sandbox.name) {
        (StoreError::Exists { what }, Some(name)) if is_name(&what) => {
            StoreError::Exists { what: format!("a sandbox with the name {name}") }
        }
        (other, _) => other,
    }
}

/// Whether the violated constraint is the one of names, as either database reports it.
fn is_name(constraint: &str) -> bool {
    constraint.contains("sandboxes.name") || constraint.contains("sandboxes_by_name")
}

pub(super) fn from_row(row: &SqlRow<'_>) -> Read<Sandbox> {
    checksum::verify(row, "a sandbox")?;
    let build_id: Option<String> = row.get("build_id")?;
    Ok(Sandbox {
        thread_id: row::parsed(row, "thread_id")?,
        project_id: row::parsed(row, "project_id")?,
        name: row.get("name")?,
        origin: row.get("origin")?,
        template: row.get("template")?,
        build_id: build_id.map(|_| row::parsed(row, "build_id")).transpose()?,
        user: row.get("user")?,
        home: row.get("home")?,
        state: row::word(row, "state")?,
        started_at: row::time(row, "started_at")?,
        lifetime: row::count_or_none(row, "lifetime_s")?.map(Duration::from_secs),
        expires_at: row::time_or_none(row, "expires_at")?,
        on_expiry: row::word(row, "on_expiry")?,
        expires_while_paused: row.get("expires_while_paused")?,
        delete_after_stop: row::count_or_none(row, "delete_after_stop_s")?.map(Duration::from_secs),
        auto_resume: row.get("auto_resume")?,
        port_access: row::word(row, "port_access")?,
        labels: row::json(row, "labels")?,
        extra: row::json(row, "extra")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        revision: row::count(row, "revision")?,
    })
}
