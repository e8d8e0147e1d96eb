//! The live end of a terminal: started when it is needed, found again when it is there.
//!
//! Starting is recovering: whether the server has just come up, the connection broke, or the
//! instance was made anew, the host is asked what it holds, what it holds is taken up again, and
//! what it does not hold is opened from the state in the store.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use host::wire::{Code, Request, TerminalInfo};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::limit::Limits;
use super::link::{Feed, Link};
use super::owner::{Ask, Format, Runtime};
use super::scribe::{self, Desk, Order, Scribe};
use super::{Live, Place, TerminalError, Terminals};
use crate::event::Happened;
use crate::lease::{IfPaused, Running};
use crate::model::{
    Command, CommandEnd, CommandStatus, Env, InstanceId, LeaseId, LeaseState, ShellKind, Terminal,
    TerminalEvent, TerminalId, TerminalState, Thread,
};
use crate::provider;

/// Output events that wait for an owner before the terminal counts as behind.
const OUTPUT: usize = 128;
/// Records that wait for a scribe before it has to catch up.
const RECORDS: usize = 1024;
/// Orders that wait for a scribe.
const ORDERS: usize = 16;
/// How soon a host that was cut off is looked for again; where it may be away for long, less and less
/// often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A host that is looked for longer than this is not on this machine.
const FAR: Duration = Duration::from_secs(5);

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
        *slot = None;
        let link = match self.link(&running).await {
            Ok(link) => link,
            Err(error) => {
                tracing::warn!(lease = %running.lease_id, %error, "a host is not there any more");
                self.0.leases.lost(&running.lease_id, &running.instance.instance_id).await?;
                running = self.0.leases.running(&running.lease_id).await?;
                self.link(&running).await?
            }
        };
        let alive = match state {
            Some(state) => self.start(terminal, live, &running, &link, state).await?,
            None => self.again(terminal, live, &running, &link).await?,
        };
        *slot = Some(alive);
        Ok(link)
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

    /// Finds every terminal that is alive. Said at start, before anybody is let in.
    pub async fn recover(&self) -> Result<usize, TerminalError> {
        // Of hosts that were killed.
        let _ = tokio::task::spawn_blocking(host::shell::place::sweep).await;
        let mut missing: Vec<Terminal> = self.0.store.live_terminals().await?;
        let leases: BTreeSet<LeaseId> = missing.iter().map(|row| row.lease_id.clone()).collect();
        let mut found = 0;
        for lease in leases {
            if self.is_far(&lease).await {
                // Nobody waits for a network. Whoever needs one of its terminals finds it, too.
                missing.retain(|terminal| terminal.lease_id != lease);
                let terminals = self.clone();
                self.0.tasks.spawn(async move { terminals.look_for(None, None, &lease).await });
                continue;
            }
            match self.find(&lease).await {
                Ok(Found::Running(link)) => found += self.take_up(&link, &mut missing).await?,
                // Its shells are there; whoever needs one first resumes it.
                Ok(Found::Paused) => missing.retain(|terminal| terminal.lease_id != lease),
                Ok(Found::Nothing) => {}
                Err(error) => tracing::warn!(%lease, %error, "a host cannot be reached"),
            }
        }
        for terminal in missing {
            self.lost(&terminal.terminal_id).await;
        }
        Ok(found)
    }

    /// The host of a lease if it has one; makes none.
    pub(super) async fn find(&self, lease: &LeaseId) -> Result<Found, TerminalError> {
        let lease = self.0.leases.reconcile(lease).await?;
        match lease.state {
            LeaseState::Running(instance) => {
                let (lease_id, provider) = (lease.lease_id, lease.provider);
                let running = Running { lease_id, provider, instance, recreated: false };
                Ok(Found::Running(self.link(&running).await?))
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
            *slot = Some(self.adopt(&live, link, &info).await?);
            drop(slot);
            self.note_status(&terminal, TerminalEvent::Started).await;
            found += 1;
        }
        Ok(found)
    }

    /// A connection to the host of a lease's instance; there is one for all its terminals.
    async fn link(&self, running: &Running) -> Result<Link, TerminalError> {
        let instance = running.instance.instance_id.clone();
        let mut links = self.0.links.lock().await;
        if let Some(link) = links.get(&instance)
            && !link.closed().is_cancelled()
        {
            return Ok(link.clone());
        }
        let stream = self.0.leases.connect(running).await?;
        let link = Link::greet(stream).await?;
        links.insert(instance.clone(), link.clone());
        drop(links);
        let watch = self.clone().watch_link(link.clone(), instance, running.lease_id.clone());
        self.0.tasks.spawn(watch);
        Ok(link)
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
            tokio::select! {
                () = closed.cancelled() => Box::pin(self.relink(&link, &instance, &lease)).await,
                () = self.0.stopping.cancelled() => {}
            }
        })
    }

    /// Whether what is beneath a lease may be out of reach for a while and be there all the same.
    pub(super) async fn is_far(&self, lease: &LeaseId) -> bool {
        let lease = self.0.store.lease(lease).await.ok().flatten();
        lease.is_some_and(|lease| self.0.leases.patience(&lease) > FAR)
    }

    /// The connection to a host broke: it is looked for, and if it is gone, so are its shells.
    async fn relink(&self, closed: &Link, instance: &InstanceId, lease: &LeaseId) {
        let mut links = self.0.links.lock().await;
        if links.get(instance).is_some_and(|link| link.closed().is_cancelled()) {
            links.remove(instance);
        }
        drop(links);
        if !self.0.stopping.is_cancelled() {
            self.look_for(Some(closed.boot_id()), Some(instance), lease).await;
        }
    }

    /// Looks for the host of a lease, which had this name if that is known. What it does not hold is
    /// lost.
    async fn look_for(&self, before: Option<&str>, instance: Option<&InstanceId>, lease: &LeaseId) {
        let mut missing: Vec<Terminal> = match self.0.store.live_terminals().await {
            Ok(all) => all.into_iter().filter(|terminal| terminal.lease_id == *lease).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot tell which terminals a lost host had");
                return;
            }
        };
        let (patience, keeps) = match self.0.store.lease(lease).await {
            Ok(Some(lease)) => {
                (self.0.leases.patience(&lease), self.0.leases.keeps_programs(&lease))
            }
            Ok(None) | Err(_) => (FAR, true),
        };
        let deadline = tokio::time::Instant::now() + patience;
        let (mut same, mut wait) = (false, LOOK_AGAIN);
        loop {
            if let Some(instance) = instance {
                let _ = self.0.leases.lost(lease, instance).await;
            }
            match self.find(lease).await {
                Ok(Found::Running(link)) => match self.take_up(&link, &mut missing).await {
                    Ok(found) => {
                        tracing::info!(%lease, found, "reconnected to a host");
                        same = before == Some(link.boot_id());
                        break;
                    }
                    Err(error) => tracing::warn!(%lease, %error, "a host was lost again"),
                },
                // Its shells are there; whoever needs one first resumes it.
                Ok(Found::Paused) if keeps => return,
                Ok(Found::Paused | Found::Nothing) => break,
                Err(error) => tracing::warn!(%lease, %error, "a host cannot be reached"),
            }
            if tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.0.stopping.cancelled() => return,
            }
            wait = (wait * 2).min(patience / 100).max(LOOK_AGAIN);
        }
        for terminal in missing {
            if !self.is_alive(&terminal.terminal_id).await {
                self.lost(&terminal.terminal_id).await;
            }
        }
        if let (Some(before), false) = (before, same) {
            self.strand(before).await;
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

/// A request that was built before its number was known.
fn numbered(mut request: Request, number: u32) -> Request {
    if let Request::Open { seq, .. } = &mut request {
        *seq = number;
    }
    request
}
