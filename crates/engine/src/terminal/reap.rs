//! Removes what terminals leave behind that have no row any more: shells on a host, directories.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use host::wire::Request;

use super::error::TerminalError;
use super::link::Link;
use super::owner::Ask;
use super::recovery::Found;
use super::terminals::Terminals;
use model::{LeaseId, LeaseState, TerminalId};

/// Hosts that are asked at the same time.
const CONCURRENT_HOSTS: usize = 16;
/// How long one host may take to say what it holds and to end what has no row.
const HOST_TIMEOUT: Duration = Duration::from_secs(20);

impl Terminals {
    /// Lets go of a terminal whose instance is about to be destroyed: its watchers are told, its commands
    /// are lost. The host is not asked, so it need not answer.
    pub async fn discard(&self, id: &TerminalId) {
        let live = self.0.live.lock().remove(id);
        if let Some(live) = live {
            // Held by a task that is starting a shell, which fails when the instance goes.
            if let Ok(mut runtime) = live.runtime.try_lock()
                && let Some(alive) = runtime.take()
            {
                alive.link.unlisten(id.as_str());
            }
            // Not waited for: the owner's queue may be full of what a watcher has yet to read.
            let _ = live.asks.try_send(Ask::Lost("the terminal was deleted".into()).into());
        }
        self.lose_commands(id).await;
    }

    /// Removes the directory of a terminal that has no row and no shell any more.
    pub async fn remove_directory(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let directory = self.directory(id);
        tokio::task::spawn_blocking(move || host::shell::place::remove(&directory))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|source| TerminalError::Remove { terminal: id.clone(), source })
    }

    /// Ends shells that have no row on every host within reach, and removes directories that have none:
    /// what a server that was killed while it deleted them left. Returns how many there were.
    pub async fn reap(&self) -> usize {
        let leases = match self.0.store.unsettled_leases().await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "cannot tell which hosts there are");
                return 0;
            }
        };
        let running = leases.into_iter().filter_map(|lease| match lease.state {
            LeaseState::Running(_) => Some(lease.lease_id),
            _ => None,
        });
        let hosts = stream::iter(running).map(|lease| async move {
            let reaped = tokio::time::timeout(HOST_TIMEOUT, self.reap_lease(&lease)).await;
            match reaped {
                Ok(Ok(ended)) => ended,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot look for shells without a terminal");
                    0
                }
                Err(_) => {
                    tracing::warn!("a host does not say which shells it holds");
                    0
                }
            }
        });
        let ended: usize =
            hosts.buffer_unordered(CONCURRENT_HOSTS).fold(0, async |a, b| a + b).await;
        match self.reap_directories().await {
            Ok(removed) => ended + removed,
            Err(error) => {
                tracing::warn!(%error, "cannot look for directories without a terminal");
                ended
            }
        }
    }

    async fn reap_lease(&self, lease: &LeaseId) -> Result<usize, TerminalError> {
        // Nobody connects to a vendor for this: its instance may cost money, or not answer for long.
        if self.is_far(lease).await {
            return Ok(0);
        }
        match self.find(lease).await? {
            Found::Running(link) => self.reap_host(&link).await,
            Found::Paused | Found::Nothing => Ok(0),
        }
    }

    async fn reap_host(&self, link: &Link) -> Result<usize, TerminalError> {
        let mut ended = 0;
        for info in link.list().await? {
            let id = info.terminal.parse::<TerminalId>();
            // What is known here has a row, or is being opened and its row is on the way.
            let known = match &id {
                Ok(id) => self.is_known(id) || self.0.store.terminal(id).await?.is_some(),
                Err(_) => false,
            };
            if known {
                continue;
            }
            tracing::info!(terminal = info.terminal, "ending a shell whose terminal was deleted");
            let terminal = info.terminal;
            link.call(|seq| Request::Close { seq, terminal }).await?;
            ended += 1;
        }
        Ok(ended)
    }

    async fn reap_directories(&self) -> Result<usize, TerminalError> {
        let all = self.0.settings.home.join("terminals");
        let found = tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter_map(|name| name.parse::<TerminalId>().ok()).collect::<Vec<_>>()
        });
        let found = found.await.unwrap_or_default();
        // Read after the directories: the row of a terminal is there before it is forgotten here.
        let found: Vec<_> = found.into_iter().filter(|id| !self.is_known(id)).collect();
        let rows: HashSet<_> = self.0.store.terminal_ids().await?.into_iter().collect();
        let mut removed = 0;
        for id in found {
            if !rows.contains(&id) {
                tracing::info!(terminal = %id, "removing the directory of a deleted terminal");
                self.remove_directory(&id).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}
