//! One connection to a host, shared by all terminals on it.
//!
//! Requests carry a number, and replies are matched by it. Events of a terminal go to the terminal's own
//! channels without waiting: output that does not fit is dropped here and requested again by offset, so
//! that a busy terminal cannot delay another.
//!
//! While a reply or the end of a command is awaited, a silent host is pinged. A host that stays silent is
//! unreachable: every call fails at once with [`LinkError::Unreachable`], the connection is kept, and the
//! first byte from the host makes it reachable again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use wire::{Decoder, Event, FEATURES, ReplyCode, Request, Stream, TerminalInfo, VERSION};

use base::outbound::bounded;
use model::LeaseId;
use provider::HostConnection;

/// Frames that wait to be written; a further caller waits for room.
const OUTGOING_FRAMES: usize = 256;
/// The timeout of one call to a host that answers pings.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a script, which waits until the shell is at its prompt.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);
const READ_BUFFER_BYTES: usize = 256 << 10;

/// Why a request to a host failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The connection is closed; it is unknown whether the request was executed.
    #[error("the connection to the host is gone")]
    Closed,
    /// The host has been silent for too long; it is unknown whether the request was executed.
    #[error("the host of lease {lease} does not answer")]
    Unreachable { lease: LeaseId },
    #[error("the host refused: {message}")]
    Refused { code: ReplyCode, message: String },
    /// The reply has an unexpected type, or a message is too large.
    #[error("the host cannot be understood: {0}")]
    Protocol(String),
}

/// The channels from the link to a terminal.
#[derive(Debug)]
pub struct Feed {
    /// Output and the events ordered with it; may be dropped and requested again.
    pub output: mpsc::Sender<Box<Event>>,
    /// Ends of commands and changes of state; when it is full, `resync` is set instead.
    pub records: mpsc::Sender<Box<Event>>,
    /// Set when a record was dropped.
    pub resync: watch::Sender<bool>,
}

struct Listener {
    feed: Feed,
    /// Output was dropped: no output is forwarded until the terminal is attached again.
    behind: bool,
}

/// The progress of a command on its host; callers wait on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of standard output so far.
    pub stdout: u64,
    /// Bytes of standard error so far.
    pub stderr: u64,
    pub started: bool,
    /// The command waits for input.
    pub waiting: bool,
    /// All writers of its output streams have closed them.
    pub sealed: bool,
}

struct Followed {
    terminal: String,
    progress: watch::Sender<Progress>,
}

/// How long a host may be silent while a reply is awaited.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    pub ping_after: Duration,
    /// When a stopped process counts as unreachable.
    pub limit: Duration,
    /// When any other process counts as unreachable: a slow disk may block it for seconds.
    pub busy_limit: Duration,
}

impl Silence {
    /// A host on this machine.
    pub const NEAR: Silence = Silence {
        ping_after: Duration::from_millis(700),
        limit: Duration::from_secs(2),
        busy_limit: Duration::from_secs(20),
    };
    /// A host behind a vendor's network.
    pub const FAR: Silence = Silence {
        ping_after: Duration::from_secs(10),
        limit: Duration::from_secs(30),
        busy_limit: Duration::from_secs(30),
    };
}

struct Inner {
    outgoing: mpsc::Sender<Vec<u8>>,
    seq: AtomicU32,
    calls: Mutex<HashMap<u32, oneshot::Sender<Event>>>,
    terminals: Mutex<HashMap<String, Listener>>,
    commands: Mutex<HashMap<String, Followed>>,
    closed: CancellationToken,
    boot_id: String,
    /// The host's process on this machine, if it runs here.
    pid: Option<i32>,
    lease: LeaseId,
    silence: Silence,
    born: Instant,
    /// Milliseconds from `born` to the last byte from the host.
    last_received: AtomicU64,
    reachable: watch::Sender<bool>,
    /// Calls without a reply and commands without an end.
    awaited: watch::Sender<usize>,
}

impl Inner {
    fn note_received(&self) {
        let since = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_received.store(since, Ordering::Relaxed);
        self.reachable.send_if_modified(|reachable| !std::mem::replace(reachable, true));
    }

    fn last_received(&self) -> Instant {
        self.born + Duration::from_millis(self.last_received.load(Ordering::Relaxed))
    }

    fn recount(&self) {
        let count = self.calls.lock().len() + self.commands.lock().len();
        self.awaited.send_if_modified(|awaited| std::mem::replace(awaited, count) != count);
    }
}

/// A call that waits for its reply; removed when the caller stops waiting.
struct Call<'a> {
    inner: &'a Inner,
    seq: u32,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.inner.calls.lock().remove(&self.seq);
        self.inner.recount();
    }
}

/// A live connection to a host. Cheap to clone.
#[derive(Clone)]
pub struct HostLink(Arc<Inner>);

impl HostLink {
    /// Waits for the greeting of the host and starts to receive its events. The caller sets the timeout.
    pub async fn greet(
        connection: HostConnection,
        lease: LeaseId,
        silence: Silence,
    ) -> Result<HostLink, LinkError> {
        let HostConnection { mut stream, pid } = connection;
        let mut decoder = Decoder::default();
        let boot_id = loop {
            let frame = decoder.next_frame().map_err(|e| LinkError::Protocol(e.to_string()))?;
            if let Some(frame) = frame {
                match Event::decode(&frame) {
                    Ok(Some(Event::Hello { boot_id, .. })) => break boot_id,
                    other => return Err(LinkError::Protocol(format!("no greeting: {other:?}"))),
                }
            }
            let mut buffer = [0; 1024];
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(LinkError::Closed),
                Ok(count) => decoder.feed(&buffer[..count]),
            }
        };
        let (reader, writer) = tokio::io::split(stream);
        let (outgoing, frames) = mpsc::channel(OUTGOING_FRAMES);
        let inner = Arc::new(Inner {
            outgoing,
            seq: AtomicU32::new(1),
            calls: Mutex::default(),
            terminals: Mutex::default(),
            commands: Mutex::default(),
            closed: CancellationToken::new(),
            boot_id,
            pid,
            lease,
            silence,
            born: Instant::now(),
            last_received: AtomicU64::new(0),
            reachable: watch::channel(true).0,
            awaited: watch::channel(0).0,
        });
        tokio::spawn(write(writer, frames, inner.closed.clone()));
        tokio::spawn(read(reader, decoder, inner.clone()));
        let link = HostLink(inner);
        tokio::spawn(monitor(link.clone()));
        link.send(Request::Hello { version: VERSION, features: FEATURES }).await?;
        Ok(link)
    }

    /// Returns the id of this run of the host: random at each of its starts.
    pub fn boot_id(&self) -> &str {
        &self.0.boot_id
    }

    /// Cancelled when the connection is closed.
    pub fn closed(&self) -> CancellationToken {
        self.0.closed.clone()
    }

    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Returns whether the host answers, as a value to wait on.
    pub fn reachable(&self) -> watch::Receiver<bool> {
        self.0.reachable.subscribe()
    }

    /// Sends a request and waits for its reply, at most for the timeout of the request and only while the
    /// host is reachable. `make` gets the number of the request.
    pub async fn call(&self, make: impl FnOnce(u32) -> Request) -> Result<Event, LinkError> {
        // A host that was just resumed gets time to answer.
        let mut reachable = self.reachable();
        let waited = tokio::time::timeout(Silence::NEAR.limit, reachable.wait_for(|it| *it));
        if !matches!(waited.await, Ok(Ok(_))) {
            return Err(self.unreachable());
        }
        let seq = self.0.seq.fetch_add(1, Ordering::Relaxed);
        let request = make(seq);
        let (name, limit) = limit_of(&request);
        let (sender, answer) = oneshot::channel();
        self.0.calls.lock().insert(seq, sender);
        let _call = Call { inner: &self.0, seq };
        self.0.recount();
        let answered = bounded(name, limit, async {
            tokio::select! {
                answer = async {
                    self.send(request).await?;
                    answer.await.map_err(|_| LinkError::Closed)
                } => answer,
                () = self.0.closed.cancelled() => Err(LinkError::Closed),
                _ = reachable.wait_for(|it| !*it) => Err(self.unreachable()),
            }
        });
        let answer = answered.await.unwrap_or_else(|_| Err(self.unreachable()))?;
        match answer {
            Event::Reply { code: ReplyCode::Ok | ReplyCode::AlreadyApplied, .. } => Ok(answer),
            Event::Reply { code, message, .. } => Err(LinkError::Refused { code, message }),
            other => Ok(other),
        }
    }

    pub async fn list(&self) -> Result<Vec<TerminalInfo>, LinkError> {
        match self.call(|seq| Request::List { seq }).await? {
            Event::Terminals { terminals, .. } => Ok(terminals),
            other => Err(unexpected(&other)),
        }
    }

    /// Forwards the events of `terminal` to `feed`.
    pub fn listen(&self, terminal: &str, feed: Feed) {
        let listener = Listener { feed, behind: false };
        self.0.terminals.lock().insert(terminal.to_owned(), listener);
    }

    /// Stops forwarding the events of `terminal`.
    pub fn unlisten(&self, terminal: &str) {
        self.0.terminals.lock().remove(terminal);
    }

    /// Requests the output of `terminal` from an offset on.
    pub async fn attach(&self, terminal: &str, from: u64) -> Result<(), LinkError> {
        if let Some(listener) = self.0.terminals.lock().get_mut(terminal) {
            listener.behind = false;
        }
        let terminal = terminal.to_owned();
        self.call(|seq| Request::Attach { seq, terminal, from }).await.map(drop)
    }

    /// Returns whether output of `terminal` was dropped since it was attached.
    pub fn is_behind(&self, terminal: &str) -> bool {
        self.0.terminals.lock().get(terminal).is_some_and(|listener| listener.behind)
    }

    /// Sends a request without waiting for a reply. It is dropped if the queue is full.
    pub fn post(&self, make: impl FnOnce(u32) -> Request) {
        let seq = self.0.seq.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        if make(seq).encode(&mut frame).is_ok() && self.0.outgoing.try_send(frame).is_err() {
            tracing::warn!("dropped a request to a host whose queue is full");
        }
    }

    /// Tracks the progress of `command`, and forwards its records to `terminal`.
    pub fn follow(&self, command: &str, terminal: &str) -> watch::Receiver<Progress> {
        let mut commands = self.0.commands.lock();
        let followed = commands.entry(command.to_owned()).or_insert_with(|| Followed {
            terminal: terminal.to_owned(),
            progress: watch::channel(Progress::default()).0,
        });
        let progress = followed.progress.subscribe();
        drop(commands);
        self.0.recount();
        progress
    }

    /// Returns the progress of `command`; `None` if it has ended or is not on this host.
    pub fn progress(&self, command: &str) -> Option<watch::Receiver<Progress>> {
        self.0.commands.lock().get(command).map(|followed| followed.progress.subscribe())
    }

    /// Stops tracking `command`.
    pub fn forget(&self, command: &str) {
        self.0.commands.lock().remove(command);
        self.0.recount();
    }

    fn unreachable(&self) -> LinkError {
        LinkError::Unreachable { lease: self.0.lease.clone() }
    }

    async fn send(&self, request: Request) -> Result<(), LinkError> {
        let mut frame = Vec::new();
        request.encode(&mut frame).map_err(|e| LinkError::Protocol(e.to_string()))?;
        self.0.outgoing.send(frame).await.map_err(|_| LinkError::Closed)
    }
}

/// Returns the name of a call in logs and metrics, and its timeout.
fn limit_of(request: &Request) -> (&'static str, Duration) {
    let name = match request {
        Request::Hello { .. } => "host.hello",
        Request::Ping { .. } => "host.ping",
        Request::Open { .. } => "host.open",
        Request::Close { .. } => "host.close",
        Request::List { .. } => "host.list",
        Request::Attach { .. } => "host.attach",
        Request::Detach { .. } => "host.detach",
        Request::Input { .. } => "host.input",
        Request::Resize { .. } => "host.resize",
        Request::Signal { .. } => "host.signal",
        Request::AckExit { .. } => "host.ack_exit",
        Request::Trim { .. } => "host.trim",
        Request::ReadLog { .. } => "host.read_log",
        Request::Show { .. } => "host.show",
        Request::Metrics { .. } => "host.metrics",
        Request::Shutdown { .. } => "host.shutdown",
        Request::Exec { .. } => "host.exec",
        Request::State { .. } => "host.state",
        Request::Apply { .. } => return ("host.apply", SCRIPT_TIMEOUT),
        Request::Replace { .. } => "host.replace",
        Request::ExecStdin { .. } => "host.exec_stdin",
        Request::ExecSignal { .. } => "host.exec_signal",
        Request::ExecRead { .. } => "host.exec_read",
        Request::ExecWatch { .. } => "host.exec_watch",
        Request::ExecUnwatch { .. } => "host.exec_unwatch",
        Request::ExecCancel { .. } => "host.exec_cancel",
        Request::ExecWithdraw { .. } => "host.exec_withdraw",
        Request::ExecForget { .. } => "host.exec_forget",
        Request::EndWithProgram { .. } => "host.end_with_program",
        Request::Upgrade { .. } => "host.upgrade",
    };
    (name, CALL_TIMEOUT)
}

/// Pings a silent host while a reply is awaited, and marks it unreachable if it stays silent. The reader
/// marks it reachable again with the next byte; the pings are queued in the host's socket.
async fn monitor(link: HostLink) {
    let inner = &link.0;
    let Silence { ping_after, limit, busy_limit } = inner.silence;
    let mut awaited = inner.awaited.subscribe();
    loop {
        tokio::select! {
            () = inner.closed.cancelled() => return,
            waits = awaited.wait_for(|count| *count > 0) => if waits.is_err() { return },
        }
        let began = Instant::now();
        let mut pinged = None;
        loop {
            let since = inner.last_received().max(began);
            let silent = since.elapsed();
            let next = if silent < ping_after {
                ping_after
            } else if silent < limit || silent < busy_limit && !inner.pid.is_some_and(is_stopped) {
                if pinged != Some(since) {
                    pinged = Some(since);
                    link.post(|seq| Request::Ping { seq });
                }
                if silent < limit { limit } else { silent + ping_after }
            } else {
                inner.reachable.send_if_modified(|reachable| std::mem::replace(reachable, false));
                break;
            };
            tokio::select! {
                () = inner.closed.cancelled() => return,
                () = tokio::time::sleep(next.saturating_sub(silent)) => {}
                _ = awaited.wait_for(|count| *count == 0) => break,
            }
        }
        // The reader notices when the host answers again.
        let mut reachable = inner.reachable.subscribe();
        tokio::select! {
            () = inner.closed.cancelled() => return,
            _ = reachable.wait_for(|it| *it) => {}
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// The error for a reply of an unexpected type.
pub fn unexpected(event: &Event) -> LinkError {
    LinkError::Protocol(format!("unexpected reply {event:?}"))
}

async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut frames: mpsc::Receiver<Vec<u8>>,
    closed: CancellationToken,
) {
    loop {
        let frame = tokio::select! {
            () = closed.cancelled() => break,
            frame = frames.recv() => match frame { Some(frame) => frame, None => break },
        };
        if writer.write_all(&frame).await.is_err() {
            break;
        }
    }
    closed.cancel();
}

async fn read<R: AsyncRead + Unpin>(mut reader: R, mut decoder: Decoder, inner: Arc<Inner>) {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let link = HostLink(inner.clone());
    loop {
        match drain(&mut decoder, &inner) {
            Ok(behind) => {
                for terminal in behind {
                    // The owner attaches again when it has processed its queue.
                    link.post(|seq| Request::Detach { seq, terminal });
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot decode the stream of a host");
                break;
            }
        }
        let count = tokio::select! {
            () = inner.closed.cancelled() => break,
            read = reader.read(&mut buffer) => match read { Ok(0) | Err(_) => break, Ok(n) => n },
        };
        inner.note_received();
        decoder.feed(&buffer[..count]);
    }
    inner.closed.cancel();
    inner.calls.lock().clear();
    // Dropping the senders tells every owner that the connection is closed.
    inner.terminals.lock().clear();
    inner.commands.lock().clear();
}

/// Forwards every complete frame. Returns the terminals whose output was dropped.
fn drain(decoder: &mut Decoder, inner: &Inner) -> Result<Vec<String>, LinkError> {
    let mut behind = Vec::new();
    while let Some(frame) =
        decoder.next_frame().map_err(|error| LinkError::Protocol(error.to_string()))?
    {
        let Some(event) =
            Event::decode(&frame).map_err(|error| LinkError::Protocol(error.to_string()))?
        else {
            continue;
        };
        if let Some(terminal) = forward(event, inner) {
            behind.push(terminal);
        }
    }
    Ok(behind)
}

/// Forwards one event. Returns the terminal if its output was dropped.
fn forward(event: Event, inner: &Inner) -> Option<String> {
    if let Some(seq) = event.answers() {
        if let Some(call) = inner.calls.lock().remove(&seq) {
            let _ = call.send(event);
        }
        return None;
    }
    update_progress(&event, inner);
    let of_command;
    let terminal = match &event {
        Event::Output { terminal, .. }
        | Event::Resized { terminal, .. }
        | Event::Gap { terminal, .. }
        | Event::Exited { terminal, .. } => {
            let mut terminals = inner.terminals.lock();
            let listener = terminals.get_mut(terminal)?;
            if listener.behind {
                return None;
            }
            let terminal = terminal.clone();
            if let Event::Exited { .. } = event
                && listener.feed.records.try_send(Box::new(event.clone())).is_err()
            {
                listener.feed.resync.send_replace(true);
            }
            if let Err(mpsc::error::TrySendError::Full(_)) =
                listener.feed.output.try_send(Box::new(event))
            {
                listener.behind = true;
                return Some(terminal);
            }
            return None;
        }
        Event::Started { terminal, .. }
        | Event::Done { terminal, .. }
        | Event::Typed { terminal, .. }
        | Event::StateChanged { terminal, .. }
        | Event::Restarted { terminal, .. } => terminal,
        Event::Sealed { command, .. } | Event::Waiting { command, .. } => {
            of_command = inner.commands.lock().get(command)?.terminal.clone();
            &of_command
        }
        Event::Hello { .. }
        | Event::Reply { .. }
        | Event::Terminals { .. }
        | Event::LogChunk { .. }
        | Event::CommandOutput { .. }
        | Event::ExecChunk { .. }
        | Event::StateReply { .. }
        | Event::MetricsReply { .. } => return None,
    };
    let terminals = inner.terminals.lock();
    let listener = terminals.get(terminal)?;
    if let Err(mpsc::error::TrySendError::Full(_)) = listener.feed.records.try_send(Box::new(event))
    {
        listener.feed.resync.send_replace(true);
    }
    None
}

/// Updates the progress of the command that an event is about.
fn update_progress(event: &Event, inner: &Inner) {
    let change = |command: &str, change: &dyn Fn(&mut Progress)| {
        if let Some(followed) = inner.commands.lock().get(command) {
            followed.progress.send_modify(change);
        }
    };
    match event {
        Event::Started { command, .. } => change(command, &|p| p.started = true),
        Event::CommandOutput { command, stream, offset, bytes } => {
            let end = offset + bytes.len() as u64;
            change(command, &|p| match stream {
                Stream::Stderr => p.stderr = p.stderr.max(end),
                Stream::Stdout | Stream::Other(_) => p.stdout = p.stdout.max(end),
            });
        }
        Event::Waiting { command, waiting } => change(command, &|p| p.waiting = *waiting),
        Event::Sealed { command, stdout_bytes, stderr_bytes } => change(command, &|p| {
            (p.stdout, p.stderr, p.sealed) = (*stdout_bytes, *stderr_bytes, true);
        }),
        _ => {}
    }
}
