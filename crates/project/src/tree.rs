//! The file tree of a project: which backend serves which paths.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::{
    error::{ProjectError, blocking, failed},
    projects::Projects,
};
use base::durable::make_directory;
use files::{
    Backend, Directory, FileError, IdentityScope, Reach, Relative, RemoteDirectory, Route, Rows,
    Tree,
};
use model::{BackendKind, Project};

/// The routes of every project with their default backends.
const DEFAULT_ROUTES: [(&str, BackendKind); 3] = [
    ("/workspace", BackendKind::Filesystem),
    ("/memories/hot", BackendKind::State),
    ("/memories/persistent", BackendKind::Filesystem),
];

/// The file system outside the project's own routes.
#[derive(Debug, Clone)]
pub enum InstanceFiles {
    /// Accessible below this directory, with the server's own rights.
    At(PathBuf),
    /// Accessible below the root of a sandbox. New files belong to its root.
    InSandbox { root: PathBuf, identity: IdentityScope },
    /// Not on this machine: accessible by scripts, or not accessible for a reason. Shells there do not see the
    /// workspace and the memories of the project.
    Remote(Result<RemoteDirectory, &'static str>),
    /// Not accessible, for this reason.
    Nowhere(&'static str),
}

/// Why the files of an instance are not accessible unless one runs.
pub const NOT_RUNNING: &str = "no instance is running; repeat the request to start one";
/// Why the workspace is refused where shells do not see it.
const WORKSPACE_ELSEWHERE: &str = "the workspace of the project is on the server, and the shells of this thread run at \
    a vendor and do not see it; use another path, such as one in the home directory there";
/// The same for the persistent memories.
const MEMORIES_ELSEWHERE: &str = "the persistent memories of the project are on the server, and the shells of this \
    thread run at a vendor and do not see them; use /api/projects/{id}/memories/persistent";

impl Projects {
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
            let backend = match (kind, hidden(&prefix, &instance)) {
                (BackendKind::Filesystem, Some(why)) => Backend::Refused(why),
                (BackendKind::Filesystem, None) => {
                    let root = match prefix.as_str() {
                        "workspace" => workspace.repo.clone(),
                        "memories/persistent" => workspace.memories.clone(),
                        other => workspace.root.join("data").join(other.replace('/', "%")),
                    };
                    let on_disk = matches!(prefix.as_str(), "workspace" | "memories/persistent")
                        && workspace.disk_tmp.is_dir();
                    let tmp = match on_disk {
                        true => workspace.disk_tmp.clone(),
                        false => workspace.tmp.clone(),
                    };
                    Backend::Directory(blocking(move || open_root(&root, &tmp)).await?)
                }
                (BackendKind::State, _) => Backend::State(self.memory(&project.project_id).await?),
                (BackendKind::Store, _) => Backend::Rows(Rows::new(
                    self.inner.store.clone(),
                    project.project_id.clone(),
                    self.inner.settings.hot,
                )),
            };
            routes.push(Route { prefix, backend });
        }
        let nothing = |why| (Some(Backend::Nothing(why)), Backend::Nothing(why));
        let (tmp, rest) = match instance {
            InstanceFiles::At(root) => blocking(move || open_instance(&root, None)).await?,
            InstanceFiles::InSandbox { root, identity } => {
                match blocking(move || open_instance(&root, Some(identity))).await {
                    // It may end at any time. The files of the project do not depend on it.
                    Err(ProjectError::File(FileError::Missing { .. })) => nothing(NOT_RUNNING),
                    opened => opened?,
                }
            }
            InstanceFiles::Remote(Ok(remote)) => (None, Backend::Remote(remote)),
            InstanceFiles::Remote(Err(why)) | InstanceFiles::Nowhere(why) => nothing(why),
        };
        if let Some(tmp) = tmp
            && !routes.iter().any(|route| route.prefix.as_str() == "tmp")
        {
            routes.push(Route { prefix: Relative::parse("tmp")?, backend: tmp });
        }
        routes.push(Route { prefix: Relative::root(), backend: rest });
        Ok(Tree::new(routes, self.inner.clock.wall()))
    }
}

/// Why a route is refused although it has files; `None` if shells see them, or see them nowhere.
fn hidden(prefix: &Relative, instance: &InstanceFiles) -> Option<&'static str> {
    match (instance, prefix.as_str()) {
        (InstanceFiles::Remote(_), "workspace") => Some(WORKSPACE_ELSEWHERE),
        (InstanceFiles::Remote(_), "memories/persistent") => Some(MEMORIES_ELSEWHERE),
        _ => None,
    }
}

/// Opens `/tmp` and everything else of an instance.
fn open_instance(
    root: &Path,
    identity: Option<IdentityScope>,
) -> Result<(Option<Backend>, Backend), ProjectError> {
    let mut rest = Directory::open(root, None, Reach::InRoot)?;
    let mut tmp = Directory::open(&root.join("tmp"), None, Reach::Beneath).ok();
    if let Some(scope) = identity {
        rest = rest.as_its_owner(scope)?;
        tmp = tmp.map(|tmp| tmp.as_owner_of(&rest));
    }
    let tmp = tmp.map_or(Backend::Nothing("the instance has no /tmp"), Backend::Directory);
    Ok((Some(tmp), Backend::Directory(rest)))
}

fn open_root(root: &Path, tmp: &Path) -> Result<Directory, ProjectError> {
    let create = || -> io::Result<()> {
        if root.is_dir() {
            return Ok(());
        }
        if let Some(above) = root.parent() {
            make_directory(above)?;
        }
        make_directory(root)
    };
    create().map_err(|source| failed("create", root, source))?;
    Ok(Directory::open(root, Some(tmp), Reach::Beneath)?)
}
