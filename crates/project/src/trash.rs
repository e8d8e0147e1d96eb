//! Deleted projects: moved to the trash, restored from it, or removed permanently.

use std::path::PathBuf;

use super::{
    directories::{move_directory, purging, remove_directory},
    error::{ProjectError, blocking, failed},
    projects::Projects,
    workspace::Workspace,
};
use base::event::EventKind;
use model::{Project, ProjectId, Timestamp, Trashed};
use store::{DeletedRows, StoreError};

impl Projects {
    /// Moves a project to the trash. Returns its resources, which the caller ends.
    pub async fn delete(&self, id: &ProjectId, reason: &str) -> Result<DeletedRows, ProjectError> {
        self.trash(id, reason, None).await
    }

    /// Moves a project to the trash; refused if it was used after `unused_since`.
    pub(super) async fn trash(
        &self,
        id: &ProjectId,
        reason: &str,
        unused_since: Option<Timestamp>,
    ) -> Result<DeletedRows, ProjectError> {
        if *id == ProjectId::default_project() {
            return Err(ProjectError::Default("deleted"));
        }
        let now = self.inner.clock.wall();
        let gone = self.inner.store.trash_project(id, reason, unused_since, now).await?;
        // The rows are in the trash: the next start completes the rest if it is interrupted.
        self.inner.memories.close(id).await;
        let (workspace, trashed) = self.trash_paths(id);
        self.move_directory(workspace, trashed).await?;
        let project_id = id.clone();
        let reason = reason.to_owned();
        self.inner.events.publish(EventKind::ProjectDeleted { project_id, reason });
        Ok(gone)
    }

    /// Restores a project from the trash.
    pub async fn restore(&self, id: &ProjectId) -> Result<Project, ProjectError> {
        let (workspace, trashed) = self.trash_paths(id);
        let known = self.inner.store.trash().await?;
        if !known.iter().any(|trashed| trashed.project_id == *id) {
            return Err(StoreError::Missing { what: format!("deleted project {id}") }.into());
        }
        // The files first: rows without files would be a project without its data.
        self.move_directory(trashed.clone(), workspace.clone()).await?;
        let now = self.inner.clock.wall();
        let project = match self.inner.store.restore_project(id, now).await {
            Ok(project) => project,
            Err(error) => {
                self.move_directory(workspace, trashed).await?;
                return Err(error.into());
            }
        };
        self.write_metadata(&project).await?;
        Ok(project)
    }

    /// Returns the deleted projects that can be restored.
    pub async fn trashed(&self) -> Result<Vec<Trashed>, ProjectError> {
        Ok(self.inner.store.trash().await?)
    }

    /// Returns the directory of a project, and the one in the trash.
    pub(super) fn trash_paths(&self, id: &ProjectId) -> (PathBuf, PathBuf) {
        let workspace = Workspace::at(&self.inner.home, id).root;
        (workspace, self.inner.home.join("trash").join(id.as_str()))
    }

    /// Removes projects that were in the trash long enough.
    pub(super) async fn purge_old(&self) -> Result<(), ProjectError> {
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

    /// Removes a deleted project permanently. Its directory is renamed first, then the row is deleted, then
    /// the files, so that a crash leaves it either whole or gone.
    pub async fn purge(&self, id: &ProjectId) -> Result<(), ProjectError> {
        let (_, trashed) = self.trash_paths(id);
        let purging = purging(&trashed);
        self.move_directory(trashed, purging.clone()).await?;
        self.inner.store.purge_project(id).await?;
        let disks = self.inner.disks.clone();
        blocking(move || {
            remove_directory(&*disks, &purging).map_err(|source| failed("remove", &purging, source))
        })
        .await
    }

    /// Moves the directory of a project, unless that was done already.
    pub(super) async fn move_directory(
        &self,
        from: PathBuf,
        to: PathBuf,
    ) -> Result<(), ProjectError> {
        let disks = self.inner.disks.clone();
        blocking(move || move_directory(&*disks, &from, &to)).await
    }
}
