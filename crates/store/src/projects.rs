//! Projects, their session records, and the trash.

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json},
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
};
use model::{Moment, Project, ProjectId, Refused, SessionRecord, Statistics, Timestamp, Trashed};

/// Session records of deleted threads per project; older ones are removed.
const MAX_SESSION_RECORDS: i64 = 10_000;

/// A filter for projects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectFilter {
    /// Only projects whose id starts with this.
    pub prefix: Option<String>,
    /// Only projects with this tag.
    pub tag: Option<String>,
}

/// Activity in a project that deleting it would interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    /// Unfinished commands.
    pub commands: u64,
    /// Open sessions.
    pub sessions: u64,
}

impl Store {
    /// Returns the project with this id.
    pub async fn project(&self, id: &ProjectId) -> Result<Option<Project>, StoreError> {
        let id = id.clone();
        self.read(move |db| project(db, &id)).await
    }

    /// Returns projects, oldest first.
    pub async fn projects(
        &self,
        filter: ProjectFilter,
        page: PageRequest,
    ) -> Result<Page<Project>, StoreError> {
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let mut statement = db.prepare_cached(&format!(
                "SELECT * FROM {}
                 WHERE (created_at, project_id) > (?1, ?2)
                   AND (?3 IS NULL OR substr(project_id, 1, length(?3)) = ?3)
                   AND (?4 IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?4))
                 ORDER BY created_at, project_id LIMIT ?5",
                db.projects()
            ))?;
            let limit = i64::from(page.limit) + 1;
            let rows = statement.query_map(
                params![after.at, after.id, filter.prefix, filter.tag, limit],
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |project: &Project| Cursor {
                at: micros(project.created_at),
                id: project.project_id.to_string(),
            }))
        })
        .await
    }

    /// Adds a project. Refused if there are `limit` projects, or if the id is in use or in the trash.
    pub async fn add_project(&self, project: &Project, limit: u64) -> Result<(), StoreError> {
        let project = project.clone();
        self.write(move |db| {
            db.lock_table("projects")?;
            let count: i64 =
                db.prepare_cached("SELECT count(*) FROM projects")?.query_row((), |r| r.get(0))?;
            if count >= int(limit) {
                return Err(StoreError::Refused(Refused {
                    noun: format!("the number of projects, {count},"),
                    state: "at its limit",
                    event: "rise",
                }));
            }
            let known = db
                .prepare_cached("SELECT 1 FROM trash WHERE project_id = ?1")?
                .query_row([project.project_id.as_str()], |_| Ok(()))
                .optional()?;
            if known.is_some() {
                return Err(exists(&project.project_id));
            }
            insert(db, &project)
        })
        .await
    }

    /// Saves the fields of a project that clients may change. Refused if the stored project was changed
    /// since
    /// it was read.
    pub async fn save_project(&self, next: &Project) -> Result<Project, StoreError> {
        let next = next.clone();
        self.write(move |db| {
            let mut next = next.clone();
            let read = next.revision;
            next.revision += 1;
            let changed = db
                .prepare_cached(
                    "UPDATE projects SET description = :description, tags = :tags,
                            config = :config, pinned = :pinned, keep_until = :keep,
                            updated_at = :updated, revision = :revision
                     WHERE project_id = :id AND revision = :read",
                )?
                .execute(named_params! {
                    ":id": next.project_id.as_str(),
                    ":description": next.description,
                    ":tags": to_json(&next.tags),
                    ":config": to_json(&next.config),
                    ":pinned": next.pinned,
                    ":keep": next.keep_until.map(micros),
                    ":updated": micros(next.updated_at),
                    ":revision": int(next.revision),
                    ":read": int(read),
                })?;
            if changed == 1 {
                // The statistics may have changed meanwhile, so the row is read again.
                return project(db, &next.project_id)?.ok_or_else(|| missing(&next.project_id));
            }
            match project(db, &next.project_id)? {
                None => Err(missing(&next.project_id)),
                Some(found) => Err(StoreError::Conflict {
                    what: format!("project {}", next.project_id),
                    expected: read,
                    found: found.revision,
                }),
            }
        })
        .await
    }

    /// Records that a project was used. Does nothing if it does not exist.
    pub async fn touch_project(&self, id: &ProjectId, at: Timestamp) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            db.prepare_cached(
                "UPDATE projects SET last_used_at = max(last_used_at, ?2), warned_at = NULL
                 WHERE project_id = ?1",
            )?
            .execute(params![id.as_str(), micros(at)])?;
            Ok(())
        })
        .await
    }

    /// Records that the owner was warned about a project's deletion, unless it was used since it was read.
    pub async fn warn_project(&self, read: &Project, at: Timestamp) -> Result<bool, StoreError> {
        let (id, used) = (read.project_id.clone(), read.last_used_at);
        self.write(move |db| {
            fold_activity(db, &id)?;
            let changed = db
                .prepare_cached(
                    "UPDATE projects SET warned_at = coalesce(warned_at, ?3), reminded_at = ?3
                     WHERE project_id = ?1 AND last_used_at = ?2 AND pinned = 0",
                )?
                .execute(params![id.as_str(), micros(used), micros(at)])?;
            Ok(changed == 1)
        })
        .await
    }

    /// Returns the current activity in a project.
    pub async fn project_use(&self, id: &ProjectId) -> Result<ProjectUsage, StoreError> {
        let id = id.clone();
        self.read(move |db| project_use(db, &id)).await
    }

    /// Returns the records of a project's sessions, including those of deleted threads, newest first.
    pub async fn session_records(
        &self,
        id: &ProjectId,
        page: PageRequest,
    ) -> Result<Page<SessionRecord>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MAX, id: "~".into() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM (
                   SELECT session_id, thread_id, state, created, last_active, s.created_at
                   FROM sessions s JOIN threads USING (thread_id) WHERE project_id = ?1
                   UNION ALL
                   SELECT session_id, thread_id, state, created, last_active, created_at
                   FROM session_records WHERE project_id = ?1) AS records
                 WHERE (created_at, session_id) < (?2, ?3)
                 ORDER BY created_at DESC, session_id DESC LIMIT ?4",
            )?;
            let limit = i64::from(page.limit) + 1;
            let rows =
                statement.query_map(params![id.as_str(), after.at, after.id, limit], record)?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |record: &SessionRecord| Cursor {
                at: micros(record.created_at),
                id: record.session_id.to_string(),
            }))
        })
        .await
    }

    /// Removes the oldest session records beyond the limit.
    pub async fn prune_session_records(&self) -> Result<u64, StoreError> {
        self.write(|db| {
            let removed = db
                .prepare_cached(
                    "DELETE FROM session_records WHERE session_id IN (
                       SELECT session_id FROM (
                         SELECT session_id, row_number() OVER (
                           PARTITION BY project_id ORDER BY created_at DESC) AS place
                         FROM session_records) AS placed WHERE place > ?1)",
                )?
                .execute([MAX_SESSION_RECORDS])?;
            Ok(removed as u64)
        })
        .await
    }

    /// Returns the projects in the trash, oldest first.
    pub async fn trash(&self) -> Result<Vec<Trashed>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT project_id, description, deleted_at, reason FROM trash
                 ORDER BY deleted_at, project_id",
            )?;
            let rows = statement.query_map((), |row| {
                Ok(Trashed {
                    project_id: row::parsed(row, "project_id")?,
                    description: row.get("description")?,
                    deleted_at: row::time(row, "deleted_at")?,
                    reason: row.get("reason")?,
                })
            })?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Removes a project from the trash permanently.
    pub async fn purge_project(&self, id: &ProjectId) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM trash WHERE project_id = ?1")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }
}

pub(super) fn project(db: &Db, id: &ProjectId) -> Result<Option<Project>, StoreError> {
    let sql = format!("SELECT * FROM {} WHERE project_id = ?1", db.projects());
    let mut statement = db.prepare_cached(&sql)?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

/// Moves what is appended to the statistics of a project into its row.
pub(super) fn fold_activity(db: &Db, id: &ProjectId) -> Result<(), StoreError> {
    Ok(db.on_postgres("SELECT fold_activity(?1)", [id.as_str()])?)
}

pub(super) fn project_use(db: &Db, id: &ProjectId) -> Result<ProjectUsage, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let count: i64 = db.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    Ok(ProjectUsage {
        commands: count(
            "SELECT count(*) FROM commands JOIN terminals USING (terminal_id)
             JOIN threads USING (thread_id) WHERE project_id = ?1 AND commands.status IN ('queued', 'running')",
        )?,
        sessions: count(
            "SELECT count(*) FROM threads JOIN sessions USING (thread_id)
             WHERE project_id = ?1 AND sessions.is_open = 1",
        )?,
    })
}

pub(super) fn insert(db: &Db, project: &Project) -> Result<(), StoreError> {
    let Statistics { sessions, commands, output_bytes } = project.statistics;
    db.prepare_cached(
        "INSERT INTO projects (project_id, prefix, description, tags, config, pinned, keep_until,
                               warned_at, last_used_at, sessions, commands, output_bytes,
                               created_at, updated_at, revision)
         VALUES (:id, :prefix, :description, :tags, :config, :pinned, :keep, :warned, :used,
                 :sessions, :commands, :bytes, :created, :updated, :revision)",
    )?
    .execute(named_params! {
        ":id": project.project_id.as_str(),
        ":prefix": project.project_id.prefix(),
        ":description": project.description,
        ":tags": to_json(&project.tags),
        ":config": to_json(&project.config),
        ":pinned": project.pinned,
        ":keep": project.keep_until.map(micros),
        ":warned": project.warned_at.map(micros),
        ":used": micros(project.last_used_at),
        ":sessions": int(sessions),
        ":commands": int(commands),
        ":bytes": int(output_bytes),
        ":created": micros(project.created_at),
        ":updated": micros(project.updated_at),
        ":revision": int(project.revision),
    })
    .map_err(|error| match StoreError::from(error) {
        StoreError::Exists { .. } => exists(&project.project_id),
        other => other,
    })?;
    Ok(())
}

pub(super) fn missing(id: &ProjectId) -> StoreError {
    StoreError::missing("project", id)
}

fn exists(id: &ProjectId) -> StoreError {
    StoreError::Exists { what: format!("project {id}") }
}

fn from_row(row: &SqlRow<'_>) -> Read<Project> {
    checksum::verify(row, "a project")?;
    Ok(Project {
        project_id: row::parsed(row, "project_id")?,
        description: row.get("description")?,
        tags: row::json(row, "tags")?,
        config: row::json(row, "config")?,
        pinned: row.get("pinned")?,
        keep_until: row::time_or_none(row, "keep_until")?,
        warned_at: row::time_or_none(row, "warned_at")?,
        reminded_at: row::time_or_none(row, "reminded_at")?,
        statistics: Statistics {
            sessions: row::count(row, "sessions")?,
            commands: row::count(row, "commands")?,
            output_bytes: row::count(row, "output_bytes")?,
        },
        last_used_at: row::time(row, "last_used_at")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        revision: row::count(row, "revision")?,
    })
}

fn record(row: &SqlRow<'_>) -> Read<SessionRecord> {
    let last_active: Moment = row::json(row, "last_active")?;
    Ok(SessionRecord {
        session_id: row::parsed(row, "session_id")?,
        thread_id: row::parsed(row, "thread_id")?,
        state: row::json(row, "state")?,
        created_at: row::time(row, "created_at")?,
        last_active_at: last_active.at,
    })
}
