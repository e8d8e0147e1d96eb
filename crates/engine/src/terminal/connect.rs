//! Connects to hosts, and watches each connection until it is closed.

use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

use super::error::TerminalError;
use super::link::{HostLink, SilenceLimits};
use super::terminals::Terminals;
use crate::lease::{LeaseError, RunningInstance};
use base::event::EventKind;
use base::lock::locked;
use base::outbound::bounded;
use model::{InstanceId, Lease, LeaseId, LeaseState};
use provider::ProviderError;

/// How long one attempt to reach an unreachable host waits for its greeting. A host that is resumed in that
/// time answers at once.
const GREETING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a connection that another caller makes is waited for: the deadlines of its steps, and some more.
const CONNECT_WAIT: Duration = Duration::from_secs(150);
/// Providers with a longer reconnect timeout are remote.
pub(super) const LOCAL_RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The purpose of a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectPurpose {
    /// A request: fails at once if the host is known to be unreachable.
    Request,
    /// The task that waits for an unreachable host.
    Recovery,
}

impl Terminals {
    /// Returns the connection to the host of an instance, which all its terminals share. Only callers for
    /// the same instance wait for each other.
    pub(super) async fn link(
        &self,
        running: &RunningInstance,
        purpose: ConnectPurpose,
    ) -> Result<HostLink, TerminalError> {
        let instance = running.instance.instance_id.clone();
        let lease = &running.lease_id;
        let unreachable = || TerminalError::Unreachable { lease: lease.clone() };
        let slot = {
            let mut links = self.0.links.lock();
            links.entry(instance.clone()).or_default().clone()
        };
        let slot = locked("the connection to the host", CONNECT_WAIT, slot.lock());
        let mut slot = match purpose {
            ConnectPurpose::Recovery => slot.await?,
            // The recovery holds the lock while it waits for a late greeting.
            ConnectPurpose::Request => tokio::select! {
                biased;
                slot = slot => slot?,
                () = self.is_unreachable(lease) => return Err(unreachable()),
            },
        };
        if let Some(link) = &*slot
            && !link.closed().is_cancelled()
        {
            return Ok(link.clone());
        }
        if purpose == ConnectPurpose::Request && self.unreachable_since(lease).is_some() {
            return Err(unreachable());
        }
        let silence = match self.is_remote(lease).await {
            true => SilenceLimits::REMOTE,
            false => SilenceLimits::LOCAL,
        };
        let give_up = || {
            if purpose == ConnectPurpose::Request && self.unreachable_since(lease).is_none() {
                self.0.tasks.spawn(self.clone().recover_host(instance.clone(), lease.clone()));
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
            Err(_) if purpose == ConnectPurpose::Request => return Err(give_up()),
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

    /// Reconnects to an unreachable host. Boxed, because the recovery of a host may start another.
    fn recover_host(
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

    /// Watches a connection, and reconnects when it is closed. Boxed, because the recovery of a host may watch it
    /// again.
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
                        // The provider knows whether the host is silent or gone.
                        let inspected = self.0.leases.lost(&lease, &instance).await;
                        let exists = inspected.map_or(true, |lease| match &lease.state {
                            LeaseState::Running(it) | LeaseState::Paused(it) => {
                                it.instance_id == instance
                            }
                            LeaseState::Idle
                            | LeaseState::Creating { .. }
                            | LeaseState::Dead { .. }
                            | LeaseState::Destroyed => false,
                        });
                        if !exists {
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

    /// Returns whether the instance of a lease runs, as far as is known.
    pub(super) async fn has_instance(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| matches!(lease.state, LeaseState::Running(_)))
    }

    /// Returns whether the host of a lease is behind a network, where short outages are normal.
    pub(super) async fn is_remote(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| self.is_behind_network(&lease))
    }

    pub(super) fn is_behind_network(&self, lease: &Lease) -> bool {
        self.0.leases.reconnect_timeout(lease) > LOCAL_RECONNECT_TIMEOUT
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

    /// Returns since when the host of a lease has not answered; `None` if it is not known to be unreachable.
    pub fn unreachable_since(&self, lease: &LeaseId) -> Option<Timestamp> {
        self.0.unreachable.borrow().get(lease).copied()
    }

    /// Returns the leases whose hosts do not answer.
    pub fn unreachable_leases(&self) -> Vec<LeaseId> {
        self.0.unreachable.borrow().keys().cloned().collect()
    }

    /// Waits until the host of a lease is known to be unreachable.
    pub(crate) async fn is_unreachable(&self, lease: &LeaseId) {
        let mut unreachable = self.0.unreachable.subscribe();
        let _ = unreachable.wait_for(|all| all.contains_key(lease)).await;
    }

    pub(super) fn note_unreachable(&self, lease: &LeaseId) {
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

    pub(super) fn note_reachable(&self, lease: &LeaseId) {
        if self.0.unreachable.send_if_modified(|all| all.remove(lease).is_some()) {
            tracing::info!(%lease, "the host of a lease answers again");
            self.0.events.publish(EventKind::LeaseReachable { lease_id: lease.clone() });
        }
    }
}
