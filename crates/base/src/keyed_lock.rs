//! A lock per name, for work that only one task at a time may do on the same resource.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::lock::{StillLocked, locked};

/// Locks by name. A name takes no memory while no task holds or waits for its lock.
#[derive(Debug)]
pub struct KeyedLock {
    what: &'static str,
    limit: Duration,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A use of a lock, whether or not the lock is held yet.
struct Use<'a> {
    locks: &'a KeyedLock,
    name: &'a str,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl KeyedLock {
    /// Creates locks that are waited for no longer than `limit`. `what` is what each protects, with its article.
    #[must_use]
    pub fn new(what: &'static str, limit: Duration) -> Self {
        Self { what, limit, locks: Mutex::default() }
    }

    /// Runs a future while holding the lock of a name.
    ///
    /// # Errors
    /// If the lock is not free in time. Nothing was done.
    pub async fn with<T>(
        &self,
        name: &str,
        act: impl Future<Output = T>,
    ) -> Result<T, StillLocked> {
        let lock = self.locks.lock().entry(name.to_owned()).or_default().clone();
        let used = Use { locks: self, name, lock };
        let _guard = locked(self.what, self.limit, used.lock.lock()).await?;
        Ok(act.await)
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks.lock();
        // One reference is ours and one the map's: no other task waits.
        if Arc::strong_count(&self.lock) == 2 {
            locks.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_name_is_kept_after_its_use() {
        let limit = Duration::from_secs(10);
        let locks = KeyedLock::new("the image", limit);
        let stuck = locks.with("a", pending::<()>());
        let other = async {
            let error = locks.with("a", async {}).await.unwrap_err();
            assert_eq!(error, StillLocked { what: "the image", limit });
            assert_eq!(locks.with("b", async { 1 }).await, Ok(1));
        };
        tokio::select! { biased; _ = stuck => {}, () = other => {} }
        // The stuck use was dropped while it held the lock.
        assert_eq!(locks.with("a", async { 2 }).await, Ok(2));
        assert!(locks.locks.lock().is_empty());
    }
}
