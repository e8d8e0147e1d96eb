//! Saves checkpoints of a terminal's screen, and drops the screen when it is not needed.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Owner, View};
use crate::terminal::checkpoint;

/// The screen of a terminal without watchers is dropped after this time without output.
const UNLOAD_AFTER: Duration = Duration::from_secs(5);
/// A changed screen is checkpointed after this time at the latest…
const CHECKPOINT_AFTER: Duration = Duration::from_secs(2);
/// …and earlier after this much output, but at least [`CHECKPOINT_SPACING`] apart.
const CHECKPOINT_BYTES: u64 = 256 << 10;
const CHECKPOINT_SPACING: Duration = Duration::from_millis(250);

impl Owner {
    pub(super) fn due(&self) -> Option<Instant> {
        if matches!(self.view, View::Unloaded) {
            return None;
        }
        let save = self.dirty_since.filter(|_| self.saving.is_none()).map(|since| {
            let printed = self.offset - self.saved.unwrap_or(0);
            let early = self.last_save + CHECKPOINT_SPACING;
            if printed >= CHECKPOINT_BYTES { early } else { since + CHECKPOINT_AFTER }
        });
        let unload = self.clients.is_empty().then(|| self.last_output + UNLOAD_AFTER);
        save.into_iter().chain(unload).min()
    }

    pub(super) fn save_or_unload(&mut self) {
        let now = Instant::now();
        if self.dirty_since.is_some() && self.saving.is_none() {
            self.start_saving();
            return;
        }
        let silent = now.duration_since(self.last_output) >= UNLOAD_AFTER;
        if silent && self.clients.is_empty() && self.dirty_since.is_none() && self.saving.is_none()
        {
            self.view = View::Unloaded;
            self.shared.window.lock().clear();
            self.settings.dropped.notify_one();
        } else if silent {
            self.last_output = now;
        }
    }

    fn start_saving(&mut self) {
        let View::Loaded(screen) = &self.view else { return };
        let bytes = checkpoint::encode(self.offset, screen);
        let (sender, receiver) = oneshot::channel();
        let (directory, offset) = (self.directory.clone(), self.offset);
        let writers = self.settings.writers.clone();
        self.dirty_since = None;
        self.last_save = Instant::now();
        self.saving = Some(receiver);
        tokio::spawn(async move {
            let _permit = writers.acquire_owned().await;
            let saved = base::task::blocking(move || checkpoint::save(&directory, &bytes));
            let result = match saved.await {
                Ok(Ok(())) => Some(offset),
                // The directory was deleted with the terminal, which still has watchers.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Some(offset),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot write a checkpoint; retrying");
                    None
                }
                Err(_) => None,
            };
            let _ = sender.send(result);
        });
    }

    pub(super) fn saved_at(&mut self, offset: Option<u64>) {
        self.saving = None;
        match offset {
            Some(offset) => self.saved = Some(offset),
            None => self.dirty_since = Some(Instant::now()),
        }
    }

    pub(super) async fn save_now(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
        if self.dirty_since.is_some() {
            self.start_saving();
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
        }
    }
}
