//! Threads with their messages, sessions, terminals and leases.

use std::collections::BTreeMap;

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum, leases,
    removals::{self, DeletedRows},
    row::{self, Read, int, micros, to_json, to_word},
    sandboxes, sessions,
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
    terminals,
};
use model::{
    ChatSession, Env, Lease, LeaseEvent, LeaseId, LeaseState, Message, Moment, ProjectId, Sandbox,
    SessionEvent, SessionId, SessionPolicy, ShellKind, Terminal, TerminalId, TerminalStatus,
    Thread, ThreadId, Timestamp,
};

/// Client-chosen settings of a thread. `None` keeps the current value or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadChoices {
    pub project_id: Option<ProjectId>,
    /// The provider of its lease; cannot be changed later.
    pub provider: Option<String>,
    /// Provider-specific settings of its lease; cannot be changed later.
    pub spec: Option<serde_json::Value>,
    /// A lease to share; cannot be changed later.
    pub lease_id: Option<LeaseId>,
    /// The fork of a lease for the thread to use; this keeps the fork alive.
    pub fork: Option<LeaseId>,
    /// The policy of its sessions.
    pub policy: Option<SessionPolicy>,
    /// The initial environment of its shells.
    pub env: Option<Env>,
    /// The initial working directory of its shells.
    pub cwd: Option<String>,
    /// Labels for the client's use.
    pub labels: Option<BTreeMap<String, String>>,
    /// The sandbox to create with the thread; ignored for an existing thread.
    pub sandbox: Option<Box<Sandbox>>,
}

/// Everything needed to create a thread on first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUse {
    pub thread_id: ThreadId,
    pub choices: ThreadChoices,
    /// The default provider.
    pub provider: String,
    /// The default session policy.
    pub policy: SessionPolicy,
    /// The shell of its default terminal.
    pub shell: ShellKind,
    /// The size of its default terminal.
    pub size: (u16, u16),
    pub now: Moment,
}

/// A thread with its session, terminal and lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub thread: Thread,
    pub session: ChatSession,
    pub terminal: Terminal,
    pub lease: Lease,
    /// Whether this call created the thread.
    pub thread_is_new: bool,
    /// Whether this call opened the session.
    pub session_is_new: bool,
    /// The previous session, if this call found it elapsed and expired it.
    pub expired: Option<ChatSession>,
}

/// A filter for threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    /// Only threads of this project.
    pub project_id: Option<ProjectId>,
}

impl Store {
    /// Returns the thread with this id.
    pub async fn thread(&self, id: &ThreadId) -> Result<Option<Thread>, StoreError> {
        let id = id.clone();
        self.read(move |db| thread(db, &id)).await
    }

    /// Returns threads, oldest first.
    pub async fn threads(
        &self,
        filter: ThreadFilter,
        page: PageRequest,
    ) -> Result<Page<Thread>, StoreError> {
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let project = filter.project_id.as_ref().map(ProjectId::as_str);
            // Two statements, so that each has its own index.
            let sql = if project.is_some() {
                "SELECT * FROM threads WHERE project_id = ?1 AND (created_at, thread_id) > (?2, ?3)
                 ORDER BY created_at, thread_id LIMIT ?4"
            } else {
                "SELECT * FROM threads WHERE ?1 IS NULL AND (created_at, thread_id) > (?2, ?3)
                 ORDER BY created_at, thread_id LIMIT ?4"
            };
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map(
                params![project, after.at, after.id, i64::from(page.limit) + 1],
                from_row,
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |thread: &Thread| Cursor {
                at: micros(thread.created_at),
                id: thread.thread_id.to_string(),
            }))
        })
        .await
    }

    /// Returns a thread with its session, terminal and lease, and creates missing rows. A lost row is
    /// recreated with its old id. Writes nothing if all rows exist.
    pub async fn open_chain(&self, first: FirstUse) -> Result<Chain, StoreError> {
        let id = first.thread_id.clone();
        let now = first.now;
        let ready = self
            .read(move |db| {
                let Some(thread) = thread(db, &id)? else { return Ok(None) };
                let session = sessions::open_session(db, &id)?;
                let session = session.filter(|s| !s.left(&now).0.is_zero());
                let terminal = terminals::terminal(db, &thread.terminal_id)?
                    .filter(|terminal| terminal.status != TerminalStatus::Closed);
                let lease = leases::lease(db, &thread.lease_id)?
                    .filter(|lease| lease.state != LeaseState::Destroyed);
                Ok(match (session, terminal, lease) {
                    (Some(session), Some(terminal), Some(lease)) => Some(Chain {
                        thread,
                        session,
                        terminal,
                        lease,
                        thread_is_new: false,
                        session_is_new: false,
                        expired: None,
                    }),
                    _ => None,
                })
            })
            .await?;
        match ready {
            Some(chain) => Ok(chain),
            None => self.write(move |db| open_chain(db, &first)).await,
        }
    }

    /// Creates a thread with its default terminal and lease, or changes an existing one. Returns whether it
    /// was created. Opens no session. A change of provider or lease is refused.
    pub async fn put_thread(&self, first: FirstUse) -> Result<(Thread, bool), StoreError> {
        self.write(move |db| {
            let created = thread(db, &first.thread_id)?.is_none();
            let thread = ensure_thread(db, &first)?;
            let thread = if created { thread } else { change(db, thread, &first)? };
            ensure_lease(db, &thread, &first)?;
            ensure_terminal(db, &thread, &first)?;
            Ok((thread, created))
        })
        .await
    }

    /// Changes the initial environment of a thread's shells. Returns `false` if the thread does not exist.
    pub async fn change_env(
        &self,
        id: &ThreadId,
        now: Timestamp,
        change: impl Fn(&mut Env) + Send + 'static,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let Some(mut thread) = thread(db, &id)? else { return Ok(false) };
            change(&mut thread.env);
            db.prepare_cached(
                "UPDATE threads SET env = ?2, updated_at = ?3, revision = revision + 1
                 WHERE thread_id = ?1",
            )?
            .execute(params![id.as_str(), to_json(&thread.env), micros(now)])?;
            Ok(true)
        })
        .await
    }

    /// Removes a thread, its session, terminals, history and messages.
    pub async fn delete_thread(
        &self,
        id: &ThreadId,
        at: Timestamp,
    ) -> Result<DeletedRows, StoreError> {
        let id = id.clone();
        self.write(move |db| removals::record(db, "thread", &id, delete(db, &id, at)?)).await
    }

    /// Adds a message to the conversation of a thread.
    pub async fn add_message(&self, id: &ThreadId, message: Message) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(move |db| {
            let added = db
                .prepare_cached(
                    "INSERT INTO messages (message_id, thread_id, role, content, at)
                     SELECT ?1, thread_id, ?3, ?4, ?5 FROM threads WHERE thread_id = ?2",
                )?
                .execute(params![
                    message.message_id.as_str(),
                    id.as_str(),
                    to_word(&message.role),
                    message.content,
                    micros(message.at),
                ])?;
            if added == 0 {
                return Err(StoreError::missing("thread", &id));
            }
            Ok(())
        })
        .await
    }

    /// Returns the conversation of a thread, oldest first.
    pub async fn messages(
        &self,
        id: &ThreadId,
        page: PageRequest,
    ) -> Result<Page<Message>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM messages WHERE thread_id = ?1 AND (at, message_id) > (?2, ?3)
                 ORDER BY at, message_id LIMIT ?4",
            )?;
            let rows = statement.query_map(
                params![id.as_str(), after.at, after.id, i64::from(page.limit) + 1],
                |row| {
                    Ok(Message {
                        message_id: row::parsed(row, "message_id")?,
                        role: row::word(row, "role")?,
                        content: row.get("content")?,
                        at: row::time(row, "at")?,
                    })
                },
            )?;
            Ok(Page::cut(rows.collect::<Read<_>>()?, page.limit, |m: &Message| Cursor {
                at: micros(m.at),
                id: m.message_id.to_string(),
            }))
        })
        .await
    }
}

pub(super) fn thread(db: &Db, id: &ThreadId) -> Result<Option<Thread>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM threads WHERE thread_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

/// Removes a thread, its session, terminals, history and messages.
pub(super) fn delete(db: &Db, id: &ThreadId, at: Timestamp) -> Result<DeletedRows, StoreError> {
    let thread = thread(db, id)?.ok_or_else(|| StoreError::missing("thread", id))?;
    let mut statement =
        db.prepare_cached("SELECT terminal_id, lease_id FROM terminals WHERE thread_id = ?1")?;
    let rows = statement.query_map([id.as_str()], |row| {
        Ok((row::parsed(row, "terminal_id")?, row::parsed(row, "lease_id")?))
    })?;
    let terminals: Vec<(TerminalId, LeaseId)> = rows.collect::<Read<_>>()?;
    for (terminal, _) in &terminals {
        terminals::delete(db, terminal)?;
    }
    db.prepare_cached("DELETE FROM threads WHERE thread_id = ?1")?.execute([id.as_str()])?;
    let mut leases: Vec<LeaseId> = terminals.iter().map(|(_, lease)| lease.clone()).collect();
    leases.push(thread.lease_id);
    leases.sort();
    leases.dedup();
    let mut unused = Vec::new();
    for lease in leases {
        if leases::release(db, &lease, at)? {
            unused.push(lease);
        }
    }
    Ok(DeletedRows { terminals, leases: unused, removals: Vec::new() })
}

fn open_chain(db: &Db, first: &FirstUse) -> Result<Chain, StoreError> {
    let thread_is_new = thread(db, &first.thread_id)?.is_none();
    let thread = ensure_thread(db, first)?;
    let lease = ensure_lease(db, &thread, first)?;
    let terminal = ensure_terminal(db, &thread, first)?;
    let mut expired = None;
    let open = match sessions::open_session(db, &thread.thread_id)? {
        Some(session) if session.left(&first.now).0.is_zero() => {
            let ended = session.apply(SessionEvent::Elapsed(first.now))?;
            expired = Some(sessions::save(db, ended)?);
            None
        }
        open => open,
    };
    let session_is_new = open.is_none();
    let session = match open {
        Some(session) => session,
        None => {
            let mut session = ChatSession::open(
                SessionId::fresh(),
                thread.thread_id.clone(),
                thread.terminal_id.clone(),
                thread.policy,
                first.now,
            );
            session.ran_before = lease.ran_at(first.now.at);
            sessions::insert(db, &session)?;
            session
        }
    };
    Ok(Chain { thread, session, terminal, lease, thread_is_new, session_is_new, expired })
}

/// Returns the thread, creating it if it does not exist.
fn ensure_thread(db: &Db, first: &FirstUse) -> Result<Thread, StoreError> {
    if let Some(thread) = thread(db, &first.thread_id)? {
        return Ok(thread);
    }
    first.thread_id.check_new()?;
    if first.thread_id.is_of_sandbox() && first.choices.sandbox.is_none() {
        // The sandbox was deleted. A thread in its place would run on another provider, perhaps without isolation.
        return Err(StoreError::missing("sandbox", &first.thread_id));
    }
    let mut choices = first.choices.clone();
    if let Some(fork) = choices.fork.take() {
        let lease = leases::lease(db, &fork)?;
        let lease = lease.ok_or_else(|| StoreError::missing("lease", &fork))?;
        leases::save(db, lease.apply(LeaseEvent::Kept)?)?;
        choices.lease_id = Some(fork);
    }
    let provider = match &choices.lease_id {
        Some(shared) => {
            let lease = leases::lease(db, shared)?
                .filter(|lease| lease.desired != model::Desired::Destroyed)
                .ok_or_else(|| StoreError::missing("lease", shared))?;
            same_provider(&choices, &lease.provider, shared)?;
            // A transaction that releases the lease at the same time conflicts with this one.
            db.prepare_cached("UPDATE leases SET updated_at = updated_at WHERE lease_id = ?1")?
                .execute([shared.as_str()])?;
            Some(lease.provider)
        }
        None => choices.provider,
    };
    let thread = Thread {
        thread_id: first.thread_id.clone(),
        project_id: choices.project_id.unwrap_or_else(ProjectId::default_project),
        terminal_id: TerminalId::fresh(),
        lease_id: choices.lease_id.unwrap_or_else(LeaseId::fresh),
        provider,
        policy: choices.policy.unwrap_or(first.policy),
        env: choices.env.unwrap_or_default(),
        cwd: choices.cwd,
        labels: choices.labels.unwrap_or_default(),
        created_at: first.now.at,
        updated_at: first.now.at,
        revision: 0,
    };
    // The thread's row references the lease, which is therefore inserted first.
    ensure_lease(db, &thread, first)?;
    project_exists(db, &thread.project_id)?;
    insert(db, &thread)?;
    if let Some(sandbox) = choices.sandbox {
        let project_id = thread.project_id.clone();
        sandboxes::insert(db, &Sandbox { project_id, ..*sandbox })?;
    }
    Ok(thread)
}

fn same_provider(
    choices: &ThreadChoices,
    provider: &str,
    lease: &LeaseId,
) -> Result<(), StoreError> {
    match &choices.provider {
        Some(wanted) if wanted != provider => Err(StoreError::Refused(model::Refused {
            noun: format!("lease {lease}"),
            state: "from another provider",
            event: "be moved",
        })),
        _ => Ok(()),
    }
}

fn project_exists(db: &Db, id: &ProjectId) -> Result<(), StoreError> {
    db.prepare_cached("SELECT 1 FROM projects WHERE project_id = ?1")?
        .query_row([id.as_str()], |_| Ok(()))
        .optional()?
        .ok_or_else(|| StoreError::missing("project", id))
}

/// Returns the thread's lease, creating or reviving it under the id in the thread's row.
fn ensure_lease(db: &Db, thread: &Thread, first: &FirstUse) -> Result<Lease, StoreError> {
    if let Some(lease) = leases::lease(db, &thread.lease_id)? {
        if lease.state == LeaseState::Destroyed {
            return leases::save(db, lease.apply(LeaseEvent::Revived)?);
        }
        return Ok(lease);
    }
    let provider = thread.provider.clone().unwrap_or_else(|| first.provider.clone());
    let mut lease = Lease::new(thread.lease_id.clone(), provider, first.now.at);
    lease.spec = first.choices.spec.clone().unwrap_or_default();
    leases::insert(db, &lease)?;
    Ok(lease)
}

/// Returns the thread's default terminal, creating it under the id in the thread's row.
fn ensure_terminal(db: &Db, thread: &Thread, first: &FirstUse) -> Result<Terminal, StoreError> {
    if let Some(terminal) = terminals::terminal(db, &thread.terminal_id)? {
        if terminal.status != TerminalStatus::Closed {
            return Ok(terminal);
        }
        // A closed default terminal is replaced by a new one.
        terminals::delete(db, &thread.terminal_id)?;
    }
    let (cols, rows) = first.size;
    let (terminal_id, thread_id) = (thread.terminal_id.clone(), thread.thread_id.clone());
    let terminal = Terminal {
        is_default: true,
        shell: first.shell,
        cols,
        rows,
        ..Terminal::fresh(terminal_id, thread_id, thread.lease_id.clone(), first.now.at)
    };
    terminals::insert(db, &terminal)?;
    Ok(terminal)
}

/// Applies changed settings to a thread. Its open session gets the new policy.
fn change(db: &Db, mut thread: Thread, first: &FirstUse) -> Result<Thread, StoreError> {
    let choices = first.choices.clone();
    let refused = |event| {
        let noun = format!("thread {}", first.thread_id);
        StoreError::Refused(model::Refused { noun, state: "already created", event })
    };
    if choices.lease_id.is_some_and(|lease| lease != thread.lease_id) {
        return Err(refused("change its lease"));
    }
    if let Some(wanted) = &choices.provider {
        let lease = leases::lease(db, &thread.lease_id)?;
        let has = lease.map(|lease| lease.provider).or_else(|| thread.provider.clone());
        if has.as_ref().is_some_and(|has| has != wanted) {
            return Err(refused("change its provider"));
        }
    }
    if let Some(wanted) = &choices.spec {
        let lease = leases::lease(db, &thread.lease_id)?;
        if lease.is_some_and(|lease| lease.spec != *wanted) {
            return Err(refused("change its sandbox"));
        }
    }
    let before = thread.clone();
    if let Some(project) = choices.project_id {
        project_exists(db, &project)?;
        if thread.project_id != project {
            thread.project_id = project;
            sandboxes::move_to_project(db, &thread)?;
        }
    }
    if let Some(env) = choices.env {
        thread.env = env;
    }
    if choices.cwd.is_some() {
        thread.cwd = choices.cwd;
    }
    if let Some(labels) = choices.labels {
        thread.labels = labels;
    }
    if let Some(policy) = choices.policy {
        thread.policy = policy;
        if let Some(mut session) = sessions::open_session(db, &thread.thread_id)?
            && session.policy != policy
        {
            session.policy = policy;
            sessions::save(db, session)?;
        }
    }
    if thread == before {
        return Ok(thread);
    }
    thread.updated_at = first.now.at;
    thread.revision += 1;
    db.prepare_cached(
        "UPDATE threads SET project_id = ?2, policy = ?3, env = ?4, cwd = ?5, labels = ?6,
                updated_at = ?7, revision = ?8
         WHERE thread_id = ?1",
    )?
    .execute(params![
        thread.thread_id.as_str(),
        thread.project_id.as_str(),
        to_json(&thread.policy),
        to_json(&thread.env),
        thread.cwd,
        to_json(&thread.labels),
        micros(thread.updated_at),
        int(thread.revision),
    ])?;
    Ok(thread)
}

fn insert(db: &Db, thread: &Thread) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO threads (thread_id, project_id, terminal_id, lease_id, provider, policy, env,
                              cwd, labels, created_at, updated_at, revision)
         VALUES (:id, :project, :terminal, :lease, :provider, :policy, :env, :cwd, :labels,
                 :created, :updated, :revision)",
    )?
    .execute(named_params! {
        ":id": thread.thread_id.as_str(),
        ":project": thread.project_id.as_str(),
        ":terminal": thread.terminal_id.as_str(),
        ":lease": thread.lease_id.as_str(),
        ":provider": thread.provider,
        ":policy": to_json(&thread.policy),
        ":env": to_json(&thread.env),
        ":cwd": thread.cwd,
        ":labels": to_json(&thread.labels),
        ":created": micros(thread.created_at),
        ":updated": micros(thread.updated_at),
        ":revision": int(thread.revision),
    })?;
    Ok(())
}

fn from_row(row: &SqlRow<'_>) -> Read<Thread> {
    checksum::verify(row, "a thread")?;
    Ok(Thread {
        thread_id: row::parsed(row, "thread_id")?,
        project_id: row::parsed(row, "project_id")?,
        terminal_id: row::parsed(row, "terminal_id")?,
        lease_id: row::parsed(row, "lease_id")?,
        provider: row.get("provider")?,
        policy: row::json(row, "policy")?,
        env: row::json(row, "env")?,
        cwd: row.get("cwd")?,
        labels: row::json(row, "labels")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        revision: row::count(row, "revision")?,
    })
}
