//! The images of sandboxes: imported by an operator, or pulled from a registry on first use.
//!
//! ```text
//! HOME/images/<name>/rootfs   an imported image
//! HOME/pulled-images/         the images of registries; see the crate `images`
//! ```
//! The disk of a lease records the image below it by its digest. So a tag that moves changes no existing
//! sandbox, and no root is removed as long as a disk or a snapshot needs it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use images::{
    Collected, ContentDigest, ImageGuard, ImageReference, ImageStore, ImageStoreOptions,
    ImportedImages, PullError, PullStage,
};

use crate::disk::store::{ImageUse, images_below};
use crate::spec::is_image_name;
use base::event::{EventKind, Events};
use base::keyed_lock::KeyedLock;
use provider::{CREATION_LIMIT, ProviderError};

const DOING: &str = "use an image";
const GIB: u64 = 1 << 30;

/// The default options of the store of pulled images in a home.
#[must_use]
pub fn image_store_options(home: &Path) -> ImageStoreOptions {
    ImageStoreOptions {
        directory: home.join("pulled-images"),
        credentials: home.join("registries.json"),
        plain_http: vec![],
        max_image_bytes: 16 * GIB,
        max_unreferenced_bytes: 2 * GIB,
        max_store_bytes: 64 * GIB,
    }
}

/// The store of pulled images in a home. It knows which of them the disks and snapshots of sandboxes need.
#[must_use]
pub fn image_store(home: &Path, options: ImageStoreOptions) -> ImageStore {
    let home = home.to_owned();
    let in_use = move || -> io::Result<BTreeSet<ContentDigest>> {
        let names = images_below(&home)?;
        Ok(names.iter().filter_map(|used| used.image.parse().ok()).collect())
    };
    ImageStore::new(options, Arc::new(in_use))
}

/// The disks and snapshots of a home that were created from an image.
///
/// # Errors
/// If the record of a disk cannot be read.
pub fn image_uses(home: &Path) -> io::Result<Vec<ImageUse>> {
    images_below(home)
}

/// The images that sandboxes of a home are created from.
#[derive(Debug)]
pub(crate) struct SandboxImages {
    home: PathBuf,
    store: ImageStore,
    /// Receives the progress of pulls.
    events: Option<Events>,
    pulling: KeyedLock,
}

/// An image that a sandbox can be created from.
#[derive(Debug)]
pub(crate) struct ReadyImage {
    pub(crate) root: PathBuf,
    /// What the disk above it records.
    pub(crate) name: String,
    /// Keeps the root until the disk exists.
    _guard: Option<ImageGuard>,
}

impl SandboxImages {
    pub(crate) fn new(home: &Path, options: ImageStoreOptions, events: Option<Events>) -> Self {
        let store = image_store(home, options);
        let pulling = KeyedLock::new("the image", CREATION_LIMIT);
        Self { home: home.to_owned(), store, events, pulling }
    }

    /// Checks that an image exists or can be pulled.
    pub(crate) fn check(&self, name: &str) -> Result<(), ProviderError> {
        if self.imported(name).is_some() || self.pulled(name)?.is_some() {
            return Ok(());
        }
        self.reference(name).map(drop)
    }

    /// Returns an image, and pulls it if it must be pulled.
    pub(crate) async fn ready(&self, name: &str) -> Result<ReadyImage, ProviderError> {
        if let Some(root) = self.imported(name) {
            return Ok(ReadyImage { root, name: name.to_owned(), _guard: None });
        }
        if let Some(image) = self.guarded(name).await? {
            return Ok(image);
        }
        let reference = self.reference(name)?;
        let pull = async {
            // Another task may have pulled the image while this one waited.
            match self.guarded(name).await? {
                Some(image) => Ok(Some(image)),
                None => {
                    tracing::info!(image = %reference, "pulling an image");
                    let report = |stage| self.report(name, stage);
                    self.store.pull(&reference, &report).await.map_err(refusal)?;
                    self.guarded(name).await
                }
            }
        };
        let pulled = self.pulling.with(&reference.to_string(), pull).await??;
        pulled.ok_or_else(|| refused(format!("image: {name} was removed while it was pulled")))
    }

    /// Returns the root of a pulled image, for a container engine.
    pub(crate) async fn pulled_root(
        &self,
        name: &str,
    ) -> Result<Option<ReadyImage>, ProviderError> {
        self.guarded(name).await
    }

    /// Removes what an interrupted pull or import left and what no image needs. Returns `false` if another process
    /// is using the images. Blocking.
    pub(crate) fn sweep(&self) -> bool {
        let swept = ImportedImages::new(&self.home).sweep().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot remove an unfinished image");
            true
        });
        let collected = self.store.collect().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot remove unneeded images");
            Some(Collected::default())
        });
        tracing::debug!(?collected, "removed unneeded images");
        swept && collected.is_some()
    }

    fn imported(&self, name: &str) -> Option<PathBuf> {
        imported_root(&self.home, name)
    }

    /// The digest and the root of a pulled image, by its digest or its reference.
    fn pulled(&self, name: &str) -> Result<Option<(ContentDigest, PathBuf)>, ProviderError> {
        let id = match name.parse::<ContentDigest>() {
            Ok(id) => id,
            Err(_) => {
                let Ok(reference) = name.parse::<ImageReference>() else { return Ok(None) };
                let found = self.store.find(&reference);
                match found.map_err(|error| ProviderError::failed(DOING, error))? {
                    Some(image) => image.id,
                    None => return Ok(None),
                }
            }
        };
        Ok(self.store.root(&id).map(|root| (id, root)))
    }

    async fn guarded(&self, name: &str) -> Result<Option<ReadyImage>, ProviderError> {
        // Most servers have no pulled image; they need no lock.
        if self.pulled(name)?.is_none() {
            return Ok(None);
        }
        let guard = self.store.guard().await.map_err(refusal)?;
        let found = self.pulled(name)?;
        if let (Some(_), Ok(reference)) = (&found, name.parse())
            && let Err(error) = self.store.mark_used(&reference)
        {
            tracing::warn!(%error, image = name, "cannot record the use of an image");
        }
        Ok(found.map(|(id, root)| ReadyImage { root, name: id.to_string(), _guard: Some(guard) }))
    }

    /// The reference to pull an image by. A bare name is never pulled: it is more likely a misspelled import.
    fn reference(&self, name: &str) -> Result<ImageReference, ProviderError> {
        let is_digest = name.parse::<ContentDigest>().is_ok();
        if is_image_name(name) || is_digest {
            let advice = "import it with `stead image import`, or pull it with `stead image pull`";
            return Err(refused(format!("image: {name} does not exist; {advice}")));
        }
        name.parse().map_err(|bad: images::BadReference| refused(format!("image: {bad}")))
    }

    fn report(&self, image: &str, stage: PullStage) {
        let (status, done_bytes, total_bytes) = match stage {
            PullStage::Fetching { done_bytes, total_bytes } => ("pulling", done_bytes, total_bytes),
            PullStage::Unpacking { total_bytes } => ("unpacking", total_bytes, total_bytes),
        };
        tracing::debug!(image, status, done_bytes, total_bytes, "loading an image");
        if let Some(events) = &self.events {
            let (image, status) = (image.to_owned(), status.to_owned());
            events.publish(EventKind::ImageProgress { image, status, done_bytes, total_bytes });
        }
    }
}

/// The root directory of an imported image.
pub(crate) fn imported_root(home: &Path, name: &str) -> Option<PathBuf> {
    if is_image_name(name) { ImportedImages::new(home).root(name) } else { None }
}

fn refused(reason: String) -> ProviderError {
    ProviderError::BadImage { reason }
}

fn refusal(error: PullError) -> ProviderError {
    if error.is_refusal() {
        return refused(format!("image: {error}"));
    }
    ProviderError::failed(DOING, error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_explicit_references_are_pulled() {
        let home = std::env::temp_dir().join(format!("stead-images-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(home.join("images/debian/rootfs")).unwrap();
        let images = SandboxImages::new(&home, image_store_options(&home), None);
        let digest = ContentDigest::of(b"").to_string();
        for (name, fine) in [
            ("debian", true),
            ("debain", false),
            ("python:3.13-slim", true),
            ("ghcr.io/owner/name", true),
            ("no/such image", false),
            ("../../etc", false),
            (digest.as_str(), false),
        ] {
            assert_eq!(images.check(name).is_ok(), fine, "{name}");
        }
        fs::remove_dir_all(home).unwrap();
    }
}
