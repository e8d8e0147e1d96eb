//! Starts the shell of a terminal, or adopts the one that its host still runs.
//!
//! Starting is recovering: after a restart of the server, a broken connection or a new instance, the host
//! lists its terminals. Those are adopted, and the others are opened from the state in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{ReplyCode, Request, TerminalInfo};

use super::alive::Alive;
use super::error::TerminalError;
use super::limit::LimitCounters;
use super::link::{Feed, HostLink, LinkError};
use super::options::Resume;
use super::owner::{Format, OwnerRequest, Runtime};
use super::recovery::Seeker;
use super::scribe::{self, Order, Scribe, ScribeChannels, ShellOrigin};
use super::shell_start::{ShellSetup, argv, environment, inherited, start_directory, wire_shell};
use super::terminals::{Live, Terminals};
use crate::lease::RunningInstance;
use base::event::EventKind;
use model::{
    Command, CommandEnd, CommandStatus, Terminal, TerminalEvent, TerminalId, TerminalState, Thread,
};

/// Output events that wait for an owner before output is dropped.
const OUTPUT_QUEUE_LENGTH: usize = 128;
/// Records that wait for a scribe before it has to resynchronize.
const RECORD_QUEUE_LENGTH: usize = 1024;
const ORDER_QUEUE_LENGTH: usize = 16;
/// How long a host may take to end the processes of a terminal, with some time to spare.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(12);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Live {
    /// Gives the owner a runtime. The terminal is marked live at once, so that no other caller starts it
    /// before the owner handles the request.
    async fn hand(&self, runtime: Runtime) -> Result<(), TerminalError> {
        self.shared.note(|facts| (facts.live, facts.exit) = (true, None));
        self.ask(OwnerRequest::Runtime(runtime)).await
    }
}

impl Terminals {
    /// Returns the host of a terminal. Starts the shell from its state if there is none.
    pub(super) async fn alive(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        resume: Resume,
    ) -> Result<HostLink, TerminalError> {
        self.alive_from(terminal, live, resume, None).await
    }

    /// Like `alive`, for a new terminal whose row is being written.
    pub(super) async fn alive_new(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
    ) -> Result<HostLink, TerminalError> {
        self.alive_from(terminal, live, Resume::Yes, Some(TerminalState::default())).await
    }

    /// `state` is given for a terminal that is known to be new.
    async fn alive_from(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        resume: Resume,
        state: Option<TerminalState>,
    ) -> Result<HostLink, TerminalError> {
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
        if let Some(ended) = slot.take() {
            ended.end(&live.id).await;
        }
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

    /// Connects to the host of a lease, or of its next instance if that is gone, and opens the terminal
    /// there.
    async fn bring_back(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        running: &mut RunningInstance,
        state: Option<TerminalState>,
    ) -> Result<Alive, TerminalError> {
        let link = match self.link(running, Seeker::Request).await {
            Ok(link) => link,
            Err(error @ TerminalError::Unreachable { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(lease = %running.lease_id, %error, "a host is gone");
                self.0.leases.lost(&running.lease_id, &running.instance.instance_id).await?;
                *running = self.0.leases.running(&running.lease_id).await?;
                self.link(running, Seeker::Request).await?
            }
        };
        match state {
            Some(state) => self.start(terminal, live, running, &link, state).await,
            None => self.adopt_or_start(terminal, live, running, &link).await,
        }
    }

    /// Counts a recovered terminal or host; the attempt started at `began`.
    pub(super) fn count_recovery(&self, began: Instant) {
        self.0.settings.metrics.recovery_seconds.observe(began.elapsed().as_secs_f64());
    }

    pub(super) fn count_failed_recovery(&self) {
        self.0.settings.metrics.recoveries_failed.inc();
    }

    /// Counts a reconnected host; the attempt started at `began`.
    pub(super) fn count_reconnect(&self, began: Instant) {
        self.0.settings.metrics.reconnects.inc();
        self.count_recovery(began);
    }

    /// Adopts the terminal if its host holds it, or starts it from the stored state.
    async fn adopt_or_start(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        running: &RunningInstance,
        link: &HostLink,
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

    pub(super) async fn orders(&self, live: &Live) -> Option<mpsc::Sender<Order>> {
        live.runtime.lock().await.as_ref().map(|alive| alive.orders.clone())
    }

    /// Attaches to a terminal that its host holds.
    pub(super) async fn adopt(
        &self,
        live: &Arc<Live>,
        link: &HostLink,
        info: &TerminalInfo,
    ) -> Result<Alive, TerminalError> {
        let state = self.0.store.terminal_state(&live.id, None).await?;
        let (alive, output) = self.listen(live, link, &state, ShellOrigin::Adopted);
        for command in &info.commands {
            link.follow(&command.command, live.id.as_str());
            // Also an ended command: callers wait until its receipt is stored.
            self.resume_flight(live, link, &command.command).await;
            // Repeats its events, including its end if the receipt is not stored yet.
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
        running: &RunningInstance,
        link: &HostLink,
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
                code: ReplyCode::Storage,
                message: format!("cannot create the terminal's directory: {error}"),
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
        let (alive, output) = self.listen(live, link, &state, ShellOrigin::Stored);
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
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let opened = loop {
            match link.call(|seq| numbered(request.clone(), seq)).await {
                // The host is still ending the processes of the last shell.
                Err(LinkError::Refused { code: ReplyCode::Exists, .. })
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                opened => break opened,
            }
        };
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
            self.0.events.publish(EventKind::TerminalRestored { terminal_id, version });
        }
        Ok(alive)
    }

    /// Returns what is printed before a shell is started again on the same screen.
    async fn restored(&self, live: &Live) -> Result<Vec<u8>, TerminalError> {
        let (answer, picture) = oneshot::channel();
        live.ask(OwnerRequest::Picture { format: Format::Text, scrollback: None, answer }).await?;
        let picture = picture.await.map_err(|_| TerminalError::Gone)?;
        // Leaving the alternate screen moves the cursor even if it is not active.
        let first = if picture.alt_screen { LEAVE_ALTERNATE } else { "" };
        Ok([first, LEAVE, RESTORED].concat().into_bytes())
    }

    /// Creates the channels of a terminal and starts its scribe.
    fn listen(
        &self,
        live: &Arc<Live>,
        link: &HostLink,
        state: &TerminalState,
        origin: ShellOrigin,
    ) -> (Alive, mpsc::Receiver<Box<wire::Event>>) {
        let (output, output_receiver) = mpsc::channel(OUTPUT_QUEUE_LENGTH);
        let (records, records_receiver) = mpsc::channel(RECORD_QUEUE_LENGTH);
        let (resync, resync_receiver) = watch::channel(false);
        let (orders, orders_receiver) = mpsc::channel(ORDER_QUEUE_LENGTH);
        link.listen(live.id.as_str(), Feed { output, records, resync });
        let channels = ScribeChannels {
            records: records_receiver,
            orders: orders_receiver,
            resync: resync_receiver,
            stored: live.version.clone(),
            limits: LimitCounters::new(self.0.leases.clone(), live.lease.clone()),
            origin,
        };
        let scribe = Scribe::new(
            live.id.clone(),
            self.0.store.clone(),
            link.clone(),
            self.0.flights.clone(),
            self.0.events.clone(),
            state,
            channels,
        );
        let scribe = self.0.tasks.spawn(scribe.run());
        (Alive { link: link.clone(), orders, scribe }, output_receiver)
    }

    /// Marks the shell of a terminal as lost. State and output are kept.
    pub(super) async fn lost(&self, id: &TerminalId) {
        let live = self.0.live.lock().get(id).cloned();
        if let Some(live) = live {
            if let Some(ended) = live.runtime.lock().await.take() {
                ended.end(id).await;
            }
            let why = "the shell is gone; the next command or key starts one from its last state";
            let _ = live.ask(OwnerRequest::Lost(why.into())).await;
        }
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(id, TerminalEvent::RuntimeLost, now).await {
            tracing::warn!(terminal = %id, %error, "cannot record that a shell is lost");
        }
        self.lose_rows(id, Vec::new()).await;
    }

    /// Records the commands of a deleted terminal as lost.
    pub(super) async fn lose_commands(&self, id: &TerminalId) {
        let open = self.0.flights.lose(|command| command.terminal_id == *id);
        self.lose_rows(id, open).await;
    }

    /// Records commands as lost: these, and stored ones that are not in flight.
    async fn lose_rows(&self, id: &TerminalId, mut open: Vec<Command>) {
        match self.0.store.unfinished_commands(id).await {
            Ok(rows) => open.extend(
                rows.into_iter().filter(|row| self.0.flights.command(&row.command_id).is_none()),
            ),
            Err(error) => tracing::warn!(terminal = %id, %error, "cannot list unfinished commands"),
        }
        for command in open {
            let queued = command.status == CommandStatus::Queued;
            let waited = queued && !self.began(&command).await;
            let end = if waited { CommandEnd::NotStarted } else { CommandEnd::Lost };
            let command = self.with_lengths(&command).await;
            if let Ok(lost) = command.end(end, Timestamp::now())
                && let Err(error) = self.0.store.save_command(&lost).await
            {
                tracing::warn!(command = %lost.command_id, %error, "cannot record a lost command");
            }
        }
    }

    pub(super) async fn note_status(&self, terminal: &Terminal, event: TerminalEvent) {
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(&terminal.terminal_id, event, now).await {
            tracing::warn!(terminal = %terminal.terminal_id, %error, "cannot record the status of a terminal");
        }
    }

    /// Returns where the shells of a thread's project start.
    async fn place(&self, thread: Option<&Thread>) -> Result<ShellSetup, TerminalError> {
        let Some(project) = thread.map(|thread| thread.project_id.clone()) else {
            return Ok(ShellSetup::default());
        };
        let place = self.0.settings.place.clone();
        tokio::task::spawn_blocking(move || place(&project))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| TerminalError::Exhausted {
                code: ReplyCode::Storage,
                message: format!("cannot create the project's directory: {error}"),
            })
    }
}

/// Resets the modes that the last program had set.
const LEAVE: &str = "\x1b[!p\x1b[?1000;1002;1003;1004;1005;1006;1015;1016;2004l\x1b[?25h\x1b[<99u";
const LEAVE_ALTERNATE: &str = "\x1b[?1049l";
const RESTORED: &str =
    "\x1b[0m\r\n\x1b[2m── the shell was restored from its last state ──\x1b[0m\r\n";

/// Makes a terminal end with its program. An older host does not support this and starts another shell.
async fn end_with_program(link: &HostLink, id: &TerminalId) -> Result<(), LinkError> {
    let terminal = id.to_string();
    match link.call(|seq| Request::EndWithProgram { seq, terminal }).await {
        Ok(_) | Err(LinkError::Refused { code: ReplyCode::Unsupported, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sets the number of a request that was built before.
fn numbered(mut request: Request, number: u32) -> Request {
    if let Request::Open { seq, .. } = &mut request {
        *seq = number;
    }
    request
}
