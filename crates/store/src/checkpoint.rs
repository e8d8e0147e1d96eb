//! Checkpoints the write-ahead log in the background without blocking the writer.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use rusqlite::Connection;
use tracing::debug;

use super::{check::Checked, connect::connect};

/// A checkpoint runs after this many commits.
const COMMITS_PER_CHECKPOINT: u32 = 64;

/// Counts the commits of the writer and wakes the checkpoint thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: SyncSender<()>,
    commits: u32,
}

impl Checkpointer {
    /// Starts the checkpoint thread, which ends when this handle is dropped.
    pub(super) fn start(path: PathBuf, checked: Checked) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("store-checkpoint".into());
        thread.spawn(move || run(&path, &woken, &checked))?;
        Ok(Self { wake, commits: 0 })
    }

    pub(super) fn committed(&mut self) {
        self.commits += 1;
        if self.commits >= COMMITS_PER_CHECKPOINT {
            self.commits = 0;
            // If it is running, the pending wake-up makes it check the whole log again.
            let _ = self.wake.try_send(());
        }
    }
}

fn run(path: &Path, woken: &Receiver<()>, checked: &Checked) {
    let mut connection: Option<Connection> = None;
    while woken.recv().is_ok() {
        if checked.verdict().is_err() {
            continue;
        }
        let existing = match connection.take() {
            Some(existing) => Ok(existing),
            None => connect(path).and_then(|fresh| {
                // It never waits for the writer: the next checkpoint does the rest.
                fresh.busy_timeout(Duration::ZERO)?;
                Ok(fresh)
            }),
        };
        let done = existing.and_then(|existing| {
            existing.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            Ok(existing)
        });
        match done {
            Ok(existing) => connection = Some(existing),
            // The log still contains everything, and a failed connection is not reused.
            Err(error) => {
                checked.note(&error);
                debug!(%error, "cannot checkpoint yet");
            }
        }
    }
}
