//! Reconnects to hosts: at the start of the server, after a broken connection, and after a silence.
//!
//! ```text
//!   searching ──▶ found: its terminals are adopted
//!        │  ├───▶ paused: the next use resumes it
//!        │  └───▶ gone: its terminals are lost, their state is kept
//!        └──────▶ unreachable: shown on its lease, retried until it is one of the others
//! ```
//! One lease never waits for another: each host has a recovery task of its own.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use wire::Request;

use super::connect::{ConnectPurpose, LOCAL_RECONNECT_TIMEOUT};
use super::error::TerminalError;
use super::link::{HostLink, SilenceLimits};
use super::terminals::{SHELL_WAIT, Terminals};
use crate::lease::{LeaseError, RunningInstance};
use base::backoff::Backoff;
use model::{InstanceId, LeaseId, LeaseState, Terminal, TerminalEvent, TerminalId};

/// The first wait between two attempts to reconnect.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Hosts that are contacted at the same time when the server starts.
const CONCURRENT_RECOVERIES: usize = 64;

/// The host of a lease.
pub(super) enum LeaseHost {
    Running(HostLink),
    Paused,
    Absent,
}

/// The recovery of a server that has just started.
pub struct Recovery {
    left: watch::Receiver<usize>,
}

impl Recovery {
    /// Waits until every host was contacted once.
    pub async fn finished(&mut self) {
        let _ = self.left.wait_for(|left| *left == 0).await;
    }
}

impl Terminals {
    /// Starts to reconnect to every host that was left running, in parallel. Requests for a lease wait for
    /// the first attempt on that lease (`Terminals::settled`), and for nothing else.
    pub async fn recover(&self) -> Result<Recovery, TerminalError> {
        // Removes the files of hosts that were killed.
        let _ = base::task::blocking(shell::run_dir::remove_orphans).await;
        let mut leases: BTreeMap<LeaseId, Vec<Terminal>> = BTreeMap::new();
        for terminal in self.0.store.live_terminals().await? {
            leases.entry(terminal.lease_id.clone()).or_default().push(terminal);
        }
        // Those of the server before, which may not have reached their hosts.
        let mut queued = self.0.store.queued_commands().await?;
        // By one query: while hosts are contacted, every query waits its turn.
        let unsettled = self.0.store.unsettled_leases().await?.into_iter();
        let remote: HashSet<LeaseId> =
            unsettled.filter(|it| self.is_behind_network(it)).map(|it| it.lease_id).collect();
        let permits = Arc::new(Semaphore::new(CONCURRENT_RECOVERIES));
        let (left, all) = watch::channel(leases.len());
        for (lease, terminals) in leases {
            let (done, first_attempt) = watch::channel(false);
            if !remote.contains(&lease) {
                let mut settling = self.0.settling.lock();
                settling.insert(lease.clone(), first_attempt);
            }
            let (this, permits, left) = (self.clone(), permits.clone(), left.clone());
            let is_here = |id: &TerminalId| terminals.iter().any(|it| it.terminal_id == *id);
            let queued: Vec<_> = queued.extract_if(.., |it| is_here(&it.terminal_id)).collect();
            self.0.tasks.spawn(async move {
                let permit = permits.acquire_owned().await;
                let tried = || {
                    drop(permit);
                    let mut settling = this.0.settling.lock();
                    settling.remove(&lease);
                    drop(settling);
                    done.send_replace(true);
                    left.send_modify(|left| *left -= 1);
                };
                this.reconnect(None, None, &lease, terminals, tried).await;
                for command in queued {
                    if this.is_alive(&command.terminal_id).await {
                        let _ = this.end_unreceived(&command).await;
                    }
                }
            });
        }
        Ok(Recovery { left: all })
    }

    /// Waits for the first attempt to reach the host of a lease after the start of the server, at most as
    /// long as a host may be silent.
    pub(super) async fn settled(&self, lease: &LeaseId) {
        let first_attempt = {
            let settling = self.0.settling.lock();
            settling.get(lease).cloned()
        };
        if let Some(mut first_attempt) = first_attempt {
            let settled = first_attempt.wait_for(|done| *done);
            let _ = tokio::time::timeout(SilenceLimits::LOCAL.limit, settled).await;
        }
    }

    /// Returns the host of a lease, if it has one. Creates none.
    pub(super) async fn find(&self, lease: &LeaseId) -> Result<LeaseHost, TerminalError> {
        let lease = self.0.leases.reconcile(lease).await?;
        match lease.state {
            LeaseState::Running(instance) => {
                let (lease_id, provider) = (lease.lease_id, lease.provider);
                let running = RunningInstance { lease_id, provider, instance, recreated: false };
                Ok(LeaseHost::Running(self.link(&running, ConnectPurpose::Recovery).await?))
            }
            LeaseState::Paused(_) => Ok(LeaseHost::Paused),
            LeaseState::Idle
            | LeaseState::Creating { .. }
            | LeaseState::Dead { .. }
            | LeaseState::Destroyed => Ok(LeaseHost::Absent),
        }
    }

    /// Adopts the terminals of a host, and ends those that were deleted.
    async fn adopt_all(
        &self,
        link: &HostLink,
        missing: &mut Vec<Terminal>,
    ) -> Result<usize, TerminalError> {
        let mut found = 0;
        for info in link.list().await? {
            let id = info.terminal.parse::<TerminalId>().ok();
            let row = match &id {
                Some(id) => self.0.store.terminal(id).await?,
                None => None,
            };
            let Some(terminal) = row else {
                if id.is_some_and(|id| self.is_known(&id)) {
                    // Its row is being written.
                    continue;
                }
                tracing::info!(terminal = info.terminal, "ending a terminal that was deleted");
                let terminal = info.terminal;
                link.call(|seq| Request::Close { seq, terminal }).await?;
                continue;
            };
            missing.retain(|other| other.terminal_id != terminal.terminal_id);
            let live = self.live_at(&terminal, info.end_offset);
            let mut slot = live.runtime(SHELL_WAIT).await?;
            if slot.as_ref().is_some_and(|connection| connection.is_on(link)) {
                // A request adopted it meanwhile.
                continue;
            }
            if let Some(ended) = slot.take() {
                ended.end(&terminal.terminal_id).await;
            }
            // Before the recorder starts: an exit in the meantime is recorded after this.
            self.note_status(&terminal, TerminalEvent::Started).await;
            *slot = Some(self.adopt(&live, link, &info).await?);
            drop(slot);
            found += 1;
        }
        Ok(found)
    }

    /// Returns the live terminals of a lease.
    pub(super) async fn terminals_on(
        &self,
        lease: &LeaseId,
    ) -> Result<Vec<Terminal>, TerminalError> {
        let all = self.0.store.live_terminals().await?;
        Ok(all.into_iter().filter(|terminal| terminal.lease_id == *lease).collect())
    }

    /// Reconnects to the host of a lease until it is found or known to be gone. `before` is its last boot id,
    /// if known. Terminals that it does not hold are lost. `tried` is called after the first attempt.
    pub(super) async fn reconnect(
        &self,
        before: Option<&str>,
        instance: Option<&InstanceId>,
        lease: &LeaseId,
        mut missing: Vec<Terminal>,
        tried: impl FnOnce() + Send,
    ) {
        let (timeout, keeps) = match self.0.store.lease(lease).await {
            Ok(Some(lease)) => {
                (self.0.leases.reconnect_timeout(&lease), self.0.leases.keeps_programs(&lease))
            }
            Ok(None) | Err(_) => (LOCAL_RECONNECT_TIMEOUT, true),
        };
        // Short outages of a network are normal.
        let silence = match timeout > LOCAL_RECONNECT_TIMEOUT {
            true => SilenceLimits::REMOTE,
            false => SilenceLimits::LOCAL,
        };
        let began = Instant::now();
        let mut tried = Some(tried);
        let mut deadline = tokio::time::Instant::now() + timeout;
        let mut same = false;
        let max_backoff = (timeout / 100).clamp(INITIAL_BACKOFF, MAX_BACKOFF);
        let mut backoff = Backoff::new(INITIAL_BACKOFF, max_backoff);
        loop {
            if let Some(instance) = instance {
                let _ = self.0.leases.lost(lease, instance).await;
            }
            let found = {
                let mut found = std::pin::pin!(self.find(lease));
                let first = tokio::select! {
                    found = &mut found => Some(found),
                    () = self.is_unreachable(lease) => None,
                };
                match first {
                    Some(found) => found,
                    None => {
                        if let Some(tried) = tried.take() {
                            tried();
                        }
                        found.await
                    }
                }
            };
            match found {
                Ok(LeaseHost::Running(link)) => match self.adopt_all(&link, &mut missing).await {
                    Ok(found) => {
                        tracing::info!(%lease, found, "reconnected to a host");
                        self.count_reconnect(began);
                        same = before == Some(link.boot_id());
                        break;
                    }
                    Err(error) => tracing::warn!(%lease, %error, "a host was lost again"),
                },
                // Its shells survive the pause; the next use resumes it.
                Ok(LeaseHost::Paused) if keeps => {
                    if let Some(tried) = tried.take() {
                        tried();
                    }
                    return self.note_reachable(lease);
                }
                Ok(LeaseHost::Paused | LeaseHost::Absent) => break,
                // It exists and holds its shells, so there is no deadline.
                Err(TerminalError::Unreachable { .. }) => {
                    deadline = tokio::time::Instant::now() + timeout;
                }
                // The next server finds it.
                Err(TerminalError::Lease(LeaseError::Stopping)) => return,
                Err(error) => {
                    tracing::warn!(%lease, %error, "a host cannot be reached");
                    if began.elapsed() >= silence.limit {
                        self.note_unreachable(lease);
                    }
                }
            }
            if let Some(tried) = tried.take() {
                tried();
            }
            if tokio::time::Instant::now() >= deadline {
                self.count_failed_recovery();
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = self.0.stopping.cancelled() => return,
            }
        }
        self.note_reachable(lease);
        for terminal in missing {
            if !self.is_alive(&terminal.terminal_id).await {
                self.lost(&terminal.terminal_id).await;
            }
        }
        if let (Some(before), false) = (before, same) {
            self.recover_commands(before).await;
        }
        if let Some(tried) = tried.take() {
            tried();
        }
    }

    /// Returns whether a terminal is on a reachable host.
    async fn is_alive(&self, id: &TerminalId) -> bool {
        let live = self.0.live.lock().get(id).cloned();
        let Some(live) = live else { return false };
        // A request may be starting its shell.
        let Ok(slot) = live.runtime(SHELL_WAIT).await else { return true };
        slot.as_ref().is_some_and(|connection| !connection.link.closed().is_cancelled())
    }
}
