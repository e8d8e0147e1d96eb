//! Deleting: the rows go first, in one transaction; a task of the server then ends what they stood for.
//!
//! ```text
//!   DELETE ──▶ rows gone, leases wanted gone ──▶ answer, at the latest after `REMOVAL_WAIT`
//!                       └──▶ task: end shells, destroy leases, remove directories; again until it is done
//! ```
//! A server that is killed in between leaves leases that are wanted gone, which the next start and the
//! reaper destroy, and shells and directories without a row, which [`Terminals::reap`] removes.
//!
//! [`Terminals::reap`]: engine::terminal::Terminals::reap

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::http::StatusCode;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::App;
use base::event::EventKind;
use engine::removal::end_deleted;
use store::DeletedRows;

/// How long a `DELETE` waits for what it deletes to be gone.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);
/// Whether a `DELETE` waits.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// `false` answers 202 as soon as the deletion is recorded; `true` (default) waits a few seconds for
    /// it to be complete and answers 204.
    wait: Option<bool>,
}

/// The removals under way, by what each removes. One name has several where something was made again
/// and deleted again while the first was still being ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Removals(Arc<Mutex<HashMap<String, Vec<Removal>>>>);

/// A removal under way, to be waited for.
#[derive(Debug, Clone)]
pub struct Removal(watch::Receiver<bool>);

/// Held by the task that removes something; when it is dropped, the removal is over.
pub(super) struct Removing {
    removals: Removals,
    names: Vec<String>,
    done: watch::Sender<bool>,
}

/// What a removal goes by.
fn name(noun: &str, id: &dyn Display) -> String {
    format!("{noun} {id}")
}

impl Removals {
    /// The removal of something, if it is under way.
    pub(super) fn of(&self, noun: &str, id: &dyn Display) -> Option<Removal> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&name(noun, id))?.last().cloned()
    }

    /// Notes that something is being removed.
    pub(super) fn begin(&self, noun: &str, id: &dyn Display) -> Removing {
        let done = watch::channel(false).0;
        let mut removing = Removing { removals: self.clone(), names: Vec::new(), done };
        removing.add(noun, id);
        removing
    }
}

impl Removing {
    fn add(&mut self, noun: &str, id: &dyn Display) {
        let name = name(noun, id);
        let mut all = self.removals.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.clone()).or_default().push(self.removal());
        self.names.push(name);
    }

    fn removal(&self) -> Removal {
        Removal(self.done.subscribe())
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        let own = self.removal();
        let mut all = self.removals.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in self.names.drain(..) {
            if let Some(known) = all.get_mut(&name) {
                known.retain(|other| !other.0.same_channel(&own.0));
                if known.is_empty() {
                    all.remove(&name);
                }
            }
        }
        drop(all);
        self.done.send_replace(true);
    }
}

impl Removal {
    /// Waits until everything is gone, but no longer than [`REMOVAL_WAIT`].
    pub async fn wait(mut self) {
        // Too late is no error: what is not gone yet is recorded, and goes without us.
        let _ = tokio::time::timeout(REMOVAL_WAIT, self.0.wait_for(|done| *done)).await;
    }

    /// The answer to a `DELETE`.
    pub(super) async fn answer(self, query: RemovalQuery) -> StatusCode {
        if query.wait == Some(false) {
            return StatusCode::ACCEPTED;
        }
        self.wait().await;
        StatusCode::NO_CONTENT
    }
}

impl App {
    /// Ends what deleted rows leave behind, in a task of the server.
    pub(super) fn end_gone(&self, mut removing: Removing, gone: DeletedRows) -> Removal {
        for (terminal_id, _) in &gone.terminals {
            removing.add("terminal", terminal_id);
            self.events.publish(EventKind::TerminalDeleted { terminal_id: terminal_id.clone() });
        }
        let removal = removing.removal();
        let (terminals, leases) = (self.terminals.clone(), self.leases.clone());
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = end_deleted(&terminals, &leases, gone) => {}
            }
            drop(removing);
        });
        removal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_removal_is_known_until_it_is_over_even_if_its_name_is_used_again() {
        let removals = Removals::default();
        let first = removals.begin("thread", &"a");
        let second = removals.begin("thread", &"a");
        let mut removal = removals.of("thread", &"a").unwrap();
        drop(first);
        assert!(removals.of("thread", &"a").is_some(), "the second is under way");
        assert!(!*removal.0.borrow());
        drop(second);
        assert!(removal.0.wait_for(|done| *done).await.is_ok());
        assert!(removals.of("thread", &"a").is_none());
    }
}
