//! The live end of a terminal: started when it is needed, found again when it is there.
//!
//! Starting is recovering: whether the server has just come up, the connection broke, or the
//! instance was made anew, the host is asked what it holds, what it holds is taken up again, and
//! what it does not hold is opened from the state in the store.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use host::wire::{Code, Request, TerminalInfo};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::limit::Limits;
use super::link::{Feed, Link, LinkError};
use super::owner::{Ask, Format, Runtime};
use super::recovery::Seeker;
use super::scribe::{self, Desk, Order, Scribe};
use super::{Live, Place, TerminalError, Terminals};
use crate::lease::{IfPaused, Running};
use base::event::Happened;
use model::{
    Command, CommandEnd, CommandStatus, Env, ShellKind, Terminal, TerminalEvent, TerminalId,
    TerminalState, Thread,
};
use provider;

/// Output events that wait for an owner before the terminal counts as behind.
const OUTPUT: usize = 128;
/// Records that wait for a scribe before it has to catch up.
const RECORDS: usize = 1024;
/// Orders that wait for a scribe.
const ORDERS: usize = 16;

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

/// A terminal's place on a host.
pub(super) struct Alive {
    pub(super) link: Link,
    pub(super) orders: mpsc::Sender<Order>,
}

impl Alive {
    /// Whether it is on the host at the other end of this connection.
    pub(super) fn is_on(&self, link: &Link) -> bool {
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
    pub(super) fn count_recovery(&self, began: Instant) {
        self.0.settings.metrics.recovery_seconds.observe(began.elapsed().as_secs_f64());
    }

    /// Counts an attempt to bring a terminal or a host back that did not succeed.
    pub(super) fn count_failed_recovery(&self) {
        self.0.settings.metrics.recoveries_failed.inc();
    }

    /// Counts a connection to a host that was made again, `began` being when the search for it began.
    pub(super) fn count_reconnect(&self, began: Instant) {
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

    /// Starts to listen to a terminal that its host holds.
    pub(super) async fn adopt(
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
        let needed = provider::TerminalMounts {
            terminal: live.id.clone(),
            dir: directory,
            mounts: place.mounts.clone(),
        };
        let placed = self.0.leases.mount(running, &needed).await?;
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

    pub(super) async fn note_status(&self, terminal: &Terminal, event: TerminalEvent) {
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
    fn inside(self, placed: &provider::MountedPaths) -> Self {
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
