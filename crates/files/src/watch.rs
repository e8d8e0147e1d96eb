//! File watches by inotify.
//!
//! A directory is watched with its entries, and recursively if requested. A file is watched by its name,
//! because an atomic write replaces the file. A detailed watch reports every event of the kernel: renames,
//! permissions, and changes of the directory itself.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use parking_lot::Mutex;
use rustix::{
    fs::{
        FileType,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    },
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use crate::{FileError, FileKind, Relative};
use crate::{
    directory::{Directory, descriptor_path, failed, failed_io, stat_at},
    event::{FileEvent, FileEventKind},
};
use base::durable::PART;

/// Directories per watch; further ones are not watched.
const MAX_DIRECTORIES: usize = 4096;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Events queued for a client; beyond that it loses some.
const MAX_PENDING_EVENTS: usize = 8192;
/// The number of new directories that are added before later events are reported.
const MAX_ADDED_AT_ONCE: usize = 64;

/// The next report of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    Event(FileEvent),
    /// Events were lost; the client should list the directory again.
    Lost,
    /// Some directories below are not watched, because there are too many.
    Partly,
    /// The watched file or directory was removed.
    Gone,
}

/// The depth of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Only the entries of the directory itself.
    Children,
    /// Everything below the directory.
    All,
}

/// The events that a watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Files that appear, disappear or change their content.
    Contents,
    EveryStep,
}

impl Detail {
    fn flags(self) -> WatchFlags {
        let always = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        match self {
            Detail::Contents => always | WatchFlags::CLOSE_WRITE,
            Detail::EveryStep => always | WatchFlags::ATTRIB,
        }
    }
}

/// One event of the inotify descriptor.
struct InotifyEvent {
    watch: i32,
    flags: ReadFlags,
    /// The same for both sides of a rename.
    cookie: u32,
    name: Option<String>,
}

/// A watch on a file or directory.
#[derive(Debug)]
pub struct Watch {
    source: AsyncFd<OwnedFd>,
    directory: Directory,
    below: Below,
    detail: Detail,
    /// The cookie of the rename that completes an atomic write.
    finishing: Option<u32>,
    /// A directory that is being renamed, with the cookie of the rename.
    moving: Option<(u32, String)>,
    /// Paths that were reported after listing a directory, which the kernel may report again.
    found: HashSet<String>,
    /// The path of each watched directory.
    paths: HashMap<i32, String>,
    /// The name of the watched file, if it is a file.
    only: Option<String>,
    root: i32,
    waiting: VecDeque<Watched>,
    /// Directories that have yet to be added.
    to_add: VecDeque<(String, Known)>,
    is_partial: bool,
}

impl Directory {
    /// Starts watching a file or a directory. Needs a runtime.
    pub fn watch(&self, path: &Relative, below: Below) -> Result<Watch, FileError> {
        self.watch_with(path, below, Detail::Contents)
    }

    /// Like `watch`, but reports every step.
    pub fn watch_closely(&self, path: &Relative, below: Below) -> Result<Watch, FileError> {
        self.watch_with(path, below, Detail::EveryStep)
    }

    fn watch_with(
        &self,
        path: &Relative,
        below: Below,
        detail: Detail,
    ) -> Result<Watch, FileError> {
        let source = instance().map_err(failed_watch(path))?;
        #[expect(
            deprecated,
            reason = "the descriptor is owned, which is the only requirement; the alternative is unsafe"
        )]
        let source = AsyncFd::new(source).map_err(failed_io("watch", path))?;
        let (watched, only) = match self.stat(path)?.kind {
            FileKind::Directory => (path.clone(), None),
            FileKind::File | FileKind::Link | FileKind::Other => match path.split_last() {
                Some((above, name)) => (above, Some(name.to_owned())),
                None => (path.clone(), None),
            },
        };
        let mut watch = Watch {
            source,
            directory: self.clone(),
            below: if only.is_some() { Below::Children } else { below },
            detail,
            finishing: None,
            moving: None,
            found: HashSet::new(),
            paths: HashMap::new(),
            only,
            root: -1,
            waiting: VecDeque::new(),
            to_add: VecDeque::new(),
            is_partial: false,
        };
        watch.root = watch.add(watched.as_str()).map_err(failed_watch(path))?;
        watch.add_below(watched.as_str(), Known::Already);
        while watch.add_next() {}
        Ok(watch)
    }
}

/// Instances for later watches. The kernel counts them per user, and hosts of this user may take all that are left.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
const RESERVED_INSTANCES: usize = 16;

/// Reserves inotify instances for watches, as far as there are any.
pub fn reserve_watches() {
    let mut reserved = RESERVED.lock();
    while reserved.len() < RESERVED_INSTANCES
        && let Ok(instance) = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
    {
        reserved.push(instance);
    }
}

/// Returns a new inotify instance, or one that was reserved.
fn instance() -> Result<OwnedFd, Errno> {
    match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
        Ok(instance) => {
            reserve_watches();
            Ok(instance)
        }
        Err(Errno::MFILE) => RESERVED.lock().pop().ok_or(Errno::MFILE),
        Err(errno) => Err(errno),
    }
}

/// Names the limit of the kernel that a watch has reached: its error numbers mean something else elsewhere.
fn failed_watch(path: &Relative) -> impl Fn(Errno) -> FileError {
    let other = failed("watch", path);
    move |errno| {
        let limit = match errno {
            Errno::MFILE => "max_user_instances",
            Errno::NOSPC => "max_user_watches",
            _ => return other(errno),
        };
        let reason =
            format!("the kernel's limit of file watches is reached; raise fs.inotify.{limit}");
        FileError::Unavailable { reason }
    }
}

/// Whether the client knows the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Already,
    NotYet,
}

impl Watch {
    /// Waits for the next report. Cancel-safe.
    pub async fn next(&mut self) -> Result<Watched, FileError> {
        loop {
            if let Some(watched) = self.waiting.pop_front() {
                return Ok(watched);
            }
            // One directory at a time, so that thousands of new directories do not block other tasks.
            if self.add_next() {
                tokio::task::yield_now().await;
                continue;
            }
            let failed = |error| FileError::from_io("watch", "", error);
            let mut ready = self.source.readable().await.map_err(failed)?;
            let mut seen = Vec::new();
            let mut buffer = [MaybeUninit::uninit(); READ_BUFFER_BYTES];
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name();
                        seen.push(InotifyEvent {
                            watch: event.wd(),
                            flags: event.events(),
                            cookie: event.cookie(),
                            name: name.map(|name| name.to_string_lossy().into_owned()),
                        });
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno.into())),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
            if seen.is_empty() {
                ready.clear_ready();
            }
            drop(ready);
            for seen in seen {
                self.handle(seen);
            }
        }
    }

    fn handle(&mut self, InotifyEvent { watch, flags, cookie, name }: InotifyEvent) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(Watched::Lost);
            return;
        }
        let arrives = flags.contains(ReadFlags::MOVED_TO);
        if let Some((_, path)) = self.moving.take_if(|(of, _)| !(arrives && *of == cookie)) {
            // It was moved out of the watched directories.
            self.remove_watches(&path);
        }
        if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            self.handle_self(watch, flags);
            return;
        }
        let Some(above) = self.paths.get(&watch) else { return };
        let Some(name) = name else {
            // A subdirectory is reported by its parent.
            if watch == self.root && flags.contains(ReadFlags::ATTRIB) {
                self.report(FileEvent::of(&above.clone(), FileEventKind::Permitted));
            }
            return;
        };
        if name.starts_with(PART) {
            if flags.contains(ReadFlags::MOVED_FROM) {
                self.finishing = Some(cookie);
            }
            return;
        }
        if self.only.as_ref().is_some_and(|only| *only != name) {
            return;
        }
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        let is_directory = flags.contains(ReadFlags::ISDIR);
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.handle_new(path, flags, cookie);
        } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            let moved = self.detail == Detail::EveryStep && flags.contains(ReadFlags::MOVED_FROM);
            if is_directory && moved {
                self.moving = Some((cookie, path.clone()));
            } else if is_directory {
                self.remove_watches(&path);
            }
            self.found.remove(&path);
            let kind = if moved { FileEventKind::MovedAway } else { FileEventKind::Removed };
            self.report(FileEvent::of(&path, kind));
        } else if flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MODIFY) {
            self.report(FileEvent::modified(&path));
        } else if flags.contains(ReadFlags::ATTRIB) {
            self.report(FileEvent::of(&path, FileEventKind::Permitted));
        }
    }

    /// Handles a new name.
    fn handle_new(&mut self, path: String, flags: ReadFlags, cookie: u32) {
        let enters = flags.contains(ReadFlags::ISDIR) && self.below == Below::All;
        if self.detail == Detail::Contents {
            self.report(FileEvent::created(&path));
            if enters {
                self.to_add.push_back((path, Known::NotYet));
            }
            return;
        }
        let moved = flags.contains(ReadFlags::MOVED_TO);
        let whole = moved && self.finishing.take_if(|expected| *expected == cookie).is_some();
        if self.found.remove(&path) {
            return;
        }
        let kind = if whole { FileEventKind::Appeared } else { FileEventKind::Created };
        self.report(FileEvent::of(&path, kind));
        if let Some((_, old)) = self.moving.take() {
            self.rename(&old, &path);
        } else if enters {
            // The entries of a moved directory are known; a new directory may have entries already.
            self.to_add.push_back((path, if moved { Known::Already } else { Known::NotYet }));
            for _ in 0..MAX_ADDED_AT_ONCE {
                if !self.add_next() {
                    break;
                }
            }
        }
    }

    /// Handles an event on a watched directory itself.
    fn handle_self(&mut self, watch: i32, flags: ReadFlags) {
        let removed = flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF);
        if watch == self.root && removed {
            if let (Detail::EveryStep, Some(path)) = (self.detail, self.paths.get(&watch)) {
                let moved = flags.contains(ReadFlags::MOVE_SELF);
                let kind = if moved { FileEventKind::MovedAway } else { FileEventKind::Removed };
                self.report(FileEvent::of(&path.clone(), kind));
            }
            self.push(Watched::Gone);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&watch);
        }
    }

    /// Queues an event, unless it repeats the last one in the queue.
    fn report(&mut self, event: FileEvent) {
        let watched = Watched::Event(event);
        if self.waiting.back() != Some(&watched) {
            self.push(watched);
        }
    }

    fn push(&mut self, watched: Watched) {
        if self.waiting.len() >= MAX_PENDING_EVENTS {
            self.waiting.clear();
            self.waiting.push_back(Watched::Lost);
        }
        self.waiting.push_back(watched);
    }

    /// Adds one of the pending directories. Returns whether there was one.
    fn add_next(&mut self) -> bool {
        let Some((path, known)) = self.to_add.pop_front() else { return false };
        match self.add(&path) {
            Ok(_) => self.add_below(&path, known),
            Err(Errno::NOSPC | Errno::MFILE) => {
                self.to_add.clear();
                self.partly();
            }
            // Removed meanwhile, or a link: not watched.
            Err(_) => {}
        }
        true
    }

    /// Adds the subdirectories of a directory, and reports entries that are older than the watch.
    fn add_below(&mut self, path: &str, known: Known) {
        if self.below == Below::Children {
            return;
        }
        let Ok(directory) = self.directory.resolve_directory(path) else { return };
        let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return };
        let mut names = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy();
            if name == "." || name == ".." || name.starts_with(PART) {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => stat_at(&directory, &name, path)
                    .is_ok_and(|stat| stat.kind == FileKind::Directory),
                kind => kind == FileType::Directory,
            };
            if is_directory || known == Known::NotYet {
                names.push((name.into_owned(), is_directory));
            }
            // More than this many entries are not reported individually.
            if names.len() > MAX_PENDING_EVENTS {
                break;
            }
        }
        names.sort_unstable();
        for (name, is_directory) in names {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            if known == Known::NotYet {
                self.report_found(&below);
            }
            if is_directory && self.to_add.len() <= MAX_DIRECTORIES {
                self.to_add.push_back((below, known));
            }
        }
    }

    /// Reports an entry that existed before its directory was watched.
    fn report_found(&mut self, path: &str) {
        match self.detail {
            Detail::Contents => self.report(FileEvent::created(path)),
            Detail::EveryStep => {
                self.report(FileEvent::of(path, FileEventKind::Appeared));
                if self.found.len() < MAX_PENDING_EVENTS {
                    self.found.insert(path.to_owned());
                }
            }
        }
    }

    fn add(&mut self, path: &str) -> Result<i32, Errno> {
        if self.paths.len() >= MAX_DIRECTORIES {
            return Err(Errno::NOSPC);
        }
        let file = self.directory.resolve_directory(path)?;
        let watch =
            inotify::add_watch(self.source.get_ref(), descriptor_path(&file), self.detail.flags())?;
        self.paths.insert(watch, path.to_owned());
        Ok(watch)
    }

    fn remove_watches(&mut self, path: &str) {
        let below = format!("{path}/");
        let watches: Vec<i32> = self
            .paths
            .iter()
            .filter(|(_, watched)| *watched == path || watched.starts_with(&below))
            .map(|(&watch, _)| watch)
            .collect();
        for watch in watches {
            self.paths.remove(&watch);
            // Fails if the directory was removed, which ended the watch.
            let _ = inotify::remove_watch(self.source.get_ref(), watch);
        }
    }

    /// Changes the paths of watches after a rename.
    fn rename(&mut self, old: &str, new: &str) {
        let below = format!("{old}/");
        for path in self.paths.values_mut() {
            if *path == old {
                *path = new.to_owned();
            } else if let Some(rest) = path.strip_prefix(&below) {
                *path = format!("{new}/{rest}");
            }
        }
    }

    fn partly(&mut self) {
        if !self.is_partial {
            self.is_partial = true;
            self.push(Watched::Partly);
        }
    }
}
