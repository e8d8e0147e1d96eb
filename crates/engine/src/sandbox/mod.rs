//! Sandboxes: created, extended, paused, suspended, resumed, stopped and deleted by their clients, and
//! expired by one scheduler.
//!
//! The row is authoritative for a sandbox, the lease for its compute. Every change of a row carries the revision
//! it was read at. Expiries are decided from rows alone (`expiry`), so a server that was killed continues them.
//! Nothing here knows through which API a sandbox was created.

mod error;
mod expiry;
#[cfg(test)]
mod tests;
mod wake;

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

pub use error::SandboxError;

use crate::{
    lease::{LeaseError, Leases},
    removal::Removals,
    session::Sessions,
    terminal::Terminals,
};
use base::{clock::Clock, event::Events};
use model::{
    OnExpiry, ProjectId, Sandbox, SandboxEvent, SandboxState, SandboxStatus, SessionPolicy,
    ThreadId, Timestamp,
};
use provider::Fidelity;
use store::{
    FirstUse, Page, PageRequest, SandboxFilter, SandboxOrder, SandboxRecord, Store, StoreError,
};

/// Sandboxes of one server; each has its own compute.
const MAX_SANDBOXES: u64 = 10_000;
/// The session policy of sandboxes: their lifetime ends their compute, not a session.
pub const UNLIMITED_SESSION: SessionPolicy = SessionPolicy {
    idle_timeout_s: 10 * 365 * 86_400,
    max_duration_s: 10 * 365 * 86_400,
    on_expiry: OnExpiry::Keep,
    max_running: None,
    max_cost: None,
};
/// The origin of sandboxes that were created through the server's own API.
pub const NATIVE_ORIGIN: &str = "stead";
/// How often a change is decided again because another change was saved first.
const MAX_ATTEMPTS: usize = 16;

/// The handle to all sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct Sandboxes {
    shared: Arc<SharedSandboxes>,
}

struct SharedSandboxes {
    store: Store,
    leases: Leases,
    terminals: Terminals,
    sessions: Sessions,
    removals: Removals,
    events: Events,
    clock: Clock,
    changed: watch::Sender<()>,
}

/// When a lifetime should end, counted from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// The lifetime ends then, whether that is sooner or later than before.
    Exactly(Duration),
    /// The lifetime ends then, unless it already ends later.
    AtLeast(Duration),
}

impl Sandboxes {
    /// The caller spawns [`run`](Self::run).
    #[must_use]
    pub fn new(
        store: Store,
        leases: Leases,
        terminals: Terminals,
        sessions: Sessions,
        removals: Removals,
        events: Events,
        clock: Clock,
    ) -> Self {
        let changed = watch::Sender::new(());
        let shared = SharedSandboxes {
            store,
            leases,
            terminals,
            sessions,
            removals,
            events,
            clock,
            changed,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Creates a sandbox with its thread, in one transaction. Its compute starts on its first use.
    pub async fn create(
        &self,
        mut first: FirstUse,
        sandbox: Sandbox,
    ) -> Result<SandboxRecord, SandboxError> {
        if self.shared.store.sandbox_count().await? >= MAX_SANDBOXES {
            return Err(SandboxError::TooMany { limit: MAX_SANDBOXES });
        }
        let id = first.thread_id.clone();
        first.choices.sandbox = Some(Box::new(sandbox));
        let chain = self.shared.sessions.open(first).await?;
        if !chain.thread_is_new {
            return Err(StoreError::Exists { what: format!("thread {id}") }.into());
        }
        self.shared.changed.send_replace(());
        self.require(&id).await
    }

    /// Creates a sandbox with a copy of the files of another sandbox and the state of its default shell.
    /// Processes are not copied.
    pub async fn fork(
        &self,
        original: &SandboxRecord,
        mut first: FirstUse,
        sandbox: Sandbox,
    ) -> Result<SandboxRecord, SandboxError> {
        let fork = self.shared.leases.fork(&original.thread.lease_id).await?;
        let lease = fork.lease.lease_id.clone();
        // The lease is marked for destruction until the new thread uses it: a crash here leaves nothing behind.
        first.choices.fork = Some(lease.clone());
        let created = self.create(first, sandbox).await;
        if created.is_err() {
            let _ = self.shared.leases.destroy(&lease).await;
        }
        drop(fork);
        let created = created?;
        let (from, to) = (&original.thread.terminal_id, &created.thread.terminal_id);
        self.shared.terminals.copy_state(from, to).await?;
        Ok(created)
    }

    pub async fn get(&self, id: &ThreadId) -> Result<Option<SandboxRecord>, StoreError> {
        self.shared.store.sandbox(id).await
    }

    /// Returns the sandbox of a project with this name, among those created through the API `origin`.
    pub async fn named(
        &self,
        project: &ProjectId,
        origin: &str,
        name: &str,
    ) -> Result<Option<SandboxRecord>, StoreError> {
        self.shared.store.sandbox_named(project, origin, name).await
    }

    pub async fn list(
        &self,
        filter: SandboxFilter,
        order: SandboxOrder,
        page: PageRequest,
    ) -> Result<Page<SandboxRecord>, StoreError> {
        self.shared.store.sandboxes(filter, order, page).await
    }

    /// Returns all sandboxes that match a filter, newest first.
    pub async fn all(&self, filter: SandboxFilter) -> Result<Vec<SandboxRecord>, StoreError> {
        let limit = u32::try_from(MAX_SANDBOXES).unwrap_or(u32::MAX);
        let page = self.list(filter, SandboxOrder::NewestFirst, PageRequest::first(limit)).await?;
        Ok(page.items)
    }

    /// Changes a sandbox; `None` if it does not exist. `change` is called again if another change was saved
    /// first.
    pub async fn change(
        &self,
        id: &ThreadId,
        mut change: impl FnMut(&mut Sandbox),
    ) -> Result<Option<SandboxRecord>, SandboxError> {
        self.decide(id, |sandbox| {
            let mut next = sandbox.clone();
            change(&mut next);
            Ok(next)
        })
        .await
    }

    /// Sets the end of a sandbox's lifetime. Returns `None` if the sandbox does not exist.
    pub async fn extend(
        &self,
        id: &ThreadId,
        extension: Extension,
    ) -> Result<Option<SandboxRecord>, SandboxError> {
        let after = |time: Duration| self.now().checked_add(time).unwrap_or(Timestamp::MAX);
        let event = match extension {
            Extension::Exactly(time) => SandboxEvent::ExpirySet(Some(after(time))),
            Extension::AtLeast(time) => SandboxEvent::Extended(after(time)),
        };
        self.decide(id, |sandbox| Ok(sandbox.apply(event)?)).await
    }

    /// Pauses a sandbox with its programs. Returns `None` if it is already paused or suspended.
    pub async fn pause(
        &self,
        sandbox: &SandboxRecord,
    ) -> Result<Option<SandboxRecord>, SandboxError> {
        match sandbox.status() {
            SandboxStatus::Paused | SandboxStatus::Suspended => return Ok(None),
            SandboxStatus::Running | SandboxStatus::Stopped | SandboxStatus::Archived => {}
        }
        let lease = &sandbox.thread.lease_id;
        match self.shared.leases.pause(lease).await {
            // The sandbox has no instance: create one to pause.
            Err(LeaseError::NoInstance { .. }) => {
                self.shared.leases.running(lease).await?;
                self.shared.leases.pause(lease).await?;
            }
            paused => drop(paused?),
        }
        self.apply(sandbox.id(), SandboxEvent::Paused).await.map(Some)
    }

    /// Ends the programs of a sandbox and keeps its files until it is resumed. Where the provider does not
    /// keep files without an instance, the sandbox is paused as a whole.
    pub async fn suspend(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, SandboxError> {
        let leases = &self.shared.leases;
        let provider = leases.providers().named(&sandbox.lease.provider);
        if !provider.is_ok_and(|provider| provider.profile().suspend != Fidelity::None) {
            return match self.pause(sandbox).await? {
                Some(paused) => Ok(paused),
                None => self.require(sandbox.id()).await,
            };
        }
        if sandbox.status() == SandboxStatus::Paused {
            // A paused program cannot handle the request to end.
            leases.running(&sandbox.thread.lease_id).await?;
        }
        self.end_programs(sandbox).await?;
        self.apply(sandbox.id(), SandboxEvent::Suspended).await
    }

    /// Makes a sandbox run, whatever its status.
    pub async fn resume(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, SandboxError> {
        if sandbox.row.state != SandboxState::Active {
            self.apply(sandbox.id(), SandboxEvent::Resumed).await?;
        }
        self.shared.leases.running(&sandbox.thread.lease_id).await?;
        self.require(sandbox.id()).await
    }

    /// Ends the programs of a sandbox. Its files are kept, and its next use starts it.
    pub async fn stop(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, SandboxError> {
        self.end_programs(sandbox).await?;
        self.apply(sandbox.id(), SandboxEvent::Stopped).await
    }

    /// Marks a stopped sandbox as stopped for a long time.
    pub async fn archive(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, SandboxError> {
        self.apply(sandbox.id(), SandboxEvent::Archived).await
    }

    /// Changes the policy of a sandbox's sessions.
    pub async fn set_policy(
        &self,
        first: FirstUse,
        policy: SessionPolicy,
    ) -> Result<(), SandboxError> {
        let (mut first, id) = (first.clone(), first.thread_id);
        first.choices.policy = Some(policy);
        self.shared.store.put_thread(first).await?;
        self.shared.sessions.policy_changed(&id).await?;
        Ok(())
    }

    /// Deletes a sandbox with everything in it. Returns `false` if it does not exist. Its rows are deleted when
    /// this returns, and usually its compute, too.
    pub async fn delete(&self, id: &ThreadId) -> Result<bool, SandboxError> {
        if self.get(id).await?.is_none() {
            let Some(removal) = self.shared.removals.of("thread", id) else { return Ok(false) };
            removal.wait().await;
            return Ok(true);
        }
        match self.shared.removals.delete_thread(id, self.now()).await {
            Ok(removal) => removal.wait().await,
            Err(StoreError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    async fn require(&self, id: &ThreadId) -> Result<SandboxRecord, SandboxError> {
        let missing = || StoreError::Missing { what: format!("sandbox {id}") };
        Ok(self.get(id).await?.ok_or_else(missing)?)
    }

    async fn end_programs(&self, sandbox: &SandboxRecord) -> Result<(), SandboxError> {
        for terminal in self.shared.store.thread_terminals(sandbox.id()).await? {
            self.shared.terminals.end(&terminal.terminal_id).await?;
        }
        self.shared.leases.stop(&sandbox.thread.lease_id).await?;
        // The stop itself may make the sandbox due.
        self.shared.changed.send_replace(());
        Ok(())
    }

    async fn apply(
        &self,
        id: &ThreadId,
        event: SandboxEvent,
    ) -> Result<SandboxRecord, SandboxError> {
        let missing = || StoreError::Missing { what: format!("sandbox {id}") };
        let changed = self.decide(id, |sandbox| Ok(sandbox.apply(event)?)).await?;
        Ok(changed.ok_or_else(missing)?)
    }

    /// Saves the result of `decide`. Reads the sandbox and decides again if another change was saved first.
    async fn decide(
        &self,
        id: &ThreadId,
        mut decide: impl FnMut(&Sandbox) -> Result<Sandbox, SandboxError>,
    ) -> Result<Option<SandboxRecord>, SandboxError> {
        let mut attempts = 0;
        loop {
            let Some(found) = self.get(id).await? else { return Ok(None) };
            let mut next = decide(&found.row)?;
            if next == found.row {
                return Ok(Some(found));
            }
            next.updated_at = self.now();
            attempts += 1;
            match self.shared.store.save_sandbox(&next).await {
                Ok(row) => {
                    self.shared.changed.send_replace(());
                    return Ok(Some(SandboxRecord { row, ..found }));
                }
                Err(StoreError::Conflict { .. }) if attempts < MAX_ATTEMPTS => {}
                Err(StoreError::Missing { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
