//! Queries for sandboxes, each with its thread and lease.

use super::{
    Cursor, Page, PageRequest, Store, StoreError, leases,
    row::{self, micros, to_word},
    sandboxes,
    sql::{Db, SqlValue},
    threads,
};
use model::{Lease, Moment, ProjectId, Sandbox, SandboxStatus, Thread, ThreadId, Timestamp};

/// [`Sandbox::status`] in SQL: the status of a sandbox and its compute.
const STATUS: &str = "CASE WHEN s.state = 'suspended' THEN 'suspended'
       WHEN l.word = 'paused' THEN 'paused'
       WHEN l.desired = 'stopped' THEN 
         CASE WHEN s.state = 'archived' THEN 'archived' ELSE 'stopped' END
       ELSE 'running' END";

/// [`Sandbox::expiry`] in SQL: whether an action is due at the time `?1`. A test compares the two.
const IS_DUE: &str = "s.expires_at <= ?1 AND NOT (
           (s.state IN ('paused', 'suspended') OR l.word = 'paused')
           AND (s.on_expiry <> 'delete' OR s.expires_while_paused = 0))
       OR l.updated_at + s.delete_after_stop_s * 1000000 <= ?1
           AND l.desired = 'stopped' AND l.word <> 'paused' AND s.state <> 'suspended'";

/// A sandbox with its thread and lease, read in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    pub row: Sandbox,
    pub thread: Thread,
    pub lease: Lease,
    /// When the thread's last session was last used.
    pub last_active_at: Option<Timestamp>,
}

impl SandboxRecord {
    #[must_use]
    pub fn id(&self) -> &ThreadId {
        &self.row.thread_id
    }

    #[must_use]
    pub fn status(&self) -> SandboxStatus {
        self.row.status(&self.lease)
    }
}

/// Sandboxes for which an expiry action is due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueSandboxes {
    /// The sandboxes, each with the provider of its lease.
    pub due: Vec<(ThreadId, String)>,
    /// The next expiry after now.
    pub next: Option<Timestamp>,
}

/// A filter for sandboxes. An empty list of alternatives matches every sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    pub project_id: Option<ProjectId>,
    pub origin: Option<String>,
    pub purpose: SandboxPurpose,
    pub statuses: Vec<SandboxStatus>,
    /// A sandbox matches if its labels contain at least one pair of each group.
    pub labels: Vec<Vec<(String, String)>>,
    pub template: Option<String>,
    pub started_from: Option<Timestamp>,
}

/// The purpose for which sandboxes were created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxPurpose {
    /// Use by a client.
    #[default]
    Client,
    /// The steps of a template build.
    Build,
    Any,
}

/// The order of a list of sandboxes, by start time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

impl Store {
    pub async fn sandbox(&self, id: &ThreadId) -> Result<Option<SandboxRecord>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let found = select(db, "s.thread_id = ?1 LIMIT 1", &[text(id.as_str())])?;
            Ok(found.into_iter().next())
        })
        .await
    }

    /// Returns the sandbox of a project with this name in an API.
    pub async fn sandbox_named(
        &self,
        project: &ProjectId,
        origin: &str,
        name: &str,
    ) -> Result<Option<SandboxRecord>, StoreError> {
        let values = vec![text(project.as_str()), text(origin), text(name)];
        self.read(move |db| {
            let which = "s.project_id = ?1 AND s.origin = ?2 AND s.name = ?3 LIMIT 1";
            Ok(select(db, which, &values)?.into_iter().next())
        })
        .await
    }

    /// Returns the sandboxes of an API that are recorded as paused or suspended, but whose compute runs.
    pub async fn woken_sandboxes(&self, origin: &str) -> Result<Vec<ThreadId>, StoreError> {
        let origin = origin.to_owned();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT s.thread_id
                 FROM sandboxes s JOIN threads t USING (thread_id) JOIN leases l USING (lease_id)
                 WHERE s.origin = ?1 AND s.auto_resume = 1 AND s.state IN ('paused', 'suspended')
                       AND l.desired = 'running'",
            )?;
            let rows = statement.query_map([&origin], |row| row::parsed(row, "thread_id"))?;
            Ok(rows.collect::<row::Read<_>>()?)
        })
        .await
    }

    pub async fn sandbox_count(&self) -> Result<u64, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached("SELECT count(*) AS count FROM sandboxes")?;
            Ok(statement.query_row((), |row| row::count(row, "count"))?)
        })
        .await
    }

    /// Returns the sandboxes for which an expiry action is due, and the time of the next expiry.
    pub async fn due_sandboxes(&self, now: Timestamp) -> Result<DueSandboxes, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT s.thread_id, l.provider
                 FROM sandboxes s JOIN threads t USING (thread_id) JOIN leases l USING (lease_id)
                 WHERE {IS_DUE} ORDER BY s.expires_at, s.thread_id"
            ))?;
            let rows = statement.query_map([micros(now)], |row| {
                Ok((row::parsed(row, "thread_id")?, row.get("provider")?))
            })?;
            let due = rows.collect::<row::Read<_>>()?;
            let mut statement = db.prepare_cached(
                "SELECT min(expires_at) AS expires_at FROM sandboxes WHERE expires_at > ?1",
            )?;
            let next =
                statement.query_row([micros(now)], |row| row::time_or_none(row, "expires_at"))?;
            Ok(DueSandboxes { due, next })
        })
        .await
    }

    /// Returns a page of sandboxes.
    pub async fn sandboxes(
        &self,
        filter: SandboxFilter,
        order: SandboxOrder,
        page: PageRequest,
    ) -> Result<Page<SandboxRecord>, StoreError> {
        self.read(move |db| {
            let (which, values) = condition(&filter, order, &page);
            let found = select(db, &which, &values)?;
            Ok(Page::cut(found, page.limit, |record: &SandboxRecord| Cursor {
                at: micros(record.row.started_at),
                id: record.id().to_string(),
            }))
        })
        .await
    }
}

fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}

fn condition(
    filter: &SandboxFilter,
    order: SandboxOrder,
    page: &PageRequest,
) -> (String, Vec<SqlValue>) {
    let mut values = Vec::new();
    let mut bind = |value: SqlValue| {
        values.push(value);
        format!("?{}", values.len())
    };
    let mut all = vec!["1 = 1".to_owned()];
    match filter.purpose {
        SandboxPurpose::Client => all.push("s.build_id IS NULL".to_owned()),
        SandboxPurpose::Build => all.push("s.build_id IS NOT NULL".to_owned()),
        SandboxPurpose::Any => {}
    }
    if let Some(project) = &filter.project_id {
        all.push(format!("s.project_id = {}", bind(text(project.as_str()))));
    }
    if let Some(origin) = &filter.origin {
        all.push(format!("s.origin = {}", bind(text(origin))));
    }
    if let Some(template) = &filter.template {
        all.push(format!("s.template = {}", bind(text(template))));
    }
    if let Some(from) = filter.started_from {
        all.push(format!("s.started_at >= {}", bind(SqlValue::Integer(micros(from)))));
    }
    if !filter.statuses.is_empty() {
        let words: Vec<_> =
            filter.statuses.iter().map(|status| bind(SqlValue::Text(to_word(status)))).collect();
        all.push(format!("({STATUS}) IN ({})", words.join(", ")));
    }
    for pairs in &filter.labels {
        let alternatives: Vec<_> = pairs
            .iter()
            .map(|(key, value)| {
                let (key, value) = (bind(text(key)), bind(text(value)));
                format!("key = {key} AND value = {value}")
            })
            .collect();
        let alternatives =
            if alternatives.is_empty() { "1 = 0".to_owned() } else { alternatives.join(" OR ") };
        all.push(format!("EXISTS (SELECT 1 FROM json_each(s.labels) WHERE {alternatives})"));
    }
    let (beyond, direction) = match order {
        SandboxOrder::NewestFirst => ("<", "DESC"),
        SandboxOrder::OldestFirst => (">", "ASC"),
    };
    if let Some(after) = &page.after {
        let (at, id) = (bind(SqlValue::Integer(after.at)), bind(text(&after.id)));
        all.push(format!("(s.started_at, s.thread_id) {beyond} ({at}, {id})"));
    }
    let limit = bind(SqlValue::Integer(i64::from(page.limit) + 1));
    let which = format!(
        "{} ORDER BY s.started_at {direction}, s.thread_id {direction} LIMIT {limit}",
        all.join(" AND ")
    );
    (which, values)
}

fn select(db: &Db, which: &str, values: &[SqlValue]) -> Result<Vec<SandboxRecord>, StoreError> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.*, t.lease_id, (
           SELECT last_active FROM sessions WHERE sessions.thread_id = s.thread_id
           ORDER BY created_at DESC, session_id DESC LIMIT 1) AS last_active
         FROM sandboxes s JOIN threads t USING (thread_id) JOIN leases l USING (lease_id)
         WHERE {which}"
    ))?;
    let rows = statement.query_map(values, |row| {
        let last_active: Option<String> = row.get("last_active")?;
        let last_active = match last_active {
            Some(_) => Some(row::json::<Moment>(row, "last_active")?.at),
            None => None,
        };
        Ok((sandboxes::from_row(row)?, row::parsed(row, "lease_id")?, last_active))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (row, lease_id, last_active_at) = row?;
        let thread = threads::thread(db, &row.thread_id)?
            .ok_or_else(|| StoreError::missing("thread", &row.thread_id))?;
        let lease =
            leases::lease(db, &lease_id)?.ok_or_else(|| StoreError::missing("lease", &lease_id))?;
        found.push(SandboxRecord { row, thread, lease, last_active_at });
    }
    Ok(found)
}
