//! Reads an archive into a staging directory, within limits.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufReader, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    rc::Rc,
};

use rustix::fs::{Timespec, Timestamps};
use tar::{Archive, EntryType};

use super::layout::{FOLDERS, MAX_ROWS_BYTES, stays_inside};
use crate::{
    error::{ProjectError, failed},
    workspace::Workspace,
};
use base::durable::{make_directory, open_directory, sync_directory};
use files::{FileError, Relative, memory::HotLimits};
use provider::PlainWorkspaces;
use store::Bundle;

/// Bytes of long names and extended attributes before one entry; the tar reader buffers them.
const MAX_HEADER_BYTES: u64 = 64 << 10;

/// The limits of an unpacked archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { bytes: 32 << 30, entries: 1_000_000 }
    }
}

pub(super) struct Unpacked {
    pub(super) bundle: Bundle,
    pub(super) hot: BTreeMap<Relative, Vec<u8>>,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) left_out: Vec<String>,
}

pub(super) fn unpack(
    archive: impl Read,
    directory: &Path,
    limits: ImportLimits,
    hot_limits: HotLimits,
) -> Result<Unpacked, ProjectError> {
    let refused = |why: String| ProjectError::Archive(why);
    let broken = |error: io::Error| ProjectError::Archive(error.to_string());
    let made = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| failed("import into", &path, source)
    };
    let above = directory.parent().unwrap_or(directory);
    make_directory(above).map_err(made(above))?;
    let workspace = Workspace::in_directory(directory);
    workspace.ensure(&PlainWorkspaces).map_err(made(directory))?;
    make_directory(&directory.join("data")).map_err(made(directory))?;

    let mut unpacked = zstd::Decoder::new(archive).map_err(broken)?;
    unpacked.window_log_max(27).map_err(broken)?;
    let header_left = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let limited =
        LimitedReader { inner: unpacked, left: limits.bytes, header_left: Rc::clone(&header_left) };
    let mut archive = Archive::new(limited);
    let (mut bundle, mut hot, mut left_out) = (None, HotContents::new(hot_limits), Vec::new());
    let (mut entries, mut bytes) = (0, 0u64);
    let mut links: Vec<(Relative, String)> = Vec::new();
    let mut found = archive.entries().map_err(broken)?;
    loop {
        header_left.set(MAX_HEADER_BYTES);
        let Some(entry) = found.next() else { break };
        let mut entry = entry.map_err(broken)?;
        header_left.set(u64::MAX);
        entries += 1;
        if entries > limits.entries {
            return Err(refused(format!("it has more than {} entries", limits.entries)));
        }
        let name = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| refused("a name is not UTF-8".into()))?;
        if name.starts_with('/') {
            return Err(refused(format!("{name:?} is an absolute path")));
        }
        let path = Relative::parse(&name).map_err(|error| refused(error.to_string()))?;
        let kind = entry.header().entry_type();
        let size = entry.size();
        bytes = bytes.saturating_add(size);
        match (path.as_str(), kind) {
            ("rows.json", EntryType::Regular) if bundle.is_some() => {
                return Err(refused(format!("{name:?} appears twice")));
            }
            ("rows.json", EntryType::Regular) => {
                if size > MAX_ROWS_BYTES {
                    return Err(refused(format!("rows.json exceeds {MAX_ROWS_BYTES} bytes")));
                }
                let rows = serde_json::from_reader(BufReader::new(&mut entry))
                    .map_err(|error| refused(format!("rows.json: {error}")))?;
                bundle = Some(rows);
                continue;
            }
            ("left-out.json", EntryType::Regular) => {
                let mut text = Vec::new();
                (&mut entry).take(4 << 20).read_to_end(&mut text).map_err(broken)?;
                left_out = serde_json::from_slice(&text)
                    .map_err(|error| refused(format!("left-out.json: {error}")))?;
                continue;
            }
            _ => {}
        }
        let in_folder = FOLDERS.iter().copied().find(|folder| {
            Relative::parse(folder).is_ok_and(|folder| path.below(&folder).is_some())
        });
        let is_hot = Relative::parse("hot").ok().and_then(|folder| path.below(&folder));
        match (in_folder, is_hot, kind) {
            (None, Some(key), EntryType::Regular) => {
                hot.admit(&key, size)?;
                let mut content = Vec::new();
                entry.read_to_end(&mut content).map_err(broken)?;
                if hot.contents.insert(key, content).is_some() {
                    return Err(refused(format!("{name:?} appears twice")));
                }
            }
            (Some(_), _, EntryType::Directory) => {
                let target = directory.join(path.as_str());
                let mode = entry.header().mode().unwrap_or(0o755) & 0o777 | 0o700;
                std::fs::create_dir_all(&target)
                    .and_then(|()| {
                        std::fs::set_permissions(&target, PermissionsExt::from_mode(mode))
                    })
                    .map_err(|error| not_unpacked(&path, error))?;
            }
            (Some(_), _, EntryType::Regular | EntryType::Continuous) => {
                let header = entry.header();
                let (mode, at) = (header.mode().unwrap_or(0o644), header.mtime().unwrap_or(0));
                let target = directory.join(path.as_str());
                make_parent(&target)
                    .and_then(|()| unpack_file(&mut entry, &target, mode, at))
                    .map_err(|error| not_unpacked(&path, error))?;
            }
            (Some(folder), _, EntryType::Symlink) => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let target = String::from_utf8(target).unwrap_or_default();
                if target.is_empty() || !stays_inside(path.as_str(), &target, folder) {
                    return Err(refused(format!("the link {name:?} leads outside")));
                }
                links.push((path, target));
            }
            (Some(_), _, kind) => {
                return Err(refused(format!("{name:?} has the unsupported type {kind:?}")));
            }
            (None, _, _) => return Err(refused(format!("{name:?} is not part of a project"))),
        }
    }
    header_left.set(u64::MAX);
    // Read to the end, because the checksum follows the last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    // Links are created last, so that no file is written through one, and their parents before any link, so that
    // no link is created through another.
    for (path, _) in &links {
        make_parent(&directory.join(path.as_str())).map_err(|error| not_unpacked(path, error))?;
    }
    for (path, target) in links {
        symlink(&target, directory.join(path.as_str()))
            .map_err(|error| not_unpacked(&path, error))?;
    }
    let bundle = bundle.ok_or_else(|| refused("rows.json is missing".into()))?;
    let root = open_directory(directory).map_err(made(directory))?;
    rustix::fs::syncfs(&root).map_err(|errno| made(directory)(errno.into()))?;
    sync_directory(&root).map_err(made(directory))?;
    Ok(Unpacked { bundle, hot: hot.contents, entries, bytes, left_out })
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// Returns the error of one entry, which shows the entry's name in the archive and no path of the server.
fn not_unpacked(path: &Relative, error: io::Error) -> ProjectError {
    let path = path.as_str();
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path:?} appears twice"),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            format!("{path:?} is both a file and a directory")
        }
        io::ErrorKind::InvalidFilename => format!("the name {path:?} is too long"),
        io::ErrorKind::FileTooLarge | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            error.to_string()
        }
        _ => return failed("import", Path::new(path), error),
    };
    ProjectError::Archive(why)
}

/// The hot memories read so far, within the limits of a project.
struct HotContents {
    limits: HotLimits,
    bytes: u64,
    contents: BTreeMap<Relative, Vec<u8>>,
}

impl HotContents {
    fn new(limits: HotLimits) -> Self {
        Self { limits, bytes: 0, contents: BTreeMap::new() }
    }

    /// Counts a memory of this size before it is read. Refused if it exceeds a limit.
    fn admit(&mut self, key: &Relative, size: u64) -> Result<(), FileError> {
        let HotLimits { entries, bytes, entry_bytes } = self.limits;
        if size > entry_bytes {
            return Err(FileError::TooLarge { path: key.to_string(), limit: entry_bytes });
        }
        if self.contents.len() as u64 >= entries {
            return Err(FileError::Full { what: "memories", limit: entries });
        }
        self.bytes += size + key.as_str().len() as u64;
        if self.bytes > bytes {
            return Err(FileError::Full { what: "bytes of memories", limit: bytes });
        }
        Ok(())
    }
}

fn unpack_file(content: &mut impl Read, path: &Path, mode: u32, at: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(content, &mut file)?;
    file.set_permissions(PermissionsExt::from_mode(mode & 0o777))?;
    let time = Timespec { tv_sec: i64::try_from(at).unwrap_or(0), tv_nsec: 0 };
    rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    Ok(())
}

/// Limits the unpacked bytes: a small archive cannot expand beyond the limit.
struct LimitedReader<R> {
    inner: R,
    left: u64,
    /// Bytes that the tar reader may still read for itself before it returns the next entry.
    header_left: Rc<Cell<u64>>,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let too_large = |why| io::Error::new(io::ErrorKind::FileTooLarge, why);
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| too_large("it exceeds the size limit of an import"))?;
        let header_left = self.header_left.get().checked_sub(read as u64);
        self.header_left.set(header_left.ok_or_else(|| too_large("a header is too large"))?);
        Ok(read)
    }
}
