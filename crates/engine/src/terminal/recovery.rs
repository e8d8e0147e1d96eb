//! Finding hosts: at the start of the server, after a broken connection, and when one has been silent.
//!
//! ```text
//!   looked for ──▶ found: its terminals are taken up again
//!        │  ├────▶ paused: the next use resumes it
//!        │  └────▶ gone: its terminals are lost, their state is not
//!        └───────▶ unreachable: shown on its lease, looked for again until it is one of the others
//! ```
//! One lease never waits for another: each host is looked for by a task of its own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::wire::Request;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::error::TerminalError;
use super::link::{Link, Silence};
use super::terminals::Terminals;
use crate::lease::{LeaseError, RunningInstance};
use base::event::Happened;
use base::outbound::bounded;
use model::{InstanceId, LeaseId, LeaseState, Terminal, TerminalEvent, TerminalId};
use provider::ProviderError;

/// The first wait before a host that was cut off is looked for again; it doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// The longest wait between two tries to reach a host that does not answer.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long one try to reach an unreachable host waits for its greeting. A host that is continued in that
/// time answers at once.
const GREETING_TIMEOUT: Duration = Duration::from_secs(15);
/// A host that is looked for longer than this is not on this machine.
const FAR: Duration = Duration::from_secs(5);
/// Hosts that are greeted at once when the server starts.
const RECOVERIES: usize = 64;

/// What is beneath a lease.
pub(super) enum Found {
    Running(Link),
    Paused,
    Nothing,
}

/// Who wants a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seeker {
    /// A request: it fails fast where the host is known to be unreachable.
    Request,
    /// The task that waits for an unreachable host.
    Recovery,
}

/// The recovery of a server that has just started.
pub struct Recovery {
    left: watch::Receiver<usize>,
}

impl Recovery {
    /// Waits until every host was looked for once.
    pub async fn finished(&mut self) {
        let _ = self.left.wait_for(|left| *left == 0).await;
    }
}

impl Terminals {
    /// Starts to look for every host that was left running, all of them at once. What concerns one lease
    /// waits for the first look at that lease (`Terminals::settled`), and for nothing else.
    pub async fn recover(&self) -> Result<Recovery, TerminalError> {
        // Of hosts that were killed.
        let _ = tokio::task::spawn_blocking(host::shell::place::sweep).await;
        let mut leases: BTreeMap<LeaseId, Vec<Terminal>> = BTreeMap::new();
        for terminal in self.0.store.live_terminals().await? {
            leases.entry(terminal.lease_id.clone()).or_default().push(terminal);
        }
        let places = Arc::new(Semaphore::new(RECOVERIES));
        let (left, all) = watch::channel(leases.len());
        for (lease, terminals) in leases {
            let (done, first_look) = watch::channel(false);
            if !self.is_far(&lease).await {
                let mut settling = self.0.settling.lock();
                settling.insert(lease.clone(), first_look);
            }
            let (this, places, left) = (self.clone(), places.clone(), left.clone());
            self.0.tasks.spawn(async move {
                let place = places.acquire_owned().await;
                let looked = || {
                    drop(place);
                    let mut settling = this.0.settling.lock();
                    settling.remove(&lease);
                    drop(settling);
                    done.send_replace(true);
                    left.send_modify(|left| *left -= 1);
                };
                this.look_for(None, None, &lease, terminals, looked).await;
            });
        }
        Ok(Recovery { left: all })
    }

    /// Waits until the host of a lease was looked for once after the start of the server, for no longer
    /// than a silent host is waited for.
    pub(super) async fn settled(&self, lease: &LeaseId) {
        let first_look = {
            let settling = self.0.settling.lock();
            settling.get(lease).cloned()
        };
        if let Some(mut first_look) = first_look {
            let settled = first_look.wait_for(|done| *done);
            let _ = tokio::time::timeout(Silence::NEAR.limit, settled).await;
        }
    }

    /// Since when the host of a lease has not answered; `None` if it does, as far as is known.
    pub fn unreachable_since(&self, lease: &LeaseId) -> Option<Timestamp> {
        self.0.unreachable.borrow().get(lease).copied()
    }

    /// Waits until the host of a lease is known not to answer.
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
            self.0.events.tell(Happened::LeaseUnreachable { lease_id: lease.clone() });
        }
    }

    fn note_reachable(&self, lease: &LeaseId) {
        if self.0.unreachable.send_if_modified(|all| all.remove(lease).is_some()) {
            tracing::info!(%lease, "the host of a lease answers again");
            self.0.events.tell(Happened::LeaseReachable { lease_id: lease.clone() });
        }
    }

    /// The host of a lease if it has one; makes none.
    pub(super) async fn find(&self, lease: &LeaseId) -> Result<Found, TerminalError> {
        let lease = self.0.leases.reconcile(lease).await?;
        match lease.state {
            LeaseState::Running(instance) => {
                let (lease_id, provider) = (lease.lease_id, lease.provider);
                let running = RunningInstance { lease_id, provider, instance, recreated: false };
                Ok(Found::Running(self.link(&running, Seeker::Recovery).await?))
            }
            LeaseState::Paused(_) => Ok(Found::Paused),
            LeaseState::Idle
            | LeaseState::Creating { .. }
            | LeaseState::Dead { .. }
            | LeaseState::Destroyed => Ok(Found::Nothing),
        }
    }

    /// Takes up everything a host holds, and ends what nobody knows any more.
    async fn take_up(
        &self,
        link: &Link,
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
                    // Its row is on the way to the disk.
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
                // A request has adopted it meanwhile.
                continue;
            }
            // Before the scribe listens: one that has exited meanwhile is recorded as exited last.
            self.note_status(&terminal, TerminalEvent::Started).await;
            *slot = Some(self.adopt(&live, link, &info).await?);
            drop(slot);
            found += 1;
        }
        Ok(found)
    }

    /// A connection to the host of a lease's instance; there is one for all its terminals. Only those who
    /// want the same instance wait for each other.
    pub(super) async fn link(
        &self,
        running: &RunningInstance,
        seeker: Seeker,
    ) -> Result<Link, TerminalError> {
        let instance = running.instance.instance_id.clone();
        let lease = &running.lease_id;
        let slot = {
            let mut links = self.0.links.lock();
            links.entry(instance.clone()).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(link) = &*slot
            && !link.closed().is_cancelled()
        {
            return Ok(link.clone());
        }
        let unreachable = || TerminalError::Unreachable { lease: lease.clone() };
        if seeker == Seeker::Request && self.unreachable_since(lease).is_some() {
            return Err(unreachable());
        }
        let silence = match self.is_far(lease).await {
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
        let stream = match self.0.leases.connect(running).await {
            Ok(stream) => stream,
            Err(LeaseError::Provider { source: ProviderError::TimedOut { .. }, .. }) => {
                return Err(give_up());
            }
            Err(error) => return Err(error.into()),
        };
        let mut greeting = std::pin::pin!(Link::greet(stream, lease.clone(), silence));
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

    /// Boxed, for looking for a host may end in looking for it again.
    fn seek(
        self,
        instance: InstanceId,
        lease: LeaseId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            match self.terminals_on(&lease).await {
                Ok(terminals) => {
                    self.look_for(None, Some(&instance), &lease, terminals, || ()).await;
                }
                Err(error) => tracing::error!(%error, "cannot tell which terminals a host has"),
            }
        })
    }

    /// The live terminals of a lease.
    async fn terminals_on(&self, lease: &LeaseId) -> Result<Vec<Terminal>, TerminalError> {
        let all = self.0.store.live_terminals().await?;
        Ok(all.into_iter().filter(|terminal| terminal.lease_id == *lease).collect())
    }

    /// Boxed, for looking for a host may end in watching it again.
    fn watch_link(
        self,
        link: Link,
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
                    // A paused host is silent because it was asked to be.
                    false if self.is_paused(&lease).await => {}
                    false => {
                        self.note_unreachable(&lease);
                        // Silent, or gone without a word: its provider knows.
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

    /// Whether what is beneath a lease may be out of reach for a while and be there all the same.
    pub(super) async fn is_far(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| self.0.leases.reconnect_timeout(&lease) > FAR)
    }

    /// The connection to a host broke: it is looked for, and if it is gone, so are its shells.
    async fn relink(&self, closed: &Link, instance: &InstanceId, lease: &LeaseId) {
        {
            let mut links = self.0.links.lock();
            // A slot that somebody holds is being filled with the next connection.
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
                self.look_for(before, Some(instance), lease, terminals, || ()).await;
            }
            Err(error) => tracing::error!(%error, "cannot tell which terminals a lost host had"),
        }
    }

    /// Looks for the host of a lease, which had this name if that is known, until it is found or known to
    /// be gone. The terminals that it does not hold are lost. `looked` is called after the first try.
    async fn look_for(
        &self,
        before: Option<&str>,
        instance: Option<&InstanceId>,
        lease: &LeaseId,
        mut missing: Vec<Terminal>,
        looked: impl FnOnce() + Send,
    ) {
        let (patience, keeps) = match self.0.store.lease(lease).await {
            Ok(Some(lease)) => {
                (self.0.leases.reconnect_timeout(&lease), self.0.leases.keeps_programs(&lease))
            }
            Ok(None) | Err(_) => (FAR, true),
        };
        let began = Instant::now();
        let mut looked = Some(looked);
        let mut deadline = tokio::time::Instant::now() + patience;
        let (mut same, mut wait) = (false, RETRY_MIN);
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
                        if let Some(looked) = looked.take() {
                            looked();
                        }
                        found.await
                    }
                }
            };
            match found {
                Ok(Found::Running(link)) => match self.take_up(&link, &mut missing).await {
                    Ok(found) => {
                        tracing::info!(%lease, found, "reconnected to a host");
                        self.count_reconnect(began);
                        same = before == Some(link.boot_id());
                        break;
                    }
                    Err(error) => tracing::warn!(%lease, %error, "a host was lost again"),
                },
                // Its shells are kept; the next use resumes it.
                Ok(Found::Paused) if keeps => {
                    if let Some(looked) = looked.take() {
                        looked();
                    }
                    return self.note_reachable(lease);
                }
                Ok(Found::Paused | Found::Nothing) => break,
                // It is there and holds its shells: it is waited for, however long that takes.
                Err(TerminalError::Unreachable { .. }) => {
                    deadline = tokio::time::Instant::now() + patience;
                }
                Err(error) => tracing::warn!(%lease, %error, "a host cannot be reached"),
            }
            if let Some(looked) = looked.take() {
                looked();
            }
            if tokio::time::Instant::now() >= deadline {
                self.count_failed_recovery();
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.0.stopping.cancelled() => return,
            }
            wait = (wait * 2).min((patience / 100).clamp(RETRY_MIN, RETRY_MAX));
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
        if let Some(looked) = looked.take() {
            looked();
        }
    }

    /// Whether a terminal is on a host that can be reached.
    async fn is_alive(&self, id: &TerminalId) -> bool {
        let live = self.0.live.lock().get(id).cloned();
        let Some(live) = live else { return false };
        let slot = live.runtime.lock().await;
        slot.as_ref().is_some_and(|alive| !alive.link.closed().is_cancelled())
    }
}
