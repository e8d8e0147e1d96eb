//! Watching files by inotify.
//!
//! A directory is watched with what is in it, and with all below it if that is asked; a file is
//! watched by its name, because an atomic write gives the name to another file.

use std::{
    collections::{HashMap, VecDeque},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use rustix::{
    fs::{
        FileType,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    },
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use super::{
    directory::{Directory, descriptor_path, failed, failed_io, stat_at},
    event::FileEvent,
};
use crate::project::{FileError, Kind, Relative, durable::PART};

/// Directories one watcher may watch.
const DIRECTORIES: usize = 4096;
/// Events read at once.
const BUFFER: usize = 64 << 10;
/// Events that wait for a client; beyond it is told that it lost some.
const WAITING: usize = 8192;

/// What a watcher sees next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// Something happened to a file.
    Event(FileEvent),
    /// Things happened that it is not told of; it should look for itself.
    Lost,
    /// Some directories below are not watched, because there are too many.
    Partly,
    /// What was watched is gone.
    Gone,
}

/// How far down a watcher looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Only what is in the directory itself.
    Children,
    /// All that is below it.
    All,
}

/// Something that is watched.
#[derive(Debug)]
pub struct Watch {
    source: AsyncFd<OwnedFd>,
    directory: Directory,
    below: Below,
    /// The path of each watched directory.
    paths: HashMap<i32, String>,
    /// The one name that counts, if a file is watched.
    only: Option<String>,
    root: i32,
    waiting: VecDeque<Watched>,
    /// Directories that are to be watched too.
    ahead: VecDeque<(String, Known)>,
    is_partial: bool,
}

impl Directory {
    /// Watches a file or a directory from this instant on. Needs a runtime.
    pub fn watch(&self, path: &Relative, below: Below) -> Result<Watch, FileError> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let source = inotify::init(flags).map_err(failed("watch", path))?;
        #[expect(
            deprecated,
            reason = "the descriptor is owned, which is all it asks for; the other way is unsafe"
        )]
        let source = AsyncFd::new(source).map_err(failed_io("watch", path))?;
        let (watched, only) = match self.stat(path)?.kind {
            Kind::Directory => (path.clone(), None),
            Kind::File | Kind::Link | Kind::Other => match path.split_last() {
                Some((above, name)) => (above, Some(name.to_owned())),
                None => (path.clone(), None),
            },
        };
        let mut watch = Watch {
            source,
            directory: self.clone(),
            below: if only.is_some() { Below::Children } else { below },
            paths: HashMap::new(),
            only,
            root: -1,
            waiting: VecDeque::new(),
            ahead: VecDeque::new(),
            is_partial: false,
        };
        watch.root = watch.add(watched.as_str()).map_err(failed("watch", path))?;
        watch.add_below(watched.as_str(), Known::Already);
        while watch.go_ahead() {}
        Ok(watch)
    }
}

/// Whether the client knows of what is found in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Already,
    NotYet,
}

impl Watch {
    /// What is seen next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Watched, FileError> {
        loop {
            if let Some(watched) = self.waiting.pop_front() {
                return Ok(watched);
            }
            // One directory at a time: whoever makes thousands holds nobody else up.
            if self.go_ahead() {
                tokio::task::yield_now().await;
                continue;
            }
            let failed = |error| FileError::from_io("watch", "", error);
            let mut ready = self.source.readable().await.map_err(failed)?;
            let mut seen = Vec::new();
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name =
                            event.file_name().map(|name| name.to_string_lossy().into_owned());
                        seen.push((event.wd(), event.events(), name));
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
            for (watch, flags, name) in seen {
                self.see(watch, flags, name);
            }
        }
    }

    fn see(&mut self, watch: i32, flags: ReadFlags, name: Option<String>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(Watched::Lost);
            return;
        }
        if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            if watch == self.root && flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF)
            {
                self.push(Watched::Gone);
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.paths.remove(&watch);
            }
            return;
        }
        let (Some(above), Some(name)) = (self.paths.get(&watch), name) else { return };
        let other = self.only.as_ref().is_some_and(|only| *only != name);
        if other || name.starts_with(PART) {
            return;
        }
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        let is_directory = flags.contains(ReadFlags::ISDIR);
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.tell(FileEvent::created(&path));
            if is_directory && self.below == Below::All {
                self.ahead.push_back((path, Known::NotYet));
            }
        } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            if is_directory {
                self.leave(&path);
            }
            self.tell(FileEvent::removed(&path));
        } else if flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MODIFY) {
            self.tell(FileEvent::modified(&path));
        }
    }

    /// A writer that goes on and on is one event to a watcher that has not looked.
    fn tell(&mut self, event: FileEvent) {
        let watched = Watched::Event(event);
        if self.waiting.back() != Some(&watched) {
            self.push(watched);
        }
    }

    fn push(&mut self, watched: Watched) {
        if self.waiting.len() >= WAITING {
            self.waiting.clear();
            self.waiting.push_back(Watched::Lost);
        }
        self.waiting.push_back(watched);
    }

    /// Watches one more of the directories that are to be; says whether there was one.
    fn go_ahead(&mut self) -> bool {
        let Some((path, known)) = self.ahead.pop_front() else { return false };
        match self.add(&path) {
            Ok(_) => self.add_below(&path, known),
            Err(Errno::NOSPC | Errno::MFILE) => {
                self.ahead.clear();
                self.partly();
            }
            // Gone already, or a link: not watched.
            Err(_) => {}
        }
        true
    }

    /// Watches the directories in a directory; tells of what came before the watch did.
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
                FileType::Unknown => {
                    stat_at(&directory, &name, path).is_ok_and(|stat| stat.kind == Kind::Directory)
                }
                kind => kind == FileType::Directory,
            };
            if is_directory || known == Known::NotYet {
                names.push((name.into_owned(), is_directory));
            }
            // Of more than that a client is not told one by one.
            if names.len() > WAITING {
                break;
            }
        }
        names.sort_unstable();
        for (name, is_directory) in names {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            if known == Known::NotYet {
                self.tell(FileEvent::created(&below));
            }
            if is_directory && self.ahead.len() <= DIRECTORIES {
                self.ahead.push_back((below, known));
            }
        }
    }

    fn add(&mut self, path: &str) -> Result<i32, Errno> {
        if self.paths.len() >= DIRECTORIES {
            return Err(Errno::NOSPC);
        }
        let held = self.directory.resolve_directory(path)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let watch = inotify::add_watch(self.source.get_ref(), descriptor_path(&held), flags)?;
        self.paths.insert(watch, path.to_owned());
        Ok(watch)
    }

    fn leave(&mut self, path: &str) {
        let below = format!("{path}/");
        let gone: Vec<i32> = self
            .paths
            .iter()
            .filter(|(_, watched)| *watched == path || watched.starts_with(&below))
            .map(|(&watch, _)| watch)
            .collect();
        for watch in gone {
            self.paths.remove(&watch);
            // It ends by itself if the directory is gone and not only elsewhere.
            let _ = inotify::remove_watch(self.source.get_ref(), watch);
        }
    }

    fn partly(&mut self) {
        if !self.is_partial {
            self.is_partial = true;
            self.push(Watched::Partly);
        }
    }
}
