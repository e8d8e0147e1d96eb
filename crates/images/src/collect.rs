//! The garbage collection of the store: removes what no image and no sandbox needs, and keeps the store below its
//! limit.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::digest::ContentDigest;
use crate::lock::ImageGuard;
use crate::manifest::PulledImage;
use crate::settings::CONFIG;
use crate::store::{ImageStore, ROOTFS, RoomFor, SIZE, UNFINISHED_PREFIX, entries};
use base::durable::{open_directory, part_name, sync_directory};

/// What a garbage collection removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Images that were removed because the store was above its limit.
    pub images: u64,
    pub layers: u64,
    pub layer_bytes: u64,
    pub roots: u64,
}

/// An image with the time of its last use and its record.
struct ListedImage {
    used_at: SystemTime,
    record: PathBuf,
    image: PulledImage,
}

impl ImageStore {
    /// Removes unfinished files, the roots that no image and no sandbox uses, and unreferenced layers beyond
    /// their limit. While the store is above its limit, removes the image that was not used for the longest
    /// time, unless a sandbox uses it. Returns `None` if images are in use at the moment. Blocking.
    ///
    /// # Errors
    /// If a file cannot be read or removed. What was removed until then stays removed.
    pub fn collect(&self) -> io::Result<Option<Collected>> {
        self.collect_for(&RoomFor::default())
    }

    pub(crate) fn collect_for(&self, room: &RoomFor) -> io::Result<Option<Collected>> {
        if !self.options().directory.exists() {
            return Ok(Some(Collected::default()));
        }
        self.prepare()?;
        let Some(_alone) = ImageGuard::try_exclusive(&self.path("lock"))? else {
            return Ok(None);
        };
        self.remove_unfinished()?;
        let mut collected = Collected::default();
        let in_use = self.in_use()?;
        let mut images = self.listed()?;
        let mut max_unreferenced_bytes = self.options().max_unreferenced_bytes;
        loop {
            self.remove_roots(&images, &in_use, &mut collected)?;
            self.remove_layers(&images, max_unreferenced_bytes, &mut collected)?;
            if self.stored_bytes()?.saturating_add(room.bytes) <= self.options().max_store_bytes {
                break;
            }
            if max_unreferenced_bytes > 0 {
                max_unreferenced_bytes = 0;
                continue;
            }
            let is_needed =
                |id: &ContentDigest| in_use.contains(id) || room.image.as_ref() == Some(id);
            // No registry has an image that was built here: only its owner removes it.
            let may_go =
                |listed: &ListedImage| !is_needed(&listed.image.id) && !listed.image.is_built();
            let Some(oldest) = images.iter().position(may_go) else {
                break;
            };
            let oldest = images.remove(oldest);
            tracing::info!(image = oldest.image.reference, "removing an image: the store is full");
            fs::remove_file(oldest.record)?;
            sync_directory(open_directory(&self.path("names"))?)?;
            collected.images += 1;
        }
        Ok(Some(collected))
    }

    /// The size of all layers and roots.
    pub(crate) fn stored_bytes(&self) -> io::Result<u64> {
        let mut bytes = 0u64;
        for (path, _) in entries(&self.path("layers"))? {
            bytes = bytes.saturating_add(fs::metadata(path)?.len());
        }
        for (path, _) in entries(&self.path("roots"))? {
            // An unfinished root has no recorded size.
            let size = fs::read_to_string(path.join(SIZE)).ok();
            let size = size.and_then(|size| size.parse().ok()).unwrap_or(0);
            bytes = bytes.saturating_add(size);
        }
        Ok(bytes)
    }

    /// All images, the least recently used first.
    fn listed(&self) -> io::Result<Vec<ListedImage>> {
        let mut images = Vec::new();
        for (record, _) in entries(&self.path("names"))? {
            let image = serde_json::from_slice(&fs::read(&record)?)?;
            images.push(ListedImage { used_at: fs::metadata(&record)?.modified()?, record, image });
        }
        images.sort_by(|one, other| {
            (one.used_at, &one.image.reference).cmp(&(other.used_at, &other.image.reference))
        });
        Ok(images)
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        let is_unfinished = |(_, name): &(PathBuf, String)| name.starts_with(UNFINISHED_PREFIX);
        for (path, _) in entries(&self.path("roots"))?.into_iter().filter(is_unfinished) {
            fs::remove_dir_all(path)?;
        }
        for (path, _) in entries(&self.path("names"))?.into_iter().filter(is_unfinished) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn remove_roots(
        &self,
        images: &[ListedImage],
        in_use: &BTreeSet<ContentDigest>,
        collected: &mut Collected,
    ) -> io::Result<()> {
        let named = images.iter().map(|listed| &listed.image.id);
        let needed: BTreeSet<&str> = named.chain(in_use).map(ContentDigest::hex).collect();
        for (path, name) in entries(&self.path("roots"))? {
            if needed.contains(name.as_str()) {
                remove_leftovers(&path)?;
                continue;
            }
            // A root is renamed first: half of one must never be found under its final name.
            let beside = path.with_file_name(part_name()?);
            fs::rename(&path, &beside)?;
            sync_directory(open_directory(&self.path("roots"))?)?;
            fs::remove_dir_all(beside)?;
            collected.roots += 1;
        }
        Ok(())
    }

    fn remove_layers(
        &self,
        images: &[ListedImage],
        max_unreferenced_bytes: u64,
        collected: &mut Collected,
    ) -> io::Result<()> {
        let layers = images.iter().flat_map(|listed| &listed.image.layers);
        let needed: BTreeSet<&str> = layers.map(|layer| layer.digest.hex()).collect();
        let mut unreferenced: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for (path, name) in entries(&self.path("layers"))? {
            if !needed.contains(name.as_str()) {
                let found = fs::metadata(&path)?;
                unreferenced.push((found.modified()?, found.len(), path));
            }
        }
        unreferenced.sort();
        let mut kept_bytes = 0u64;
        for (_, bytes, path) in unreferenced.into_iter().rev() {
            let sum = kept_bytes.saturating_add(bytes);
            if bytes > 0 && sum <= max_unreferenced_bytes {
                kept_bytes = sum;
                continue;
            }
            fs::remove_file(path)?;
            collected.layers += 1;
            collected.layer_bytes += bytes;
        }
        Ok(())
    }
}

/// Removes what is beside a root: an archive for a container engine, of a process that was killed.
fn remove_leftovers(root: &Path) -> io::Result<()> {
    for (path, name) in entries(root)? {
        if ![ROOTFS, CONFIG, SIZE].contains(&name.as_str()) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
