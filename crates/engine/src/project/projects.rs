//! The live handle to all projects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    attendance::{Attendance, AttendancePolicy},
    cleanup::{self, CleanupPolicy},
    workspace::Workspace,
};
use base::{
    clock::Clock,
    durable::{make_directory, open_directory, replace_at, sync_directory},
    event::Events,
};
use files::{
    Backend, Directory, FileError, Reach, Relative, Route, Rows, Tree,
    memory::{HotLimits, HotMemories, Memory},
    remove_tree_at,
};
use model::{BackendKind, Project, ProjectConfig, ProjectId, Statistics, Timestamp, Trashed};
use store::{DeletedRows, Page, PageRequest, ProjectFilter, Store, StoreError};

/// The routes that every project has; the settings and the project choose their backends.
const DEFAULT_ROUTES: [(&str, BackendKind); 3] = [
    ("/workspace", BackendKind::Filesystem),
    ("/memories/hot", BackendKind::State),
    ("/memories/persistent", BackendKind::Filesystem),
];
/// How many random ids are tried for a prefix.
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

/// All projects; cheap to clone.
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
}

/// What a client can set on a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectChoices {
    pub description: Option<String>,
    pub tags: Option<BTreeSet<String>>,
    pub config: Option<ProjectConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A value is invalid.
    #[error("{field}: {why}")]
    Bad { field: String, why: String },
    /// The operation is not possible on the default project.
    #[error("the default project cannot be {0}")]
    Default(&'static str),
    #[error("there are {0} projects, and no more may be")]
    TooMany(u64),
    /// The archive is invalid or malicious.
    #[error("the archive is refused: {0}")]
    Archive(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The file system outside the project's own routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceFiles {
    /// Accessible below this directory.
    At(PathBuf),
    /// Not accessible, for this reason.
    Nowhere(&'static str),
}

impl Projects {
    /// Opens the projects of a home, and completes what a crash interrupted.
    pub async fn start(
        home: &Path,
        store: Store,
        clock: Clock,
        events: Events,
        settings: ProjectSettings,
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
        };
        let projects = Self { inner: Arc::new(inner) };
        projects.recover().await?;
        Ok(projects)
    }

    #[must_use]
    pub fn settings(&self) -> &ProjectSettings {
        &self.inner.settings
    }

    /// The hot memories of all projects.
    #[must_use]
    pub fn memories(&self) -> &HotMemories {
        &self.inner.memories
    }

    /// The project with this id.
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
        let why = "no number is free for it".to_owned();
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

    /// Moves a project to the trash. Returns its resources, which the caller ends.
    pub async fn delete(&self, id: &ProjectId, reason: &str) -> Result<DeletedRows, ProjectError> {
        self.trash(id, reason, None).await
    }

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
        // The rows are in the trash: the next start repeats what follows if it is interrupted.
        self.inner.memories.close(id).await;
        let (workspace, trashed) = self.trash_paths(id);
        blocking(move || move_directory(&workspace, &trashed)).await?;
        let project_id = id.clone();
        let reason = reason.to_owned();
        self.inner.events.publish(base::event::EventKind::ProjectDeleted { project_id, reason });
        Ok(gone)
    }

    /// Restores a project from the trash.
    pub async fn restore(&self, id: &ProjectId) -> Result<Project, ProjectError> {
        let (workspace, trashed) = self.trash_paths(id);
        let known = self.inner.store.trash().await?;
        if !known.iter().any(|trashed| trashed.project_id == *id) {
            return Err(StoreError::Missing { what: format!("deleted project {id}") }.into());
        }
        // First the files: rows without files would be a project that lost them.
        let (from, to) = (trashed.clone(), workspace.clone());
        blocking(move || move_directory(&from, &to)).await?;
        let now = self.inner.clock.wall();
        let project = match self.inner.store.restore_project(id, now).await {
            Ok(project) => project,
            Err(error) => {
                blocking(move || move_directory(&workspace, &trashed)).await?;
                return Err(error.into());
            }
        };
        self.write_metadata(&project).await?;
        Ok(project)
    }

    /// Deleted projects that can be restored.
    pub async fn trashed(&self) -> Result<Vec<Trashed>, ProjectError> {
        Ok(self.inner.store.trash().await?)
    }

    /// Returns the directories of a project. Creates missing ones.
    pub async fn workspace(&self, id: &ProjectId) -> Result<Workspace, ProjectError> {
        let workspace = Workspace::at(&self.inner.home, id);
        let made = workspace.clone();
        blocking(move || {
            made.ensure().map_err(|source| failed("make the directories of", &made.root, source))
        })
        .await?;
        Ok(workspace)
    }

    /// The hot memories of a project.
    pub async fn memory(&self, id: &ProjectId) -> Result<Arc<Memory>, ProjectError> {
        if let Some(memory) = self.inner.memories.get(id) {
            return Ok(memory);
        }
        self.project(id).await?;
        let workspace = self.workspace(id).await?;
        Ok(self.inner.memories.of(id, workspace.hot).await?)
    }

    /// Returns the backend of each route of a project: its own routes over those of the server.
    #[must_use]
    pub fn routes(&self, project: &Project) -> BTreeMap<Relative, BackendKind> {
        let default = |(prefix, kind): (&str, BackendKind)| (prefix.to_owned(), kind);
        let defaults = DEFAULT_ROUTES.map(default).into_iter();
        let chosen = self.inner.settings.routes.iter().chain(&project.config.routes);
        defaults
            .chain(chosen.map(|(prefix, kind)| (prefix.clone(), *kind)))
            .filter_map(|(prefix, kind)| Some((Relative::parse(&prefix).ok()?, kind)))
            .collect()
    }

    /// Returns the backend of the longest prefix of a path; `None` outside the routes.
    #[must_use]
    pub fn backend(&self, project: &Project, path: &Relative) -> Option<BackendKind> {
        let routes = self.routes(project).into_iter();
        let above = routes.filter(|(prefix, _)| path.below(prefix).is_some());
        above.max_by_key(|(prefix, _)| prefix.as_str().len()).map(|(_, kind)| kind)
    }

    /// Returns the file tree of a project.
    pub async fn tree(
        &self,
        project: &Project,
        instance: InstanceFiles,
    ) -> Result<Tree, ProjectError> {
        let workspace = self.workspace(&project.project_id).await?;
        let mut routes = Vec::new();
        for (prefix, kind) in self.routes(project) {
            let backend = match kind {
                BackendKind::Filesystem => {
                    let root = match prefix.as_str() {
                        "workspace" => workspace.repo.clone(),
                        "memories/persistent" => workspace.memories.clone(),
                        other => workspace.root.join("data").join(other.replace('/', "%")),
                    };
                    let tmp = workspace.tmp.clone();
                    Backend::Directory(blocking(move || open_root(&root, &tmp)).await?)
                }
                BackendKind::State => Backend::State(self.memory(&project.project_id).await?),
                BackendKind::Store => Backend::Rows(Rows::new(
                    self.inner.store.clone(),
                    project.project_id.clone(),
                    self.inner.settings.hot,
                )),
            };
            routes.push(Route { prefix, backend });
        }
        let (tmp, rest) = match instance {
            InstanceFiles::At(root) => {
                blocking(move || {
                    let rest = Directory::open(&root, None, Reach::InRoot)?;
                    let tmp = match Directory::open(&root.join("tmp"), None, Reach::Beneath) {
                        Ok(tmp) => Backend::Directory(tmp),
                        Err(_) => Backend::Nothing("the instance has no /tmp"),
                    };
                    Ok::<_, ProjectError>((tmp, Backend::Directory(rest)))
                })
                .await?
            }
            InstanceFiles::Nowhere(why) => (Backend::Nothing(why), Backend::Nothing(why)),
        };
        if !routes.iter().any(|route| route.prefix.as_str() == "tmp") {
            routes.push(Route { prefix: Relative::parse("tmp")?, backend: tmp });
        }
        routes.push(Route { prefix: Relative::root(), backend: rest });
        Ok(Tree::new(routes, self.inner.clock.wall()))
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

    /// Bytes on disk of a project's directories.
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

    /// Completes what a crash interrupted: moves directories of deleted projects to the trash and of restored
    /// ones back, removes unfinished files, and writes missing metadata.
    async fn recover(&self) -> Result<(), ProjectError> {
        let mut after = None;
        loop {
            let request = PageRequest { limit: 1000, after };
            let page = self.inner.store.projects(ProjectFilter::default(), request).await?;
            for project in page.items {
                let id = &project.project_id;
                let (workspace, trashed) = self.trash_paths(id);
                let lost = blocking(move || {
                    let imported = importing(&workspace);
                    for made in [&trashed, &imported] {
                        if made.is_dir() && !workspace.is_dir() {
                            move_directory(made, &workspace)?;
                        }
                    }
                    let workspace = Workspace::in_directory(&workspace);
                    sweep(&workspace.tmp)?;
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
            blocking(move || {
                if purging.is_dir() && !trashed.is_dir() {
                    move_directory(&purging, &trashed)?;
                }
                move_directory(&workspace, &trashed)
            })
            .await?;
        }
        let home = self.inner.home.clone();
        blocking(move || sweep_unfinished(&home)).await
    }

    pub(super) fn trash_paths(&self, id: &ProjectId) -> (PathBuf, PathBuf) {
        let workspace = Workspace::at(&self.inner.home, id).root;
        (workspace, self.inner.home.join("trash").join(id.as_str()))
    }
}

fn check(choices: &ProjectChoices) -> Result<(), ProjectError> {
    let bad = |field: &str, why: &str| {
        Err(ProjectError::Bad { field: field.to_owned(), why: why.to_owned() })
    };
    if choices.description.as_ref().is_some_and(|text| text.len() > 4096) {
        return bad("/description", "may have 4096 bytes");
    }
    if let Some(tags) = &choices.tags {
        if tags.len() > 64 {
            return bad("/tags", "may be 64");
        }
        if tags
            .iter()
            .any(|tag| tag.is_empty() || tag.len() > 64 || tag.chars().any(char::is_control))
        {
            return bad("/tags", "each has 1 to 64 bytes and no control characters");
        }
    }
    let Some(config) = &choices.config else { return Ok(()) };
    if config.routes.len() > 32 {
        return bad("/config/routes", "may be 32");
    }
    if config.cleanup_after_days.is_some_and(|days| days > 36_500) {
        return bad("/config/cleanup_after_days", "may be 36500");
    }
    check_routes(&config.routes, "/config/routes")
}

/// Checks the prefixes of routes. Errors name the field below `pointer`.
fn check_routes(routes: &BTreeMap<String, BackendKind>, pointer: &str) -> Result<(), ProjectError> {
    let bad = |field: &str, why: &str| {
        Err(ProjectError::Bad { field: field.to_owned(), why: why.to_owned() })
    };
    for prefix in routes.keys() {
        let field = format!("{pointer}/{}", prefix.replace('~', "~0").replace('/', "~1"));
        if !prefix.starts_with('/') {
            return bad(&field, "begins with a slash");
        }
        match Relative::parse(prefix) {
            Ok(path) if path.is_root() => return bad(&field, "is not the whole tree"),
            Ok(path) if path.as_str().len() > 200 => return bad(&field, "may have 200 bytes"),
            Ok(_) => {}
            Err(error) => return bad(&field, &error.to_string()),
        }
    }
    Ok(())
}

/// An id with this prefix and a random number.
pub(super) fn fresh_id(prefix: &str) -> Result<ProjectId, ProjectError> {
    let number = getrandom::u32().map_err(|error| {
        ProjectError::File(FileError::Unavailable { reason: error.to_string() })
    })?;
    ProjectId::from_parts(prefix, number)
        .map_err(|error| ProjectError::Bad { field: "/prefix".into(), why: error.why.to_owned() })
}

fn open_root(root: &Path, tmp: &Path) -> Result<Directory, ProjectError> {
    let make = || -> io::Result<()> {
        if root.is_dir() {
            return Ok(());
        }
        if let Some(above) = root.parent() {
            make_directory(above)?;
        }
        make_directory(root)
    };
    make().map_err(|source| failed("make", root, source))?;
    Ok(Directory::open(root, Some(tmp), Reach::Beneath)?)
}

/// Moves a directory, unless that was done already.
pub(super) fn move_directory(from: &Path, to: &Path) -> Result<(), ProjectError> {
    let act = || -> io::Result<()> {
        for path in [from, to] {
            if let Some(above) = path.parent() {
                make_directory(above)?;
            }
        }
        if !from.is_dir() {
            return Ok(());
        }
        if to.is_dir() {
            // Created again by a shell that had not ended, or left by an older project with this id.
            remove_directory(to)?;
        }
        std::fs::rename(from, to)?;
        for path in [from, to] {
            if let Some(above) = path.parent() {
                sync_directory(open_directory(above)?)?;
            }
        }
        Ok(())
    };
    act().map_err(|source| failed("move", from, source))
}

/// Removes a directory and all in it.
pub(super) fn remove_directory(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(io::Error::other("not a directory of ours"));
    };
    match open_directory(above) {
        Ok(above) => remove_tree_at(above, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Where a project's directory is while it is being imported.
pub(super) fn importing(workspace: &Path) -> PathBuf {
    prefixed(workspace, ".import-")
}

/// Where a deleted project's directory is while it is being removed for good.
pub(super) fn purging(trashed: &Path) -> PathBuf {
    prefixed(trashed, ".purge-")
}

fn prefixed(path: &Path, prefix: &str) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    path.with_file_name(format!("{prefix}{}", name.unwrap_or_default()))
}

/// Removes unfinished imports and purges that have no row.
fn sweep_unfinished(home: &Path) -> Result<(), ProjectError> {
    for folder in [home.join("workspaces"), home.join("trash")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(".import-") || name.starts_with(".purge-") {
                remove_directory(&entry.path())
                    .map_err(|source| failed("remove", &entry.path(), source))?;
            }
        }
    }
    Ok(())
}

/// Empties the directory of unfinished files.
fn sweep(tmp: &Path) -> Result<(), ProjectError> {
    let act = || -> io::Result<()> {
        let entries = match std::fs::read_dir(tmp) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let directory = open_directory(tmp)?;
        for entry in entries {
            if let Some(name) = entry?.file_name().to_str() {
                remove_tree_at(&directory, name)?;
            }
        }
        Ok(())
    };
    act().map_err(|source| failed("empty", tmp, source))
}

fn disk_bytes(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let (mut sum, mut folders) = (0, vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            // A link is not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            sum += metadata.blocks() * 512;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    sum
}

pub(super) fn missing(id: &ProjectId) -> StoreError {
    StoreError::Missing { what: format!("project {id}") }
}

/// An error on a file of the server. Clients do not know its path, so that only the log shows it.
pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> ProjectError {
    let path = path.display().to_string();
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            FileError::from_io(doing, &path, source).into()
        }
        _ => FileError::Io { doing, path, source }.into(),
    }
}

pub(super) async fn blocking<T: Send + 'static, E: Send + 'static + From<FileError>>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(FileError::Unavailable { reason: error.to_string() }.into()),
    }
}
