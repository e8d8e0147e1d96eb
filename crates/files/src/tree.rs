//! The file tree that clients see: prefixes mapped to backends, where the longest prefix wins.
//!
//! A directory backend gets paths relative to its prefix. Memories and rows store whole paths, so that
//! equal names under different prefixes never collide.

use std::{
    io::{self, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    Above, Below, Directory, FileEvent, PartialFile, RemoteDirectory, RemoteWrite, Rows,
    SearchLimits, SearchResult, Watch, Watched,
    remote::{RemoteFile, RemoteWatch},
    search::Search,
};
use crate::{
    FileError, FileKind, Relative, Stat, TreePath,
    memory::{Expect, Memory, MemoryChange, MemoryEntry},
};
use model::Timestamp;

/// The storage of the files below a prefix.
#[derive(Debug, Clone)]
pub enum Backend {
    Directory(Directory),
    State(Arc<Memory>),
    /// Rows of the store.
    Rows(Rows),
    /// The files of an instance that is not on this machine.
    Remote(RemoteDirectory),
    /// The files are not accessible, for this reason.
    Nothing(&'static str),
    /// The path is refused, and not listed, for this reason.
    Refused(&'static str),
}

/// A prefix and its backend.
#[derive(Debug, Clone)]
pub struct Route {
    pub prefix: Relative,
    pub backend: Backend,
}

/// All routes of one client.
#[derive(Debug, Clone)]
pub struct Tree {
    routes: Vec<Route>,
    now: Timestamp,
}

/// The content of a file, or a part of it.
pub struct Content {
    pub stat: Stat,
    /// The number of bytes, or `None` if it is unknown before reading them.
    pub length: Option<u64>,
    pub bytes: Box<dyn AsyncRead + Send + Unpin>,
}

/// An open file. Replacing or renaming it does not affect its content.
pub struct Opened {
    pub stat: Stat,
    source: Stored,
}

enum Stored {
    File(std::fs::File),
    Remote(RemoteFile),
    Bytes(Bytes),
}

impl Opened {
    /// Returns up to `limit` bytes starting at an offset.
    pub fn part(self, offset: u64, limit: Option<u64>) -> Result<Content, FileError> {
        let Opened { stat, source } = self;
        let limit = limit.unwrap_or(u64::MAX);
        let left = stat.size.saturating_sub(offset).min(limit);
        Ok(match source {
            Stored::File(mut file) => {
                // Kernel files, such as those in /proc, report a size of 0.
                let length = (stat.size > 0).then_some(left);
                let start = if stat.size > 0 { offset.min(stat.size) } else { offset };
                let max = match file.seek(SeekFrom::Start(start)) {
                    Ok(_) => length.unwrap_or(limit),
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => 0,
                    Err(error) => return Err(FileError::from_io("read", &stat.path, error)),
                };
                let file = tokio::fs::File::from_std(file).take(max);
                Content { stat, length, bytes: Box::new(file) }
            }
            Stored::Remote(file) => {
                let offset = offset.min(stat.size);
                Content { stat, length: Some(left), bytes: file.part(offset, left) }
            }
            Stored::Bytes(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let length = usize::try_from(left).unwrap_or(0).min(bytes.len() - start);
                let bytes = bytes.slice(start..start + length);
                let length = Some(length as u64);
                Content { stat, length, bytes: Box::new(std::io::Cursor::new(bytes)) }
            }
        })
    }
}

/// A file that is being written.
pub enum Writing {
    /// Into a directory. Boxed, because it moves into blocking calls and back.
    Part(Option<Box<PartialFile>>),
    /// Into an instance that is not on this machine.
    Remote(Box<RemoteWrite>),
    /// Into memories or rows, which store only complete files.
    Whole {
        backend: Backend,
        path: Relative,
        /// The content received so far.
        bytes: Vec<u8>,
        expect: Expect,
        now: Timestamp,
    },
}

/// The size limit of a file that is buffered in memory before it is stored.
const MAX_BUFFERED_BYTES: usize = 64 << 20;

impl Tree {
    /// Creates a tree of these routes; writes get this time.
    #[must_use]
    pub fn new(mut routes: Vec<Route>, now: Timestamp) -> Self {
        // Longest prefix first, so that the first match wins.
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.as_str().len()));
        Self { routes, now }
    }

    /// Returns the metadata of a path. A link is not followed.
    pub async fn stat(&self, path: &TreePath) -> Result<Stat, FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        let found = match resolved.backend.clone() {
            Backend::Directory(directory) => blocking(move || directory.stat(&own)).await,
            Backend::State(memory) => memory.stat(&own),
            Backend::Rows(rows) => rows.stat(&own).await,
            Backend::Remote(remote) => remote.stat(&own).await,
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
            Backend::Refused(what) => return Err(unreachable_at(path, what)),
        };
        match found {
            Ok(stat) => Ok(resolved.in_tree(stat)),
            // The parents of a route exist even if the route has no files.
            Err(FileError::Missing { .. } | FileError::NotSupported { .. })
                if resolved.is_route() || self.is_above_routes(path) =>
            {
                Ok(virtual_directory(&path.to_string()))
            }
            Err(error) => Err(client_error(error, path)),
        }
    }

    /// Lists the entries below a path up to a depth, sorted, starting after `after`.
    pub async fn list(
        &self,
        path: &TreePath,
        depth: u32,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        let after_own = after.and_then(|after| resolved.own(after));
        let found = match resolved.backend.clone() {
            Backend::Directory(directory) => {
                blocking(move || directory.list(&own, depth, after_own.as_ref(), limit)).await
            }
            Backend::State(memory) => memory.list(&own, depth, after_own.as_ref(), limit),
            Backend::Rows(rows) => rows.list(&own, depth, after_own.as_ref(), limit).await,
            Backend::Remote(remote) => remote.list(&own, depth, after_own.as_ref(), limit).await,
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
            Backend::Refused(what) => return Err(unreachable_at(path, what)),
        };
        let mut found: Vec<Stat> = match found {
            Ok(found) => found.into_iter().map(|stat| resolved.in_tree(stat)).collect(),
            Err(FileError::Missing { .. } | FileError::NotSupported { .. })
                if resolved.is_route() || self.is_above_routes(path) =>
            {
                Vec::new()
            }
            Err(error) => return Err(client_error(error, path)),
        };
        if after.is_none() {
            // Directories of routes that the backend does not list are inserted first.
            for name in self.routes_below(path) {
                if !found.iter().any(|stat| stat.path == name) {
                    found.insert(0, virtual_directory(&name));
                }
            }
        }
        Ok(found)
    }

    /// Opens a file for reading.
    pub async fn open(&self, path: &TreePath) -> Result<Opened, FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        let in_memory = |entry: MemoryEntry, own: &Relative| Opened {
            stat: entry.stat(own.as_str()),
            source: Stored::Bytes(entry.bytes),
        };
        let opened = match resolved.backend.clone() {
            Backend::Directory(directory) => {
                let opened = blocking(move || directory.read(&own)).await;
                opened.map(|(file, stat)| Opened { stat, source: Stored::File(file) })
            }
            Backend::State(memory) => memory.get(&own).map(|entry| in_memory(entry, &own)),
            Backend::Rows(rows) => rows.get(&own).await.map(|entry| in_memory(entry, &own)),
            Backend::Remote(remote) => {
                let opened = remote.open(&own).await;
                opened.map(|(file, stat)| Opened { stat, source: Stored::Remote(file) })
            }
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        };
        let mut opened = opened.map_err(|error| client_error(error, path))?;
        opened.stat = resolved.in_tree(opened.stat);
        Ok(opened)
    }

    /// Opens a file for reading up to `limit` bytes, starting at an offset.
    pub async fn read(
        &self,
        path: &TreePath,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Content, FileError> {
        self.open(path).await?.part(offset, limit)
    }

    /// Starts writing a file.
    pub async fn write(
        &self,
        path: &TreePath,
        above: Above,
        expect: Expect,
    ) -> Result<Writing, FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        match resolved.backend.clone() {
            Backend::Directory(directory) => {
                let write = move |directory: &Directory, own: &Relative| {
                    directory.write(own, above, expect)
                };
                let part = changing(directory, own, write).await;
                let part = part.map_err(|error| client_error(error, path))?;
                Ok(Writing::Part(Some(Box::new(part))))
            }
            backend @ (Backend::State(_) | Backend::Rows(_)) => {
                let now = self.now;
                Ok(Writing::Whole { backend, path: own, bytes: Vec::new(), expect, now })
            }
            Backend::Remote(remote) => {
                let writing = remote.write(&own, above, expect).await;
                let writing = writing.map_err(|error| client_error(error, path))?;
                Ok(Writing::Remote(Box::new(writing)))
            }
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        }
    }

    /// Creates a directory. With [`Above::Make`] also creates its parents, and an existing directory is not
    /// an error.
    pub async fn make_directory(&self, path: &TreePath, above: Above) -> Result<(), FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        let change = MemoryChange::MakeDirectory { path: own.clone() };
        let done = match resolved.backend.clone() {
            Backend::Directory(directory) => {
                changing(directory, own, move |directory, own| match above {
                    Above::Make => directory.make_directories(own),
                    Above::MustExist => directory.make_directory(own),
                })
                .await
            }
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Remote(remote) => remote.make_directory(&own, above).await,
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        };
        match done {
            Err(FileError::Exists { .. }) if above == Above::Make => {
                match self.stat(path).await?.kind {
                    FileKind::Directory => Ok(()),
                    _ => Err(FileError::Exists { path: path.to_string() }),
                }
            }
            done => done.map_err(|error| client_error(error, path)),
        }
    }

    /// Removes a file or an empty directory.
    pub async fn remove(&self, path: &TreePath) -> Result<(), FileError> {
        let resolved = self.removable(path)?;
        let own = resolved.path.clone();
        let change = MemoryChange::Remove { path: own.clone() };
        let done = match resolved.backend.clone() {
            Backend::Directory(directory) => changing(directory, own, Directory::remove).await,
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Remote(remote) => remote.remove(&own).await,
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        };
        done.map_err(|error| client_error(error, path))
    }

    /// Removes a file, or a directory with everything below it.
    pub async fn remove_tree(&self, path: &TreePath) -> Result<(), FileError> {
        let resolved = self.removable(path)?;
        let own = resolved.path.clone();
        let change = MemoryChange::RemoveTree { path: own.clone() };
        let done = match resolved.backend.clone() {
            Backend::Directory(directory) => changing(directory, own, Directory::remove_tree).await,
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Remote(remote) => remote.remove_tree(&own).await,
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        };
        done.map_err(|error| client_error(error, path))
    }

    /// Renames a file or directory. Between routes only files can be moved: they are copied and then
    /// removed.
    pub async fn rename(
        &self,
        from: &TreePath,
        to: &TreePath,
        expect: Expect,
    ) -> Result<(), FileError> {
        let (source, target) = (self.removable(from)?, self.removable(to)?);
        if source.route.prefix != target.route.prefix {
            return self.move_between_routes(from, to, expect).await;
        }
        let (from_own, to_own) = (source.path.clone(), target.path.clone());
        let change = MemoryChange::Move { from: from_own.clone(), to: to_own.clone(), expect };
        let done = match source.backend.clone() {
            Backend::Directory(directory) => {
                let rename = move |directory: &Directory, to: &Relative| {
                    directory.rename(&from_own, to, expect)
                };
                changing(directory, to_own, rename).await
            }
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Remote(remote) => remote.rename(&from_own, &to_own, expect).await,
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(from, what)),
        };
        done.map_err(|error| source.error_in_tree(error, &target))
    }

    async fn move_between_routes(
        &self,
        from: &TreePath,
        to: &TreePath,
        expect: Expect,
    ) -> Result<(), FileError> {
        if self.stat(from).await?.kind == FileKind::Directory {
            let what = "a directory cannot be moved between routes";
            return Err(FileError::NotSupported { path: from.to_string(), what });
        }
        let mut content = self.read(from, 0, None).await?;
        let mut writing = self.write(to, Above::MustExist, expect).await?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = content.bytes.read(&mut buffer).await;
            let read =
                read.map_err(|error| FileError::from_io("read", &from.to_string(), error))?;
            if read == 0 {
                break;
            }
            writing.write(Bytes::copy_from_slice(&buffer[..read])).await?;
        }
        writing.finish().await?;
        self.remove(from).await
    }

    /// Searches the files at or below a path. Dropping the future cancels the search.
    pub async fn search(
        &self,
        path: &TreePath,
        pattern: &str,
        limits: SearchLimits,
    ) -> Result<SearchResult, FileError> {
        let resolved = self.resolve(path)?;
        let (own, pattern) = (resolved.path.clone(), pattern.to_owned());
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(cancelled.clone());
        let found = match resolved.backend.clone() {
            Backend::Directory(directory) => {
                blocking(move || directory.search(&own, &pattern, limits, &cancelled)).await
            }
            Backend::State(memory) => {
                memory.stat(&own)?;
                let files = memory.files(&own);
                let files = files.into_iter().map(|(key, entry)| (key.into(), entry.bytes));
                search_all(files.collect(), pattern, limits, cancelled).await
            }
            Backend::Rows(rows) => {
                rows.stat(&own).await?;
                let files = rows.files(&own).await?;
                search_all(files, pattern, limits, cancelled).await
            }
            Backend::Remote(remote) => {
                search_remote(&remote, &own, pattern, limits, cancelled).await
            }
            Backend::Nothing(what) | Backend::Refused(what) => Err(unreachable_at(path, what)),
        };
        let mut found = found.map_err(|error| client_error(error, path))?;
        for found in &mut found.matches {
            found.path = resolved.tree_path(&found.path);
        }
        Ok(found)
    }

    /// Starts watching a file or a directory.
    pub async fn watch(&self, path: &TreePath, below: Below) -> Result<TreeWatch, FileError> {
        let resolved = self.resolve(path)?;
        let own = resolved.path.clone();
        let source = match resolved.backend.clone() {
            Backend::Directory(directory) => {
                let handle = tokio::runtime::Handle::current();
                let watch = blocking(move || {
                    let _runtime = handle.enter();
                    directory.watch(&own, below)
                });
                let watch = watch.await.map_err(|error| client_error(error, path))?;
                Source::Directory(Box::new(watch))
            }
            Backend::State(memory) => {
                let events = memory.watch();
                if !resolved.is_route() {
                    memory.stat(&own).map_err(|error| client_error(error, path))?;
                }
                Source::Memory { events, path: own, below }
            }
            Backend::Rows(_) => {
                let what = "files that are stored as rows cannot be watched";
                return Err(FileError::NotSupported { path: path.to_string(), what });
            }
            Backend::Remote(remote) => {
                let watch = remote.watch(&own, below).await;
                Source::Remote(Box::new(watch.map_err(|error| client_error(error, path))?))
            }
            Backend::Nothing(what) | Backend::Refused(what) => {
                return Err(unreachable_at(path, what));
            }
        };
        Ok(TreeWatch { source, prefix: resolved.tree_prefix() })
    }

    fn resolve(&self, path: &TreePath) -> Result<Resolved<'_>, FileError> {
        let whole = path.relative();
        for route in &self.routes {
            let Some(below) = whole.below(&route.prefix) else { continue };
            let path = match &route.backend {
                Backend::Directory(_)
                | Backend::Remote(_)
                | Backend::Nothing(_)
                | Backend::Refused(_) => below,
                Backend::State(_) | Backend::Rows(_) => whole.clone(),
            };
            return Ok(Resolved { route, backend: &route.backend, path });
        }
        Err(FileError::Missing { path: path.to_string() })
    }

    /// Like `resolve`, but refuses the root of a route.
    fn removable(&self, path: &TreePath) -> Result<Resolved<'_>, FileError> {
        let resolved = self.resolve(path)?;
        if resolved.is_route() {
            let what = "the root of a route cannot be moved or removed";
            return Err(FileError::NotSupported { path: path.to_string(), what });
        }
        Ok(resolved)
    }

    fn is_above_routes(&self, path: &TreePath) -> bool {
        self.routes_below(path).next().is_some()
    }

    /// Returns the names directly below a path that lead to routes.
    fn routes_below(&self, path: &TreePath) -> impl Iterator<Item = String> {
        let listed = |route: &&Route| match route.backend {
            Backend::Refused(_) => false,
            Backend::Directory(_)
            | Backend::State(_)
            | Backend::Rows(_)
            | Backend::Remote(_)
            | Backend::Nothing(_) => true,
        };
        let mut names: Vec<String> = self
            .routes
            .iter()
            .filter(listed)
            .filter_map(|route| route.prefix.below(path.relative()))
            .filter(|rest| !rest.is_root())
            .filter_map(|rest| rest.as_str().split('/').next().map(str::to_owned))
            .map(|name| match path.relative().is_root() {
                true => format!("/{name}"),
                false => format!("{path}/{name}"),
            })
            .collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        names.dedup();
        names.into_iter()
    }
}

struct Resolved<'a> {
    route: &'a Route,
    backend: &'a Backend,
    path: Relative,
}

impl Resolved<'_> {
    fn is_route(&self) -> bool {
        match self.backend {
            Backend::Directory(_)
            | Backend::Remote(_)
            | Backend::Nothing(_)
            | Backend::Refused(_) => self.path.is_root(),
            Backend::State(_) | Backend::Rows(_) => self.path == self.route.prefix,
        }
    }

    /// Converts a path of the tree to a path of the backend.
    fn own(&self, path: &TreePath) -> Option<Relative> {
        match self.backend {
            Backend::Directory(_)
            | Backend::Remote(_)
            | Backend::Nothing(_)
            | Backend::Refused(_) => path.relative().below(&self.route.prefix),
            Backend::State(_) | Backend::Rows(_) => Some(path.relative().clone()),
        }
    }

    /// Returns the prefix of the backend's paths in the tree.
    fn tree_prefix(&self) -> String {
        match self.backend {
            Backend::Directory(_)
            | Backend::Remote(_)
            | Backend::Nothing(_)
            | Backend::Refused(_)
                if !self.route.prefix.is_root() =>
            {
                format!("/{}/", self.route.prefix)
            }
            _ => "/".into(),
        }
    }

    fn tree_path(&self, own: &str) -> String {
        let path = format!("{}{own}", self.tree_prefix());
        match path.trim_end_matches('/') {
            "" => "/".into(),
            trimmed => trimmed.to_owned(),
        }
    }

    fn in_tree(&self, mut stat: Stat) -> Stat {
        stat.path = self.tree_path(&stat.path);
        stat
    }

    /// Replaces the path in an error by the client's path of the source or the target.
    fn error_in_tree(&self, error: FileError, other: &Resolved<'_>) -> FileError {
        let target = other.path.to_string();
        let source = self.path.to_string();
        let (source_path, target_path) = (self.tree_path(&source), other.tree_path(&target));
        error.with_path(
            |path| if path == target { target_path.clone() } else { source_path.clone() },
        )
    }
}

impl Writing {
    /// Appends to the content.
    pub async fn write(&mut self, more: Bytes) -> Result<(), FileError> {
        match self {
            Writing::Part(slot) => {
                let Some(mut part) = slot.take() else { return Ok(()) };
                let (part, written) = blocking(move || {
                    let written = part.write(&more);
                    Ok((part, written))
                })
                .await?;
                *slot = Some(part);
                written
            }
            Writing::Remote(writing) => writing.write(&more).await,
            Writing::Whole { bytes, path, .. } => {
                if bytes.len() + more.len() > MAX_BUFFERED_BYTES {
                    let limit = MAX_BUFFERED_BYTES as u64;
                    return Err(FileError::TooLarge { path: format!("/{path}"), limit });
                }
                bytes.extend_from_slice(&more);
                Ok(())
            }
        }
    }

    /// Makes the complete file visible; it is on stable storage when this returns. Returns its version.
    pub async fn finish(self) -> Result<Option<u64>, FileError> {
        match self {
            Writing::Part(Some(part)) => {
                blocking(move || part.finish()).await.map(|stat| stat.version)
            }
            Writing::Part(None) => {
                Err(FileError::Unavailable { reason: "the write was interrupted".into() })
            }
            Writing::Remote(writing) => {
                let path = TreePath::parse(&format!("/{}", writing.path()))?;
                writing.finish().await.map_err(|error| client_error(error, &path))
            }
            Writing::Whole { backend, path, bytes, expect, now } => {
                let tree_path = TreePath::parse(&format!("/{path}"))?;
                let change = MemoryChange::Put { path, bytes: bytes.into(), expect };
                let done = match backend {
                    Backend::State(memory) => memory.change(change).await,
                    Backend::Rows(rows) => rows.change(change, now).await,
                    Backend::Directory(_)
                    | Backend::Remote(_)
                    | Backend::Nothing(_)
                    | Backend::Refused(_) => return Ok(None),
                };
                done.map(Some).map_err(|error| client_error(error, &tree_path))
            }
        }
    }
}

/// A watch on a file or directory of the tree.
pub struct TreeWatch {
    source: Source,
    prefix: String,
}

enum Source {
    Directory(Box<Watch>),
    Remote(Box<RemoteWatch>),
    Memory { events: tokio::sync::broadcast::Receiver<FileEvent>, path: Relative, below: Below },
}

impl TreeWatch {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<Watched, FileError> {
        use tokio::sync::broadcast::error::RecvError;
        let mut seen = match &mut self.source {
            Source::Directory(watch) => watch.next().await?,
            Source::Remote(watch) => watch.next().await?,
            Source::Memory { events, path, below } => loop {
                match events.recv().await {
                    Ok(event) if is_watched(&event.path, path, *below) => {
                        break Watched::Event(event);
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => break Watched::Lost,
                    Err(RecvError::Closed) => break Watched::Gone,
                }
            },
        };
        if let Watched::Event(event) = &mut seen {
            event.path = format!("{}{}", self.prefix, event.path);
        }
        Ok(seen)
    }
}

fn is_watched(path: &str, watched: &Relative, below: Below) -> bool {
    let Ok(path) = Relative::parse(path) else { return false };
    match path.below(watched) {
        Some(rest) => match below {
            Below::All => true,
            Below::Children => !rest.as_str().contains('/'),
        },
        // A change above the watched path affects it too.
        None => watched.below(&path).is_some(),
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn search_all(
    files: Vec<(String, Bytes)>,
    pattern: String,
    limits: SearchLimits,
    cancelled: Arc<AtomicBool>,
) -> Result<SearchResult, FileError> {
    blocking(move || {
        let mut search = Search::new(&pattern, limits, &cancelled)?;
        for (path, bytes) in files {
            if !search.content(&path, &*bytes) {
                break;
            }
        }
        Ok(search.finish())
    })
    .await
}

async fn search_remote(
    remote: &RemoteDirectory,
    path: &Relative,
    pattern: String,
    limits: SearchLimits,
    cancelled: Arc<AtomicBool>,
) -> Result<SearchResult, FileError> {
    // A bad pattern is refused before anything is fetched.
    Search::new(&pattern, limits, &cancelled)?;
    let texts = remote.texts(path).await?;
    let mut found = search_all(texts.files, pattern, limits, cancelled).await?;
    if texts.is_cut {
        found.stopped.get_or_insert("the limit of bytes is reached");
    }
    Ok(found)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    base::task::blocking(work)
        .await
        .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
}

/// Makes a change in a directory of this machine.
async fn changing<T: Send + 'static>(
    directory: Directory,
    path: Relative,
    change: impl FnOnce(&Directory, &Relative) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    blocking(move || change(&directory, &path).map_err(|error| directory.explain(error, &path)))
        .await
}

fn virtual_directory(path: &str) -> Stat {
    Stat {
        path: path.to_owned(),
        kind: FileKind::Directory,
        size: 0,
        modified_at: None,
        mode: None,
        owner: None,
        target: None,
        version: None,
    }
}

fn client_error(error: FileError, path: &TreePath) -> FileError {
    error.with_path(|_| path.to_string())
}

fn unreachable_at(path: &TreePath, what: &'static str) -> FileError {
    FileError::NotSupported { path: path.to_string(), what }
}
