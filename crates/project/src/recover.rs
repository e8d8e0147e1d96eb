//! Completes operations on projects that a crash interrupted.

use super::{
    directories::{
        importing, move_directory, purging, remove_unfinished_files, remove_unfinished_moves,
    },
    error::{ProjectError, blocking},
    projects::Projects,
    workspace::Workspace,
};
use store::{PageRequest, ProjectFilter};

impl Projects {
    /// Completes what a crash interrupted: moves directories of deleted projects to the trash and of restored
    /// ones back, removes unfinished files, and writes missing metadata.
    pub(super) async fn recover(&self) -> Result<(), ProjectError> {
        let mut after = None;
        loop {
            let request = PageRequest { limit: 1000, after };
            let page = self.inner.store.projects(ProjectFilter::default(), request).await?;
            for project in page.items {
                let id = &project.project_id;
                let (workspace, trashed) = self.trash_paths(id);
                let disks = self.inner.disks.clone();
                let lost = blocking(move || {
                    let imported = importing(&workspace);
                    for made in [&trashed, &imported] {
                        if made.is_dir() && !workspace.is_dir() {
                            move_directory(&*disks, made, &workspace)?;
                        }
                    }
                    let workspace = Workspace::in_directory(&workspace);
                    remove_unfinished_files(&workspace.tmp)?;
                    // If its disk is not mounted, this is done when it is.
                    remove_unfinished_files(&workspace.disk_tmp)?;
                    Ok::<_, ProjectError>(!workspace.root.join("project.json").is_file())
                })
                .await?;
                if lost {
                    self.write_metadata(&project).await?;
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for deleted in self.inner.store.trash().await? {
            let (workspace, trashed) = self.trash_paths(&deleted.project_id);
            let purging = purging(&trashed);
            if purging.is_dir() && !trashed.is_dir() {
                self.move_directory(purging, trashed.clone()).await?;
            }
            self.move_directory(workspace, trashed).await?;
        }
        let (home, disks) = (self.inner.home.clone(), self.inner.disks.clone());
        blocking(move || remove_unfinished_moves(&*disks, &home)).await
    }
}
