//! The state of a provider of sandboxes on this machine: directories, disks, the pool and the quotas.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocking::blocking;
use crate::disk::store::DiskStore;
use crate::label::InstanceLabel;
use crate::pool::Pool;
use crate::programs::Programs;
use crate::quota::Quota;
use base::keyed_lock::KeyedLock;
use model::InstanceId;
use provider::{CREATION_LIMIT, HostSocket, ProviderError};

/// The names of a provider's directories in the home.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectoryNames {
    pub(crate) instances: &'static str,
    pub(crate) disks: &'static str,
    pub(crate) snapshots: &'static str,
}

/// The instances of one provider.
#[derive(Debug)]
pub(crate) struct Instances {
    pub(crate) home: PathBuf,
    /// The executable that hosts and launchers are started from.
    pub(crate) executable: PathBuf,
    /// The directory of all instances.
    pub(crate) root: PathBuf,
    /// The directory of all terminals of the server.
    pub(crate) terminals: PathBuf,
    pub(crate) programs: Arc<Programs>,
    pub(crate) disks: DiskStore,
    pub(crate) pool: Pool,
    pub(crate) quota: Quota,
    /// The instances that are being created, each by one task at a time.
    pub(crate) creating: KeyedLock,
}

impl Instances {
    pub(crate) fn new(
        provider: &'static str,
        home: &Path,
        executable: &Path,
        names: DirectoryNames,
        warm: usize,
    ) -> Self {
        let root = home.join(names.instances);
        Self {
            programs: Arc::new(Programs::new(home.join("programs"), executable.to_owned())),
            disks: DiskStore::new(provider, home, names.disks, names.snapshots),
            pool: Pool::new(root.clone(), warm),
            quota: Quota::new(root.clone()),
            terminals: home.join("terminals"),
            home: home.to_owned(),
            executable: executable.to_owned(),
            creating: KeyedLock::new("the instance", CREATION_LIMIT),
            root,
        }
    }

    pub(crate) fn dir(&self, id: &InstanceId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Copies our executable to a directory that sandboxes can see, on first use. Returns directory and
    /// name.
    pub(crate) async fn copy_program(&self) -> Result<(PathBuf, String), ProviderError> {
        let programs = self.programs.clone();
        blocking("copy the host's program", move || programs.ready()).await
    }

    /// Connects to the host of an instance.
    pub(crate) async fn host(&self, id: &InstanceId) -> Result<HostSocket, ProviderError> {
        let failed = |source| ProviderError::connect_failed("connect to a sandbox", source);
        let host = HostSocket::connect(&self.dir(id)).await.map_err(failed)?;
        host.ok_or_else(|| ProviderError::Gone { instance: id.clone() })
    }

    /// Returns the name of the cgroup or container from the label of an instance's directory. An instance
    /// from
    /// the pool keeps the name it was started with.
    pub(crate) fn labelled_name(dir: &Path) -> Option<String> {
        InstanceLabel::read(dir).map(|label| label.name)
    }
}
