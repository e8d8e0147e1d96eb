//! Hot memories: reads come from RAM in well under a microsecond, and acknowledged writes are durable.
//!
//! One thread writes for all projects. It validates the queued changes against the next state of the map,
//! writes and syncs the records of a project together, and only then applies the changes for readers and
//! replies. Readers never wait for the disk. After a failed sync the log is not used again; the next change
//! first writes the whole state into a new generation.

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

use self::{log::MemoryLog, map::Map, record::Op};
use crate::{FileError, FileEvent, Relative, Stat};
use base::clock::Clock;
use model::{ProjectId, Timestamp};

pub(crate) use index::Index;
pub use map::{Expect, HotLimits, MemoryChange, MemoryEntry};

/// The length of the queue; further callers wait for a free slot.
const QUEUE_LENGTH: usize = 256;
/// The size of the queued contents; further callers wait.
const QUEUE_KIB: usize = 64 << 10;
/// The number of events buffered for a slow watcher. Beyond that it loses events and is notified.
const WATCH_QUEUE_LENGTH: usize = 256;

/// The hot memories of all projects, cheap to clone.
#[derive(Clone)]
pub struct HotMemories {
    shared: Arc<SharedMemories>,
}

struct SharedMemories {
    limits: HotLimits,
    clock: Clock,
    jobs: mpsc::Sender<DiskJob>,
    queue_kib: Arc<Semaphore>,
    loaded: Mutex<HashMap<ProjectId, Arc<OnceCell<Arc<Memory>>>>>,
    snapshots: Snapshots,
}

/// Totals of snapshots since the start.
#[derive(Debug, Default)]
pub struct Snapshots {
    pub count: AtomicU64,
    pub bytes: AtomicU64,
    pub micros: AtomicU64,
}

/// Counts over all loaded memories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub entries: u64,
    pub bytes: u64,
    /// The time of the oldest change that is in no snapshot.
    pub oldest_change: Option<Timestamp>,
}

/// The hot memories of one project.
pub struct Memory {
    project: ProjectId,
    /// The map for readers, which contains only changes on stable storage.
    visible: RwLock<Map>,
    disk: Mutex<MemoryDisk>,
    /// Locked while a snapshot is written.
    snapshotting: Mutex<()>,
    /// Set when no more changes are accepted.
    closed: AtomicBool,
    /// When it was last used, in microseconds.
    used: AtomicU64,
    /// The time of the first change that is in no snapshot, in microseconds; 0 means none.
    pending_since: AtomicU64,
    events: broadcast::Sender<FileEvent>,
    shared: std::sync::Weak<SharedMemories>,
}

struct MemoryDisk {
    log: MemoryLog,
    /// The map after the changes that are being written.
    next: Map,
}

struct DiskJob {
    memory: Arc<Memory>,
    change: MemoryChange,
    answer: oneshot::Sender<Result<u64, FileError>>,
    _permit: OwnedSemaphorePermit,
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
    /// Starts the writer thread. It ends when the last handle is dropped.
    pub fn start(limits: HotLimits, clock: Clock) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE_LENGTH);
        std::thread::Builder::new().name("memory-writer".into()).spawn(move || write(queue))?;
        let shared = SharedMemories {
            limits,
            clock,
            jobs,
            queue_kib: Arc::new(Semaphore::new(QUEUE_KIB)),
            loaded: Mutex::default(),
            snapshots: Snapshots::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the memories of a project. Loads them from its directory if necessary.
    pub async fn of(
        &self,
        project: &ProjectId,
        directory: PathBuf,
    ) -> Result<Arc<Memory>, FileError> {
        let cell = self.shared.loaded.lock().entry(project.clone()).or_default().clone();
        let load = || async {
            let (project, shared) = (project.clone(), self.shared.clone());
            base::task::blocking(move || Memory::load(project, &directory, &shared))
                .await
                .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
        };
        let memory = cell.get_or_try_init(load).await?;
        memory.touch(&self.shared.clock);
        Ok(memory.clone())
    }

    /// Returns the memories of a project, if they are loaded.
    #[must_use]
    pub fn get(&self, project: &ProjectId) -> Option<Arc<Memory>> {
        let memory = self.shared.loaded.lock().get(project)?.get()?.clone();
        memory.touch(&self.shared.clock);
        Some(memory)
    }

    /// Writes a snapshot of every project with changes that are in none.
    pub async fn snapshot_all(&self) -> Result<(), FileError> {
        let mut result = Ok(());
        for memory in self.loaded() {
            let done = memory.snapshot().await;
            result = result.and(done.map(|_| ()));
        }
        result
    }

    /// Writes a snapshot of a project, if it is loaded and has changes that are in none.
    pub async fn snapshot(&self, project: &ProjectId) -> Result<(), FileError> {
        let memory = self.loaded().into_iter().find(|memory| memory.project == *project);
        match memory {
            Some(memory) => memory.snapshot().await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Unloads the memories that were not used since then.
    pub async fn unload_unused(&self, since: Timestamp) -> Result<(), FileError> {
        let since = u64::try_from(since.as_microsecond()).unwrap_or(0);
        for memory in self.loaded() {
            if memory.used.load(Ordering::Relaxed) >= since || memory.events.receiver_count() > 0 {
                continue;
            }
            memory.snapshot().await?;
            let mut loaded = self.shared.loaded.lock();
            // One reference is ours and one is the map's, so it is not in use.
            if Arc::strong_count(&memory) == 2 {
                loaded.remove(&memory.project);
            }
        }
        Ok(())
    }

    /// Refuses further changes of a project and unloads it. Acknowledged changes are on disk when this
    /// returns.
    pub async fn close(&self, project: &ProjectId) {
        let cell = self.shared.loaded.lock().remove(project);
        if let Some(memory) = cell.and_then(|cell| cell.get().cloned()) {
            // A batch holds this lock while it is written; later batches see the flag.
            let done = base::task::blocking(move || {
                let _snapshot = memory.snapshotting.lock();
                let _disk = memory.disk.lock();
                memory.closed.store(true, Ordering::SeqCst);
            });
            let _ = done.await;
        }
    }

    /// Unloads memories whose files are about to be moved.
    pub async fn forget(&self, memory: &Memory) {
        self.close(&memory.project).await;
    }

    /// Totals of snapshots since the start.
    #[must_use]
    pub fn snapshots(&self) -> &Snapshots {
        &self.shared.snapshots
    }

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
        shared: &Arc<SharedMemories>,
    ) -> Result<Arc<Self>, FileError> {
        let recovered = MemoryLog::open(directory).map_err(|source| FileError::Io {
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
            visible: RwLock::new(recovered.map.clone()),
            disk: Mutex::new(MemoryDisk { log: recovered.log, next: recovered.map }),
            snapshotting: Mutex::default(),
            closed: AtomicBool::new(false),
            used: AtomicU64::new(0),
            pending_since: AtomicU64::new(0),
            events: broadcast::channel(WATCH_QUEUE_LENGTH).0,
            shared: Arc::downgrade(shared),
        });
        if pending {
            memory.note_change(shared.clock.wall());
        }
        Ok(memory)
    }

    /// Returns the memory at a path.
    pub fn get(&self, path: &Relative) -> Result<MemoryEntry, FileError> {
        self.read(|map| map.file(path).cloned())
    }

    /// Returns the metadata of a path.
    pub fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        self.read(|map| map.stat(path))
    }

    /// Lists the entries below a path up to a depth, sorted by name, starting after `after`.
    pub fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        self.read(|map| map.list(path, depth, after, limit))
    }

    /// Returns all memories at or below a path.
    #[must_use]
    pub fn files(&self, path: &Relative) -> Vec<(Box<str>, MemoryEntry)> {
        self.read(|map| map.files(path))
    }

    /// Returns the number of entries and bytes.
    #[must_use]
    pub fn usage(&self) -> (u64, u64) {
        self.read(Map::usage)
    }

    /// Subscribes to changes as they become visible.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<FileEvent> {
        self.events.subscribe()
    }

    /// Makes a change. `Ok` means that it is on stable storage, and contains the version of the last write,
    /// which is this one if it is a put.
    pub async fn change(self: &Arc<Self>, change: MemoryChange) -> Result<u64, FileError> {
        let stopping = || FileError::Unavailable { reason: "the server is stopping".into() };
        let shared = self.shared.upgrade().ok_or_else(stopping)?;
        if let MemoryChange::Put { path, bytes, .. } = &change
            && bytes.len() as u64 > shared.limits.entry_bytes
        {
            let limit = shared.limits.entry_bytes;
            return Err(FileError::TooLarge { path: path.to_string(), limit });
        }
        let weight = match &change {
            MemoryChange::Put { bytes, .. } => bytes.len() / 1024 + 1,
            MemoryChange::MakeDirectory { .. }
            | MemoryChange::Remove { .. }
            | MemoryChange::RemoveTree { .. }
            | MemoryChange::Move { .. } => 1,
        };
        let weight = u32::try_from(weight.min(QUEUE_KIB)).unwrap_or(1);
        let permit =
            shared.queue_kib.clone().acquire_many_owned(weight).await.map_err(|_| stopping())?;
        let (answer, answered) = oneshot::channel();
        let job = DiskJob { memory: self.clone(), change, answer, _permit: permit };
        shared.jobs.send(job).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Writes a snapshot if there are changes that are in none. Returns whether it did.
    pub async fn snapshot(self: &Arc<Self>) -> Result<bool, FileError> {
        let memory = self.clone();
        base::task::blocking(move || memory.snapshot_blocking())
            .await
            .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
    }

    fn snapshot_blocking(&self) -> Result<bool, FileError> {
        let _one = self.snapshotting.lock();
        let started = Instant::now();
        let since;
        let (generation, map, directory) = {
            let mut disk = self.disk.lock();
            if self.closed.load(Ordering::SeqCst) || (disk.log.bytes() == 0 && disk.log.is_usable())
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
        read(&self.visible.read())
    }

    fn touch(&self, clock: &Clock) {
        let now = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
        self.used.store(now, Ordering::Relaxed);
    }

    fn failed(&self, source: io::Error) -> FileError {
        FileError::from_io("write the memories of", self.project.as_str(), source)
    }

    /// Records the time of the first change that is in no snapshot.
    fn note_change(&self, now: Timestamp) {
        let now = u64::try_from(now.as_microsecond()).unwrap_or(1);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.pending_since.compare_exchange(0, now, success, failure);
    }

    fn count_snapshot(&self, size: u64, started: Instant) {
        if let Some(shared) = self.shared.upgrade() {
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.snapshots.count.fetch_add(1, Ordering::Relaxed);
            shared.snapshots.bytes.fetch_add(size, Ordering::Relaxed);
            shared.snapshots.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// Applies a batch of changes; each gets its own reply.
    fn apply(&self, jobs: Vec<DiskJob>, limits: &HotLimits, now: Timestamp) {
        let mut disk = self.disk.lock();
        if self.closed.load(Ordering::SeqCst) {
            let reason = || "the project was deleted".to_owned();
            return answer_all(jobs, |_| Err(FileError::Unavailable { reason: reason() }));
        }
        if let Err(error) = self.ensure_usable(&mut disk, limits) {
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
            let mut visible = self.visible.write();
            planned.iter().for_each(|op| visible.apply(op));
        }
        drop(disk);
        for op in &planned {
            event(op).into_iter().for_each(|event| drop(self.events.send(event)));
        }
        for (job, version) in accepted {
            let _ = job.answer.send(Ok(version));
        }
    }

    /// Starts another generation if the log failed or is too long.
    fn ensure_usable(&self, disk: &mut MemoryDisk, limits: &HotLimits) -> io::Result<()> {
        let max_log_bytes = limits.bytes.saturating_mul(2).max(1 << 20);
        if disk.log.is_usable() && disk.log.bytes() <= max_log_bytes {
            return Ok(());
        }
        let started = Instant::now();
        let generation = disk.log.rotate()?;
        // Until the snapshot is written, a restart would still apply the failed log.
        let written = log::write_snapshot(disk.log.directory(), generation, &disk.next);
        match written {
            Ok(size) => {
                disk.log.snapshotted(generation);
                self.pending_since.store(0, Ordering::Relaxed);
                self.count_snapshot(size, started);
                Ok(())
            }
            Err(error) => {
                disk.log.close();
                Err(error)
            }
        }
    }
}

/// The main loop of the writer thread.
fn write(mut queue: mpsc::Receiver<DiskJob>) {
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < QUEUE_LENGTH
            && let Ok(job) = queue.try_recv()
        {
            batch.push(job);
        }
        // Grouped by project, each in its order of arrival.
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

fn answer_all(jobs: Vec<DiskJob>, answer: impl Fn(&MemoryChange) -> Result<u64, FileError>) {
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
