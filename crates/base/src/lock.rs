//! Waits for locks that are held over slow work, such as starting a shell. No caller waits without a limit, and one
//! that waits in vain learns what is in use.

use std::time::Duration;

/// A lock that did not become free in time. Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is still in use by an earlier request after {limit:?}; try again later")]
pub struct StillLocked {
    /// What the lock protects, with its article.
    pub what: &'static str,
    pub limit: Duration,
}

/// Waits for a lock, such as `mutex.lock()`, but no longer than `limit`.
///
/// # Errors
/// If the lock is not free in time.
pub async fn locked<G>(
    what: &'static str,
    limit: Duration,
    lock: impl Future<Output = G>,
) -> Result<G, StillLocked> {
    tokio::time::timeout(limit, lock).await.map_err(|_| {
        tracing::warn!(what, ?limit, "a lock did not become free in time");
        StillLocked { what, limit }
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_stays_in_use_is_named() {
        let (mutex, limit) = (Mutex::new(()), Duration::from_secs(10));
        let held = locked("the shell", limit, mutex.lock()).await.unwrap();
        let error = locked("the shell", limit, mutex.lock()).await.unwrap_err();
        let text = "the shell is still in use by an earlier request after 10s; try again later";
        assert_eq!(error.to_string(), text);
        drop(held);
        assert!(locked("the shell", limit, mutex.lock()).await.is_ok());
    }
}
