//! Images that are built on this machine. They have a root and a configuration, but no layers.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::digest::ContentDigest;
use crate::error::PullError;
use crate::lock::ImageGuard;
use crate::manifest::PulledImage;
use crate::reference::ImageReference;
use crate::settings::{CONFIG, ImageSettings};
use crate::store::{ImageStore, ROOTFS, RoomFor, SIZE};
use base::durable::{open_directory, part_name, publish, replace_at};

/// An image that is being built. Until it is finished, no name stands for it; the next garbage collection removes
/// what a killed process left.
#[derive(Debug)]
pub struct UnfinishedImage {
    store: ImageStore,
    beside: PathBuf,
    guard: ImageGuard,
}

impl ImageStore {
    /// Refuses a build while the images that a collection cannot remove fill the store.
    ///
    /// # Errors
    /// If there is no room, or the store cannot be read.
    pub async fn check_room(&self) -> Result<(), PullError> {
        const DOING: &str = "make room for an image";
        let max_bytes = self.options().max_store_bytes;
        let is_full = || self.stored_bytes().map(|bytes| bytes >= max_bytes);
        if !is_full().map_err(PullError::storage(DOING))? {
            return Ok(());
        }
        let collected = self.collect_blocking(RoomFor { image: None, bytes: 1 }).await;
        collected.map_err(PullError::storage(DOING))?;
        match is_full().map_err(PullError::storage(DOING))? {
            true => Err(PullError::FullOfBuilt { max_bytes }),
            false => Ok(()),
        }
    }

    /// Begins an image.
    ///
    /// # Errors
    /// If there is no room for it, or its directory cannot be created.
    pub async fn begin(&self) -> Result<UnfinishedImage, PullError> {
        self.check_room().await?;
        let guard = self.guard().await?;
        let create = || {
            let beside = self.path("roots").join(part_name()?);
            DirBuilder::new().mode(0o700).create(&beside)?;
            DirBuilder::new().mode(0o755).create(beside.join(ROOTFS))?;
            Ok(beside)
        };
        let beside = create().map_err(PullError::storage("create an image"))?;
        Ok(UnfinishedImage { store: self.clone(), beside, guard })
    }
}

/// The image that a build starts from. It is not removed as long as this exists.
#[derive(Debug)]
pub struct BaseImage {
    /// The name by which sandboxes use it.
    pub name: String,
    pub settings: ImageSettings,
    /// Its configuration, as a registry has it.
    pub config: Value,
    _guard: ImageGuard,
}

impl BaseImage {
    /// Reads what is known of an image.
    ///
    /// # Errors
    /// If its configuration cannot be read.
    pub async fn read(name: String, root: PathBuf, guard: ImageGuard) -> io::Result<Self> {
        let read = move || {
            let settings = ImageSettings::of_root(&root)?;
            let config = match fs::read(root.with_file_name(CONFIG)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => json!({}),
                text => serde_json::from_slice(&text?)?,
            };
            Ok::<_, io::Error>((settings, config))
        };
        let done = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        let (settings, config) = done?;
        Ok(Self { name, settings, config, _guard: guard })
    }
}

impl UnfinishedImage {
    /// The root directory, to be filled.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.beside.join(ROOTFS)
    }

    #[must_use]
    pub fn guard(&self) -> &ImageGuard {
        &self.guard
    }

    /// Removes directories beside the root, which must be empty, and those below the root that are. Blocks only for a
    /// few calls.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove_empty(&self, beside: &[&str], below: &[&str]) -> io::Result<()> {
        for name in beside {
            fs::remove_dir(self.beside.join(name))?;
        }
        let root = self.root();
        for path in below.iter().map(Path::new) {
            // A link must not lead to a directory elsewhere.
            let is_inside = path
                .ancestors()
                .filter(|above| !above.as_os_str().is_empty())
                .all(|above| root.join(above).symlink_metadata().is_ok_and(|found| found.is_dir()));
            if is_inside {
                match fs::remove_dir(root.join(path)) {
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    /// Writes the image to stable storage, and lets a reference stand for it instead of what it stood for before.
    /// Its identifier is the digest of the configuration, which must be different for each build.
    ///
    /// # Errors
    /// If it cannot be stored. The reference has not changed then.
    pub async fn finish(
        self,
        reference: &ImageReference,
        config: Vec<u8>,
    ) -> Result<PulledImage, PullError> {
        let (store, name) = (self.store.clone(), reference.clone());
        let stored = tokio::task::spawn_blocking(move || self.store_as(&name, &config)).await;
        let image = stored.map_err(io::Error::other).and_then(|stored| stored);
        let image = image.map_err(PullError::storage("store an image"))?;
        let room = RoomFor { image: Some(image.id.clone()), bytes: 0 };
        if let Err(error) = store.collect_blocking(room).await {
            tracing::warn!(%error, "cannot remove unreferenced images");
        }
        Ok(image)
    }

    fn store_as(self, reference: &ImageReference, config: &[u8]) -> io::Result<PulledImage> {
        let id = ContentDigest::of(config);
        let roots = self.store.path("roots");
        let root = self.root();
        rustix::fs::syncfs(open_directory(&root)?)?;
        let beside = open_directory(&self.beside)?;
        replace_at(&beside, SIZE, size_of(&root)?.to_string().as_bytes())?;
        replace_at(&beside, CONFIG, config)?;
        publish(&self.beside, &roots.join(id.hex()))?;
        let reference_text = reference.to_string();
        let image =
            PulledImage { reference: reference_text, manifest: id.clone(), id, layers: vec![] };
        self.store.record(reference, &image)?;
        Ok(image)
    }
}

impl Drop for UnfinishedImage {
    fn drop(&mut self) {
        // Nothing is left of a finished image; the next garbage collection repeats a failed removal.
        let _ = fs::remove_dir_all(&self.beside);
    }
}

/// The size on disk of the files below a directory.
fn size_of(root: &Path) -> io::Result<u64> {
    let (mut bytes, mut open) = (0u64, vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let found = entry.metadata()?;
            bytes = bytes.saturating_add(found.blocks() * 512);
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::store::ImageStoreOptions;

    fn store(directory: &Path, max_store_bytes: u64) -> ImageStore {
        let options = ImageStoreOptions {
            directory: directory.to_owned(),
            credentials: directory.join("none"),
            plain_http: vec![],
            max_image_bytes: 1 << 20,
            max_unreferenced_bytes: 0,
            max_store_bytes,
        };
        ImageStore::new(options, Arc::new(|| Ok(BTreeSet::new())))
    }

    async fn build(store: &ImageStore, name: &str, text: &str) -> PulledImage {
        let image = store.begin().await.unwrap();
        fs::write(image.root().join("mark"), text).unwrap();
        let config = format!(r#"{{"created": "{text}"}}"#).into_bytes();
        image.finish(&name.parse().unwrap(), config).await.unwrap()
    }

    #[tokio::test]
    async fn a_finished_build_replaces_the_image_of_its_name_and_an_unfinished_one_leaves_nothing()
    {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 1 << 20);
        let mark = |image: &PulledImage| {
            fs::read_to_string(store.root(&image.id).unwrap().join("mark")).unwrap()
        };
        let one = build(&store, "app", "one").await;
        assert!(one.is_built());
        assert_eq!(one.reference, "docker.io/library/app:latest");
        let abandoned = store.begin().await.unwrap();
        fs::write(abandoned.root().join("mark"), "half").unwrap();
        drop(abandoned);
        assert_eq!(store.find(&"app".parse().unwrap()).unwrap().unwrap(), one);
        let two = build(&store, "app", "two").await;
        let other = build(&store, "other", "three").await;
        assert_eq!([&two, &other].map(mark), ["two", "three"]);
        assert!(store.root(&one.id).is_none(), "no name stands for it");
        assert_eq!(store.list().unwrap(), [two, other]);
        assert_eq!(fs::read_dir(dir.path().join("roots")).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn built_images_are_bounded_and_never_removed_for_others() {
        let dir = tempfile::tempdir().unwrap();
        // The first image exceeds it, as each may by its own size.
        let store = store(dir.path(), 4096);
        let one = build(&store, "one", &"x".repeat(8192)).await;
        let refused = store.begin().await.unwrap_err();
        assert!(matches!(refused, PullError::FullOfBuilt { max_bytes: 4096 }), "{refused:?}");
        assert_eq!(store.list().unwrap(), [one]);
        assert!(store.remove(&"one".parse().unwrap()).unwrap());
        let two = build(&store, "two", "small").await;
        assert_eq!(store.list().unwrap(), [two]);
    }
}
