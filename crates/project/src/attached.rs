//! Attaching clients and requests to projects, and finding projects that are not in use.

use std::collections::HashMap;

use parking_lot::MutexGuard;
use tokio::sync::watch;

use super::{attendance::ProjectActivity, projects::Projects};
use model::{Project, ProjectId};

/// Keeps a project in use until it is dropped.
#[derive(Debug)]
pub struct Attached {
    projects: Projects,
    project: ProjectId,
    role: AttachedRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttachedRole {
    Watching,
    Working,
}

/// The use of a project at one instant.
#[derive(Debug)]
pub enum Occupancy {
    /// A client is attached.
    Attended,
    /// No client is attached, and a request uses the instances.
    Working,
    /// The project is not in use, and clients wait until this is dropped.
    Vacant(Vacancy),
}

/// Clients of the project wait until this is dropped.
#[derive(Debug)]
pub struct Vacancy {
    projects: Projects,
    project: ProjectId,
}

impl Projects {
    /// Attaches a client until the returned guard is dropped. When the last client leaves, a snapshot of the
    /// hot memories is written and the attendance policy applies.
    pub async fn attach(&self, id: &ProjectId) -> Attached {
        self.enter(id, AttachedRole::Watching).await
    }

    /// Keeps the instances of a project from being stopped until the returned guard is dropped.
    pub async fn work(&self, id: &ProjectId) -> Attached {
        self.enter(id, AttachedRole::Working).await
    }

    /// Returns whether a stopped instance is created again for a client that returns.
    #[must_use]
    pub fn recreates(&self, project: &Project) -> bool {
        let default = self.inner.settings.attendance.recreate_on_reconnect;
        project.config.recreate_on_reconnect.unwrap_or(default)
    }

    /// Returns whether the instances of a project are stopped when its last client leaves.
    #[must_use]
    pub fn stops(&self, project: &Project) -> bool {
        let default = self.inner.settings.attendance.stop_on_disconnect;
        project.config.stop_on_disconnect.unwrap_or(default)
    }

    /// Returns a receiver of changes: a client or a request of any project came or left.
    #[must_use]
    pub fn attendance_changes(&self) -> watch::Receiver<()> {
        self.inner.attendance.changed.subscribe()
    }

    /// Returns the projects whose last client has left since the previous call.
    #[must_use]
    pub fn take_left(&self) -> Vec<ProjectId> {
        let mut all = self.activity();
        let left: Vec<ProjectId> =
            all.iter().filter(|(_, activity)| activity.left).map(|(id, _)| id.clone()).collect();
        for id in &left {
            all.entry(id.clone()).and_modify(|activity| activity.left = false);
        }
        all.retain(|_, activity| *activity != ProjectActivity::default());
        left
    }

    /// Returns whether a project is in use. Clients of a vacant project wait until the [`Vacancy`] is dropped.
    #[must_use]
    pub fn occupancy(&self, id: &ProjectId) -> Occupancy {
        let vacancy = || Vacancy { projects: self.clone(), project: id.clone() };
        self.change_activity(id, |activity| match activity {
            ProjectActivity { clients: 1.., .. } => Occupancy::Attended,
            ProjectActivity { requests: 1.., .. } => Occupancy::Working,
            ProjectActivity { clients: 0, requests: 0, .. } => {
                activity.stopping = true;
                Occupancy::Vacant(vacancy())
            }
        })
    }

    pub(super) fn is_attached(&self, id: &ProjectId) -> bool {
        self.activity().get(id).is_some_and(|activity| activity.clients + activity.requests > 0)
    }

    async fn enter(&self, id: &ProjectId, role: AttachedRole) -> Attached {
        let mut changed = self.attendance_changes();
        loop {
            changed.mark_unchanged();
            {
                let mut all = self.activity();
                let activity = all.entry(id.clone()).or_default();
                if !activity.stopping {
                    match role {
                        AttachedRole::Watching => {
                            activity.clients += 1;
                            activity.left = false;
                        }
                        AttachedRole::Working => activity.requests += 1,
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
    fn change_activity<T>(
        &self,
        id: &ProjectId,
        change: impl FnOnce(&mut ProjectActivity) -> T,
    ) -> T {
        let mut all = self.activity();
        let activity = all.entry(id.clone()).or_default();
        let result = change(activity);
        if *activity == ProjectActivity::default() {
            all.remove(id);
        }
        drop(all);
        self.inner.attendance.changed.send_replace(());
        result
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let was_last = self.projects.change_activity(&self.project, |activity| match self.role {
            AttachedRole::Watching => {
                activity.clients -= 1;
                activity.left = activity.clients == 0;
                activity.left
            }
            AttachedRole::Working => {
                activity.requests -= 1;
                false
            }
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

impl Drop for Vacancy {
    fn drop(&mut self) {
        self.projects.change_activity(&self.project, |activity| activity.stopping = false);
    }
}
