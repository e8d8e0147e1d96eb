//! A project in one file: a tar, compressed with zstd, that another machine can take in.
//!
//! ```text
//! rows.json              the rows: project, threads, terminals and their states, history
//! left-out.json          what could not be taken along, and why (last)
//! hot/…                  the hot memories
//! memories/persistent/…  data/…  repo/…
//! ```
//! An archive from elsewhere is not trusted. It is unpacked into a directory that nobody uses, by
//! names that were parsed, with links made last and only if they stay inside; then the rows come in,
//! in one step, and the directory gets its name.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufReader, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    },
    path::Path,
    rc::Rc,
};

use rustix::fs::{Dir, Mode as FileMode, OFlags, Timespec, Timestamps, openat};
use tar::{Archive, Builder, EntryType, Header};

use super::{
    ProjectError, Projects, Workspace,
    projects::{blocking, failed, fresh_id, importing, move_directory, remove_directory},
};
use base::durable::{PART, make_directory, open_directory, sync_directory};
use files::{
    FileError, FileKind, Relative, Stat,
    memory::{Expect, HotLimits, MemoryChange, MemoryEntry},
    open_regular, stat_at,
};
use model::{Project, ProjectId};
use store::{Bundle, Ids, StoreError};

/// The directories of a workspace that go into an archive.
const FOLDERS: [&str; 3] = ["repo", "memories/persistent", "data"];
/// Largest rows.json that is written and read.
const MAX_ROWS_BYTES: u64 = 256 << 20;
/// Bytes of long names and extended attributes before one entry; the tar reader buffers them.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// Reasons kept of what was left out.
const LEFT_OUT: usize = 1000;

/// How much an archive may come to.
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

/// What an archive came to.
#[derive(Debug)]
pub struct Imported {
    /// The project as it is here.
    pub project: Project,
    /// Files, directories and links that came in.
    pub entries: u64,
    pub bytes: u64,
    /// What the exporting machine left out.
    pub left_out: Vec<String>,
}

impl Projects {
    /// Writes a project into `out`. The writer is called from a thread of its own.
    pub async fn export(
        &self,
        id: &ProjectId,
        out: impl Write + Send + 'static,
    ) -> Result<(), ProjectError> {
        let bundle = self.inner.store.bundle(id).await?;
        let hot = self.memory(id).await?.files(&Relative::root());
        let workspace = self.workspace(id).await?;
        let bundle = bundle.made_in(&workspace.root.to_string_lossy());
        blocking(move || {
            write_archive(out, &bundle, &hot, &workspace)
                .map_err(|source| failed("export", &workspace.root, source))
        })
        .await
    }

    /// Takes a project in. It keeps its id if that is free, or else gets another number.
    pub async fn import(
        &self,
        archive: impl Read + Send + 'static,
        limits: ImportLimits,
    ) -> Result<Imported, ProjectError> {
        let scratch = fresh_id("import")?;
        let staging = importing(&Workspace::at(&self.inner.home, &scratch).root);
        let directory = staging.clone();
        let hot = self.inner.settings.hot;
        let unpacked = blocking(move || unpack(archive, &directory, limits, hot)).await;
        let taken = match unpacked {
            Ok(unpacked) => self.take_in(&staging, unpacked).await,
            Err(error) => Err(error),
        };
        if taken.is_err() {
            let left = staging.clone();
            let _ = tokio::task::spawn_blocking(move || remove_directory(&left)).await;
        }
        taken
    }

    async fn take_in(&self, staging: &Path, unpacked: Unpacked) -> Result<Imported, ProjectError> {
        let Unpacked { bundle, hot, entries, bytes, left_out } = unpacked;
        let wanted = bundle.project.project_id.clone();
        // The memories go through their own log, and are on disk before any row speaks of them.
        let memory = self.inner.memories.of(&fresh_id("import")?, staging.join("hot")).await?;
        for (path, content) in hot {
            let change =
                MemoryChange::Put { path, bytes: content.into(), expect: Expect::Anything };
            memory.change(change).await?;
        }
        memory.snapshot().await?;
        self.inner.memories.forget(&memory).await;
        drop(memory);
        let now = self.inner.clock.wall();
        let mut id = match wanted {
            id if id == ProjectId::default_project() => fresh_id(id.prefix())?,
            id => id,
        };
        let limit = self.inner.settings.max_projects;
        loop {
            let is_free = self.inner.store.project(&id).await?.is_none()
                && !self.trashed().await?.iter().any(|trashed| trashed.project_id == id);
            if !is_free {
                id = fresh_id(id.prefix())?;
                continue;
            }
            // Under this name it is found again after a crash, if the rows are in by then.
            let (workspace, _) = self.trash_paths(&id);
            let (from, named) = (staging.to_owned(), importing(&workspace));
            let place = named.clone();
            blocking(move || move_directory(&from, &place)).await?;
            let moved = bundle.clone().moved_to(&workspace.to_string_lossy());
            let added = self.inner.store.add_bundle(moved, Ids::Fresh(id.clone()), limit, now);
            match added.await {
                Ok(project) => {
                    blocking(move || move_directory(&named, &workspace)).await?;
                    self.write_metadata(&project).await?;
                    return Ok(Imported { project, entries, bytes, left_out });
                }
                Err(error) => {
                    let back = staging.to_owned();
                    blocking(move || move_directory(&named, &back)).await?;
                    match error {
                        StoreError::Refused(_) => return Err(ProjectError::TooMany(limit)),
                        StoreError::Damaged { reason, .. } => {
                            return Err(ProjectError::Archive(reason));
                        }
                        other => return Err(other.into()),
                    }
                }
            }
        }
    }
}

fn write_archive(
    out: impl Write,
    bundle: &Bundle,
    hot: &[(Box<str>, MemoryEntry)],
    workspace: &Workspace,
) -> io::Result<()> {
    let mut packed = zstd::Encoder::new(out, 3)?;
    packed.include_checksum(true)?;
    let mut tar = Builder::new(packed);
    tar.mode(tar::HeaderMode::Deterministic);
    let rows = serde_json::to_vec(bundle)?;
    if rows.len() as u64 > MAX_ROWS_BYTES {
        return Err(io::Error::other("the rows of the project are too large for an archive"));
    }
    append(&mut tar, "rows.json", &mut Header::new_gnu(), rows.len() as u64, &*rows)?;
    for (key, entry) in hot {
        let mut header = Header::new_gnu();
        header.set_mtime(seconds(Some(entry.modified_at)));
        let size = entry.bytes.len() as u64;
        append(&mut tar, &format!("hot/{key}"), &mut header, size, &*entry.bytes)?;
    }
    let mut left_out = Vec::new();
    for folder in FOLDERS {
        let path = workspace.root.join(folder);
        if path.is_dir() {
            append_folder(&mut tar, &open_directory(&path)?, folder, folder, &mut left_out, 0)?;
        }
    }
    let left_out = serde_json::to_vec(&left_out)?;
    let size = left_out.len() as u64;
    append(&mut tar, "left-out.json", &mut Header::new_gnu(), size, &*left_out)?;
    tar.into_inner()?.finish()?.flush()
}

fn append_folder<W: Write>(
    tar: &mut Builder<W>,
    directory: &OwnedFd,
    path: &str,
    folder: &str,
    left_out: &mut Vec<String>,
    depth: u32,
) -> io::Result<()> {
    let mut leave = |path: &str, why: &str| {
        if left_out.len() < LEFT_OUT {
            left_out.push(format!("{path}: {why}"));
        }
    };
    if depth > 256 {
        leave(path, "it is too deep");
        return Ok(());
    }
    let mut folders = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            leave(path, "a name in it is not UTF-8");
            continue;
        };
        if matches!(name, "." | "..") || name.starts_with(PART) {
            continue;
        }
        let below = format!("{path}/{name}");
        // What is removed meanwhile is not there.
        let Ok(stat) = stat_at(directory, name, &below) else { continue };
        let mut header = header_of(&stat);
        match stat.kind {
            FileKind::Directory => {
                header.set_entry_type(EntryType::Directory);
                append(tar, &below, &mut header, 0, io::empty())?;
                folders.push(name.to_owned());
            }
            FileKind::File => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let Ok(held) = openat(directory, name, flags, FileMode::empty()) else { continue };
                match open_regular(&held, &below) {
                    Ok((file, stat)) => {
                        // One that shrinks meanwhile is filled up, one that grows is cut: the size
                        // stands first.
                        let content = file.take(stat.size).chain(io::repeat(0)).take(stat.size);
                        append(tar, &below, &mut header, stat.size, content)?;
                    }
                    Err(error) => leave(&below, &error.to_string()),
                }
            }
            FileKind::Link => match stat.target.as_deref() {
                Some(target) if stays_inside(&below, target, folder) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, &below, target)?;
                }
                _ => leave(&below, "the link leads outside"),
            },
            FileKind::Other => leave(&below, "it is a FIFO, a socket or a device"),
        }
    }
    for name in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(child) = openat(directory, &name, flags, FileMode::empty()) else { continue };
        append_folder(tar, &child, &format!("{path}/{name}"), folder, left_out, depth + 1)?;
    }
    Ok(())
}

fn header_of(stat: &Stat) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(stat.mode.unwrap_or(0o644) & 0o777);
    header.set_mtime(seconds(stat.modified_at));
    header
}

fn seconds(at: Option<model::Timestamp>) -> u64 {
    at.map_or(0, |at| u64::try_from(at.as_second()).unwrap_or(0))
}

fn append<W: Write>(
    tar: &mut Builder<W>,
    path: &str,
    header: &mut Header,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    header.set_size(size);
    if header.mode().unwrap_or(0) == 0 {
        header.set_mode(0o644);
    }
    tar.append_data(header, path, content)
}

/// Says whether a link at `path` points to something in the same folder.
fn stays_inside(path: &str, target: &str, folder: &str) -> bool {
    if target.starts_with('/') || target.contains('\0') {
        return false;
    }
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    let root = folder.split('/').count();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if names.len() <= root => return false,
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    true
}

struct Unpacked {
    bundle: Bundle,
    hot: BTreeMap<Relative, Vec<u8>>,
    entries: u64,
    bytes: u64,
    left_out: Vec<String>,
}

fn unpack(
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
    workspace.ensure().map_err(made(directory))?;
    make_directory(&directory.join("data")).map_err(made(directory))?;

    let mut unpacked = zstd::Decoder::new(archive).map_err(broken)?;
    unpacked.window_log_max(27).map_err(broken)?;
    let header_left = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let counted =
        Counted { inner: unpacked, left: limits.bytes, header_left: Rc::clone(&header_left) };
    let mut archive = Archive::new(counted);
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
            .map_err(|_| refused("a name in it is not UTF-8".into()))?;
        if name.starts_with('/') {
            return Err(refused(format!("{name:?} is an absolute path")));
        }
        let path = Relative::parse(&name).map_err(|error| refused(error.to_string()))?;
        let kind = entry.header().entry_type();
        let size = entry.size();
        bytes = bytes.saturating_add(size);
        match (path.as_str(), kind) {
            ("rows.json", EntryType::Regular) if bundle.is_some() => {
                return Err(refused(format!("{name:?} is in it twice")));
            }
            ("rows.json", EntryType::Regular) => {
                if size > MAX_ROWS_BYTES {
                    return Err(refused(format!("rows.json may have {MAX_ROWS_BYTES} bytes")));
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
                    return Err(refused(format!("{name:?} is in it twice")));
                }
            }
            (Some(_), _, EntryType::Directory) => {
                let place = directory.join(path.as_str());
                let mode = entry.header().mode().unwrap_or(0o755) & 0o777 | 0o700;
                std::fs::create_dir_all(&place)
                    .and_then(|()| {
                        std::fs::set_permissions(&place, PermissionsExt::from_mode(mode))
                    })
                    .map_err(|error| not_unpacked(&path, error))?;
            }
            (Some(_), _, EntryType::Regular | EntryType::Continuous) => {
                let header = entry.header();
                let (mode, at) = (header.mode().unwrap_or(0o644), header.mtime().unwrap_or(0));
                let place = directory.join(path.as_str());
                make_parent(&place)
                    .and_then(|()| unpack_file(&mut entry, &place, mode, at))
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
                return Err(refused(format!("{name:?} is of the kind {kind:?}")));
            }
            (None, _, _) => return Err(refused(format!("{name:?} has no place in a project"))),
        }
    }
    header_left.set(u64::MAX);
    // To the very end, where the checksum is.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    // Links come last, so that nothing was written through one; and not one of them through another.
    for (path, _) in &links {
        make_parent(&directory.join(path.as_str())).map_err(|error| not_unpacked(path, error))?;
    }
    for (path, target) in links {
        symlink(&target, directory.join(path.as_str()))
            .map_err(|error| not_unpacked(&path, error))?;
    }
    let bundle = bundle.ok_or_else(|| refused("it has no rows.json".into()))?;
    let root = open_directory(directory).map_err(made(directory))?;
    rustix::fs::syncfs(&root).map_err(|errno| made(directory)(errno.into()))?;
    sync_directory(&root).map_err(made(directory))?;
    Ok(Unpacked { bundle, hot: hot.contents, entries, bytes, left_out })
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// An error of one entry, by the name that it has in the archive.
fn not_unpacked(path: &Relative, error: io::Error) -> ProjectError {
    let path = path.as_str();
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path:?} is in it twice"),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            format!("{path:?} is a file and a directory in it")
        }
        io::ErrorKind::InvalidFilename => format!("the name {path:?} is too long"),
        io::ErrorKind::FileTooLarge | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            error.to_string()
        }
        _ => return failed("import", Path::new(path), error),
    };
    ProjectError::Archive(why)
}

/// Hot memories as they are read, within the limits of a project.
struct HotContents {
    limits: HotLimits,
    bytes: u64,
    contents: BTreeMap<Relative, Vec<u8>>,
}

impl HotContents {
    fn new(limits: HotLimits) -> Self {
        Self { limits, bytes: 0, contents: BTreeMap::new() }
    }

    /// Refuses a memory of this size before it is read.
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

fn unpack_file(content: &mut impl Read, place: &Path, mode: u32, at: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.write(true).create_new(true).mode(0o600).open(place)?;
    io::copy(content, &mut file)?;
    file.set_permissions(PermissionsExt::from_mode(mode & 0o777))?;
    let time = Timespec { tv_sec: i64::try_from(at).unwrap_or(0), tv_nsec: 0 };
    rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    Ok(())
}

/// Bytes as they are unpacked, up to a limit: a small archive cannot become a large one.
struct Counted<R> {
    inner: R,
    left: u64,
    /// Bytes that the tar reader may still read for itself before it returns the next entry.
    header_left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let too_large = |why| io::Error::new(io::ErrorKind::FileTooLarge, why);
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| too_large("it is larger than may be imported"))?;
        let header_left = self.header_left.get().checked_sub(read as u64);
        self.header_left.set(header_left.ok_or_else(|| too_large("a header in it is too large"))?);
        Ok(read)
    }
}
