//! Removes the shells and directories of terminals whose row was deleted.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use wire::Request;

use super::error::TerminalError;
use super::link::HostLink;
use super::owner::OwnerRequest;
use super::recovery::LeaseHost;
use super::terminals::Terminals;
use model::{LeaseId, LeaseState, TerminalId};

/// Hosts that are checked at the same time.
const CONCURRENT_HOSTS: usize = 16;
/// The timeout for checking one host.
const HOST_TIMEOUT: Duration = Duration::from_secs(20);

impl Terminals {
    /// Drops a terminal whose instance is about to be destroyed. Its watchers are notified and its commands
    /// are lost. Does not wait for the host.
    pub async fn discard(&self, id: &TerminalId) {
        let live = self.0.live.lock().remove(id);
        if let Some(live) = live {
            // If a task holds the lock to start a shell, that fails when the instance is destroyed.
            if let Ok(mut runtime) = live.runtime.try_lock()
                && let Some(connection) = runtime.take()
            {
                connection.link.unlisten(id.as_str());
            }
            // `try_send`, because the owner's queue may be full.
            let _ = live
                .requests
                .try_send(OwnerRequest::Lost("the terminal was deleted".into()).into());
        }
        self.lose_commands(id).await;
    }

    /// Removes the directory of a terminal that has neither a row nor a shell.
    pub async fn remove_directory(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let directory = self.directory(id);
        base::task::blocking(move || shell::run_dir::remove_terminal(&directory))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|source| TerminalError::Remove { terminal: id.clone(), source })
    }

    /// Ends shells and removes directories without a row, which a server leaves that is killed while it
    /// deletes them. Returns how many there were.
    pub async fn reap(&self) -> usize {
        let leases = match self.0.store.unsettled_leases().await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "cannot list the hosts to check for deleted terminals");
                return 0;
            }
        };
        let running = leases.into_iter().filter_map(|lease| match lease.state {
            LeaseState::Running(_) => Some(lease.lease_id),
            LeaseState::Idle
            | LeaseState::Creating { .. }
            | LeaseState::Paused(_)
            | LeaseState::Dead { .. }
            | LeaseState::Destroyed => None,
        });
        let hosts = stream::iter(running).map(|lease| async move {
            let reaped = tokio::time::timeout(HOST_TIMEOUT, self.reap_lease(&lease)).await;
            match reaped {
                Ok(Ok(ended)) => ended,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot check a host for shells of deleted terminals");
                    0
                }
                Err(_) => {
                    tracing::warn!(
                        "timed out while checking a host for shells of deleted terminals"
                    );
                    0
                }
            }
        });
        let ended: usize =
            hosts.buffer_unordered(CONCURRENT_HOSTS).fold(0, async |a, b| a + b).await;
        match self.reap_directories().await {
            Ok(removed) => ended + removed,
            Err(error) => {
                tracing::warn!(%error, "cannot check for directories of deleted terminals");
                ended
            }
        }
    }

    /// Ends the shells without a row in the host of a lease. Returns how many there were.
    pub(crate) async fn reap_lease(&self, lease: &LeaseId) -> Result<usize, TerminalError> {
        // Vendors are skipped: connecting may cost money or take long.
        if self.is_remote(lease).await {
            return Ok(0);
        }
        match self.find(lease).await? {
            LeaseHost::Running(link) => self.reap_host(&link).await,
            LeaseHost::Paused | LeaseHost::Absent => Ok(0),
        }
    }

    async fn reap_host(&self, link: &HostLink) -> Result<usize, TerminalError> {
        let mut ended = 0;
        for info in link.list().await? {
            let id = info.terminal.parse::<TerminalId>();
            // A terminal that is known here has a row, or its row is being written.
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
        let found = base::task::blocking(move || {
            let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter_map(|name| name.parse::<TerminalId>().ok()).collect::<Vec<_>>()
        });
        let found = found.await.unwrap_or_default();
        // Rows are read after the directories: a row exists before the terminal leaves this map.
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
