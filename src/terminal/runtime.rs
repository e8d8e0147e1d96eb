//! The live end of a terminal: started when it is needed, found again when it is there.
//!
//! Starting is recovering: whether the server has just come up, the connection broke, or the
//! instance was made anew, the host is asked what it holds, what it holds is taken up again, and
//! what it does not hold is opened from the state in the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use host::wire::{Code, Request, TerminalInfo};
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::limit::Limits;
use super::link::{Feed, Link, LinkError, Silence};
use super::owner::{Ask, Format, Runtime};
use super::scribe::{self, Desk, Order, Scribe};
use super::{Live, Place, TerminalError, Terminals};
use crate::event::Happened;
use crate::lease::{IfPaused, LeaseError, Running};
use crate::model::{
    Command, CommandEnd, CommandStatus, Env, InstanceId, LeaseId, LeaseState, ShellKind, Terminal,
    TerminalEvent, TerminalId, TerminalState, Thread,
};
use crate::outbound::bounded;
use crate::provider::{self, ProviderError};

/// Output events that wait for an owner before the terminal counts as behind.
const OUTPUT: usize = 128;
/// Records that wait for a scribe before it has to catch up.
const RECORDS: usize = 1024;
/// Orders that wait for a scribe.
const ORDERS: usize = 16;
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

/// What to do about a lease that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Resume it.
    Yes,
    /// Leave it and say so.
    No,
    /// Resume it; but where the instance was stopped, look at what is kept and start nothing.
    UnlessStopped,
}

impl From<Resume> for IfPaused {
    fn from(resume: Resume) -> IfPaused {
        match resume {
            Resume::Yes | Resume::UnlessStopped => IfPaused::Resume,
            Resume::No => IfPaused::Refuse,
        }
    }
}

impl Live {
    /// Gives the owner a runtime. It notes in its turn that the terminal lives; whoever looks before
    /// that must not start it again.
    async fn hand(&self, runtime: Runtime) -> Result<(), TerminalError> {
        self.shared.note(|facts| (facts.live, facts.exit) = (true, None));
        self.ask(Ask::Runtime(runtime)).await
    }
}

/// What is beneath a lease.
pub(super) enum Found {
    Running(Link),
    Paused,
    Nothing,
}

/// Who wants a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeker {
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

/// A terminal's place on a host.
pub(super) struct Alive {
    pub(super) link: Link,
    pub(super) orders: mpsc::Sender<Order>,
}

impl Alive {
    /// Whether it is on the host at the other end of this connection.
    fn is_on(&self, link: &Link) -> bool {
        self.link.boot_id() == link.boot_id() && !self.link.closed().is_cancelled()
    }
}

impl Terminals {
    /// The host a terminal is on; started and hydrated if there is none.
    pub(super) async fn alive(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        resume: Resume,
    ) -> Result<Link, TerminalError> {
        self.alive_from(terminal, live, resume, None).await
    }

    /// The same for a terminal that no host can hold yet and whose row is only being written.
    pub(super) async fn alive_new(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
    ) -> Result<Link, TerminalError> {
        self.alive_from(terminal, live, Resume::Yes, Some(TerminalState::default())).await
    }

    /// `state` is what it starts with if that is known to be all there is.
    async fn alive_from(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        resume: Resume,
        state: Option<TerminalState>,
    ) -> Result<Link, TerminalError> {
        let mut running = self.0.leases.running_if(&terminal.lease_id, resume.into()).await?;
        let mut slot = live.runtime.lock().await;
        if let Some(alive) = &*slot {
            let facts = live.shared.facts();
            if facts.live && !alive.link.closed().is_cancelled() {
                return Ok(alive.link.clone());
            }
        }
        if terminal.ends_with_program() && live.shared.facts().exit.is_some() {
            return Err(TerminalError::Exited);
        }
        *slot = None;
        let recovers = live.shared.facts().offset > 0;
        let began = Instant::now();
        let brought = self.bring_back(terminal, live, &mut running, state).await;
        if recovers {
            match &brought {
                Ok(_) => self.count_recovery(began),
                Err(_) => self.count_failed_recovery(),
            }
        }
        let alive = brought?;
        let link = alive.link.clone();
        *slot = Some(alive);
        Ok(link)
    }

    /// Connects to the host of a lease, or to that of its next instance if it is gone, and takes the
    /// terminal up there.
    async fn bring_back(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        running: &mut Running,
        state: Option<TerminalState>,
    ) -> Result<Alive, TerminalError> {
        let link = match self.link(running, Seeker::Request).await {
            Ok(link) => link,
            Err(error @ TerminalError::Unreachable { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(lease = %running.lease_id, %error, "a host is not there any more");
                self.0.leases.lost(&running.lease_id, &running.instance.instance_id).await?;
                *running = self.0.leases.running(&running.lease_id).await?;
                self.link(running, Seeker::Request).await?
            }
        };
        match state {
            Some(state) => self.start(terminal, live, running, &link, state).await,
            None => self.again(terminal, live, running, &link).await,
        }
    }

    /// Counts a terminal or a host that was brought back; the attempt began at `began`.
    fn count_recovery(&self, began: Instant) {
        self.0.settings.metrics.recovery_seconds.observe(began.elapsed().as_secs_f64());
    }

    /// Counts an attempt to bring a terminal or a host back that did not succeed.
    fn count_failed_recovery(&self) {
        self.0.settings.metrics.recoveries_failed.inc();
    }

    /// Counts a connection to a host that was made again, `began` being when the search for it began.
    fn count_reconnect(&self, began: Instant) {
        self.0.settings.metrics.reconnects.inc();
        self.count_recovery(began);
    }

    /// Takes up what a host holds of a terminal, or starts it from the state on record.
    async fn again(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        running: &Running,
        link: &Link,
    ) -> Result<Alive, TerminalError> {
        let held = link.list().await?;
        let known = held.into_iter().find(|info| info.terminal == live.id.as_str());
        if let Some(info) = known {
            if !info.exited {
                return self.adopt(live, link, &info).await;
            }
            let id = live.id.to_string();
            link.call(|seq| Request::AckExit { seq, terminal: id }).await?;
        }
        let state = self.0.store.terminal_state(&live.id, None).await?;
        let alive = self.start(terminal, live, running, link, state).await?;
        self.note_status(terminal, TerminalEvent::Started).await;
        Ok(alive)
    }

    /// The channel to a terminal's scribe.
    pub(super) async fn orders(&self, live: &Live) -> Option<mpsc::Sender<Order>> {
        live.runtime.lock().await.as_ref().map(|alive| alive.orders.clone())
    }

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
                let mut settling = self.0.settling.lock().unwrap_or_else(PoisonError::into_inner);
                settling.insert(lease.clone(), first_look);
            }
            let (this, places, left) = (self.clone(), places.clone(), left.clone());
            self.0.tasks.spawn(async move {
                let place = places.acquire_owned().await;
                let looked = || {
                    drop(place);
                    let mut settling =
                        this.0.settling.lock().unwrap_or_else(PoisonError::into_inner);
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
            let settling = self.0.settling.lock().unwrap_or_else(PoisonError::into_inner);
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
                let running = Running { lease_id, provider, instance, recreated: false };
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
                // Whoever needed it was faster.
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
    async fn link(&self, running: &Running, seeker: Seeker) -> Result<Link, TerminalError> {
        let instance = running.instance.instance_id.clone();
        let lease = &running.lease_id;
        let slot = {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
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
                    false => self.note_unreachable(&lease),
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
        lease.is_some_and(|lease| self.0.leases.patience(&lease) > FAR)
    }

    /// The connection to a host broke: it is looked for, and if it is gone, so are its shells.
    async fn relink(&self, closed: &Link, instance: &InstanceId, lease: &LeaseId) {
        {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
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
                (self.0.leases.patience(&lease), self.0.leases.keeps_programs(&lease))
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
                // Its shells are there; whoever needs one first resumes it.
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
        let live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        let Some(live) = live else { return false };
        let slot = live.runtime.lock().await;
        slot.as_ref().is_some_and(|alive| !alive.link.closed().is_cancelled())
    }

    /// Starts to listen to a terminal that its host holds.
    async fn adopt(
        &self,
        live: &Arc<Live>,
        link: &Link,
        info: &TerminalInfo,
    ) -> Result<Alive, TerminalError> {
        let state = self.0.store.terminal_state(&live.id, None).await?;
        let (alive, output) = self.listen(live, link, &state);
        for command in &info.commands {
            link.follow(&command.command, live.id.as_str());
            // Also one that has ended: until that is on record, whoever asks for it waits.
            self.resume_flight(live, link, &command.command).await;
            // Tells again what has happened: its end, too, if that is not on record yet.
            let id = command.command.clone();
            let (from_out, from_err) = (command.stdout_bytes, command.stderr_bytes);
            link.post(|seq| Request::ExecWatch { seq, command: id, from_out, from_err });
        }
        let offset = info.end_offset;
        link.attach(live.id.as_str(), offset).await?;
        let (cols, rows) = (info.cols, info.rows);
        let runtime = Runtime { link: link.clone(), output, offset, cols, rows };
        live.hand(runtime).await?;
        Ok(alive)
    }

    /// Opens a terminal on a host from its state.
    async fn start(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        running: &Running,
        link: &Link,
        state: TerminalState,
    ) -> Result<Alive, TerminalError> {
        let thread = self.0.store.thread(&terminal.thread_id).await?;
        let place = self.place(thread.as_ref()).await?;
        let directory = self.directory(&live.id);
        let made = directory.clone();
        tokio::task::spawn_blocking(move || std::fs::create_dir_all(made))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| TerminalError::Exhausted {
                code: Code::Storage,
                message: format!("the terminal's directory cannot be made: {error}"),
            })?;
        let needed = provider::Place {
            terminal: live.id.clone(),
            dir: directory,
            mounts: place.mounts.clone(),
        };
        let placed = self.0.leases.place(running, &needed).await?;
        let place = place.inside(&placed);
        let base = self.0.leases.environment(running).unwrap_or_else(inherited);
        let facts = live.shared.facts();
        let again = facts.offset > 0;
        let (alive, output) = self.listen(live, link, &state);
        let start = facts.offset;
        let size = (facts.cols, facts.rows);
        let request = Request::Open {
            seq: 0,
            terminal: live.id.to_string(),
            argv: argv(terminal),
            cwd: start_directory(terminal, thread.as_ref(), &state.cwd, &place),
            env: environment(base, terminal, thread.as_ref(), place.env)
                .into_iter()
                .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
                .collect(),
            cols: size.0,
            rows: size.1,
            dir: placed.dir.into_os_string().into_encoded_bytes(),
            log_limit: self.0.settings.log_limit,
            base_offset: start,
            shell: wire_shell(terminal.shell),
            state: scribe::sections(state),
            notice: if again { self.restored(live).await? } else { Vec::new() },
        };
        let opened = link.call(|seq| numbered(request, seq)).await;
        if let Err(error) = opened {
            link.unlisten(live.id.as_str());
            return Err(error.into());
        }
        if terminal.ends_with_program() {
            end_with_program(link, &live.id).await?;
        }
        link.attach(live.id.as_str(), start).await?;
        let (cols, rows) = size;
        let runtime = Runtime { link: link.clone(), output, offset: start, cols, rows };
        live.hand(runtime).await?;
        if again {
            let (terminal_id, version) = (live.id.clone(), terminal.version);
            self.0.events.tell(Happened::TerminalRestored { terminal_id, version });
        }
        Ok(alive)
    }

    /// What the screen is told before a shell is started on it again.
    async fn restored(&self, live: &Live) -> Result<Vec<u8>, TerminalError> {
        let (answer, picture) = oneshot::channel();
        live.ask(Ask::Picture { format: Format::Text, scrollback: None, answer }).await?;
        let picture = picture.await.map_err(|_| TerminalError::Gone)?;
        // Leaving the alternate screen moves the cursor, even where it is not shown.
        let first = if picture.alt_screen { LEAVE_ALTERNATE } else { "" };
        Ok([first, LEAVE, RESTORED].concat().into_bytes())
    }

    /// Channels for a terminal, and a scribe at their end.
    fn listen(
        &self,
        live: &Arc<Live>,
        link: &Link,
        state: &TerminalState,
    ) -> (Alive, mpsc::Receiver<Box<host::wire::Event>>) {
        let (output, output_receiver) = mpsc::channel(OUTPUT);
        let (records, records_receiver) = mpsc::channel(RECORDS);
        let (resync, resync_receiver) = watch::channel(false);
        let (orders, orders_receiver) = mpsc::channel(ORDERS);
        link.listen(live.id.as_str(), Feed { output, records, resync });
        let desk = Desk {
            records: records_receiver,
            orders: orders_receiver,
            resync: resync_receiver,
            told: live.version.clone(),
            limits: Limits::new(self.0.leases.clone(), live.lease.clone()),
        };
        let scribe = Scribe::new(
            live.id.clone(),
            self.0.store.clone(),
            link.clone(),
            self.0.flights.clone(),
            self.0.events.clone(),
            state,
            desk,
        );
        self.0.tasks.spawn(scribe.run());
        (Alive { link: link.clone(), orders }, output_receiver)
    }

    /// A terminal's shell is gone for good; its state and its output are not.
    pub(super) async fn lost(&self, id: &TerminalId) {
        let live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        if let Some(live) = live {
            *live.runtime.lock().await = None;
            let why = "the shell is gone; the next command or key starts one from its last state";
            let _ = live.ask(Ask::Lost(why.into())).await;
        }
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(id, TerminalEvent::RuntimeLost, now).await {
            tracing::warn!(terminal = %id, %error, "cannot note that a shell is gone");
        }
        self.lose_rows(id, Vec::new()).await;
    }

    /// Whatever runs in a terminal that is deleted has no end; that is put on record.
    pub(super) async fn lose_commands(&self, id: &TerminalId) {
        let open = self.0.flights.lose(|command| command.terminal_id == *id);
        self.lose_rows(id, open).await;
    }

    /// Puts on record that commands are lost: these, and those that nobody here knows any more.
    async fn lose_rows(&self, id: &TerminalId, mut open: Vec<Command>) {
        match self.0.store.unfinished_commands(id).await {
            Ok(rows) => open.extend(
                rows.into_iter().filter(|row| self.0.flights.command(&row.command_id).is_none()),
            ),
            Err(error) => tracing::warn!(terminal = %id, %error, "cannot look for lost commands"),
        }
        for command in open {
            let queued = command.status == CommandStatus::Queued;
            let waited = queued && !self.began(&command).await;
            let end = if waited { CommandEnd::NotStarted } else { CommandEnd::Lost };
            let command = self.with_lengths(&command).await;
            if let Ok(lost) = command.end(end, Timestamp::now())
                && let Err(error) = self.0.store.save_command(&lost).await
            {
                tracing::warn!(command = %lost.command_id, %error, "cannot note a lost command");
            }
        }
    }

    async fn note_status(&self, terminal: &Terminal, event: TerminalEvent) {
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(&terminal.terminal_id, event, now).await {
            tracing::warn!(terminal = %terminal.terminal_id, %error, "cannot note its status");
        }
    }

    /// Where a terminal of this thread starts, and what tells it so.
    async fn place(&self, thread: Option<&Thread>) -> Result<Place, TerminalError> {
        let Some(project) = thread.map(|thread| thread.project_id.clone()) else {
            return Ok(Place::default());
        };
        let place = self.0.settings.place.clone();
        tokio::task::spawn_blocking(move || place(&project))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| TerminalError::Exhausted {
                code: Code::Storage,
                message: format!("the project's directory cannot be made: {error}"),
            })
    }
}

impl Place {
    /// The same place by its names inside an instance.
    fn inside(self, placed: &provider::Placed) -> Self {
        let name = |value: String| {
            placed.inside(Path::new(&value)).into_os_string().into_string().unwrap_or(value)
        };
        Self {
            directory: placed.inside(&self.directory),
            env: self.env.into_iter().map(|(key, value)| (key, name(value))).collect(),
            mounts: placed.seen.clone(),
        }
    }
}

/// The first of these that says anything.
fn start_directory(
    terminal: &Terminal,
    thread: Option<&Thread>,
    last: &str,
    place: &Place,
) -> Vec<u8> {
    let chosen = [last, &terminal.cwd, thread.and_then(|t| t.cwd.as_deref()).unwrap_or_default()]
        .into_iter()
        .find(|directory| !directory.is_empty());
    match chosen {
        Some(directory) => directory.as_bytes().to_vec(),
        None => place.directory.clone().into_os_string().into_encoded_bytes(),
    }
}

/// Leaves whatever the last program had switched on.
const LEAVE: &str = "\x1b[!p\x1b[?1000;1002;1003;1004;1005;1006;1015;1016;2004l\x1b[?25h\x1b[<99u";
const LEAVE_ALTERNATE: &str = "\x1b[?1049l";
const RESTORED: &str =
    "\x1b[0m\r\n\x1b[2m── the shell was restored from its last state ──\x1b[0m\r\n";

/// Variables of the server's own environment that a shell on this machine gets.
const INHERITED: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// What a shell on this machine gets of the server's own environment.
fn inherited() -> Env {
    let inherited = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let wanted = INHERITED.contains(&name.as_str()) || name.starts_with("LC_");
        wanted.then_some((name, value.into_string().ok()?))
    });
    inherited.collect()
}

fn environment(mut env: Env, terminal: &Terminal, thread: Option<&Thread>, place: Env) -> Env {
    env.entry("PATH".into())
        .or_insert_with(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    env.entry("HOME".into()).or_insert_with(|| "/".into());
    env.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
    env.insert("STEAD_THREAD".into(), terminal.thread_id.to_string());
    env.extend(place);
    if let Some(thread) = thread {
        env.extend(thread.env.clone());
    }
    env.extend(terminal.env.clone());
    env
}

fn argv(terminal: &Terminal) -> Vec<Vec<u8>> {
    if !terminal.argv.is_empty() {
        return terminal.argv.iter().map(|word| word.clone().into_bytes()).collect();
    }
    let shell = match terminal.shell {
        ShellKind::Bash => "bash",
        ShellKind::Zsh => "zsh",
        ShellKind::Sh | ShellKind::Plain => "sh",
    };
    vec![shell.into()]
}

fn wire_shell(shell: ShellKind) -> host::wire::Shell {
    match shell {
        ShellKind::Bash => host::wire::Shell::Bash,
        ShellKind::Zsh => host::wire::Shell::Zsh,
        ShellKind::Sh => host::wire::Shell::Sh,
        ShellKind::Plain => host::wire::Shell::Plain,
    }
}

/// Makes a terminal end with its program. A host that does not know this yet starts another shell.
async fn end_with_program(link: &Link, id: &TerminalId) -> Result<(), LinkError> {
    let terminal = id.to_string();
    match link.call(|seq| Request::EndWithProgram { seq, terminal }).await {
        Ok(_) | Err(LinkError::Refused { code: Code::Unsupported, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A request that was built before its number was known.
fn numbered(mut request: Request, number: u32) -> Request {
    if let Request::Open { seq, .. } = &mut request {
        *seq = number;
    }
    request
}
