//! Reconnects to hosts: at the start of the server, after a broken connection, and after a silence.
//!
//! ```text
//!   searching ──▶ found: its terminals are adopted
//!        │  ├───▶ paused: the next use resumes it
//!        │  └───▶ gone: its terminals are lost, their state is kept
//!        └──────▶ unreachable: shown on its lease, retried until it is one of the others
//! ```
//! One lease never waits for another: each host has a recovery task of its own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use wire::Request;

use super::error::TerminalError;
use super::link::{HostLink, Silence};
use super::terminals::Terminals;
use crate::lease::{LeaseError, RunningInstance};
use base::event::EventKind;
use base::outbound::bounded;
use model::{InstanceId, LeaseId, LeaseState, Terminal, TerminalEvent, TerminalId};
use provider::ProviderError;

/// The first wait between two attempts to reconnect; it doubles with each.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long one attempt to reach an unreachable host waits for its greeting. A host that is resumed in that
/// time answers at once.
const GREETING_TIMEOUT: Duration = Duration::from_secs(15);
/// Providers with a longer reconnect timeout are remote.
const LOCAL_RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Hosts that are contacted at the same time when the server starts.
const CONCURRENT_RECOVERIES: usize = 64;

/// The host of a lease.
pub(super) enum LeaseHost {
    Running(HostLink),
    Paused,
    Nothing,
}

/// The purpose of a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seeker {
    /// A request: fails at once if the host is known to be unreachable.
    Request,
    /// The task that waits for an unreachable host.
    Recovery,
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
        let _ = tokio::task::spawn_blocking(shell::run_dir::remove_orphans).await;
        let mut leases: BTreeMap<LeaseId, Vec<Terminal>> = BTreeMap::new();
        for terminal in self.0.store.live_terminals().await? {
            leases.entry(terminal.lease_id.clone()).or_default().push(terminal);
        }
        let places = Arc::new(Semaphore::new(CONCURRENT_RECOVERIES));
        let (left, all) = watch::channel(leases.len());
        for (lease, terminals) in leases {
            let (done, first_attempt) = watch::channel(false);
            if !self.is_remote(&lease).await {
                let mut settling = self.0.settling.lock();
                settling.insert(lease.clone(), first_attempt);
            }
            let (this, places, left) = (self.clone(), places.clone(), left.clone());
            self.0.tasks.spawn(async move {
                let place = places.acquire_owned().await;
                let tried = || {
                    drop(place);
                    let mut settling = this.0.settling.lock();
                    settling.remove(&lease);
                    drop(settling);
                    done.send_replace(true);
                    left.send_modify(|left| *left -= 1);
                };
                this.reconnect(None, None, &lease, terminals, tried).await;
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
            let _ = tokio::time::timeout(Silence::NEAR.limit, settled).await;
        }
    }

    /// Returns since when the host of a lease has not answered; `None` if it is not known to be unreachable.
    pub fn unreachable_since(&self, lease: &LeaseId) -> Option<Timestamp> {
        self.0.unreachable.borrow().get(lease).copied()
    }

    /// Waits until the host of a lease is known to be unreachable.
    pub(super) async fn is_unreachable(&self, lease: &LeaseId) {
        let mut unreachable = self.0.unreachable.subscribe();
        let _ = unreachable.wait_for(|all| all.contains_key(lease)).await;
    }

    fn note_unreachable(&self, lease: &LeaseId) {
        let now = Timestamp::now();
        let added = self.0.unreachable.send_if_modified(|all| match all.contains_key(lease) {
            true => false,
            false => all.insert(lease.clone(), now).is_none(),
        });
        if added {
            tracing::warn!(%lease, "the host of a lease does not answer");
            self.0.events.publish(EventKind::LeaseUnreachable { lease_id: lease.clone() });
        }
    }

    fn note_reachable(&self, lease: &LeaseId) {
        if self.0.unreachable.send_if_modified(|all| all.remove(lease).is_some()) {
            tracing::info!(%lease, "the host of a lease answers again");
            self.0.events.publish(EventKind::LeaseReachable { lease_id: lease.clone() });
        }
    }

    /// Returns the host of a lease, if it has one. Creates none.
    pub(super) async fn find(&self, lease: &LeaseId) -> Result<LeaseHost, TerminalError> {
        let lease = self.0.leases.reconcile(lease).await?;
        match lease.state {
            LeaseState::Running(instance) => {
                let (lease_id, provider) = (lease.lease_id, lease.provider);
                let running = RunningInstance { lease_id, provider, instance, recreated: false };
                Ok(LeaseHost::Running(self.link(&running, Seeker::Recovery).await?))
            }
            LeaseState::Paused(_) => Ok(LeaseHost::Paused),
            LeaseState::Idle
            | LeaseState::Creating { .. }
            | LeaseState::Dead { .. }
            | LeaseState::Destroyed => Ok(LeaseHost::Nothing),
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
            let mut slot = live.runtime.lock().await;
            if slot.as_ref().is_some_and(|alive| alive.is_on(link)) {
                // A request adopted it meanwhile.
                continue;
            }
            if let Some(ended) = slot.take() {
                ended.end(&terminal.terminal_id).await;
            }
            // Before the scribe starts: an exit in the meantime is recorded after this.
            self.note_status(&terminal, TerminalEvent::Started).await;
            *slot = Some(self.adopt(&live, link, &info).await?);
            drop(slot);
            found += 1;
        }
        Ok(found)
    }

    /// Returns the connection to the host of an instance, which all its terminals share. Only callers for
    /// the same instance wait for each other.
    pub(super) async fn link(
        &self,
        running: &RunningInstance,
        seeker: Seeker,
    ) -> Result<HostLink, TerminalError> {
        let instance = running.instance.instance_id.clone();
        let lease = &running.lease_id;
        let unreachable = || TerminalError::Unreachable { lease: lease.clone() };
        let slot = {
            let mut links = self.0.links.lock();
            links.entry(instance.clone()).or_default().clone()
        };
        let mut slot = match seeker {
            Seeker::Recovery => slot.lock().await,
            // The recovery holds the lock while it waits for a late greeting.
            Seeker::Request => tokio::select! {
                biased;
                slot = slot.lock() => slot,
                () = self.is_unreachable(lease) => return Err(unreachable()),
            },
        };
        if let Some(link) = &*slot
            && !link.closed().is_cancelled()
        {
            return Ok(link.clone());
        }
        if seeker == Seeker::Request && self.unreachable_since(lease).is_some() {
            return Err(unreachable());
        }
        let silence = match self.is_remote(lease).await {
            true => Silence::FAR,
            false => Silence::NEAR,
        };
        let give_up = || {
            if seeker == Seeker::Request && self.unreachable_since(lease).is_none() {
                self.0.tasks.spawn(self.clone().seek(instance.clone(), lease.clone()));
            }
            self.note_unreachable(lease);
            unreachable()
        };
        let connection = match self.0.leases.connect(running).await {
            Ok(connection) => connection,
            Err(LeaseError::Provider { source: ProviderError::TimedOut { .. }, .. }) => {
                return Err(give_up());
            }
            Err(error) => return Err(error.into()),
        };
        let mut greeting = std::pin::pin!(HostLink::greet(connection, lease.clone(), silence));
        let greeted = match bounded("host.greeting", silence.limit, greeting.as_mut()).await {
            Ok(greeted) => greeted?,
            Err(_) if seeker == Seeker::Request => return Err(give_up()),
            Err(_) => {
                self.note_unreachable(lease);
                match bounded("host.late_greeting", GREETING_TIMEOUT, greeting).await {
                    Ok(greeted) => greeted?,
                    Err(_) => return Err(unreachable()),
                }
            }
        };
        self.note_reachable(lease);
        *slot = Some(greeted.clone());
        drop(slot);
        let watch = self.clone().watch_link(greeted.clone(), instance, lease.clone());
        self.0.tasks.spawn(watch);
        Ok(greeted)
    }

    /// Boxed, because the recovery of a host may start another.
    fn seek(
        self,
        instance: InstanceId,
        lease: LeaseId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            match self.terminals_on(&lease).await {
                Ok(terminals) => {
                    self.reconnect(None, Some(&instance), &lease, terminals, || ()).await;
                }
                Err(error) => tracing::error!(%error, "cannot list the terminals of a host"),
            }
        })
    }

    /// The live terminals of a lease.
    async fn terminals_on(&self, lease: &LeaseId) -> Result<Vec<Terminal>, TerminalError> {
        let all = self.0.store.live_terminals().await?;
        Ok(all.into_iter().filter(|terminal| terminal.lease_id == *lease).collect())
    }

    /// Boxed, because the recovery of a host may watch it again.
    fn watch_link(
        self,
        link: HostLink,
        instance: InstanceId,
        lease: LeaseId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let closed = link.closed();
            let mut reachable = link.reachable();
            loop {
                tokio::select! {
                    () = closed.cancelled() => break,
                    () = self.0.stopping.cancelled() => return,
                    _ = reachable.changed() => {}
                }
                let answers = *reachable.borrow_and_update();
                match answers {
                    true => self.note_reachable(&lease),
                    // A paused host is silent by request.
                    false if self.is_paused(&lease).await => {}
                    false => {
                        self.note_unreachable(&lease);
                        // Silent or gone: its provider knows which.
                        let asked = self.0.leases.lost(&lease, &instance).await;
                        let there = asked.map_or(true, |lease| match &lease.state {
                            LeaseState::Running(it) | LeaseState::Paused(it) => {
                                it.instance_id == instance
                            }
                            LeaseState::Idle
                            | LeaseState::Creating { .. }
                            | LeaseState::Dead { .. }
                            | LeaseState::Destroyed => false,
                        });
                        if !there {
                            link.close();
                        }
                    }
                }
            }
            self.note_reachable(&lease);
            Box::pin(self.relink(&link, &instance, &lease)).await;
        })
    }

    async fn is_paused(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| matches!(lease.state, LeaseState::Paused(_)))
    }

    /// Returns whether the host of a lease is behind a network, where short outages are normal.
    pub(super) async fn is_remote(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| self.0.leases.reconnect_timeout(&lease) > LOCAL_RECONNECT_TIMEOUT)
    }

    /// Reconnects after a broken connection. If the host is gone, its shells are lost.
    async fn relink(&self, closed: &HostLink, instance: &InstanceId, lease: &LeaseId) {
        {
            let mut links = self.0.links.lock();
            // A locked slot is being filled with the next connection.
            let over = links.get(instance).is_some_and(|slot| {
                let free = slot.try_lock();
                free.is_ok_and(|slot| slot.as_ref().is_none_or(|it| it.closed().is_cancelled()))
            });
            if over {
                links.remove(instance);
            }
        }
        if self.0.stopping.is_cancelled() {
            return;
        }
        match self.terminals_on(lease).await {
            Ok(terminals) => {
                let before = Some(closed.boot_id());
                self.reconnect(before, Some(instance), lease, terminals, || ()).await;
            }
            Err(error) => tracing::error!(%error, "cannot list the terminals of a lost host"),
        }
    }

    /// Reconnects to the host of a lease until it is found or known to be gone. `before` is its last boot id,
    /// if known. Terminals that it does not hold are lost. `tried` is called after the first attempt.
    async fn reconnect(
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
        let began = Instant::now();
        let mut tried = Some(tried);
        let mut deadline = tokio::time::Instant::now() + timeout;
        let (mut same, mut wait) = (false, INITIAL_BACKOFF);
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
                Ok(LeaseHost::Paused | LeaseHost::Nothing) => break,
                // It exists and holds its shells, so there is no deadline.
                Err(TerminalError::Unreachable { .. }) => {
                    deadline = tokio::time::Instant::now() + timeout;
                }
                Err(error) => tracing::warn!(%lease, %error, "a host cannot be reached"),
            }
            if let Some(tried) = tried.take() {
                tried();
            }
            if tokio::time::Instant::now() >= deadline {
                self.count_failed_recovery();
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.0.stopping.cancelled() => return,
            }
            wait = (wait * 2).min((timeout / 100).clamp(INITIAL_BACKOFF, MAX_BACKOFF));
        }
        self.note_reachable(lease);
        for terminal in missing {
            if !self.is_alive(&terminal.terminal_id).await {
                self.lost(&terminal.terminal_id).await;
            }
        }
        if let (Some(before), false) = (before, same) {
            self.strand(before).await;
        }
        if let Some(tried) = tried.take() {
            tried();
        }
    }

    /// Returns whether a terminal is on a reachable host.
    async fn is_alive(&self, id: &TerminalId) -> bool {
        let live = self.0.live.lock().get(id).cloned();
        let Some(live) = live else { return false };
        let slot = live.runtime.lock().await;
        slot.as_ref().is_some_and(|alive| !alive.link.closed().is_cancelled())
    }
}
