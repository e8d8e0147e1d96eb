//! The live handle to all projects.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    attendance::{Attendance, AttendancePolicy},
    choices::{ProjectChoices, check, check_routes},
    cleanup::{self, CleanupPolicy},
    directories::disk_bytes,
    error::{ProjectError, blocking, failed, missing},
    workspace::Workspace,
};
use base::{
    clock::Clock,
    durable::{open_directory, replace_at},
    event::Events,
};
use files::{
    FileError,
    memory::{HotLimits, HotMemories, Memory},
};
use model::{BackendKind, Project, ProjectId, Statistics, Timestamp};
use provider::WorkspaceDisks;
use store::{Page, PageRequest, ProjectFilter, Store, StoreError};

/// How many random ids are tried for a new project.
const MAX_ATTEMPTS: u32 = 16;
/// How often the use of a project is recorded.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSettings {
    pub max_projects: u64,
    pub cleanup: CleanupPolicy,
    /// How long a deleted project can be restored.
    pub trash: Duration,
    pub hot: HotLimits,
    pub attendance: AttendancePolicy,
    /// Backends of the file tree by prefix, where a project does not choose others.
    pub routes: BTreeMap<String, BackendKind>,
}

/// The handle to all projects; cheap to clone.
#[derive(Debug, Clone)]
pub struct Projects {
    pub(super) inner: Arc<ProjectsInner>,
}

#[derive(Debug)]
pub(super) struct ProjectsInner {
    pub(super) home: PathBuf,
    pub(super) store: Store,
    pub(super) memories: HotMemories,
    pub(super) clock: Clock,
    pub(super) events: Events,
    pub(super) settings: ProjectSettings,
    /// When the use of each project was last recorded.
    touched: Mutex<HashMap<ProjectId, Timestamp>>,
    pub(super) attendance: Attendance,
    pub(super) disks: Arc<dyn WorkspaceDisks>,
}

impl Projects {
    /// Opens the projects of a home, and completes what a crash interrupted.
    pub async fn start(
        home: &Path,
        store: Store,
        clock: Clock,
        events: Events,
        settings: ProjectSettings,
        disks: Arc<dyn WorkspaceDisks>,
    ) -> Result<Self, ProjectError> {
        check_routes(&settings.routes, "project.routes")?;
        let memories = HotMemories::start(settings.hot, clock.clone())
            .map_err(|source| failed("start the memories in", home, source))?;
        let inner = ProjectsInner {
            home: home.to_owned(),
            store,
            memories,
            clock,
            events,
            settings,
            touched: Mutex::default(),
            attendance: Attendance::default(),
            disks,
        };
        let projects = Self { inner: Arc::new(inner) };
        projects.recover().await?;
        Ok(projects)
    }

    #[must_use]
    pub fn settings(&self) -> &ProjectSettings {
        &self.inner.settings
    }

    /// Returns the hot memories of all projects.
    #[must_use]
    pub fn memories(&self) -> &HotMemories {
        &self.inner.memories
    }

    pub async fn project(&self, id: &ProjectId) -> Result<Project, ProjectError> {
        let found = self.inner.store.project(id).await?;
        found.ok_or_else(|| missing(id).into())
    }

    pub async fn list(
        &self,
        filter: ProjectFilter,
        page: PageRequest,
    ) -> Result<Page<Project>, ProjectError> {
        Ok(self.inner.store.projects(filter, page).await?)
    }

    /// Creates a project with this prefix and an unused number.
    pub async fn create(
        &self,
        prefix: &str,
        choices: ProjectChoices,
    ) -> Result<Project, ProjectError> {
        check(&choices)?;
        let now = self.inner.clock.wall();
        for _ in 0..MAX_ATTEMPTS {
            let project = Project {
                project_id: fresh_id(prefix)?,
                description: choices.description.clone().unwrap_or_default(),
                tags: choices.tags.clone().unwrap_or_default(),
                config: choices.config.clone().unwrap_or_default(),
                pinned: false,
                keep_until: None,
                warned_at: None,
                reminded_at: None,
                statistics: Statistics::default(),
                last_used_at: now,
                created_at: now,
                updated_at: now,
                revision: 0,
            };
            let limit = self.inner.settings.max_projects;
            match self.inner.store.add_project(&project, limit).await {
                Ok(()) => {
                    self.write_metadata(&project).await?;
                    return Ok(project);
                }
                Err(StoreError::Exists { .. }) => {}
                Err(StoreError::Refused(_)) => return Err(ProjectError::TooMany(limit)),
                Err(error) => return Err(error.into()),
            }
        }
        let why = "no unused id was found".to_owned();
        Err(ProjectError::Bad { field: "/prefix".into(), why })
    }

    pub async fn change(
        &self,
        id: &ProjectId,
        choices: ProjectChoices,
    ) -> Result<Project, ProjectError> {
        check(&choices)?;
        self.update(id, move |project| {
            if let Some(description) = &choices.description {
                project.description.clone_from(description);
            }
            if let Some(tags) = &choices.tags {
                project.tags.clone_from(tags);
            }
            if let Some(config) = &choices.config {
                project.config.clone_from(config);
            }
        })
        .await
    }

    /// Excludes a project from clean-up.
    pub async fn pin(&self, id: &ProjectId) -> Result<Project, ProjectError> {
        self.update(id, |project| project.pinned = true).await
    }

    pub async fn unpin(&self, id: &ProjectId) -> Result<Project, ProjectError> {
        self.update(id, |project| project.pinned = false).await
    }

    /// Postpones the automatic deletion.
    pub async fn extend(&self, id: &ProjectId, days: u32) -> Result<Project, ProjectError> {
        let (policy, now) = (self.inner.settings.cleanup, self.inner.clock.wall());
        self.update(id, move |project| {
            project.keep_until = Some(cleanup::extended(project, &policy, now, days));
        })
        .await
    }

    /// Returns the directories of a project. Creates missing ones.
    pub async fn workspace(&self, id: &ProjectId) -> Result<Workspace, ProjectError> {
        let workspace = Workspace::at(&self.inner.home, id);
        let (made, disks) = (workspace.clone(), self.inner.disks.clone());
        blocking(move || {
            made.ensure(&*disks)
                .map_err(|source| failed("create the directories of", &made.root, source))
        })
        .await?;
        Ok(workspace)
    }

    /// Returns the hot memories of a project.
    pub async fn memory(&self, id: &ProjectId) -> Result<Arc<Memory>, ProjectError> {
        if let Some(memory) = self.inner.memories.get(id) {
            return Ok(memory);
        }
        self.project(id).await?;
        let workspace = self.workspace(id).await?;
        Ok(self.inner.memories.of(id, workspace.hot).await?)
    }

    /// Records the use of a project, at most once a minute.
    pub async fn touch(&self, id: &ProjectId) {
        let now = self.inner.clock.wall();
        {
            let mut touched = self.inner.touched.lock();
            let recent = touched.get(id).is_some_and(|&at| {
                now >= at && now.duration_since(at).unsigned_abs() < TOUCH_INTERVAL
            });
            if recent {
                return;
            }
            // Entries older than a minute have no effect.
            if touched.len() >= 4096 {
                touched.clear();
            }
            touched.insert(id.clone(), now);
        }
        if let Err(error) = self.inner.store.touch_project(id, now).await {
            tracing::warn!(project = %id, %error, "cannot record the use of a project");
        }
    }

    /// Returns how many bytes the directories of a project use on disk.
    pub async fn disk_bytes(&self, id: &ProjectId) -> Result<u64, ProjectError> {
        let root = Workspace::at(&self.inner.home, id).root;
        blocking(move || Ok(disk_bytes(&root))).await
    }

    async fn update(
        &self,
        id: &ProjectId,
        change: impl Fn(&mut Project),
    ) -> Result<Project, ProjectError> {
        loop {
            let mut project = self.project(id).await?;
            change(&mut project);
            project.updated_at = self.inner.clock.wall();
            match self.inner.store.save_project(&project).await {
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(project) => {
                    self.write_metadata(&project).await?;
                    return Ok(project);
                }
            }
        }
    }

    /// Writes the copy of a project's row beside its files.
    pub(super) async fn write_metadata(&self, project: &Project) -> Result<(), ProjectError> {
        let workspace = self.workspace(&project.project_id).await?;
        let text = serde_json::to_vec_pretty(project)
            .map_err(|error| failed("write", &workspace.root, io::Error::other(error)))?;
        blocking(move || {
            open_directory(&workspace.root)
                .and_then(|directory| replace_at(directory, "project.json", &text))
                .map_err(|source| failed("write project.json in", &workspace.root, source))
        })
        .await
    }
}

/// Returns an id with this prefix and a random number.
pub(super) fn fresh_id(prefix: &str) -> Result<ProjectId, ProjectError> {
    let number = getrandom::u32().map_err(|error| {
        ProjectError::File(FileError::Unavailable { reason: error.to_string() })
    })?;
    ProjectId::from_parts(prefix, number)
        .map_err(|error| ProjectError::Bad { field: "/prefix".into(), why: error.why.to_owned() })
}
