//! Export and import of a project as one file: a tar archive, compressed with zstd.
//!
//! ```text
//! rows.json              the rows: project, threads, terminals and their states, history
//! left-out.json          the files that were left out, and why (last)
//! hot/…                  the hot memories
//! memories/persistent/…  data/…  repo/…
//! ```
//! An archive is not trusted. It is unpacked into a staging directory under parsed names; links are created last
//! and only if they stay inside. Then the rows are added in one transaction, and the directory gets its name.

mod layout;
mod pack;
mod unpack;

use std::{
    io::{Read, Write},
    path::Path,
};

use super::{
    directories::{importing, remove_directory},
    error::{ProjectError, blocking, failed},
    projects::{Projects, fresh_id},
    workspace::Workspace,
};
use files::{
    Relative,
    memory::{Expect, MemoryChange},
};
use model::{Project, ProjectId};
use pack::write_archive;
use store::{Ids, StoreError};
use unpack::{Unpacked, unpack};

pub use unpack::ImportLimits;

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The project under the id that it got here.
    pub project: Project,
    /// Imported files, directories and links.
    pub entries: u64,
    pub bytes: u64,
    /// The files that the export left out, each with the reason.
    pub left_out: Vec<String>,
}

impl Projects {
    /// Writes a project to `out`, on a blocking thread.
    pub async fn export(
        &self,
        id: &ProjectId,
        out: impl Write + Send + 'static,
    ) -> Result<(), ProjectError> {
        let bundle = self.inner.store.bundle(id).await?;
        let hot = self.memory(id).await?.files(&Relative::root());
        let workspace = self.workspace(id).await?;
        let bundle = bundle.made_in(&workspace.root.to_string_lossy());
        blocking(move || {
            write_archive(out, &bundle, &hot, &workspace)
                .map_err(|source| failed("export", &workspace.root, source))
        })
        .await
    }

    /// Imports a project. It keeps its id if that is unused, or else gets another number.
    pub async fn import(
        &self,
        archive: impl Read + Send + 'static,
        limits: ImportLimits,
    ) -> Result<Imported, ProjectError> {
        let scratch = fresh_id("import")?;
        let staging = importing(&Workspace::at(&self.inner.home, &scratch).root);
        let directory = staging.clone();
        let hot = self.inner.settings.hot;
        let unpacked = blocking(move || unpack(archive, &directory, limits, hot)).await;
        let imported = match unpacked {
            Ok(unpacked) => self.add_unpacked(&staging, unpacked).await,
            Err(error) => Err(error),
        };
        if imported.is_err() {
            let (left, disks) = (staging.clone(), self.inner.disks.clone());
            let _ = base::task::blocking(move || remove_directory(&*disks, &left)).await;
        }
        imported
    }

    /// Adds an unpacked project: first the memories and files, then the rows.
    async fn add_unpacked(
        &self,
        staging: &Path,
        unpacked: Unpacked,
    ) -> Result<Imported, ProjectError> {
        let Unpacked { bundle, hot, entries, bytes, left_out } = unpacked;
        let wanted = bundle.project.project_id.clone();
        // The memories are written through their own log, and are on disk before any row refers to them.
        let memory = self.inner.memories.of(&fresh_id("import")?, staging.join("hot")).await?;
        for (path, content) in hot {
            let change =
                MemoryChange::Put { path, bytes: content.into(), expect: Expect::Anything };
            memory.change(change).await?;
        }
        memory.snapshot().await?;
        self.inner.memories.forget(&memory).await;
        drop(memory);
        let now = self.inner.clock.wall();
        let mut id = match wanted {
            id if id == ProjectId::default_project() => fresh_id(id.prefix())?,
            id => id,
        };
        let limit = self.inner.settings.max_projects;
        loop {
            let is_unused = self.inner.store.project(&id).await?.is_none()
                && !self.trashed().await?.iter().any(|trashed| trashed.project_id == id);
            if !is_unused {
                id = fresh_id(id.prefix())?;
                continue;
            }
            // Recovery finds the directory under this name if a crash follows after the rows were added.
            let (workspace, _) = self.trash_paths(&id);
            let named = importing(&workspace);
            self.move_directory(staging.to_owned(), named.clone()).await?;
            let moved = bundle.clone().moved_to(&workspace.to_string_lossy());
            let added = self.inner.store.add_bundle(moved, Ids::Fresh(id.clone()), limit, now);
            match added.await {
                Ok(project) => {
                    self.move_directory(named, workspace).await?;
                    self.write_metadata(&project).await?;
                    return Ok(Imported { project, entries, bytes, left_out });
                }
                Err(error) => {
                    self.move_directory(named, staging.to_owned()).await?;
                    match error {
                        StoreError::Refused(_) => return Err(ProjectError::TooMany(limit)),
                        StoreError::Damaged { reason, .. } => {
                            return Err(ProjectError::Archive(reason));
                        }
                        other => return Err(other.into()),
                    }
                }
            }
        }
    }
}
