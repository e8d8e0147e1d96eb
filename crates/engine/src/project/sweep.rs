//! The daily look at all projects: who is warned, who goes, and what leaves the trash for good.

use serde::Serialize;

use super::{
    ProjectError, Projects,
    cleanup::{self, Decision, InUse},
    projects::{blocking, failed, move_directory, purging, remove_directory},
};
use base::event::Happened;
use model::{Project, ProjectId, Timestamp};
use store::{Gone, PageRequest, ProjectFilter, StoreError};

/// Whether a clean-up acts or only says what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It only says.
    DryRun,
    /// It acts.
    Act,
}

/// What a clean-up does, or would do, with one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanupItem {
    /// The project.
    pub project_id: ProjectId,
    /// What is done.
    #[serde(flatten)]
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// When something was last done in it.
    pub last_used_at: Timestamp,
}

impl Projects {
    /// Looks at every project. Answers those that are warned or deleted, and what the deleted ones
    /// leave to be ended.
    pub async fn clean_up(&self, mode: Mode) -> Result<(Vec<CleanupItem>, Gone), ProjectError> {
        let (mut items, mut gone) = (Vec::new(), Gone::default());
        let mut after = None;
        loop {
            let request = PageRequest { limit: 1000, after };
            let page = self.inner.store.projects(ProjectFilter::default(), request).await?;
            for project in page.items {
                let Some(item) = self.look_at(&project, mode).await? else { continue };
                if mode == Mode::Act {
                    match self.act(&project, &item).await {
                        Ok(more) => {
                            gone.terminals.extend(more.terminals);
                            gone.leases.extend(more.leases);
                        }
                        // Used since it was read: the next look decides again.
                        Err(ProjectError::Store(StoreError::Refused(_))) => continue,
                        Err(error) => return Err(error),
                    }
                }
                items.push(item);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if mode == Mode::Act {
            self.purge_old().await?;
            self.inner.store.prune_session_records().await?;
        }
        Ok((items, gone))
    }

    async fn look_at(
        &self,
        project: &Project,
        mode: Mode,
    ) -> Result<Option<CleanupItem>, ProjectError> {
        let (policy, now) = (self.inner.settings.cleanup, self.inner.clock.wall());
        // Most are kept by the calendar alone, which costs nothing.
        if cleanup::decide(now, project, &policy, InUse::No) == Decision::Keep {
            return Ok(None);
        }
        let id = &project.project_id;
        let runs = self.inner.store.project_use(id).await?.commands > 0;
        if runs || self.is_attached(id) {
            if mode == Mode::Act {
                self.inner.store.touch_project(id, now).await?;
            }
            return Ok(None);
        }
        let decision = cleanup::decide(now, project, &policy, InUse::No);
        let unused = now.duration_since(project.last_used_at).as_hours() / 24;
        let reason = match project.keep_until {
            Some(until) if until <= now => {
                format!("unused for {unused} days, and its extension ended at {until}")
            }
            _ => format!("unused for {unused} days"),
        };
        let (project_id, last_used_at) = (id.clone(), project.last_used_at);
        Ok(Some(CleanupItem { project_id, decision, reason, last_used_at }))
    }

    async fn act(&self, project: &Project, item: &CleanupItem) -> Result<Gone, ProjectError> {
        let (policy, now) = (self.inner.settings.cleanup, self.inner.clock.wall());
        match item.decision {
            Decision::Keep => Ok(Gone::default()),
            Decision::Warn { days_left, deletes_at } => {
                if cleanup::is_warning_due(now, project, &policy)
                    && self.inner.store.warn_project(project, now).await?
                {
                    tracing::warn!(
                        project = %item.project_id,
                        "{}: it will be deleted in {days_left} days, at {deletes_at}",
                        item.reason
                    );
                    self.inner.events.tell(Happened::ProjectExpiring {
                        project_id: item.project_id.clone(),
                        deletes_at,
                        reason: item.reason.clone(),
                    });
                }
                Ok(Gone::default())
            }
            Decision::Delete => {
                let since = Some(project.last_used_at);
                let gone = self.trash(&item.project_id, &item.reason, since).await?;
                tracing::warn!(project = %item.project_id, "{}: deleted into the trash", item.reason);
                let (id, detail) = (item.project_id.as_str(), serde_json::json!(item.reason));
                self.inner.store.record(now, "project_deleted", id, detail).await?;
                Ok(gone)
            }
        }
    }

    /// Removes what has been in the trash long enough.
    async fn purge_old(&self) -> Result<(), ProjectError> {
        let now = self.inner.clock.wall();
        for trashed in self.inner.store.trash().await? {
            let age = now.duration_since(trashed.deleted_at);
            if age.is_negative() || age.unsigned_abs() < self.inner.settings.trash {
                continue;
            }
            self.purge(&trashed.project_id).await?;
        }
        Ok(())
    }

    /// Removes a deleted project for good. Whole or not at all: its directory is first out of the
    /// way, then its row goes, then its files.
    pub async fn purge(&self, id: &ProjectId) -> Result<(), ProjectError> {
        let (_, trashed) = self.trash_paths(id);
        let purging = purging(&trashed);
        let away = purging.clone();
        blocking(move || move_directory(&trashed, &away)).await?;
        self.inner.store.purge_project(id).await?;
        blocking(move || {
            remove_directory(&purging).map_err(|source| failed("remove", &purging, source))
        })
        .await
    }
}
