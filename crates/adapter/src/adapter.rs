//! The engine, and the in-memory state that the translations share.

use std::{ops::Deref, path::Path, sync::Arc};

use api::App;
use machine::{ImageBuilds, ImageStoreOptions, volume::Volumes};

use crate::{
    build::Builds, interpreter::Contexts, process::ProcessTables, sandbox_index::SandboxIndex,
    usage::UsageHistory, watchers::Watchers,
};

/// The handle to everything the translations share. Cheap to clone.
#[derive(Clone)]
pub struct Adapter {
    app: App,
    pub(crate) state: Arc<AdapterState>,
}

/// The in-memory state of the translations.
pub(crate) struct AdapterState {
    pub index: SandboxIndex,
    pub processes: ProcessTables,
    pub watchers: Watchers,
    pub usage: UsageHistory,
    pub builds: Builds,
    pub contexts: Contexts,
    pub images: ImageBuilds,
    pub volumes: Arc<Volumes>,
    /// Shared by sandboxes with volumes until they are recorded; exclusive while a volume is removed.
    pub mounting: tokio::sync::RwLock<()>,
}

impl Adapter {
    pub fn new(app: App, home: &Path, images: ImageStoreOptions) -> Adapter {
        let state = AdapterState {
            index: SandboxIndex::default(),
            processes: ProcessTables::default(),
            watchers: Watchers::default(),
            usage: UsageHistory::default(),
            builds: Builds::default(),
            contexts: Contexts::default(),
            images: ImageBuilds::new(home, images),
            volumes: Arc::new(Volumes::new(home)),
            mounting: tokio::sync::RwLock::default(),
        };
        Adapter { app, state: Arc::new(state) }
    }

    pub fn index(&self) -> &SandboxIndex {
        &self.state.index
    }

    pub fn watchers(&self) -> &Watchers {
        &self.state.watchers
    }

    pub fn builds(&self) -> &Builds {
        &self.state.builds
    }

    /// The directories of all volumes.
    pub fn volume_store(&self) -> &Arc<Volumes> {
        &self.state.volumes
    }
}

impl Deref for Adapter {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
