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

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    lease::{LeaseError, Leases},
    terminal::{TerminalError, Terminals},
};
use model::{LeaseId, ProjectId};
use project::{Occupancy, Projects};
use store::{PageRequest, ProjectFilter, Store, StoreError, ThreadFilter};

/// The shortest time before a project that was in use is checked again.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
enum DepartureCheck {
    Done,
    InUse,
}

#[derive(Debug, thiserror::Error)]
enum DepartureError {
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
        let mut changed = self.projects.attendance_changes();
        let mut due: HashMap<ProjectId, Instant> = HashMap::new();
        match self.all_with_policy().await {
            Ok(all) => due.extend(all.into_iter().map(|id| (id, Instant::now() + grace))),
            Err(error) => {
                tracing::warn!(%error, "cannot list the projects whose instances are to be stopped")
            }
        }
        loop {
            changed.mark_unchanged();
            for id in self.projects.take_left() {
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
                    Ok(DepartureCheck::Done) => {}
                    Ok(DepartureCheck::InUse) => {
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
            let stops = page.items.into_iter().filter(|project| self.projects.stops(project));
            found.extend(stops.map(|project| project.project_id));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    async fn check(&self, id: &ProjectId) -> Result<DepartureCheck, DepartureError> {
        let Some(project) = self.store.project(id).await? else { return Ok(DepartureCheck::Done) };
        if !self.projects.stops(&project) {
            return Ok(DepartureCheck::Done);
        }
        let _vacancy = match self.projects.occupancy(id) {
            Occupancy::Vacant(vacancy) => vacancy,
            // Checked again when the last client leaves.
            Occupancy::Attended => return Ok(DepartureCheck::Done),
            Occupancy::Working => return Ok(DepartureCheck::InUse),
        };
        self.stop_all(id).await
    }

    async fn stop_all(&self, id: &ProjectId) -> Result<DepartureCheck, DepartureError> {
        let mut checked = DepartureCheck::Done;
        for lease in self.leases_of(id).await? {
            let users = self.store.lease_threads(&lease).await?;
            if users.iter().any(|thread| self.terminals.thread_in_use(thread)) {
                checked = DepartureCheck::InUse;
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
