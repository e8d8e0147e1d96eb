//! A lock per name, for work that only one task at a time may do on the same resource.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Locks by name. A name takes no memory while no task holds or waits for its lock.
#[derive(Debug, Default)]
pub struct KeyedLock(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl KeyedLock {
    /// Runs a future while holding the lock of a name.
    pub async fn with<T>(&self, name: &str, act: impl Future<Output = T>) -> T {
        let lock = self.0.lock().entry(name.to_owned()).or_default().clone();
        let done = {
            let _guard = lock.lock().await;
            act.await
        };
        let mut locks = self.0.lock();
        // One reference is ours and one the map's: no other task waits.
        if Arc::strong_count(&lock) == 2 {
            locks.remove(name);
        }
        done
    }
}
