//! Starts the shell of a terminal, or adopts the one that its host still runs.
//!
//! Starting is recovering: after a restart of the server, a broken connection or a new instance, the host
//! lists its terminals. Those are adopted, and the others are opened from the state in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{ReplyCode, Request, TerminalInfo};

use super::connect::ConnectPurpose;
use super::error::{KernelResource, TerminalError};
use super::limit::LimitCounters;
use super::link::{HostLink, LinkError, TerminalChannels};
use super::options::Resume;
use super::owner::{Format, OwnerRequest, Runtime};
use super::recorder::{RecorderChannels, ShellOrigin, StateRecorder, StateRequest};
use super::shell_connection::ShellConnection;
use super::shell_start::{ShellSetup, argv, environment, inherited, start_directory, wire_shell};
use super::state_sections;
use super::terminals::{LiveTerminal, SHELL_WAIT, Terminals};
use crate::lease::RunningInstance;
use base::event::EventKind;
use model::{Terminal, TerminalEvent, TerminalId, TerminalState, Thread};

/// Output events that wait for an owner before output is dropped.
const OUTPUT_QUEUE_LENGTH: usize = 128;
/// Records that wait for a recorder before it has to resynchronize.
const RECORD_QUEUE_LENGTH: usize = 1024;
const STATE_REQUEST_QUEUE_LENGTH: usize = 16;
/// How long a host may take to end the processes of a terminal, with some time to spare.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(12);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl LiveTerminal {
    /// Gives the owner a runtime. The terminal is marked live at once, so that no other caller starts it
    /// before the owner handles the request.
    async fn set_runtime(&self, runtime: Runtime) -> Result<(), TerminalError> {
        self.shared.note(|facts| (facts.live, facts.exit) = (true, None));
        self.request(OwnerRequest::Runtime(runtime)).await
    }
}

impl Terminals {
    /// Returns the host of a terminal. Starts the shell from its state if there is none.
    pub(super) async fn ensure_shell(
        &self,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
        resume: Resume,
    ) -> Result<HostLink, TerminalError> {
        self.ensure_shell_from(terminal, live, resume, None).await
    }

    /// Like `ensure_shell`, for a new terminal whose row is being written.
    pub(super) async fn ensure_new_shell(
        &self,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
    ) -> Result<HostLink, TerminalError> {
        self.ensure_shell_from(terminal, live, Resume::Yes, Some(TerminalState::default())).await
    }

    /// `state` is given for a terminal that is known to be new. Boxed, so that it is compiled once and not in each
    /// crate that awaits it.
    fn ensure_shell_from<'a>(
        &'a self,
        terminal: &'a Terminal,
        live: &'a Arc<LiveTerminal>,
        resume: Resume,
        state: Option<TerminalState>,
    ) -> BoxFuture<'a, Result<HostLink, TerminalError>> {
        Box::pin(async move {
            let mut running = self.0.leases.running_if(&terminal.lease_id, resume.into()).await?;
            let mut slot = live.runtime(SHELL_WAIT).await?;
            if let Some(connection) = &*slot {
                let facts = live.shared.facts();
                if facts.live && !connection.link.closed().is_cancelled() {
                    return Ok(connection.link.clone());
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
            let opened = self.connect_and_open(terminal, live, &mut running, state).await;
            if recovers {
                match &opened {
                    Ok(_) => self.count_recovery(began),
                    Err(_) => self.count_failed_recovery(),
                }
            }
            let connection = opened?;
            let link = connection.link.clone();
            *slot = Some(connection);
            Ok(link)
        })
    }

    /// Connects to the host of a lease, or of its next instance if that is gone, and opens the terminal
    /// there.
    async fn connect_and_open(
        &self,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
        running: &mut RunningInstance,
        state: Option<TerminalState>,
    ) -> Result<ShellConnection, TerminalError> {
        let link = match self.link(running, ConnectPurpose::Request).await {
            Ok(link) => link,
            Err(error @ TerminalError::Unreachable { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(lease = %running.lease_id, %error, "a host is gone");
                self.0.leases.lost(&running.lease_id, &running.instance.instance_id).await?;
                *running = self.0.leases.running(&running.lease_id).await?;
                self.link(running, ConnectPurpose::Request).await?
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
        live: &Arc<LiveTerminal>,
        running: &RunningInstance,
        link: &HostLink,
    ) -> Result<ShellConnection, TerminalError> {
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
        let connection = self.start(terminal, live, running, link, state).await?;
        self.note_status(terminal, TerminalEvent::Started).await;
        Ok(connection)
    }

    pub(super) async fn state_requests(
        &self,
        live: &LiveTerminal,
    ) -> Result<mpsc::Sender<StateRequest>, TerminalError> {
        let connection = live.runtime(SHELL_WAIT).await?;
        let requests = connection.as_ref().map(|connection| connection.state_requests.clone());
        requests.ok_or(TerminalError::Gone)
    }

    /// Attaches to a terminal that its host holds.
    pub(super) async fn adopt(
        &self,
        live: &Arc<LiveTerminal>,
        link: &HostLink,
        info: &TerminalInfo,
    ) -> Result<ShellConnection, TerminalError> {
        let state = self.0.store.terminal_state(&live.id, None).await?;
        let (connection, output) = self.listen(live, link, &state, ShellOrigin::Adopted);
        for command in &info.commands {
            link.follow(&command.command, live.id.as_str());
            // Also an ended command: callers wait until its receipt is stored.
            self.resume_flight(live, link, &command.command).await;
            // Repeats its events, including its end if the receipt is not stored yet.
            let id = command.command.clone();
            let (from_out, from_err) = (command.stdout_bytes, command.stderr_bytes);
            link.queue(|seq| Request::ExecWatch { seq, command: id, from_out, from_err }).await?;
        }
        self.hand_again(link, |command| {
            let known = info.commands.iter().any(|it| it.command == command.command_id.as_str());
            command.terminal_id == live.id && !known
        });
        let offset = info.end_offset;
        link.attach(live.id.as_str(), offset).await?;
        let (cols, rows) = (info.cols, info.rows);
        let runtime = Runtime { link: link.clone(), output, offset, cols, rows };
        live.set_runtime(runtime).await?;
        Ok(connection)
    }

    /// Opens a terminal on a host from its state.
    async fn start(
        &self,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
        running: &RunningInstance,
        link: &HostLink,
        state: TerminalState,
    ) -> Result<ShellConnection, TerminalError> {
        let thread = self.0.store.thread(&terminal.thread_id).await?;
        let setup = self.shell_setup(thread.as_ref()).await?;
        let directory = self.directory(&live.id);
        let made = directory.clone();
        base::task::blocking(move || std::fs::create_dir_all(made))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| {
                let message = format!("cannot create the terminal's directory: {error}");
                KernelResource::Disk.exhausted(message)
            })?;
        let needed = provider::TerminalMounts {
            terminal: live.id.clone(),
            dir: directory,
            mounts: setup.mounts.clone(),
            workspace: setup.workspace.clone(),
        };
        let placed = self.0.leases.mount(running, &needed).await?;
        let setup = setup.inside(&placed);
        let mut base = self.0.leases.environment(running).unwrap_or_else(inherited);
        base.extend(placed.image.env);
        let facts = live.shared.facts();
        let again = facts.offset > 0;
        let (connection, output) = self.listen(live, link, &state, ShellOrigin::Stored);
        let start = facts.offset;
        let size = (facts.cols, facts.rows);
        let request = Request::Open {
            seq: 0,
            terminal: live.id.to_string(),
            argv: argv(terminal),
            cwd: start_directory(terminal, thread.as_ref(), &state.cwd, &setup),
            env: environment(base, terminal, thread.as_ref(), setup.env)
                .into_iter()
                .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
                .collect(),
            cols: size.0,
            rows: size.1,
            dir: placed.dir.into_os_string().into_encoded_bytes(),
            log_limit: self.0.settings.log_limit,
            base_offset: start,
            shell: wire_shell(terminal.shell),
            state: state_sections::for_host(state),
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
        live.set_runtime(runtime).await?;
        if again {
            let (thread_id, terminal_id) = (live.thread.clone(), live.id.clone());
            let version = terminal.version;
            let restored = EventKind::TerminalRestored { thread_id, terminal_id, version };
            self.0.events.publish(restored);
        }
        Ok(connection)
    }

    /// Returns what is printed before a shell is started again on the same screen.
    async fn restored(&self, live: &LiveTerminal) -> Result<Vec<u8>, TerminalError> {
        let (answer, picture) = oneshot::channel();
        live.request(OwnerRequest::Picture { format: Format::Text, scrollback: None, answer })
            .await?;
        let picture = picture.await.map_err(|_| TerminalError::Gone)?;
        // Leaving the alternate screen moves the cursor even if it is not active.
        let first = if picture.alt_screen { LEAVE_ALTERNATE } else { "" };
        Ok([first, LEAVE, RESTORED].concat().into_bytes())
    }

    /// Creates the channels of a terminal and starts its recorder.
    fn listen(
        &self,
        live: &Arc<LiveTerminal>,
        link: &HostLink,
        state: &TerminalState,
        origin: ShellOrigin,
    ) -> (ShellConnection, mpsc::Receiver<Box<wire::Event>>) {
        let (output, output_receiver) = mpsc::channel(OUTPUT_QUEUE_LENGTH);
        let (records, records_receiver) = mpsc::channel(RECORD_QUEUE_LENGTH);
        let (resync, resync_receiver) = watch::channel(false);
        let (state_requests, state_requests_receiver) = mpsc::channel(STATE_REQUEST_QUEUE_LENGTH);
        link.listen(live.id.as_str(), TerminalChannels { output, records, resync });
        let channels = RecorderChannels {
            thread: live.thread.clone(),
            records: records_receiver,
            state_requests: state_requests_receiver,
            resync: resync_receiver,
            stored: live.version.clone(),
            limits: LimitCounters::new(self.0.leases.clone(), live.lease.clone()),
            metrics: self.0.settings.metrics.clone(),
            origin,
        };
        let recorder = StateRecorder::new(
            live.id.clone(),
            self.0.store.clone(),
            link.clone(),
            self.0.flights.clone(),
            self.0.events.clone(),
            state,
            channels,
        );
        let recorder = self.0.tasks.spawn(recorder.run());
        (ShellConnection { link: link.clone(), state_requests, recorder }, output_receiver)
    }

    pub(super) async fn note_status(&self, terminal: &Terminal, event: TerminalEvent) {
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(&terminal.terminal_id, event, now).await {
            tracing::warn!(terminal = %terminal.terminal_id, %error, "cannot record the status of a terminal");
        }
    }

    /// Returns where the shells of a thread's project start.
    async fn shell_setup(&self, thread: Option<&Thread>) -> Result<ShellSetup, TerminalError> {
        let Some(project) = thread.map(|thread| thread.project_id.clone()) else {
            return Ok(ShellSetup::default());
        };
        let setup = self.0.settings.shell_setup.clone();
        base::task::blocking(move || setup(&project))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| {
                let message = format!("cannot create the project's directory: {error}");
                KernelResource::Disk.exhausted(message)
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
