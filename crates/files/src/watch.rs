//! Watching files by inotify.
//!
//! A directory is watched with what is in it, and with all below it if that is asked; a file is
//! watched by its name, because an atomic write gives the name to another file. Who watches closely is
//! told of every step as the kernel tells it: a rename as such, permissions, the directory itself.

use std::{
    collections::{HashMap, HashSet, VecDeque},
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

use crate::{FileError, Kind, Relative};
use crate::{
    directory::{Directory, descriptor_path, failed, failed_io, stat_at},
    event::{FileEvent, Happened},
};
use base::durable::PART;

/// Directories one watcher may watch.
const DIRECTORIES: usize = 4096;
/// Events read at once.
const BUFFER: usize = 64 << 10;
/// Events that wait for a client; beyond it is told that it lost some.
const WAITING: usize = 8192;
/// New directories that are looked into before what happened after them is told.
const AT_ONCE: usize = 64;

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

/// What a watcher is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eye {
    /// What is there, and with which content.
    Usual,
    /// Every step.
    Close,
}

impl Eye {
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
            Eye::Usual => always | WatchFlags::CLOSE_WRITE,
            Eye::Close => always | WatchFlags::ATTRIB,
        }
    }
}

/// What the kernel tells.
struct Seen {
    watch: i32,
    flags: ReadFlags,
    /// The same for both sides of a rename.
    cookie: u32,
    name: Option<String>,
}

/// Something that is watched.
#[derive(Debug)]
pub struct Watch {
    source: AsyncFd<OwnedFd>,
    directory: Directory,
    below: Below,
    eye: Eye,
    /// The rename that gives a file its name which was written whole.
    finishing: Option<u32>,
    /// A directory that lost its name by this rename, until the kernel says where it has got another.
    moving: Option<(u32, String)>,
    /// Paths that were told because they were found, of which the kernel may still tell.
    found: HashSet<String>,
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
        self.watch_with(path, below, Eye::Usual)
    }

    /// The same, told of every step.
    pub fn watch_closely(&self, path: &Relative, below: Below) -> Result<Watch, FileError> {
        self.watch_with(path, below, Eye::Close)
    }

    fn watch_with(&self, path: &Relative, below: Below, eye: Eye) -> Result<Watch, FileError> {
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
            eye,
            finishing: None,
            moving: None,
            found: HashSet::new(),
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
                        let name = event.file_name();
                        seen.push(Seen {
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
                self.see(seen);
            }
        }
    }

    fn see(&mut self, Seen { watch, flags, cookie, name }: Seen) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(Watched::Lost);
            return;
        }
        let arrives = flags.contains(ReadFlags::MOVED_TO);
        if let Some((_, path)) = self.moving.take_if(|(of, _)| !(arrives && *of == cookie)) {
            // It went to where nobody watches.
            self.leave(&path);
        }
        if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            self.see_itself(watch, flags);
            return;
        }
        let Some(above) = self.paths.get(&watch) else { return };
        let Some(name) = name else {
            // Of a directory below, the one above it tells.
            if watch == self.root && flags.contains(ReadFlags::ATTRIB) {
                self.tell(FileEvent::of(&above.clone(), Happened::Permitted));
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
            self.see_new(path, flags, cookie);
        } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            let moved = self.eye == Eye::Close && flags.contains(ReadFlags::MOVED_FROM);
            if is_directory && moved {
                self.moving = Some((cookie, path.clone()));
            } else if is_directory {
                self.leave(&path);
            }
            self.found.remove(&path);
            let what = if moved { Happened::MovedAway } else { Happened::Removed };
            self.tell(FileEvent::of(&path, what));
        } else if flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MODIFY) {
            self.tell(FileEvent::modified(&path));
        } else if flags.contains(ReadFlags::ATTRIB) {
            self.tell(FileEvent::of(&path, Happened::Permitted));
        }
    }

    /// Something has this name now.
    fn see_new(&mut self, path: String, flags: ReadFlags, cookie: u32) {
        let enters = flags.contains(ReadFlags::ISDIR) && self.below == Below::All;
        if self.eye == Eye::Usual {
            self.tell(FileEvent::created(&path));
            if enters {
                self.ahead.push_back((path, Known::NotYet));
            }
            return;
        }
        let moved = flags.contains(ReadFlags::MOVED_TO);
        let whole = moved && self.finishing.take_if(|expected| *expected == cookie).is_some();
        if self.found.remove(&path) {
            return;
        }
        let what = if whole { Happened::Appeared } else { Happened::Created };
        self.tell(FileEvent::of(&path, what));
        if let Some((_, old)) = self.moving.take() {
            self.rename(&old, &path);
        } else if enters {
            // What was moved has what it had; what is new may have got something already.
            self.ahead.push_back((path, if moved { Known::Already } else { Known::NotYet }));
            for _ in 0..AT_ONCE {
                if !self.go_ahead() {
                    break;
                }
            }
        }
    }

    /// Something happened to a watched directory itself.
    fn see_itself(&mut self, watch: i32, flags: ReadFlags) {
        let gone = flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF);
        if watch == self.root && gone {
            if let (Eye::Close, Some(path)) = (self.eye, self.paths.get(&watch)) {
                let moved = flags.contains(ReadFlags::MOVE_SELF);
                let what = if moved { Happened::MovedAway } else { Happened::Removed };
                self.tell(FileEvent::of(&path.clone(), what));
            }
            self.push(Watched::Gone);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&watch);
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
                self.tell_found(&below);
            }
            if is_directory && self.ahead.len() <= DIRECTORIES {
                self.ahead.push_back((below, known));
            }
        }
    }

    /// Tells of what was there before its directory was watched.
    fn tell_found(&mut self, path: &str) {
        match self.eye {
            Eye::Usual => self.tell(FileEvent::created(path)),
            Eye::Close => {
                self.tell(FileEvent::of(path, Happened::Appeared));
                if self.found.len() < WAITING {
                    self.found.insert(path.to_owned());
                }
            }
        }
    }

    fn add(&mut self, path: &str) -> Result<i32, Errno> {
        if self.paths.len() >= DIRECTORIES {
            return Err(Errno::NOSPC);
        }
        let held = self.directory.resolve_directory(path)?;
        let watch =
            inotify::add_watch(self.source.get_ref(), descriptor_path(&held), self.eye.flags())?;
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

    /// What is watched below one name is below another now.
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
