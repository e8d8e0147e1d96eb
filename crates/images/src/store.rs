//! The store of pulled images: pulls, lists and removes them, and collects what no image needs.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::auth;
use crate::digest::ContentDigest;
use crate::error::PullError;
use crate::fetch::LayerFetch;
use crate::lock::ImageGuard;
use crate::manifest::{ImageConfig, ImageManifest, ManifestDocument, PulledImage};
use crate::reference::ImageReference;
use crate::registry::RegistryClient;
use crate::settings::CONFIG;
use crate::unpack::{StoredLayer, unpack};
use base::durable::{open_directory, part_name, replace_at, sync_directory};

/// Layers of one image that are fetched at the same time.
const PARALLEL_LAYERS: usize = 3;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The directory with the files of an unpacked image.
pub(crate) const ROOTFS: &str = "rootfs";
/// The file with the size of an unpacked image.
pub(crate) const SIZE: &str = "size";
/// The prefix of unfinished names.
pub(crate) const UNFINISHED_PREFIX: &str = ".";

/// Returns the identifiers of the images whose roots are in use.
pub type ImagesInUse = dyn Fn() -> io::Result<BTreeSet<ContentDigest>> + Send + Sync;

#[derive(Debug, Clone)]
pub struct ImageStoreOptions {
    /// The directory of the store.
    pub directory: PathBuf,
    /// A file in the format of Docker's `config.json`, with credentials for registries. It may be absent.
    pub credentials: PathBuf,
    /// Registries (`host:port`) to which plain HTTP is spoken, besides those of this machine.
    pub plain_http: Vec<String>,
    /// An image whose layers are larger, compressed or unpacked, is refused.
    pub max_image_bytes: u64,
    /// Layers that no image needs, and parts of layers, are kept up to this size.
    pub max_unreferenced_bytes: u64,
    /// Images that no sandbox uses are removed while all images are larger together.
    pub max_store_bytes: u64,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStage {
    Fetching { done_bytes: u64, total_bytes: u64 },
    Unpacking { total_bytes: u64 },
}

/// What a garbage collection must make room for.
#[derive(Debug, Default)]
pub(crate) struct RoomFor {
    /// An image that is kept although no sandbox uses it yet.
    pub(crate) image: Option<ContentDigest>,
    /// The size of layers that are not in the store yet.
    pub(crate) bytes: u64,
}

/// The pulled images of a home. Cheap to clone. Several processes may use it at the same time.
#[derive(Clone)]
pub struct ImageStore {
    options: Arc<ImageStoreOptions>,
    in_use: Arc<ImagesInUse>,
}

impl std::fmt::Debug for ImageStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ImageStore {
    #[must_use]
    pub fn new(options: ImageStoreOptions, in_use: Arc<ImagesInUse>) -> Self {
        Self { options: Arc::new(options), in_use }
    }

    /// Prevents that layers and roots are removed, until the guard is dropped.
    ///
    /// # Errors
    /// If the store is locked for too long, or cannot be created.
    pub async fn guard(&self) -> Result<ImageGuard, PullError> {
        self.prepare().map_err(PullError::storage("create the directory of images"))?;
        ImageGuard::shared(&self.path("lock")).await
    }

    /// The root directory of an image. Keep a guard until a use of it is recorded.
    #[must_use]
    pub fn root(&self, id: &ContentDigest) -> Option<PathBuf> {
        let root = self.path("roots").join(id.hex()).join(ROOTFS);
        root.is_dir().then_some(root)
    }

    /// The image that a reference stands for, if it was pulled.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn find(&self, reference: &ImageReference) -> io::Result<Option<PulledImage>> {
        match fs::read(self.path("names").join(name_file(reference))) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All images, by reference.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn list(&self) -> io::Result<Vec<PulledImage>> {
        let mut images = Vec::new();
        for (path, name) in entries(&self.path("names"))? {
            if !name.starts_with(UNFINISHED_PREFIX) {
                images.push(serde_json::from_slice::<PulledImage>(&fs::read(path)?)?);
            }
        }
        images.sort_by(|one, other| one.reference.cmp(&other.reference));
        Ok(images)
    }

    /// Pulls an image, and what its reference stands for now. Layers that the store has are not fetched again.
    ///
    /// # Errors
    /// If the registry does not have or give it, if it is malformed or too large, or if it cannot be stored.
    pub async fn pull(
        &self,
        reference: &ImageReference,
        progress: &(dyn Fn(PullStage) + Send + Sync),
    ) -> Result<PulledImage, PullError> {
        let login = auth::login(&self.options.credentials, reference.registry())
            .map_err(PullError::storage("read the credentials for registries"))?;
        let client = RegistryClient::new(reference, login, &self.options.plain_http)?;
        let (digest, manifest) = self.manifest(&client, reference).await?;
        let config = client.document(&manifest.config).await?;
        let invalid = |reason| client.invalid(reason);
        let diff_ids = ImageConfig::diff_ids(&config, &manifest).map_err(invalid)?;
        let image = PulledImage {
            reference: reference.to_string(),
            manifest: digest,
            id: manifest.config.digest,
            layers: manifest.layers,
        };
        if image.bytes() > self.options.max_image_bytes {
            let reason = "it is too large; see the setting image.max_size".to_owned();
            return Err(client.invalid(reason));
        }
        self.make_room(&image).await?;
        let guard = self.guard().await?;
        if self.root(&image.id).is_none() {
            self.fetch(&client, &image, progress).await?;
            progress(PullStage::Unpacking { total_bytes: image.bytes() });
            self.unpack(&client, &image, diff_ids, config, guard.clone()).await?;
        }
        self.record(reference, &image).map_err(PullError::storage("record an image"))?;
        drop(guard);
        let room = RoomFor { image: Some(image.id.clone()), bytes: 0 };
        if let Err(error) = self.collect_blocking(room).await {
            tracing::warn!(%error, "cannot remove unreferenced images");
        }
        Ok(image)
    }

    /// Removes an image. Its root is kept as long as a sandbox uses it. Returns whether it existed.
    ///
    /// # Errors
    /// If its record cannot be removed.
    pub fn remove(&self, reference: &ImageReference) -> io::Result<bool> {
        match fs::remove_file(self.path("names").join(name_file(reference))) {
            Ok(()) => sync_directory(open_directory(&self.path("names"))?).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn options(&self) -> &ImageStoreOptions {
        &self.options
    }

    /// The images that sandboxes use.
    pub(crate) fn in_use(&self) -> io::Result<BTreeSet<ContentDigest>> {
        (self.in_use)()
    }

    /// Records that an image was used, so that others are removed before it when the store is full.
    ///
    /// # Errors
    /// If its record cannot be changed.
    pub fn mark_used(&self, reference: &ImageReference) -> io::Result<()> {
        let record = fs::File::open(self.path("names").join(name_file(reference)))?;
        record.set_modified(SystemTime::now())
    }

    /// Finds the manifest for this machine. Returns the digest that the reference stands for.
    async fn manifest(
        &self,
        client: &RegistryClient,
        reference: &ImageReference,
    ) -> Result<(ContentDigest, ImageManifest), PullError> {
        let bytes = client.manifest(&reference.version()).await?;
        if let Some(expected) = reference.digest() {
            client.verify(expected, &bytes)?;
        }
        let digest = ContentDigest::of(&bytes);
        let parse =
            |bytes: &[u8]| ManifestDocument::parse(bytes).map_err(|reason| client.invalid(reason));
        let elsewhere = match parse(&bytes)? {
            ManifestDocument::Image(manifest) => return Ok((digest, manifest)),
            ManifestDocument::Elsewhere(elsewhere) => elsewhere,
        };
        let bytes = client.manifest(&elsewhere.to_string()).await?;
        client.verify(&elsewhere, &bytes)?;
        match parse(&bytes)? {
            ManifestDocument::Image(manifest) => Ok((digest, manifest)),
            ManifestDocument::Elsewhere(_) => {
                Err(client.invalid("its list of manifests leads to another list".to_owned()))
            }
        }
    }

    async fn fetch(
        &self,
        client: &RegistryClient,
        image: &PulledImage,
        progress: &(dyn Fn(PullStage) + Send + Sync),
    ) -> Result<(), PullError> {
        let (layers, done) = (self.path("layers"), AtomicU64::new(0));
        let mut known = BTreeSet::new();
        let mut fetches: Vec<BoxFuture<'_, Result<(), PullError>>> = Vec::new();
        for blob in &image.layers {
            if known.insert(&blob.digest) {
                fetches.push(Box::pin(LayerFetch::new(client, blob, &layers, &done).run()));
            }
        }
        let fetches = stream::iter(fetches).buffer_unordered(PARALLEL_LAYERS);
        let fetched = fetches.try_collect::<()>();
        tokio::pin!(fetched);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        let total_bytes = image.bytes();
        loop {
            tokio::select! {
                ended = &mut fetched => return ended,
                _ = ticks.tick() => {
                    let done_bytes = done.load(Ordering::Relaxed);
                    progress(PullStage::Fetching { done_bytes, total_bytes });
                }
            }
        }
    }

    async fn unpack(
        &self,
        client: &RegistryClient,
        image: &PulledImage,
        diff_ids: Vec<ContentDigest>,
        config: Vec<u8>,
        guard: ImageGuard,
    ) -> Result<(), PullError> {
        let dir = self.path("layers");
        let files = image.layers.iter().map(|layer| LayerFetch::path(&dir, &layer.digest));
        let layers = files.zip(diff_ids).map(|(file, diff_id)| StoredLayer { file, diff_id });
        let layers: Vec<StoredLayer> = layers.collect();
        let (roots, id) = (self.path("roots"), image.id.clone());
        let max_bytes = self.options.max_image_bytes;
        let done = tokio::task::spawn_blocking(move || {
            // A pull that is cancelled leaves this running, so it needs the guard itself.
            let _guard = guard;
            unpack_root(&layers, &config, &roots, &id, max_bytes)
        });
        match done.await.map_err(io::Error::other).and_then(|done| done) {
            Ok(()) => Ok(()),
            Err(error) if is_of_this_machine(&error) => {
                Err(PullError::Storage { doing: "unpack an image", source: error })
            }
            Err(error) => Err(client.invalid(error.to_string())),
        }
    }

    pub(crate) fn record(&self, reference: &ImageReference, image: &PulledImage) -> io::Result<()> {
        let names = open_directory(&self.path("names"))?;
        replace_at(names, &name_file(reference), &serde_json::to_vec_pretty(image)?)
    }

    /// Refuses an image that does not fit beside the images that sandboxes use.
    async fn make_room(&self, image: &PulledImage) -> Result<(), PullError> {
        const DOING: &str = "make room for an image";
        let missing = image
            .layers
            .iter()
            .filter(|layer| !LayerFetch::path(&self.path("layers"), &layer.digest).exists());
        let bytes = missing.map(|layer| layer.size).fold(0, u64::saturating_add);
        let max_bytes = self.options.max_store_bytes;
        let fits =
            || -> io::Result<bool> { Ok(self.stored_bytes()?.saturating_add(bytes) <= max_bytes) };
        if self.root(&image.id).is_some() || fits().map_err(PullError::storage(DOING))? {
            return Ok(());
        }
        let collected = self.collect_blocking(RoomFor { image: None, bytes }).await;
        collected.map_err(PullError::storage(DOING))?;
        if fits().map_err(PullError::storage(DOING))? {
            return Ok(());
        }
        Err(PullError::Full { image: image.reference.clone(), max_bytes })
    }

    pub(crate) async fn collect_blocking(&self, room: RoomFor) -> io::Result<()> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || this.collect_for(&room)).await;
        let collected = done.map_err(io::Error::other).and_then(|done| done)?;
        tracing::debug!(?collected, "collected unneeded images");
        Ok(())
    }

    pub(crate) fn prepare(&self) -> io::Result<()> {
        for name in ["layers", "roots", "names"] {
            // Other users of the machine must not reach the programs with set-id bits in the roots.
            DirBuilder::new().recursive(true).mode(0o700).create(self.path(name))?;
        }
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.options.directory.join(name)
    }
}

/// Unpacks an image beside its final name, and renames it.
fn unpack_root(
    layers: &[StoredLayer],
    config: &[u8],
    roots: &Path,
    id: &ContentDigest,
    max_bytes: u64,
) -> io::Result<()> {
    let beside = roots.join(part_name()?);
    let unpacked = (|| {
        DirBuilder::new().mode(0o700).create(&beside)?;
        DirBuilder::new().mode(0o755).create(beside.join(ROOTFS))?;
        replace_at(open_directory(&beside)?, CONFIG, config)?;
        let bytes = unpack(layers, &beside.join(ROOTFS), max_bytes)?;
        replace_at(open_directory(&beside)?, SIZE, bytes.to_string().as_bytes())
    })();
    if let Err(error) = unpacked {
        // The first error is the one to report; the next collection removes what is left.
        let _ = fs::remove_dir_all(&beside);
        return Err(error);
    }
    match fs::rename(&beside, roots.join(id.hex())) {
        // Another process unpacked the same image.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            fs::remove_dir_all(&beside)
        }
        renamed => renamed.and_then(|()| sync_directory(open_directory(roots)?)),
    }
}

/// Whether an error of unpacking is this machine's and not the image's.
fn is_of_this_machine(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::NotFound
            | io::ErrorKind::Unsupported
    )
}

fn name_file(reference: &ImageReference) -> String {
    format!("{}.json", ContentDigest::of(reference.to_string().as_bytes()).hex())
}

/// The entries of a directory; none if it does not exist.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        listed => listed?,
    };
    let named = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.path(), entry.file_name().to_string_lossy().into_owned()))
    };
    listed.map(named).collect()
}
