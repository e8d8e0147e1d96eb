//! The lock of the store: shared by those that use layers and roots, exclusive for those that remove them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::PullError;
use base::outbound::{TimedOut, bounded};

/// How long a pull waits while another process removes images.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// As long as this exists, no layer and no root is removed. The kernel releases it with the process.
#[derive(Debug, Clone)]
pub struct ImageGuard(Arc<File>);

impl ImageGuard {
    /// Waits while files are being removed.
    pub(crate) async fn shared(path: &Path) -> Result<Self, PullError> {
        let file = open_lock(path).map_err(PullError::storage("open the lock of the images"))?;
        lock_store(&file, FlockOperation::NonBlockingLockShared, LOCK_TIMEOUT).await?;
        Ok(Self(Arc::new(file)))
    }

    /// The lock for a program that works for us: it has the lock until it ends, even if this process is killed
    /// before.
    ///
    /// # Errors
    /// If there are no free descriptors.
    pub fn for_program(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// Returns `None` while any process uses layers or roots.
    pub(crate) fn try_exclusive(path: &Path) -> io::Result<Option<Self>> {
        let file = open_lock(path)?;
        Ok(try_lock(&file)?.then(|| Self(Arc::new(file))))
    }
}

/// Locks a file for this process alone. Returns `false` while another one has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the lock of a file of the store.
pub(crate) async fn lock_store(
    file: &File,
    operation: FlockOperation,
    limit: Duration,
) -> Result<(), PullError> {
    let locked = lock_file(file, operation, limit).await.map_err(PullError::Locked)?;
    locked.map_err(PullError::storage("lock the images"))
}

/// Waits for the lock of a file.
pub(crate) async fn lock_file(
    file: &File,
    operation: FlockOperation,
    limit: Duration,
) -> Result<io::Result<()>, TimedOut> {
    let wait = async {
        loop {
            match rustix::fs::flock(file, operation) {
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(POLL_INTERVAL).await,
                done => return done.map_err(io::Error::from),
            }
        }
    };
    bounded("images.lock", limit, wait).await
}

/// Opens the file of a lock, and creates it if it does not exist.
///
/// # Errors
/// If it can be neither opened nor created.
pub fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}
