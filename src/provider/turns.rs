//! Things that are made by one task at a time, each by its name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Who makes what.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Does something for a name while nobody else does; whoever asks meanwhile waits.
    pub(super) async fn alone<T>(&self, name: &str, act: impl Future<Output = T>) -> T {
        let turns = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns().entry(name.to_owned()).or_default().clone();
        let done = {
            let _mine = turn.lock().await;
            act.await
        };
        let mut turns = turns();
        // Ours and the map's: nobody waits.
        if Arc::strong_count(&turn) == 2 {
            turns.remove(name);
        }
        done
    }
}
