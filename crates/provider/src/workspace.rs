//! Where the files of a project are, as far as sandboxes can write to them.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// The file systems of workspaces. A workspace that sandboxes use may be on one of its own.
pub trait WorkspaceDisks: Debug + Send + Sync {
    /// Makes the files of a workspace available, given by its directory. Called before every use, so it is quick
    /// if nothing has to be done. Blocking.
    ///
    /// # Errors
    /// If its file system cannot be mounted.
    fn attach(&self, workspace: &Path) -> io::Result<()>;

    /// Unmounts the file system of a workspace that is deleted. Blocking.
    ///
    /// # Errors
    /// If it cannot be unmounted.
    fn detach(&self, workspace: &Path) -> io::Result<()>;
}

/// Workspaces that are plain directories, as on a server without sandboxes.
#[derive(Debug, Clone, Copy)]
pub struct PlainWorkspaces;

impl WorkspaceDisks for PlainWorkspaces {
    fn attach(&self, _workspace: &Path) -> io::Result<()> {
        Ok(())
    }

    fn detach(&self, _workspace: &Path) -> io::Result<()> {
        Ok(())
    }
}
