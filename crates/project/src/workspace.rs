//! The directories of a project.

use std::{
    io,
    path::{Path, PathBuf},
};

use base::durable::make_directory;
use model::ProjectId;
use provider::WorkspaceDisks;

/// The directories of one project.
///
/// ```text
/// HOME/workspaces/<project id>/
///   repo/                 where shells start
///   memories/persistent/  $STEAD_MEMORIES
///   logs/                 the project's own logs
///   tmp/                  unfinished files; emptied when the server starts
///   disk.img, disk/       if sandboxes use it: the disk with repo, memories/persistent and a tmp of its own
///   hot/                  the log and the snapshot of the hot memories; used by the server only
///   project.json          a copy of the row
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// The directory that contains all others.
    pub root: PathBuf,
    /// Where shells start.
    pub repo: PathBuf,
    /// The persistent memories.
    pub memories: PathBuf,
    /// The project's own logs.
    pub logs: PathBuf,
    /// Unfinished files.
    pub tmp: PathBuf,
    /// Unfinished files of the workspace's disk. Exists while it is mounted.
    pub disk_tmp: PathBuf,
    /// The log and the snapshot of the hot memories.
    pub hot: PathBuf,
}

impl Workspace {
    /// The environment variable with the path of the persistent memories.
    pub const MEMORIES_VARIABLE: &'static str = "STEAD_MEMORIES";

    /// Returns the paths of a project's directories, whether or not they exist.
    #[must_use]
    pub fn at(home: &Path, project: &ProjectId) -> Self {
        Self::in_directory(&home.join("workspaces").join(project.as_str()))
    }

    /// Returns the layout below a directory of any name.
    pub(crate) fn in_directory(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            repo: root.join("repo"),
            memories: root.join("memories/persistent"),
            logs: root.join("logs"),
            tmp: root.join("tmp"),
            disk_tmp: root.join("disk/tmp"),
            hot: root.join("hot"),
        }
    }

    /// Mounts the disk of the workspace if it has one, and creates missing directories. Existing files are not
    /// changed.
    pub(crate) fn ensure(&self, disks: &dyn WorkspaceDisks) -> io::Result<()> {
        disks.attach(&self.root)?;
        // Fast path; `hot` is created last.
        if self.hot.is_dir() && self.memories.is_dir() && self.repo.is_dir() && self.tmp.is_dir() {
            return Ok(());
        }
        if let Some(above) = self.root.parent() {
            make_directory(above)?;
        }
        make_directory(&self.root)?;
        make_directory(&self.root.join("memories"))?;
        for path in [&self.repo, &self.logs, &self.tmp, &self.memories, &self.hot] {
            make_directory(path)?;
        }
        Ok(())
    }
}

/// Returns the directories of a project, and creates missing ones. Blocks. `home` must exist.
pub fn workspace(
    home: &Path,
    project: &ProjectId,
    disks: &dyn WorkspaceDisks,
) -> io::Result<Workspace> {
    let workspace = Workspace::at(home, project);
    workspace.ensure(disks)?;
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use provider::PlainWorkspaces;

    #[test]
    fn missing_directories_of_a_workspace_are_created_again() {
        let home = tempfile::tempdir().unwrap();
        let project = ProjectId::default_project();
        let made = workspace(home.path(), &project, &PlainWorkspaces).unwrap();
        assert_eq!(made.repo, home.path().join("workspaces/default-00000000/repo"));
        std::fs::write(made.repo.join("kept"), "x").unwrap();
        std::fs::remove_dir(&made.hot).unwrap();
        assert_eq!(workspace(home.path(), &project, &PlainWorkspaces).unwrap(), made);
        assert!(made.repo.join("kept").exists() && made.hot.is_dir() && made.memories.is_dir());
    }

    #[test]
    fn a_file_in_place_of_a_directory_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("workspaces"), "x").unwrap();
        assert!(workspace(home.path(), &ProjectId::default_project(), &PlainWorkspaces).is_err());
    }
}
