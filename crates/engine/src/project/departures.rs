//! Applies the policy of a project when its last client leaves.
//!
//! ```text
//!  attached ──the last client leaves──▶ snapshot ──grace──▶ policy says stop, and idle? ──▶ stop
//!      ▲                                            │ in use: check again after the grace
//!      └───────────── a client connects ◀───────────┘
//! ```
//! A client that connects while instances are being stopped waits until that is done, and then gets a new
//! instance with the state of its terminals.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use parking_lot::MutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{attendance::ProjectActivity, error::ProjectError, projects::Projects};
use crate::{
    lease::{LeaseError, Leases},
    terminal::{TerminalError, Terminals},
};
use model::{LeaseId, Project, ProjectId};
use store::{PageRequest, ProjectFilter, Store, StoreError, ThreadFilter};

/// The shortest time before a project that was in use is checked again.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps a project in use until it is dropped.
#[derive(Debug)]
pub struct Attached {
    projects: Projects,
    project: ProjectId,
    role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Watching,
    Working,
}

impl Projects {
    /// Attaches a client until the returned guard is dropped. When the last client leaves, a snapshot of the
    /// hot memories is written and the attendance policy applies.
    pub async fn attach(&self, id: &ProjectId) -> Attached {
        self.enter(id, Role::Watching).await
    }

    /// Keeps the instances of a project from being stopped until the returned guard is dropped.
    pub async fn work(&self, id: &ProjectId) -> Attached {
        self.enter(id, Role::Working).await
    }

    /// Returns whether a stopped instance is created again for a client that returns.
    #[must_use]
    pub fn recreates(&self, project: &Project) -> bool {
        let default = self.inner.settings.attendance.recreate_on_reconnect;
        project.config.recreate_on_reconnect.unwrap_or(default)
    }

    pub(super) fn is_attached(&self, id: &ProjectId) -> bool {
        self.activity().get(id).is_some_and(|activity| activity.clients + activity.requests > 0)
    }

    async fn enter(&self, id: &ProjectId, role: Role) -> Attached {
        let mut changed = self.inner.attendance.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let mut all = self.activity();
                let activity = all.entry(id.clone()).or_default();
                if !activity.stopping {
                    match role {
                        Role::Watching => {
                            activity.clients += 1;
                            activity.left = false;
                        }
                        Role::Working => activity.requests += 1,
                    }
                    return Attached { projects: self.clone(), project: id.clone(), role };
                }
            }
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        }
    }

    fn activity(&self) -> MutexGuard<'_, HashMap<ProjectId, ProjectActivity>> {
        self.inner.attendance.activity.lock()
    }

    /// Changes the activity of a project, and removes its entry if none is left.
    fn change_activity(&self, id: &ProjectId, change: impl FnOnce(&mut ProjectActivity)) {
        let mut all = self.activity();
        let activity = all.entry(id.clone()).or_default();
        change(activity);
        if *activity == ProjectActivity::default() {
            all.remove(id);
        }
        drop(all);
        self.inner.attendance.changed.send_replace(());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut was_last = false;
        self.projects.change_activity(&self.project, |activity| match self.role {
            Role::Watching => {
                activity.clients -= 1;
                was_last = activity.clients == 0;
                activity.left = was_last;
            }
            Role::Working => activity.requests -= 1,
        });
        let (projects, project) = (self.projects.clone(), self.project.clone());
        if was_last && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The project was in use until now.
                projects.touch(&project).await;
                if let Err(error) = projects.inner.memories.snapshot(&project).await {
                    tracing::warn!(%project, %error, "cannot write a snapshot after the last client left");
                }
            });
        }
    }
}

/// Stops the instances of projects without clients, if the policy says so.
#[derive(Clone)]
pub struct Departures {
    pub projects: Projects,
    pub store: Store,
    pub terminals: Terminals,
    pub leases: Leases,
}

/// The result of checking a project without clients.
#[derive(Debug, PartialEq, Eq)]
enum Checked {
    Done,
    InUse,
}

#[derive(Debug, thiserror::Error)]
enum DepartureError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

impl Departures {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let grace = self.projects.settings().attendance.grace;
        let mut changed = self.projects.inner.attendance.changed.subscribe();
        let mut due: HashMap<ProjectId, Instant> = HashMap::new();
        match self.all_with_policy().await {
            Ok(all) => due.extend(all.into_iter().map(|id| (id, Instant::now() + grace))),
            Err(error) => {
                tracing::warn!(%error, "cannot list the projects whose instances are to be stopped")
            }
        }
        loop {
            changed.mark_unchanged();
            for id in self.take_left() {
                due.insert(id, Instant::now() + grace);
            }
            let next = due.values().min().copied();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = changed.changed() => continue,
                () = wait => {}
            }
            let ready: Vec<ProjectId> = due
                .iter()
                .filter(|(_, at)| **at <= Instant::now())
                .map(|(id, _)| id.clone())
                .collect();
            for id in ready {
                due.remove(&id);
                let checked = tokio::select! {
                    () = stop.cancelled() => return,
                    checked = self.check(&id) => checked,
                };
                match checked {
                    Ok(Checked::Done) => {}
                    Ok(Checked::InUse) => {
                        due.insert(id, Instant::now() + grace.max(MIN_CHECK_INTERVAL));
                    }
                    Err(error) => {
                        tracing::warn!(project = %id, %error, "cannot stop the instances of a project yet");
                        due.insert(id, Instant::now() + grace.max(MIN_CHECK_INTERVAL));
                    }
                }
            }
        }
    }

    /// Returns the projects whose policy is to stop. After a start they all count as left.
    async fn all_with_policy(&self) -> Result<Vec<ProjectId>, StoreError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let request = PageRequest { limit: 1000, after };
            let page = self.store.projects(ProjectFilter::default(), request).await?;
            let stops = page.items.into_iter().filter(|project| self.stops(project));
            found.extend(stops.map(|project| project.project_id));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    fn stops(&self, project: &Project) -> bool {
        let default = self.projects.settings().attendance.stop_on_disconnect;
        project.config.stop_on_disconnect.unwrap_or(default)
    }

    fn take_left(&self) -> Vec<ProjectId> {
        let mut all = self.projects.activity();
        let left: Vec<ProjectId> =
            all.iter().filter(|(_, activity)| activity.left).map(|(id, _)| id.clone()).collect();
        for id in &left {
            all.entry(id.clone()).and_modify(|activity| activity.left = false);
        }
        all.retain(|_, activity| *activity != ProjectActivity::default());
        left
    }

    async fn check(&self, id: &ProjectId) -> Result<Checked, DepartureError> {
        let Some(project) = self.store.project(id).await? else { return Ok(Checked::Done) };
        if !self.stops(&project) {
            return Ok(Checked::Done);
        }
        let mut in_use = false;
        let mut is_attended = false;
        self.projects.change_activity(id, |activity| {
            in_use = activity.requests > 0;
            is_attended = activity.clients > 0;
            activity.stopping = !in_use && !is_attended;
        });
        // Checked again when the last client leaves.
        if is_attended {
            return Ok(Checked::Done);
        }
        if in_use {
            return Ok(Checked::InUse);
        }
        let stopped = self.stop_all(id).await;
        self.projects.change_activity(id, |activity| activity.stopping = false);
        stopped
    }

    async fn stop_all(&self, id: &ProjectId) -> Result<Checked, DepartureError> {
        let mut checked = Checked::Done;
        for lease in self.leases_of(id).await? {
            let users = self.store.lease_threads(&lease).await?;
            if users.iter().any(|thread| self.terminals.thread_in_use(thread)) {
                checked = Checked::InUse;
                continue;
            }
            let found = self.store.lease(&lease).await?;
            if found.is_none_or(|found| found.instance().is_none()) {
                continue;
            }
            for terminal in self.store.lease_terminals(&lease).await? {
                self.terminals.end(&terminal).await?;
            }
            match self.leases.stop(&lease).await {
                Ok(_) => {
                    tracing::info!(project = %id, %lease, "stopped an instance because the last client left")
                }
                Err(LeaseError::NoInstance { .. } | LeaseError::Destroyed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(checked)
    }

    async fn leases_of(&self, id: &ProjectId) -> Result<BTreeSet<LeaseId>, StoreError> {
        let (mut found, mut after) = (BTreeSet::new(), None);
        loop {
            let filter = ThreadFilter { project_id: Some(id.clone()) };
            let page = self.store.threads(filter, PageRequest { limit: 1000, after }).await?;
            found.extend(page.items.into_iter().map(|thread| thread.lease_id));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}
