//! Images that are built on this machine: their bases, and what a sandbox's files become.
//!
//! A build changes the files of a sandbox, and takes a snapshot of its disk. The snapshot and the image below it are
//! copied to one root, which is an image like any other: later sandboxes share it as their lower layer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use images::{BaseImage, ImageReference, ImageStore, ImageStoreOptions, PullError, PullStage};

use crate::disk::store::image_below;
use crate::layout::PROGRAMS;
use crate::namespace::LAYERS;
use crate::sandbox_images::{image_store, imported_root};
use base::outbound::program::{ProgramCall, ProgramError};

/// How long the files of an image may take to be copied.
const COPY_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Directories of a sandbox that are no part of its image. They are mounted, and removed where they are empty.
const MOUNT_POINTS: [&str; 4] = ["workspace", "memories/hot", "memories/persistent", "memories"];

/// Why an image cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageBuildError {
    #[error("image {0} does not exist here, and is not the reference of an image in a registry")]
    NoImage(String),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(
        "the files of image {0} are not in the store of this server; pull it with `stead image pull`"
    )]
    NotOurs(String),
    #[error(
        "{0} is the name of an imported image; choose another, or remove that with `stead image rm`"
    )]
    Imported(String),
    #[error("cannot copy the files of the image")]
    Copy(#[from] ProgramError),
    #[error("cannot {doing}")]
    Failed {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// The images of a home, for builds.
#[derive(Debug, Clone)]
pub struct ImageBuilds {
    home: PathBuf,
    store: ImageStore,
}

impl ImageBuilds {
    #[must_use]
    pub fn new(home: &Path, options: ImageStoreOptions) -> Self {
        Self { home: home.to_owned(), store: image_store(home, options) }
    }

    /// Finds an image, and pulls it if it is not here.
    ///
    /// # Errors
    /// If it neither exists nor can be pulled.
    pub async fn base(
        &self,
        name: &str,
        report: &(dyn Fn(PullStage) + Send + Sync),
    ) -> Result<BaseImage, ImageBuildError> {
        // Before the steps, which may take long.
        self.store.check_room().await?;
        let guard = self.store.guard().await?;
        if let Some(root) = self.imported(name) {
            let read = BaseImage::read(name.to_owned(), root, guard).await;
            return read.map_err(failed("read the configuration of an image"));
        }
        let reference: ImageReference =
            name.parse().map_err(|_| ImageBuildError::NoImage(name.to_owned()))?;
        let find = || self.store.find(&reference).map_err(failed("find an image"));
        let found = match find()?.filter(|image| self.store.root(&image.id).is_some()) {
            Some(found) => found,
            None => self.store.pull(&reference, report).await?,
        };
        let missing = || ImageBuildError::NoImage(name.to_owned());
        let root = self.store.root(&found.id).ok_or_else(missing)?;
        let read = BaseImage::read(reference.to_string(), root, guard).await;
        read.map_err(failed("read the configuration of an image"))
    }

    /// Parses the name of an image to build. It is one that sandboxes find it by.
    ///
    /// # Errors
    /// If it is malformed, a digest, or the name of an imported image.
    pub fn target(&self, name: &str) -> Result<ImageReference, ImageBuildError> {
        let malformed = || ImageBuildError::NoImage(name.to_owned());
        if name.contains('@') {
            return Err(malformed());
        }
        if self.imported(name).is_some() {
            return Err(ImageBuildError::Imported(name.to_owned()));
        }
        name.parse().map_err(|_| malformed())
    }

    /// Makes an image from the snapshot of a namespace sandbox. It replaces the image of the same name in one step.
    ///
    /// # Errors
    /// If its files cannot be copied. The image of this name has not changed then.
    pub async fn commit(
        &self,
        snapshot: &str,
        reference: &ImageReference,
        config: Vec<u8>,
    ) -> Result<(), ImageBuildError> {
        let disk = self.home.join("snapshots").join(format!("{snapshot}.img"));
        let below = image_below(&disk).map_err(failed("read a snapshot"))?.unwrap_or_default();
        let image = self.store.begin().await?;
        let lower = self.root_of(&below)?.ok_or(ImageBuildError::NotOurs(below))?;
        let arguments = ["namespace".into(), "flatten".into(), disk.into(), lower.into()];
        let call = ProgramCall {
            call: "image.build",
            limit: COPY_TIMEOUT,
            program: "/proc/self/exe",
            arguments: arguments.into_iter().chain([image.root().into()]).collect(),
            lock: Some(image.guard().for_program().map_err(failed("lock the images"))?),
        };
        call.run().await?;
        // No process changes the files any longer.
        let mounts = MOUNT_POINTS.into_iter().chain([PROGRAMS.trim_start_matches('/')]);
        let removed = image.remove_empty(&LAYERS, &mounts.collect::<Vec<_>>());
        removed.map_err(failed("remove the mount points of an image"))?;
        image.finish(reference, config).await?;
        Ok(())
    }

    /// The root of an image, by what a disk records of it.
    fn root_of(&self, recorded: &str) -> Result<Option<PathBuf>, ImageBuildError> {
        if let Some(root) = self.imported(recorded) {
            return Ok(Some(root));
        }
        if let Ok(id) = recorded.parse() {
            return Ok(self.store.root(&id));
        }
        let Ok(reference) = recorded.parse() else { return Ok(None) };
        let found = self.store.find(&reference).map_err(failed("find an image"))?;
        Ok(found.and_then(|image| self.store.root(&image.id)))
    }

    fn imported(&self, name: &str) -> Option<PathBuf> {
        imported_root(&self.home, name)
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> ImageBuildError {
    move |source| ImageBuildError::Failed { doing, source }
}
