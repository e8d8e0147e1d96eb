//! Moves what was committed from the log into the file, beside the writer and never in its way.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use rusqlite::Connection;
use tracing::debug;

use super::{check::Checked, connect::connect};

/// How many commits are worth a checkpoint.
const COMMITS: u32 = 64;

/// The writer's side: counts commits and wakes the other.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: SyncSender<()>,
    commits: u32,
}

impl Checkpointer {
    /// Starts it; it ends when this handle is dropped.
    pub(super) fn start(path: PathBuf, checked: Checked) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("store-checkpoint".into());
        thread.spawn(move || run(&path, &woken, &checked))?;
        Ok(Self { wake, commits: 0 })
    }

    /// Tells that something was committed.
    pub(super) fn committed(&mut self) {
        self.commits += 1;
        if self.commits >= COMMITS {
            self.commits = 0;
            // One that is at it already looks at the whole log when it is woken next.
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
        let kept = match connection.take() {
            Some(kept) => Ok(kept),
            None => connect(path).and_then(|fresh| {
                // It never waits for the writer: what is not done is done the next time.
                fresh.busy_timeout(Duration::ZERO)?;
                Ok(fresh)
            }),
        };
        let done = kept.and_then(|kept| {
            kept.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            Ok(kept)
        });
        match done {
            Ok(kept) => connection = Some(kept),
            // The log has it all, and a connection that failed is not used again.
            Err(error) => {
                checked.note(&error);
                debug!(%error, "cannot checkpoint yet");
            }
        }
    }
}
