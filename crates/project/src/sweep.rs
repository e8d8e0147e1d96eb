//! The daily check of all projects: warns, deletes unused ones, and empties the trash.

use serde::Serialize;

use super::{
    cleanup::{self, Decision, InUse},
    error::ProjectError,
    projects::Projects,
};
use base::event::EventKind;
use model::{Project, ProjectId, Timestamp};
use store::{DeletedRows, PageRequest, ProjectFilter, StoreError};

/// Whether a clean-up acts or only reports what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupMode {
    DryRun,
    Act,
}

/// The decision of a clean-up about one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanupItem {
    pub project_id: ProjectId,
    #[serde(flatten)]
    pub decision: Decision,
    pub reason: String,
    pub last_used_at: Timestamp,
}

impl Projects {
    /// Checks every project. Returns the decisions other than to keep, and the resources of deleted projects,
    /// which the caller ends.
    pub async fn clean_up(
        &self,
        mode: CleanupMode,
    ) -> Result<(Vec<CleanupItem>, DeletedRows), ProjectError> {
        let (mut items, mut gone) = (Vec::new(), DeletedRows::default());
        let mut after = None;
        loop {
            let request = PageRequest { limit: 1000, after };
            let page = self.inner.store.projects(ProjectFilter::default(), request).await?;
            for project in page.items {
                let Some(item) = self.check(&project, mode).await? else { continue };
                if mode == CleanupMode::Act {
                    match self.act(&project, &item).await {
                        Ok(more) => gone.extend(more),
                        // Used since it was read: the next check decides again.
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
        if mode == CleanupMode::Act {
            self.purge_old().await?;
            self.inner.store.prune_session_records().await?;
        }
        Ok((items, gone))
    }

    async fn check(
        &self,
        project: &Project,
        mode: CleanupMode,
    ) -> Result<Option<CleanupItem>, ProjectError> {
        let (policy, now) = (self.inner.settings.cleanup, self.inner.clock.wall());
        // The calendar alone decides for most projects, without a query.
        if cleanup::decide(now, project, &policy, InUse::No) == Decision::Keep {
            return Ok(None);
        }
        let id = &project.project_id;
        let runs = self.inner.store.project_use(id).await?.commands > 0;
        if runs || self.is_attached(id) {
            if mode == CleanupMode::Act {
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

    async fn act(
        &self,
        project: &Project,
        item: &CleanupItem,
    ) -> Result<DeletedRows, ProjectError> {
        let (policy, now) = (self.inner.settings.cleanup, self.inner.clock.wall());
        match item.decision {
            Decision::Keep => Ok(DeletedRows::default()),
            Decision::Warn { days_left, deletes_at } => {
                if cleanup::is_warning_due(now, project, &policy)
                    && self.inner.store.warn_project(project, now).await?
                {
                    tracing::warn!(
                        project = %item.project_id,
                        "{}: it will be deleted in {days_left} days, at {deletes_at}",
                        item.reason
                    );
                    self.inner.events.publish(EventKind::ProjectExpiring {
                        project_id: item.project_id.clone(),
                        deletes_at,
                        reason: item.reason.clone(),
                    });
                }
                Ok(DeletedRows::default())
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
}
