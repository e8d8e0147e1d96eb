//! Containers that no directory of ours knows any more.
//!
//! An engine goes on with what it was asked for when whoever asked is killed: a container may come to be
//! after the next server has looked for what was left. So it is looked for often for a while after a start,
//! and after the engine was away, and seldom from then on.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::engine::{self, Listed};
use super::{Docker, labels};
use crate::namespace::Label;
use provider::ProviderError;

/// How often it is looked at first, how many times, and how often then.
const OFTEN: Duration = Duration::from_secs(1);
const ATTENTIVE: u32 = 180;
const SELDOM: Duration = Duration::from_secs(30);

impl Docker {
    /// Ends containers that nobody knows, until told to stop.
    pub async fn watch_strays(self, stop: CancellationToken) {
        let mut looks = 0;
        let mut before = BTreeSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(if looks < ATTENTIVE { OFTEN } else { SELDOM }) => {}
            }
            // Where there never was a container, no engine is bothered.
            if !self.0.containers.exists() {
                continue;
            }
            match self.end_strays(&before).await {
                Ok(seen) => {
                    before = seen;
                    looks = (looks + 1).min(ATTENTIVE);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot look for containers that nobody knows");
                    looks = 0;
                }
            }
        }
    }

    /// Ends those that were seen before and that still nobody knows; answers which nobody knows now.
    async fn end_strays(
        &self,
        before: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, ProviderError> {
        let engine = self.engine().await?;
        let listed = engine.labelled(&self.0.home).await;
        let listed = listed.map_err(engine::failed("list the containers"))?;
        let mut strays: BTreeSet<String> = self.unknown(listed).into_keys().collect();
        for name in strays.clone().intersection(before) {
            engine.remove(name).await.map_err(engine::failed("remove a container"))?;
            tracing::info!(container = name, "ended a container that nobody knows");
            strays.remove(name);
        }
        Ok(strays)
    }

    /// Of containers that the engine listed, those that no directory is of. A directory is there before
    /// its container is asked for, and until that is removed.
    pub(super) fn unknown(&self, mut listed: Listed) -> Listed {
        let _names_stay = self.0.pool.still();
        for entry in fs::read_dir(&self.0.containers).into_iter().flatten().flatten() {
            let own = || labels::container(&entry.file_name().to_string_lossy());
            listed.remove(&Label::read(&entry.path()).map_or_else(own, |label| label.name));
        }
        listed
    }
}
