//! The file with the input of a launcher.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::SandboxSpec;
use base::durable::replace_volatile;

/// The input of the launcher of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SandboxLaunch {
    /// The name of its cgroup, and the id for the runtime.
    pub(super) name: String,
    /// The lease and generation, which the host repeats; empty for a warm sandbox.
    pub(super) label: String,
    pub(super) spec: SandboxSpec,
    /// The disk image; the directory with the files of an unprivileged sandbox.
    pub(super) disk: PathBuf,
    /// The root directory of the image below the disk.
    pub(super) image: Option<PathBuf>,
    /// The directory with the host's executable.
    pub(super) programs: PathBuf,
    /// The file name of the host's executable.
    pub(super) program: String,
    /// The OCI runtime; `None` for the built-in one.
    pub(super) runtime: Option<PathBuf>,
    /// Directories of this machine that are mounted read-only.
    pub(super) shown: Vec<PathBuf>,
}

/// The file in a sandbox's directory.
const FILE: &str = "launch.json";

impl SandboxLaunch {
    pub(super) fn read(dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
    }

    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        // Not synced: the sandbox does not survive a reboot either.
        replace_volatile(&dir.join(FILE), &serde_json::to_vec(self)?)
    }
}
