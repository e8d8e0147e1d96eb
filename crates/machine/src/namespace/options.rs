//! The operator's choices for sandboxes.

use std::path::{Path, PathBuf};

use images::ImageStoreOptions;

use crate::machine_size::default_spec;
use crate::sandbox_images::image_store_options;
use crate::spec::SandboxSpec;
use base::event::Events;

/// The name of the built-in OCI runtime.
pub const OWN_RUNTIME: &str = "stead";

#[derive(Debug, Clone)]
pub struct NamespaceOptions {
    /// The server's home.
    pub home: PathBuf,
    /// The OCI runtime: a path, or a name to be found in `PATH`; [`OWN_RUNTIME`] for the built-in one.
    pub runtime: PathBuf,
    /// The executable that hosts and launchers are started from.
    pub executable: PathBuf,
    /// Directories of this machine that are mounted read-only, besides `/usr`.
    pub shown: Vec<PathBuf>,
    /// The default settings of leases.
    pub defaults: SandboxSpec,
    /// The number of warm sandboxes of each kind.
    pub warm: usize,
    /// CPUs that CPU-heavy sandboxes may not use.
    pub reserve_cpus: usize,
    /// Bytes per second that a heavy writer is slowed down to while others wait for the disk; 0 means never.
    pub disk_rate: u64,
    /// The store of images that are pulled from registries.
    pub images: ImageStoreOptions,
    /// Receives the progress of pulls.
    pub events: Option<Events>,
}

impl NamespaceOptions {
    /// The defaults for a home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            runtime: OWN_RUNTIME.into(),
            executable: "/proc/self/exe".into(),
            shown: vec![],
            defaults: default_spec(),
            warm: 0,
            reserve_cpus: 1,
            disk_rate: 64 << 20,
            images: image_store_options(home),
            events: None,
        }
    }
}
