//! Unpacks the layers of an image into one root file system.
//!
//! Each layer is read twice. The first reading verifies its digest and applies its whiteouts, which
//! concern lower layers alone, wherever in the archive they are; the second creates its files. Everything
//! happens in a directory that has no final name yet, so content that is refused halfway was never
//! visible.
//!
//! Extended attributes are dropped: the attributes of overlays and file capabilities are not a stranger's to set.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType, Header, PaxExtensions};

use crate::digest::{ContentDigest, ContentHasher};
use crate::tree::{LayerNode, NodeMetadata, RootTree, hostile, inner_path};

/// The prefix of the name of a whiteout, and the whole name of one for a directory's content.
const WHITEOUT_PREFIX: &[u8] = b".wh.";
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
const AUFS_PREFIX: &[u8] = b".wh..wh.";

/// Longer names and attributes of an entry are refused; they are kept in memory.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;
/// An image with more entries is refused.
const MAX_ENTRIES: u64 = 2_000_000;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A layer in the store.
pub(crate) struct StoredLayer {
    pub(crate) file: PathBuf,
    /// The digest of its uncompressed archive.
    pub(crate) diff_id: ContentDigest,
}

/// Unpacks layers, the lowest first, into an empty directory, and syncs it. Refuses more bytes than `max_bytes`,
/// and returns their number.
pub(crate) fn unpack(layers: &[StoredLayer], root: &Path, max_bytes: u64) -> io::Result<u64> {
    let mut tree = RootTree::open(root)?;
    let mut budget = UnpackBudget { bytes: max_bytes, entries: MAX_ENTRIES };
    for layer in layers {
        let mut archive = HashedReader::new(decompressed(&layer.file)?, budget.bytes);
        for_each_entry(&mut archive, |entry, _| {
            budget.entries =
                budget.entries.checked_sub(1).ok_or_else(|| hostile("it has too many files"))?;
            apply_whiteout(&mut tree, &entry)
        })?;
        // What follows the archive's end counts for the digest.
        io::copy(&mut archive, &mut io::sink())?;
        budget.bytes = archive.left;
        let found = archive.hasher.finish();
        if found != layer.diff_id {
            return Err(hostile(format!(
                "a layer unpacks to {found} instead of {}",
                layer.diff_id
            )));
        }
        for_each_entry(&mut decompressed(&layer.file)?, |entry, content| {
            create(&mut tree, &entry, content)
        })?;
    }
    tree.sync()?;
    Ok(max_bytes - budget.bytes)
}

/// What all layers of an image together may still use.
struct UnpackBudget {
    bytes: u64,
    entries: u64,
}

/// One file of a layer, with its names from extended headers.
struct LayerEntry {
    path: PathBuf,
    link: Vec<u8>,
    kind: EntryType,
    size: u64,
    metadata: NodeMetadata,
}

fn decompressed(file: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = File::open(file)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic)?;
    file.rewind()?;
    let file = BufReader::with_capacity(128 << 10, file);
    Ok(if magic.starts_with(&GZIP_MAGIC) {
        Box::new(flate2::bufread::MultiGzDecoder::new(file))
    } else if magic == ZSTD_MAGIC {
        Box::new(zstd::stream::read::Decoder::with_buffer(file)?)
    } else {
        Box::new(file)
    })
}

/// Hashes what it reads, and refuses more than a number of bytes.
struct HashedReader<R> {
    inner: R,
    hasher: ContentHasher,
    left: u64,
}

impl<R> HashedReader<R> {
    fn new(inner: R, max_bytes: u64) -> Self {
        Self { inner, hasher: ContentHasher::default(), left: max_bytes }
    }
}

impl<R: Read> Read for HashedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.left.checked_sub(count as u64);
        self.left =
            left.ok_or_else(|| hostile("it is too large; see the setting image.max_size"))?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

/// The names and attributes that precede an entry.
#[derive(Default)]
struct EntryExtensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    user: Option<u64>,
    group: Option<u64>,
}

impl EntryExtensions {
    fn read_pax(&mut self, bytes: &[u8]) -> io::Result<()> {
        for extension in PaxExtensions::new(bytes) {
            let extension = extension?;
            let value = extension.value_bytes();
            let number = || -> io::Result<u64> {
                let text = std::str::from_utf8(value).ok();
                let number = text.and_then(|text| text.parse().ok());
                number.ok_or_else(|| hostile("an extended header is not a number"))
            };
            match extension.key_bytes() {
                b"path" => self.path = Some(value.to_owned()),
                b"linkpath" => self.link = Some(value.to_owned()),
                b"size" => self.size = Some(number()?),
                b"uid" => self.user = Some(number()?),
                b"gid" => self.group = Some(number()?),
                key if key.starts_with(b"GNU.sparse") => return Err(hostile("a sparse file")),
                _ => {}
            }
        }
        Ok(())
    }

    fn entry(self, header: &Header) -> io::Result<LayerEntry> {
        let size = header.entry_size()?;
        if self.size.is_some_and(|extended| extended != size) {
            return Err(hostile("a file has two sizes"));
        }
        let id = |extended: Option<u64>, plain: io::Result<u64>| -> io::Result<u32> {
            let id = extended.map_or(plain, Ok)?;
            // The largest number means "unchanged" to the kernel.
            let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
            id.ok_or_else(|| hostile("a user id is out of range"))
        };
        let raw = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let is_named_directory = raw.ends_with(b"/");
        let kind = match header.entry_type() {
            EntryType::Regular if is_named_directory => EntryType::Directory,
            kind => kind,
        };
        let link = self.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        Ok(LayerEntry {
            path: inner_path(&raw)?,
            link: link.unwrap_or_default(),
            kind,
            size,
            metadata: NodeMetadata {
                mode: header.mode()?,
                user: id(self.user, header.uid())?,
                group: id(self.group, header.gid())?,
                modified: i64::try_from(header.mtime()?).unwrap_or(0),
            },
        })
    }
}

/// Reads an archive, and combines each entry with its extended headers, whose size is bounded here.
fn for_each_entry(
    archive: &mut dyn Read,
    mut act: impl FnMut(LayerEntry, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let mut archive = Archive::new(archive);
    let mut extensions = EntryExtensions::default();
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let header = entry.header().clone();
        let kind = header.entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
            let size = header.entry_size()?;
            if size > MAX_EXTENSION_BYTES {
                return Err(hostile("a file name or its attributes are too long"));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            if kind.is_pax_local_extensions() {
                extensions.read_pax(&bytes)?;
                continue;
            }
            bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
            if kind.is_gnu_longname() {
                extensions.path = Some(bytes);
            } else {
                extensions.link = Some(bytes);
            }
            continue;
        }
        if kind.is_pax_global_extensions() {
            continue;
        }
        act(std::mem::take(&mut extensions).entry(&header)?, &mut entry)?;
    }
    Ok(())
}

/// The name of an entry, if the entry is a whiteout.
fn whiteout_name(entry: &LayerEntry) -> Option<&[u8]> {
    let name = entry.path.file_name()?.as_bytes();
    name.starts_with(WHITEOUT_PREFIX).then_some(name)
}

fn apply_whiteout(tree: &mut RootTree, entry: &LayerEntry) -> io::Result<()> {
    let Some(name) = whiteout_name(entry) else { return Ok(()) };
    let dir = entry.path.parent().unwrap_or(Path::new(""));
    if name == OPAQUE_WHITEOUT {
        return tree.whiteout_content(dir);
    }
    if name.starts_with(AUFS_PREFIX) {
        return Ok(());
    }
    match &name[WHITEOUT_PREFIX.len()..] {
        b"" | b"." | b".." => Err(hostile("a whiteout without a name")),
        hidden => tree.whiteout(&dir.join(OsStr::from_bytes(hidden))),
    }
}

fn create(tree: &mut RootTree, entry: &LayerEntry, content: &mut dyn Read) -> io::Result<()> {
    if whiteout_name(entry).is_some() {
        return Ok(());
    }
    let target;
    let node = match entry.kind {
        EntryType::Directory => LayerNode::Directory,
        EntryType::Regular | EntryType::Continuous => LayerNode::File { content, size: entry.size },
        EntryType::Symlink => LayerNode::Symlink(OsStr::from_bytes(&entry.link)),
        EntryType::Link => {
            target = inner_path(&entry.link)?;
            LayerNode::HardLink(&target)
        }
        EntryType::Fifo => LayerNode::Fifo,
        EntryType::Char | EntryType::Block => LayerNode::Device,
        _ => return Err(hostile("an entry of an unknown type")),
    };
    let path = entry.path.display();
    tree.put(&entry.path, node, entry.metadata)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot create {path}: {error}")))
}

#[cfg(test)]
mod tests;
