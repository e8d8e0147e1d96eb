//! Who is attached to which project, and what happens when the last one leaves.
//!
//! ```text
//!  somebody attached ──the last leaves──▶ snapshot ──grace──▶ policy, and nobody at work? ──▶ stop
//!        ▲                                              │ at work: look again after the grace
//!        └───────────── somebody comes ◀────────────────┘
//! ```
//! Whoever comes while instances are being stopped waits until that is done, and finds one made
//! again with the state of its terminals. Who is attached is known to this process alone: a server
//! that starts takes it that everybody has left.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use parking_lot::MutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    attendance::Seats,
    projects::{ProjectError, Projects},
};
use crate::{
    lease::{LeaseError, Leases},
    terminal::{TerminalError, Terminals},
};
use model::{LeaseId, Project, ProjectId};
use store::{PageRequest, ProjectFilter, Store, StoreError, ThreadFilter};

/// How soon somebody who was at work is looked at again, if the grace is shorter.
const AGAIN: Duration = Duration::from_secs(1);

/// Somebody is attached to a project, or at work in it.
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
    /// Somebody is attached to a project until the answer is dropped: that is use of it, and when the
    /// last one leaves a snapshot is taken and the policy of [`AttendancePolicy`] applied.
    pub async fn attach(&self, id: &ProjectId) -> Attached {
        self.enter(id, Role::Watching).await
    }

    /// Something is done in a project until the answer is dropped: nothing of it is stopped meanwhile.
    pub async fn work(&self, id: &ProjectId) -> Attached {
        self.enter(id, Role::Working).await
    }

    /// Whether an instance that was stopped is made again for one who comes back.
    #[must_use]
    pub fn recreates(&self, project: &Project) -> bool {
        let usual = self.inner.settings.attendance.recreate_on_reconnect;
        project.config.recreate_on_reconnect.unwrap_or(usual)
    }

    pub(super) fn is_attached(&self, id: &ProjectId) -> bool {
        self.seats().get(id).is_some_and(|seats| seats.people + seats.at_work > 0)
    }

    async fn enter(&self, id: &ProjectId, role: Role) -> Attached {
        let mut changed = self.inner.attendance.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let mut all = self.seats();
                let seats = all.entry(id.clone()).or_default();
                if !seats.stopping {
                    match role {
                        Role::Watching => {
                            seats.people += 1;
                            seats.left = false;
                        }
                        Role::Working => seats.at_work += 1,
                    }
                    return Attached { projects: self.clone(), project: id.clone(), role };
                }
            }
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        }
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<ProjectId, Seats>> {
        self.inner.attendance.seats.lock()
    }

    /// Changes the seats of a project, and forgets them if they say nothing.
    fn change_seats(&self, id: &ProjectId, change: impl FnOnce(&mut Seats)) {
        let mut all = self.seats();
        let seats = all.entry(id.clone()).or_default();
        change(seats);
        if *seats == Seats::default() {
            all.remove(id);
        }
        drop(all);
        self.inner.attendance.changed.send_replace(());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut was_last = false;
        self.projects.change_seats(&self.project, |seats| match self.role {
            Role::Watching => {
                seats.people -= 1;
                was_last = seats.people == 0;
                seats.left = was_last;
            }
            Role::Working => seats.at_work -= 1,
        });
        let (projects, project) = (self.projects.clone(), self.project.clone());
        if was_last && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // It was in use until this instant, however long ago that began.
                projects.touch(&project).await;
                if let Err(error) = projects.inner.memories.snapshot(&project).await {
                    tracing::warn!(%project, %error, "no snapshot on the last disconnect");
                }
            });
        }
    }
}

/// Stops the instances of projects that everybody has left, where their policy says so.
#[derive(Clone)]
pub struct Departures {
    /// The projects.
    pub projects: Projects,
    /// Their rows.
    pub store: Store,
    /// Their terminals.
    pub terminals: Terminals,
    /// Their compute.
    pub leases: Leases,
}

/// What came of looking at a project that everybody has left.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Done,
    AtWork,
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
    /// Looks after those who leave until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let grace = self.projects.settings().attendance.grace;
        let mut changed = self.projects.inner.attendance.changed.subscribe();
        let mut due: HashMap<ProjectId, Instant> = HashMap::new();
        match self.all_with_policy().await {
            Ok(all) => due.extend(all.into_iter().map(|id| (id, Instant::now() + grace))),
            Err(error) => tracing::warn!(%error, "cannot tell which instances are to be stopped"),
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
                let looked = tokio::select! {
                    () = stop.cancelled() => return,
                    looked = self.look_at(&id) => looked,
                };
                match looked {
                    Ok(Looked::Done) => {}
                    Ok(Looked::AtWork) => drop(due.insert(id, Instant::now() + grace.max(AGAIN))),
                    Err(error) => {
                        tracing::warn!(project = %id, %error, "cannot stop its instances yet");
                        due.insert(id, Instant::now() + grace.max(AGAIN));
                    }
                }
            }
        }
    }

    /// The projects whose policy is to stop; all of them count as left when the server starts.
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
        let usual = self.projects.settings().attendance.stop_on_disconnect;
        project.config.stop_on_disconnect.unwrap_or(usual)
    }

    fn take_left(&self) -> Vec<ProjectId> {
        let mut all = self.projects.seats();
        let left: Vec<ProjectId> =
            all.iter().filter(|(_, seats)| seats.left).map(|(id, _)| id.clone()).collect();
        for id in &left {
            all.entry(id.clone()).and_modify(|seats| seats.left = false);
        }
        all.retain(|_, seats| *seats != Seats::default());
        left
    }

    async fn look_at(&self, id: &ProjectId) -> Result<Looked, DepartureError> {
        let Some(project) = self.store.project(id).await? else { return Ok(Looked::Done) };
        if !self.stops(&project) {
            return Ok(Looked::Done);
        }
        let mut at_work = false;
        let mut is_attended = false;
        self.projects.change_seats(id, |seats| {
            at_work = seats.at_work > 0;
            is_attended = seats.people > 0;
            seats.stopping = !at_work && !is_attended;
        });
        // One who is there will leave, and is looked at then.
        if is_attended {
            return Ok(Looked::Done);
        }
        if at_work {
            return Ok(Looked::AtWork);
        }
        let stopped = self.stop_all(id).await;
        self.projects.change_seats(id, |seats| seats.stopping = false);
        stopped
    }

    async fn stop_all(&self, id: &ProjectId) -> Result<Looked, DepartureError> {
        let mut looked = Looked::Done;
        for lease in self.leases_of(id).await? {
            let users = self.store.lease_threads(&lease).await?;
            if users.iter().any(|thread| self.terminals.thread_in_use(thread)) {
                looked = Looked::AtWork;
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
                Ok(_) => tracing::info!(project = %id, %lease, "stopped, for everybody has left"),
                Err(LeaseError::NoInstance { .. } | LeaseError::Destroyed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(looked)
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
