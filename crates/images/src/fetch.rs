//! Fetches one layer into the store. A fetch that was interrupted continues where it ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::FlockOperation;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::digest::{ContentDigest, ContentHasher};
use crate::error::PullError;
use crate::lock::lock_store;
use crate::manifest::BlobDescriptor;
use crate::registry::RegistryClient;
use base::durable::publish;
use base::outbound::bounded;

/// How long one connection may take to send a layer.
const LAYER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Connections that may break in a row without a byte of progress.
const MAX_FRUITLESS_ATTEMPTS: u32 = 3;
/// The extension of the beginning of a layer.
pub(crate) const PART_EXTENSION: &str = "part";

const STORING: &str = "store a layer";

/// A layer that is being fetched.
pub(crate) struct LayerFetch<'a> {
    client: &'a RegistryClient,
    blob: &'a BlobDescriptor,
    layers: &'a Path,
    /// Counts the bytes of all layers of an image.
    done_bytes: &'a AtomicU64,
}

/// The file with the beginning of a layer.
struct PartialLayer {
    file: tokio::fs::File,
    hasher: ContentHasher,
    length: u64,
}

impl<'a> LayerFetch<'a> {
    pub(crate) fn new(
        client: &'a RegistryClient,
        blob: &'a BlobDescriptor,
        layers: &'a Path,
        done_bytes: &'a AtomicU64,
    ) -> Self {
        Self { client, blob, layers, done_bytes }
    }

    /// The final name of a layer.
    pub(crate) fn path(layers: &Path, digest: &ContentDigest) -> PathBuf {
        layers.join(digest.hex())
    }

    /// Fetches the layer unless the store has it.
    pub(crate) async fn run(self) -> Result<(), PullError> {
        let complete = Self::path(self.layers, &self.blob.digest);
        let part = complete.with_extension(PART_EXTENSION);
        if complete.exists() {
            self.done_bytes.fetch_add(self.blob.size, Ordering::Relaxed);
            return touch(&complete).map_err(PullError::storage(STORING));
        }
        let file = open_part(&part).await?;
        if complete.exists() {
            // Another pull fetched the layer while this one waited.
            fs::remove_file(&part).map_err(PullError::storage(STORING))?;
            self.done_bytes.fetch_add(self.blob.size, Ordering::Relaxed);
            return Ok(());
        }
        let mut layer = PartialLayer::resume(file, &part).await?;
        self.done_bytes.fetch_add(layer.length, Ordering::Relaxed);
        let is_resumed = layer.length > 0;
        let mut found = self.complete(&mut layer).await?;
        if found != self.blob.digest && is_resumed {
            // The part on the disk was damaged.
            self.restart(&mut layer).await?;
            found = self.complete(&mut layer).await?;
        }
        if found != self.blob.digest {
            fs::remove_file(&part).map_err(PullError::storage(STORING))?;
            let reason = format!("the registry sent {found} instead of {}", self.blob.digest);
            return Err(self.client.invalid(reason));
        }
        let store = async {
            layer.file.sync_all().await?;
            publish(&part, &complete)
        };
        store.await.map_err(PullError::storage(STORING))
    }

    /// Fetches until the layer has its full length. Returns its digest.
    async fn complete(&self, layer: &mut PartialLayer) -> Result<ContentDigest, PullError> {
        if layer.length > self.blob.size {
            self.restart(layer).await?;
        }
        let mut fruitless = 0;
        while layer.length < self.blob.size {
            let before = layer.length;
            let attempt = self.attempt(layer);
            let ended = match bounded("registry.layer", LAYER_TIMEOUT, attempt).await {
                Ok(ended) => ended,
                Err(late) => Err(self.client.unavailable(late)),
            };
            layer.file.flush().await.map_err(PullError::storage(STORING))?;
            fruitless = if layer.length > before { 0 } else { fruitless + 1 };
            match ended {
                Err(PullError::Unavailable { .. }) | Ok(())
                    if fruitless < MAX_FRUITLESS_ATTEMPTS =>
                {
                    tracing::debug!(layer = %self.blob.digest, "continuing a layer");
                }
                Ok(()) => return Err(self.client.unavailable("a layer ends too early")),
                Err(error) => return Err(error),
            }
        }
        Ok(std::mem::take(&mut layer.hasher).finish())
    }

    /// Fetches over one connection, until the registry ends it.
    async fn attempt(&self, layer: &mut PartialLayer) -> Result<(), PullError> {
        let (begins, mut response) = self.client.blob(&self.blob.digest, layer.length).await?;
        if begins != layer.length {
            self.restart(layer).await?;
        }
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            let read = response.read(&mut chunk).await;
            if read.map_err(|error| self.client.unanswered(&error))? == 0 {
                return Ok(());
            }
            let length = layer.length + chunk.len() as u64;
            if length > self.blob.size {
                return Err(self.client.invalid("a layer is larger than its manifest says".into()));
            }
            layer.hasher.update(&chunk);
            layer.file.write_all(&chunk).await.map_err(PullError::storage(STORING))?;
            layer.length = length;
            self.done_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }

    async fn restart(&self, layer: &mut PartialLayer) -> Result<(), PullError> {
        self.done_bytes.fetch_sub(layer.length, Ordering::Relaxed);
        let restarted = async {
            layer.file.flush().await?;
            layer.file.set_len(0).await?;
            layer.file.rewind().await
        };
        restarted.await.map_err(PullError::storage(STORING))?;
        layer.length = 0;
        layer.hasher = ContentHasher::default();
        Ok(())
    }
}

impl PartialLayer {
    /// Reads what an interrupted fetch left.
    async fn resume(file: File, part: &Path) -> Result<Self, PullError> {
        let part = part.to_owned();
        let hashed = tokio::task::spawn_blocking(move || -> io::Result<(ContentHasher, u64)> {
            let (mut reader, mut hasher, mut length) =
                (File::open(part)?, ContentHasher::default(), 0);
            let mut buffer = vec![0; 256 << 10];
            loop {
                match reader.read(&mut buffer)? {
                    0 => return Ok((hasher, length)),
                    count => {
                        hasher.update(&buffer[..count]);
                        length += count as u64;
                    }
                }
            }
        });
        let hashed = hashed.await.map_err(io::Error::other).and_then(|hashed| hashed);
        let (hasher, length) = hashed.map_err(PullError::storage(STORING))?;
        let mut file = tokio::fs::File::from_std(file);
        let end = file.seek(io::SeekFrom::Start(length)).await;
        end.map_err(PullError::storage(STORING))?;
        Ok(Self { file, hasher, length })
    }
}

/// Opens the part of a layer, and waits until no other pull writes to it.
async fn open_part(part: &Path) -> Result<File, PullError> {
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(part).map_err(PullError::storage(STORING))?;
        lock_store(&file, FlockOperation::NonBlockingLockExclusive, LAYER_TIMEOUT).await?;
        // The other pull may have renamed or removed the file that this one waited for.
        let locked = file.metadata().map_err(PullError::storage(STORING))?;
        if fs::metadata(part).is_ok_and(|named| named.ino() == locked.ino()) {
            return Ok(file);
        }
    }
}

/// Makes a layer the one that was used last.
fn touch(path: &Path) -> io::Result<()> {
    File::open(path)?.set_modified(std::time::SystemTime::now())
}
