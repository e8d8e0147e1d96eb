//! The operator's choices for containers.

use std::path::{Path, PathBuf};

use images::ImageStoreOptions;

use crate::machine_size::default_spec;
use crate::sandbox_images::image_store_options;
use crate::spec::SandboxSpec;
use base::event::Events;

#[derive(Debug, Clone)]
pub struct DockerOptions {
    /// The server's home.
    pub home: PathBuf,
    /// The executable that hosts and launchers are started from.
    pub executable: PathBuf,
    /// The address of the engine; empty for `DOCKER_HOST` or the default sockets.
    pub host: String,
    /// Directories of this machine that are mounted read-only, besides `/usr`.
    pub shown: Vec<PathBuf>,
    /// The default settings of leases, including the image.
    pub defaults: SandboxSpec,
    /// The number of warm containers of each kind.
    pub warm: usize,
    /// Receives the progress of image pulls.
    pub events: Option<Events>,
    /// The store of images that are pulled from registries.
    pub images: ImageStoreOptions,
}

impl DockerOptions {
    /// The defaults for a home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            executable: "/proc/self/exe".into(),
            host: String::new(),
            shown: vec![],
            defaults: default_spec(),
            warm: 0,
            events: None,
            images: image_store_options(home),
        }
    }
}
