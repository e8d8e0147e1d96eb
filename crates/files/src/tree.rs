//! The tree that clients see: prefixes over backends, the longest one wins.
//!
//! A directory's backend sees what is below its prefix; memories and rows keep whole paths, so that
//! prefixes never share a name.

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
    Above, Below, Directory, FileEvent, PartialFile, Rows, SearchLimits, SearchResult, Watch,
    Watched, search::Search,
};
use crate::{
    FileError, FileKind, Relative, Stat, TreePath,
    memory::{Expect, Memory, MemoryChange, MemoryEntry},
};
use model::Timestamp;

/// What holds the files below a prefix.
#[derive(Debug, Clone)]
pub enum Backend {
    Directory(Directory),
    State(Arc<Memory>),
    /// Rows of the store.
    Rows(Rows),
    /// Nothing that can be reached; with the reason.
    Nothing(&'static str),
}

/// A prefix and what holds the files below it.
#[derive(Debug, Clone)]
pub struct Route {
    pub prefix: Relative,
    /// What holds them.
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
    /// What is known of the file.
    pub stat: Stat,
    /// How many bytes come; `None` if only reading them tells.
    pub length: Option<u64>,
    pub bytes: Box<dyn AsyncRead + Send + Unpin>,
}

/// A file that is open for reading: whatever has its name from here on, this is what is read.
pub struct Opened {
    /// What is known of the file.
    pub stat: Stat,
    source: Stored,
}

enum Stored {
    File(std::fs::File),
    Bytes(Bytes),
}

impl Opened {
    /// At most `limit` of its bytes, from an offset on.
    pub fn part(self, offset: u64, limit: Option<u64>) -> Result<Content, FileError> {
        let Opened { stat, source } = self;
        let limit = limit.unwrap_or(u64::MAX);
        let left = stat.size.saturating_sub(offset).min(limit);
        Ok(match source {
            Stored::File(mut file) => {
                // A file of the kernel's own says nothing of its size, nor where its offsets end.
                let length = (stat.size > 0).then_some(left);
                let begin = if stat.size > 0 { offset.min(stat.size) } else { offset };
                let most = match file.seek(SeekFrom::Start(begin)) {
                    Ok(_) => length.unwrap_or(limit),
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => 0,
                    Err(error) => return Err(FileError::from_io("read", &stat.path, error)),
                };
                let file = tokio::fs::File::from_std(file).take(most);
                Content { stat, length, bytes: Box::new(file) }
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
    /// Into a directory; boxed, because blocking calls own it by turns.
    Part(Option<Box<PartialFile>>),
    /// Into memories or rows, of which only the whole is stored.
    Whole {
        backend: Backend,
        path: Relative,
        /// What came so far.
        bytes: Vec<u8>,
        /// What is taken for granted.
        expect: Expect,
        now: Timestamp,
    },
}

/// Largest content that is gathered before it is stored.
const WHOLE: usize = 64 << 20;

impl Tree {
    /// The tree of these routes at this time.
    #[must_use]
    pub fn new(mut routes: Vec<Route>, now: Timestamp) -> Self {
        // The longest first, so that the first that fits wins.
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.as_str().len()));
        Self { routes, now }
    }

    /// What is at a path; a link is not followed.
    pub async fn stat(&self, path: &TreePath) -> Result<Stat, FileError> {
        let place = self.place(path)?;
        let own = place.path.clone();
        let found = match place.backend.clone() {
            Backend::Directory(directory) => blocking(move || directory.stat(&own)).await,
            Backend::State(memory) => memory.stat(&own),
            Backend::Rows(rows) => rows.stat(&own).await,
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        match found {
            Ok(stat) => Ok(place.shown(stat)),
            // The way to a route is there even when nothing is at it.
            Err(FileError::Missing { .. } | FileError::NotSupported { .. })
                if place.is_route() || self.is_above_routes(path) =>
            {
                Ok(virtual_directory(&path.to_string()))
            }
            Err(error) => Err(shown_error(error, path)),
        }
    }

    /// What is below a path to a depth, in order, after the one given.
    pub async fn list(
        &self,
        path: &TreePath,
        depth: u32,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        let place = self.place(path)?;
        let own = place.path.clone();
        let after_own = after.and_then(|after| place.own(after));
        let found = match place.backend.clone() {
            Backend::Directory(directory) => {
                blocking(move || directory.list(&own, depth, after_own.as_ref(), limit)).await
            }
            Backend::State(memory) => memory.list(&own, depth, after_own.as_ref(), limit),
            Backend::Rows(rows) => rows.list(&own, depth, after_own.as_ref(), limit).await,
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        let mut found: Vec<Stat> = match found {
            Ok(found) => found.into_iter().map(|stat| place.shown(stat)).collect(),
            Err(FileError::Missing { .. } | FileError::NotSupported { .. })
                if place.is_route() || self.is_above_routes(path) =>
            {
                Vec::new()
            }
            Err(error) => return Err(shown_error(error, path)),
        };
        if after.is_none() {
            // The routes' own directories stand first where they are not there already.
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
        let place = self.place(path)?;
        let own = place.path.clone();
        let whole = |entry: MemoryEntry, own: &Relative| Opened {
            stat: entry.stat(own.as_str()),
            source: Stored::Bytes(entry.bytes),
        };
        let opened = match place.backend.clone() {
            Backend::Directory(directory) => {
                let opened = blocking(move || directory.read(&own)).await;
                opened.map(|(file, stat)| Opened { stat, source: Stored::File(file) })
            }
            Backend::State(memory) => memory.get(&own).map(|entry| whole(entry, &own)),
            Backend::Rows(rows) => rows.get(&own).await.map(|entry| whole(entry, &own)),
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        let mut opened = opened.map_err(|error| shown_error(error, path))?;
        opened.stat = place.shown(opened.stat);
        Ok(opened)
    }

    /// Opens a file for reading from an offset, at most `limit` bytes.
    pub async fn read(
        &self,
        path: &TreePath,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Content, FileError> {
        self.open(path).await?.part(offset, limit)
    }

    /// Begins to write a file.
    pub async fn write(
        &self,
        path: &TreePath,
        above: Above,
        expect: Expect,
    ) -> Result<Writing, FileError> {
        let place = self.place(path)?;
        let own = place.path.clone();
        match place.backend.clone() {
            Backend::Directory(directory) => {
                let part = blocking(move || directory.write(&own, above, expect)).await;
                let part = part.map_err(|error| shown_error(error, path))?;
                Ok(Writing::Part(Some(Box::new(part))))
            }
            backend @ (Backend::State(_) | Backend::Rows(_)) => {
                let now = self.now;
                Ok(Writing::Whole { backend, path: own, bytes: Vec::new(), expect, now })
            }
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        }
    }

    /// Makes a directory, or with [`Above::Make`] all above it too; one that is there is then no
    /// error.
    pub async fn make_directory(&self, path: &TreePath, above: Above) -> Result<(), FileError> {
        let place = self.place(path)?;
        let own = place.path.clone();
        let change = MemoryChange::MakeDirectory { path: own.clone() };
        let done = match place.backend.clone() {
            Backend::Directory(directory) => {
                blocking(move || match above {
                    Above::Make => directory.make_directories(&own),
                    Above::MustExist => directory.make_directory(&own),
                })
                .await
            }
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        match done {
            Err(FileError::Exists { .. }) if above == Above::Make => {
                match self.stat(path).await?.kind {
                    FileKind::Directory => Ok(()),
                    _ => Err(FileError::Exists { path: path.to_string() }),
                }
            }
            done => done.map_err(|error| shown_error(error, path)),
        }
    }

    /// Removes a file or an empty directory.
    pub async fn remove(&self, path: &TreePath) -> Result<(), FileError> {
        let place = self.removable(path)?;
        let own = place.path.clone();
        let change = MemoryChange::Remove { path: own.clone() };
        let done = match place.backend.clone() {
            Backend::Directory(directory) => blocking(move || directory.remove(&own)).await,
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        done.map_err(|error| shown_error(error, path))
    }

    /// Removes something and all below it.
    pub async fn remove_tree(&self, path: &TreePath) -> Result<(), FileError> {
        let place = self.removable(path)?;
        let own = place.path.clone();
        let change = MemoryChange::RemoveTree { path: own.clone() };
        let done = match place.backend.clone() {
            Backend::Directory(directory) => blocking(move || directory.remove_tree(&own)).await,
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        done.map_err(|error| shown_error(error, path))
    }

    /// Gives something another name. From one route to another only a file can go: it is copied
    /// whole and then removed.
    pub async fn rename(
        &self,
        from: &TreePath,
        to: &TreePath,
        expect: Expect,
    ) -> Result<(), FileError> {
        let (source, target) = (self.removable(from)?, self.removable(to)?);
        if source.route.prefix != target.route.prefix {
            return self.carry(from, to, expect).await;
        }
        let (from_own, to_own) = (source.path.clone(), target.path.clone());
        let change = MemoryChange::Move { from: from_own.clone(), to: to_own.clone(), expect };
        let done = match source.backend.clone() {
            Backend::Directory(directory) => {
                blocking(move || directory.rename(&from_own, &to_own, expect)).await
            }
            Backend::State(memory) => memory.change(change).await.map(drop),
            Backend::Rows(rows) => rows.change(change, self.now).await.map(drop),
            Backend::Nothing(what) => Err(unreachable_at(from, what)),
        };
        done.map_err(|error| source.shown_in(error, &target))
    }

    async fn carry(&self, from: &TreePath, to: &TreePath, expect: Expect) -> Result<(), FileError> {
        if self.stat(from).await?.kind == FileKind::Directory {
            let what = "a directory cannot go from one route to another";
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

    /// Searches the files at or below a path. Dropping the future ends it.
    pub async fn search(
        &self,
        path: &TreePath,
        pattern: &str,
        limits: SearchLimits,
    ) -> Result<SearchResult, FileError> {
        let place = self.place(path)?;
        let (own, pattern) = (place.path.clone(), pattern.to_owned());
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(cancelled.clone());
        let found = match place.backend.clone() {
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
            Backend::Nothing(what) => Err(unreachable_at(path, what)),
        };
        let mut found = found.map_err(|error| shown_error(error, path))?;
        for found in &mut found.matches {
            found.path = place.shown_path(&found.path);
        }
        Ok(found)
    }

    /// Watches a file or a directory from this instant on.
    pub async fn watch(&self, path: &TreePath, below: Below) -> Result<TreeWatch, FileError> {
        let place = self.place(path)?;
        let own = place.path.clone();
        let source = match place.backend.clone() {
            Backend::Directory(directory) => {
                let handle = tokio::runtime::Handle::current();
                let watch = blocking(move || {
                    let _runtime = handle.enter();
                    directory.watch(&own, below)
                });
                let watch = watch.await.map_err(|error| shown_error(error, path))?;
                Source::Directory(Box::new(watch))
            }
            Backend::State(memory) => {
                let events = memory.watch();
                if !place.is_route() {
                    memory.stat(&own).map_err(|error| shown_error(error, path))?;
                }
                Source::Memory { events, path: own, below }
            }
            Backend::Rows(_) => {
                let what = "files that are rows of the store cannot be watched";
                return Err(FileError::NotSupported { path: path.to_string(), what });
            }
            Backend::Nothing(what) => return Err(unreachable_at(path, what)),
        };
        Ok(TreeWatch { source, prefix: place.prefix_shown() })
    }

    fn place(&self, path: &TreePath) -> Result<Place<'_>, FileError> {
        let whole = path.relative();
        for route in &self.routes {
            let Some(below) = whole.below(&route.prefix) else { continue };
            let path = match &route.backend {
                Backend::Directory(_) | Backend::Nothing(_) => below,
                Backend::State(_) | Backend::Rows(_) => whole.clone(),
            };
            return Ok(Place { route, backend: &route.backend, path });
        }
        Err(FileError::Missing { path: path.to_string() })
    }

    /// As `place`, but not the root of a route.
    fn removable(&self, path: &TreePath) -> Result<Place<'_>, FileError> {
        let place = self.place(path)?;
        if place.is_route() {
            let what = "the root of a route is not moved or removed";
            return Err(FileError::NotSupported { path: path.to_string(), what });
        }
        Ok(place)
    }

    fn is_above_routes(&self, path: &TreePath) -> bool {
        self.routes_below(path).next().is_some()
    }

    /// The names right below a path that lead to routes.
    fn routes_below(&self, path: &TreePath) -> impl Iterator<Item = String> {
        let mut names: Vec<String> = self
            .routes
            .iter()
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

struct Place<'a> {
    route: &'a Route,
    backend: &'a Backend,
    path: Relative,
}

impl Place<'_> {
    fn is_route(&self) -> bool {
        match self.backend {
            Backend::Directory(_) | Backend::Nothing(_) => self.path.is_root(),
            Backend::State(_) | Backend::Rows(_) => self.path == self.route.prefix,
        }
    }

    /// What a path of the tree is to the backend.
    fn own(&self, path: &TreePath) -> Option<Relative> {
        match self.backend {
            Backend::Directory(_) | Backend::Nothing(_) => {
                path.relative().below(&self.route.prefix)
            }
            Backend::State(_) | Backend::Rows(_) => Some(path.relative().clone()),
        }
    }

    /// What stands before the backend's paths in the tree.
    fn prefix_shown(&self) -> String {
        match self.backend {
            Backend::Directory(_) | Backend::Nothing(_) if !self.route.prefix.is_root() => {
                format!("/{}/", self.route.prefix)
            }
            _ => "/".into(),
        }
    }

    fn shown_path(&self, own: &str) -> String {
        let path = format!("{}{own}", self.prefix_shown());
        match path.trim_end_matches('/') {
            "" => "/".into(),
            trimmed => trimmed.to_owned(),
        }
    }

    fn shown(&self, mut stat: Stat) -> Stat {
        stat.path = self.shown_path(&stat.path);
        stat
    }

    /// An error names the path that the client gave, whichever of the two it is about.
    fn shown_in(&self, error: FileError, other: &Place<'_>) -> FileError {
        let target = other.path.to_string();
        let source = self.path.to_string();
        let (shown_source, shown_target) = (self.shown_path(&source), other.shown_path(&target));
        error.with_path(
            |path| if path == target { shown_target.clone() } else { shown_source.clone() },
        )
    }
}

impl Writing {
    /// Adds to the content.
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
            Writing::Whole { bytes, path, .. } => {
                if bytes.len() + more.len() > WHOLE {
                    let limit = WHOLE as u64;
                    return Err(FileError::TooLarge { path: format!("/{path}"), limit });
                }
                bytes.extend_from_slice(&more);
                Ok(())
            }
        }
    }

    /// Makes the file visible, whole; it is on stable storage when this answers. Says what it is.
    pub async fn finish(self) -> Result<Option<u64>, FileError> {
        match self {
            Writing::Part(Some(part)) => {
                blocking(move || part.finish()).await.map(|stat| stat.version)
            }
            Writing::Part(None) => {
                Err(FileError::Unavailable { reason: "the write was interrupted".into() })
            }
            Writing::Whole { backend, path, bytes, expect, now } => {
                let shown = TreePath::parse(&format!("/{path}"))?;
                let change = MemoryChange::Put { path, bytes: bytes.into(), expect };
                let done = match backend {
                    Backend::State(memory) => memory.change(change).await,
                    Backend::Rows(rows) => rows.change(change, now).await,
                    Backend::Directory(_) | Backend::Nothing(_) => return Ok(None),
                };
                done.map(Some).map_err(|error| shown_error(error, &shown))
            }
        }
    }
}

/// Something in the tree that is watched.
pub struct TreeWatch {
    source: Source,
    prefix: String,
}

enum Source {
    Directory(Box<Watch>),
    Memory { events: tokio::sync::broadcast::Receiver<FileEvent>, path: Relative, below: Below },
}

impl TreeWatch {
    /// What is seen next.
    pub async fn next(&mut self) -> Result<Watched, FileError> {
        use tokio::sync::broadcast::error::RecvError;
        let mut seen = match &mut self.source {
            Source::Directory(watch) => watch.next().await?,
            Source::Memory { events, path, below } => loop {
                match events.recv().await {
                    Ok(event) if is_seen(&event.path, path, *below) => break Watched::Event(event),
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

fn is_seen(path: &str, watched: &Relative, below: Below) -> bool {
    let Ok(path) = Relative::parse(path) else { return false };
    match path.below(watched) {
        Some(rest) => match below {
            Below::All => true,
            Below::Children => !rest.as_str().contains('/'),
        },
        // What is above it and changes takes it along.
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
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

fn shown_error(error: FileError, path: &TreePath) -> FileError {
    error.with_path(|_| path.to_string())
}

fn unreachable_at(path: &TreePath, what: &'static str) -> FileError {
    FileError::NotSupported { path: path.to_string(), what }
}
