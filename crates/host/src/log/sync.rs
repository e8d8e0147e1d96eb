//! Syncing logs to stable storage, so that the loop never waits for a disk.
//!
//! One thread runs sync jobs. A failed sync is not retried: the kernel may have marked the pages clean.
//! Instead the log begins a new segment, and its durable offset does not advance until everything up to
//! the failure was trimmed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

/// From this many logs on, one `syncfs` is cheaper than one `fsync` per log.
const SYNCFS_THRESHOLD: usize = 16;

/// How far a log is durable. Shared between its writer and the syncer.
#[derive(Debug)]
pub struct Durable {
    offset: AtomicU64,
    busy: AtomicBool,
    failed: AtomicBool,
    /// The offset up to which bytes may be missing on disk after a failed sync, or `u64::MAX`.
    failed_upto: AtomicU64,
}

impl Durable {
    pub(super) fn new(offset: u64) -> Self {
        Self {
            offset: AtomicU64::new(offset),
            busy: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failed_upto: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the offset up to which everything is on stable storage.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Acquire)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Returns whether bytes may be missing on disk after a failed sync.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_upto.load(Ordering::Acquire) != u64::MAX
    }

    pub(super) fn take_failure(&self) -> bool {
        self.failed.load(Ordering::Relaxed) && self.failed.swap(false, Ordering::AcqRel)
    }

    /// Notes that the log was trimmed. Clears a failure if all bytes that may be missing were trimmed.
    pub(super) fn trimmed(&self, upto: u64) {
        if self.failed_upto.load(Ordering::Acquire) <= upto {
            self.failed_upto.store(u64::MAX, Ordering::Release);
        }
    }

    fn done(&self, upto: u64, result: &io::Result<()>) {
        match result {
            Ok(()) if !self.has_failed() => {
                self.offset.fetch_max(upto, Ordering::AcqRel);
            }
            Ok(()) => {}
            Err(_) => {
                self.failed_upto.store(upto, Ordering::Release);
                self.failed.store(true, Ordering::Release);
            }
        }
        self.busy.store(false, Ordering::Release);
    }
}

/// The files of one log to sync.
#[derive(Debug)]
pub struct SyncJob {
    files: Vec<Arc<File>>,
    dir: Option<PathBuf>,
    scope: SyncScope,
    upto: u64,
    durable: Arc<Durable>,
}

/// The files that a sync job writes to stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncScope {
    /// The files and the directory of the log.
    Files,
    /// The whole file system.
    FileSystem,
}

impl SyncJob {
    pub(super) fn new(
        files: Vec<Arc<File>>,
        dir: Option<PathBuf>,
        scope: SyncScope,
        upto: u64,
        durable: Arc<Durable>,
    ) -> Self {
        durable.busy.store(true, Ordering::Release);
        Self { files, dir, scope, upto, durable }
    }

    /// Syncs on the current thread.
    ///
    /// # Errors
    /// The error of the disk, which is already recorded in [`Durable`].
    pub fn run(self) -> io::Result<()> {
        let result = self.sync();
        self.durable.done(self.upto, &result);
        result
    }

    fn sync(&self) -> io::Result<()> {
        if self.scope == SyncScope::FileSystem
            && let Some(file) = self.files.first()
        {
            return Ok(rustix::fs::syncfs(file)?);
        }
        for file in &self.files {
            file.sync_data()?;
        }
        match &self.dir {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }

    fn device(&self) -> Option<u64> {
        self.files.first().and_then(|file| rustix::fs::fstat(file).ok()).map(|stat| stat.st_dev)
    }
}

/// The syncing thread. Its queue is bounded by the number of logs: each log has at most one job in it.
#[derive(Debug, Default)]
pub struct Syncer {
    queue: Mutex<Vec<SyncJob>>,
    wake: Condvar,
    failures: AtomicU64,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start() -> io::Result<Arc<Self>> {
        let syncer = Arc::new(Self::default());
        let worker = Arc::clone(&syncer);
        std::thread::Builder::new().name("sync".into()).stack_size(64 << 10).spawn(move || {
            loop {
                worker.work(worker.next());
            }
        })?;
        Ok(syncer)
    }

    /// Queues a job.
    pub fn submit(&self, job: SyncJob) {
        self.queue.lock().push(job);
        self.wake.notify_one();
    }

    /// Returns how many syncs failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn next(&self) -> Vec<SyncJob> {
        let mut queue = self.queue.lock();
        self.wake.wait_while(&mut queue, |queue| queue.is_empty());
        std::mem::take(&mut *queue)
    }

    fn work(&self, jobs: Vec<SyncJob>) {
        let count = jobs.len();
        let mut synced: Option<u64> = None;
        for job in jobs {
            let device = job.device();
            let result = if count > SYNCFS_THRESHOLD && device.is_some() && device == synced {
                job.durable.done(job.upto, &Ok(()));
                Ok(())
            } else if count > SYNCFS_THRESHOLD && device.is_some() {
                let result = SyncJob { scope: SyncScope::FileSystem, ..job }.run();
                synced = result.is_ok().then_some(device).flatten();
                result
            } else {
                job.run()
            };
            if result.is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
