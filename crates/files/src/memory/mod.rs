//! Hot memories: read from RAM in well under a microsecond, and never lost once acknowledged.
//!
//! One thread writes for all projects. It takes what waits, decides each change against the map as
//! it will be, writes and syncs the records of a project together, and only then shows the changes
//! to readers and answers. Readers never wait for the disk. After a failed sync the log is left
//! alone; the next change first writes everything into another generation.

mod index;
mod log;
mod map;
mod record;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};

use self::{log::Log, map::Map, record::Op};
use crate::{FileError, FileEvent, Relative, Stat};
use base::clock::Clock;
use model::{ProjectId, Timestamp};

pub(crate) use index::Index;
pub use map::{Change, Entry, Expect, HotLimits};

/// How many changes may wait; one that finds the queue full waits before it.
const QUEUE: usize = 256;
/// How many KiB of content may wait.
const QUEUE_KIB: usize = 64 << 10;
/// How many changes of a project are kept for a watcher that is slow; it is told when it lost some.
const WATCH: usize = 256;

/// The hot memories of all projects; cheap to clone.
#[derive(Clone)]
pub struct HotMemories {
    shared: Arc<Shared>,
}

struct Shared {
    limits: HotLimits,
    clock: Clock,
    jobs: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
    loaded: Mutex<HashMap<ProjectId, Arc<OnceCell<Arc<Memory>>>>>,
    snapshots: Snapshots,
}

/// What snapshots have cost since the start.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// How many were written.
    pub count: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Microseconds spent on them.
    pub micros: AtomicU64,
}

/// What is in RAM at an instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Hot memories.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest change was made that no snapshot holds.
    pub oldest_change: Option<Timestamp>,
}

/// The hot memories of one project.
pub struct Memory {
    project: ProjectId,
    /// What readers see: only what is on stable storage.
    shown: RwLock<Map>,
    disk: Mutex<Disk>,
    /// Held while a snapshot is written.
    snapshotting: Mutex<()>,
    /// No more changes are taken.
    closed: AtomicBool,
    /// When it was last asked for, in microseconds.
    used: AtomicU64,
    /// When the first change was made that no snapshot holds, in microseconds; 0 is none.
    pending_since: AtomicU64,
    events: broadcast::Sender<FileEvent>,
    shared: std::sync::Weak<Shared>,
}

struct Disk {
    log: Log,
    /// What readers will see when the disk has it.
    next: Map,
}

struct Job {
    memory: Arc<Memory>,
    change: Change,
    answer: oneshot::Sender<Result<u64, FileError>>,
    _room: OwnedSemaphorePermit,
}

impl fmt::Debug for HotMemories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotMemories").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("project", &self.project).finish_non_exhaustive()
    }
}

impl HotMemories {
    /// Starts the thread that writes. It ends with the last handle.
    pub fn start(limits: HotLimits, clock: Clock) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new().name("memory-writer".into()).spawn(move || write(queue))?;
        let shared = Shared {
            limits,
            clock,
            jobs,
            room: Arc::new(Semaphore::new(QUEUE_KIB)),
            loaded: Mutex::default(),
            snapshots: Snapshots::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The memories of a project, read from its directory if they are not in RAM.
    pub async fn of(
        &self,
        project: &ProjectId,
        directory: PathBuf,
    ) -> Result<Arc<Memory>, FileError> {
        let cell = self.shared.loaded.lock().entry(project.clone()).or_default().clone();
        let load = || async {
            let (project, shared) = (project.clone(), self.shared.clone());
            tokio::task::spawn_blocking(move || Memory::load(project, &directory, &shared))
                .await
                .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
        };
        let memory = cell.get_or_try_init(load).await?;
        memory.touch(&self.shared.clock);
        Ok(memory.clone())
    }

    /// The memories of a project, if they are in RAM.
    #[must_use]
    pub fn get(&self, project: &ProjectId) -> Option<Arc<Memory>> {
        let memory = self.shared.loaded.lock().get(project)?.get()?.clone();
        memory.touch(&self.shared.clock);
        Some(memory)
    }

    /// Writes a snapshot of every project that has changes which are in none.
    pub async fn snapshot_all(&self) -> Result<(), FileError> {
        let mut result = Ok(());
        for memory in self.loaded() {
            let done = memory.snapshot().await;
            result = result.and(done.map(|_| ()));
        }
        result
    }

    /// Writes a snapshot of a project, if it is in RAM and has changes which are in none.
    pub async fn snapshot(&self, project: &ProjectId) -> Result<(), FileError> {
        let memory = self.loaded().into_iter().find(|memory| memory.project == *project);
        match memory {
            Some(memory) => memory.snapshot().await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Lets go of the memories that nobody asked for since then; they are on disk.
    pub async fn unload_unused(&self, since: Timestamp) -> Result<(), FileError> {
        let since = u64::try_from(since.as_microsecond()).unwrap_or(0);
        for memory in self.loaded() {
            if memory.used.load(Ordering::Relaxed) >= since || memory.events.receiver_count() > 0 {
                continue;
            }
            memory.snapshot().await?;
            let mut loaded = self.shared.loaded.lock();
            // Ours and the map's: whoever else has it, or asks while we look, keeps it.
            if Arc::strong_count(&memory) == 2 {
                loaded.remove(&memory.project);
            }
        }
        Ok(())
    }

    /// Takes no more changes of a project and lets go of it. What was acknowledged is on disk when
    /// this answers.
    pub async fn close(&self, project: &ProjectId) {
        let cell = self.shared.loaded.lock().remove(project);
        if let Some(memory) = cell.and_then(|cell| cell.get().cloned()) {
            // The lock is held while a batch is written; after it, the flag is seen.
            let done = tokio::task::spawn_blocking(move || {
                let _snapshot = memory.snapshotting.lock();
                let _disk = memory.disk.lock();
                memory.closed.store(true, Ordering::SeqCst);
            });
            let _ = done.await;
        }
    }

    /// Lets go of memories whose files are about to have another place.
    pub async fn forget(&self, memory: &Memory) {
        self.close(&memory.project).await;
    }

    /// What snapshots have cost since the start.
    #[must_use]
    pub fn snapshots(&self) -> &Snapshots {
        &self.shared.snapshots
    }

    /// What is in RAM.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for memory in self.loaded() {
            let (entries, bytes) = memory.usage();
            census.entries += entries;
            census.bytes += bytes;
            let since = memory.pending_since.load(Ordering::Relaxed).cast_signed();
            if since != 0 {
                let since = Timestamp::from_microsecond(since).unwrap_or(Timestamp::MIN);
                census.oldest_change =
                    Some(census.oldest_change.map_or(since, |oldest| oldest.min(since)));
            }
        }
        census
    }

    fn loaded(&self) -> Vec<Arc<Memory>> {
        self.shared.loaded.lock().values().filter_map(|cell| cell.get().cloned()).collect()
    }
}

impl Memory {
    fn load(
        project: ProjectId,
        directory: &Path,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Self>, FileError> {
        let recovered = Log::open(directory).map_err(|source| FileError::Io {
            doing: "read the memories in",
            path: directory.display().to_string(),
            source,
        })?;
        for damage in &recovered.damage {
            tracing::error!(%project, "{damage}");
        }
        let pending = recovered.log.bytes() > 0;
        let memory = Arc::new(Self {
            project,
            shown: RwLock::new(recovered.map.clone()),
            disk: Mutex::new(Disk { log: recovered.log, next: recovered.map }),
            snapshotting: Mutex::default(),
            closed: AtomicBool::new(false),
            used: AtomicU64::new(0),
            pending_since: AtomicU64::new(0),
            events: broadcast::channel(WATCH).0,
            shared: Arc::downgrade(shared),
        });
        if pending {
            memory.note_change(shared.clock.wall());
        }
        Ok(memory)
    }

    /// The memory at a path.
    pub fn get(&self, path: &Relative) -> Result<Entry, FileError> {
        self.read(|map| map.file(path).cloned())
    }

    /// What is at a path.
    pub fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        self.read(|map| map.stat(path))
    }

    /// What is below a path to a depth, in the order of names, after the one given.
    pub fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        self.read(|map| map.list(path, depth, after, limit))
    }

    /// Every memory at or below a path.
    #[must_use]
    pub fn files(&self, path: &Relative) -> Vec<(Box<str>, Entry)> {
        self.read(|map| map.files(path))
    }

    /// How many entries and bytes there are.
    #[must_use]
    pub fn usage(&self) -> (u64, u64) {
        self.read(Map::usage)
    }

    /// Changes as they become visible.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<FileEvent> {
        self.events.subscribe()
    }

    /// Makes a change. `Ok` means that it is on stable storage; it says the number of the last
    /// write, which is this one's if it is a put.
    pub async fn change(self: &Arc<Self>, change: Change) -> Result<u64, FileError> {
        let gone = || FileError::Unavailable { reason: "the server is stopping".into() };
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        if let Change::Put { path, bytes, .. } = &change
            && bytes.len() as u64 > shared.limits.entry_bytes
        {
            let limit = shared.limits.entry_bytes;
            return Err(FileError::TooLarge { path: path.to_string(), limit });
        }
        let weight = match &change {
            Change::Put { bytes, .. } => bytes.len() / 1024 + 1,
            Change::MakeDirectory { .. }
            | Change::Remove { .. }
            | Change::RemoveTree { .. }
            | Change::Move { .. } => 1,
        };
        let weight = u32::try_from(weight.min(QUEUE_KIB)).unwrap_or(1);
        let room = shared.room.clone().acquire_many_owned(weight).await.map_err(|_| gone())?;
        let (answer, answered) = oneshot::channel();
        let job = Job { memory: self.clone(), change, answer, _room: room };
        shared.jobs.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Writes a snapshot if there are changes that are in none; says whether it did.
    pub async fn snapshot(self: &Arc<Self>) -> Result<bool, FileError> {
        let memory = self.clone();
        tokio::task::spawn_blocking(move || memory.snapshot_blocking())
            .await
            .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
    }

    fn snapshot_blocking(&self) -> Result<bool, FileError> {
        let _one = self.snapshotting.lock();
        let started = Instant::now();
        let since;
        let (generation, map, directory) = {
            let mut disk = self.disk.lock();
            if self.closed.load(Ordering::SeqCst) || (disk.log.bytes() == 0 && disk.log.is_sound())
            {
                return Ok(false);
            }
            let generation = disk.log.rotate().map_err(|error| self.failed(error))?;
            since = self.pending_since.swap(0, Ordering::Relaxed);
            (generation, disk.next.clone(), disk.log.directory().to_owned())
        };
        let size = log::write_snapshot(&directory, generation, &map).map_err(|error| {
            self.pending_since.store(since, Ordering::Relaxed);
            self.failed(error)
        })?;
        self.disk.lock().log.snapshotted(generation);
        self.count_snapshot(size, started);
        Ok(true)
    }

    fn read<T>(&self, read: impl FnOnce(&Map) -> T) -> T {
        read(&self.shown.read())
    }

    fn touch(&self, clock: &Clock) {
        let now = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
        self.used.store(now, Ordering::Relaxed);
    }

    fn failed(&self, source: io::Error) -> FileError {
        FileError::from_io("write the memories of", self.project.as_str(), source)
    }

    /// Notes when the first change was made that no snapshot holds.
    fn note_change(&self, now: Timestamp) {
        let now = u64::try_from(now.as_microsecond()).unwrap_or(1);
        let (order, kept) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.pending_since.compare_exchange(0, now, order, kept);
    }

    fn count_snapshot(&self, size: u64, started: Instant) {
        if let Some(shared) = self.shared.upgrade() {
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.snapshots.count.fetch_add(1, Ordering::Relaxed);
            shared.snapshots.bytes.fetch_add(size, Ordering::Relaxed);
            shared.snapshots.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// Makes changes that arrived together; each is answered by itself.
    fn apply(&self, jobs: Vec<Job>, limits: &HotLimits, now: Timestamp) {
        let mut disk = self.disk.lock();
        if self.closed.load(Ordering::SeqCst) {
            let reason = || "the project is gone".to_owned();
            return answer_all(jobs, |_| Err(FileError::Unavailable { reason: reason() }));
        }
        if let Err(error) = self.make_sound(&mut disk, limits) {
            return answer_all(jobs, |_| Err(self.failed(copy(&error))));
        }
        let (mut records, mut planned, mut accepted) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            match disk.next.plan(&job.change, limits, now) {
                Ok(op) => {
                    record::encode(&op, &mut records);
                    disk.next.apply(&op);
                    planned.push(op);
                    accepted.push((job, disk.next.version()));
                }
                Err(error) => drop(job.answer.send(Err(error))),
            }
        }
        if planned.is_empty() {
            return;
        }
        self.note_change(now);
        if let Err(error) = disk.log.append(&records) {
            tracing::error!(project = %self.project, %error, "cannot write the memories' log");
            disk.next = self.read(Map::clone);
            for (job, _) in accepted {
                let _ = job.answer.send(Err(self.failed(copy(&error))));
            }
            return;
        }
        {
            let mut shown = self.shown.write();
            planned.iter().for_each(|op| shown.apply(op));
        }
        drop(disk);
        for op in &planned {
            event(op).into_iter().for_each(|event| drop(self.events.send(event)));
        }
        for (job, version) in accepted {
            let _ = job.answer.send(Ok(version));
        }
    }

    /// Goes on with another generation if the log failed or has become too long.
    fn make_sound(&self, disk: &mut Disk, limits: &HotLimits) -> io::Result<()> {
        let longest = limits.bytes.saturating_mul(2).max(1 << 20);
        if disk.log.is_sound() && disk.log.bytes() <= longest {
            return Ok(());
        }
        let started = Instant::now();
        let generation = disk.log.rotate()?;
        // Until the snapshot is there, what the failed log holds would still count.
        let written = log::write_snapshot(disk.log.directory(), generation, &disk.next);
        match written {
            Ok(size) => {
                disk.log.snapshotted(generation);
                self.pending_since.store(0, Ordering::Relaxed);
                self.count_snapshot(size, started);
                Ok(())
            }
            Err(error) => {
                disk.log.give_up();
                Err(error)
            }
        }
    }
}

/// The thread that writes.
fn write(mut queue: mpsc::Receiver<Job>) {
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < QUEUE
            && let Ok(job) = queue.try_recv()
        {
            batch.push(job);
        }
        // By project, each in the order it came.
        while let Some(first) = batch.first() {
            let memory = first.memory.clone();
            let (jobs, rest) = batch.into_iter().partition(|job| Arc::ptr_eq(&job.memory, &memory));
            batch = rest;
            match memory.shared.upgrade() {
                Some(shared) => memory.apply(jobs, &shared.limits, shared.clock.wall()),
                None => answer_all(jobs, |_| {
                    Err(FileError::Unavailable { reason: "the server is stopping".into() })
                }),
            }
        }
    }
}

fn answer_all(jobs: Vec<Job>, answer: impl Fn(&Change) -> Result<u64, FileError>) {
    for job in jobs {
        let result = answer(&job.change);
        let _ = job.answer.send(result);
    }
}

fn event(op: &Op) -> Vec<FileEvent> {
    match op {
        Op::Put { key, .. } => vec![FileEvent::modified(key)],
        Op::MakeDirectory { key, .. } => vec![FileEvent::created(key)],
        Op::Remove { key } => vec![FileEvent::removed(key)],
        Op::Move { from, to } => vec![FileEvent::removed(from), FileEvent::created(to)],
        Op::Begin { .. } | Op::End { .. } => Vec::new(),
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    }
}
