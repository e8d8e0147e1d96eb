//! One connection to a host, shared by all terminals on it.
//!
//! Requests go out with a number and come back by it. What happens in a terminal goes to that
//! terminal's own channels and never waits for them: output that does not fit is dropped here
//! and asked for again by offset, so that one busy terminal cannot delay another.
//!
//! While an answer or the end of a command is awaited, a silent host is pinged. One that stays silent
//! is unreachable: every call fails at once with [`LinkError::Unreachable`], the connection stays, and
//! the first byte from the host makes it reachable again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use host::wire::{Code, Decoder, Event, FEATURES, Request, TerminalInfo, VERSION};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use base::outbound::bounded;
use model::LeaseId;

/// Frames waiting to be written; a caller beyond that waits.
const OUTGOING: usize = 256;
/// The limit of one call to a host that keeps answering pings.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for a script, which waits until the shell is at its prompt.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes taken from the socket at once.
const READ: usize = 256 << 10;

/// A request the host could not be asked, or did not grant.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The connection is gone; whether the request was carried out is not known.
    #[error("the connection to the host is gone")]
    Closed,
    /// The host has been silent for too long; whether the request was carried out is not known.
    #[error("the host of lease {lease} does not answer")]
    Unreachable {
        /// Whose host it is.
        lease: LeaseId,
    },
    /// The host said no.
    #[error("the host refused: {message}")]
    Refused {
        /// Which of the protocol's reasons.
        code: Code,
        /// In its words.
        message: String,
    },
    /// The host answered with something else than was asked for, or a message is too large.
    #[error("the host cannot be understood: {0}")]
    Protocol(String),
}

/// What the link hands to a terminal.
#[derive(Debug)]
pub struct Feed {
    /// Output and what is ordered with it; may be dropped and asked for again.
    pub output: mpsc::Sender<Box<Event>>,
    /// Ends of commands and changes of state; when it is full, `resync` is raised instead.
    pub records: mpsc::Sender<Box<Event>>,
    /// Raised when a record was dropped.
    pub resync: watch::Sender<bool>,
}

struct Listener {
    feed: Feed,
    /// Output was dropped: nothing more is passed on until it is attached again.
    behind: bool,
}

/// What is known of a command that runs in the host, as a level that can be waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of standard output so far.
    pub stdout: u64,
    /// Bytes of standard error so far.
    pub stderr: u64,
    /// It began.
    pub started: bool,
    /// It waits for somebody to type.
    pub waiting: bool,
    /// Nothing holds its streams any more.
    pub sealed: bool,
}

/// A command that was not forgotten.
struct Followed {
    terminal: String,
    progress: watch::Sender<Progress>,
}

/// How long a host may be silent while something is awaited from it.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    /// When it is pinged.
    pub ping_after: Duration,
    /// When it counts as unreachable.
    pub limit: Duration,
    /// The same for one that is not known to be stopped: a disk may hold it up for seconds.
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
    pid: u32,
    lease: LeaseId,
    silence: Silence,
    born: Instant,
    /// Milliseconds from `born` to the last byte from the host.
    heard: AtomicU64,
    reachable: watch::Sender<bool>,
    /// Calls without an answer and commands without an end.
    awaited: watch::Sender<usize>,
}

impl Inner {
    fn note_heard(&self) {
        let since = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(since, Ordering::Relaxed);
        self.reachable.send_if_modified(|reachable| !std::mem::replace(reachable, true));
    }

    fn last_heard(&self) -> Instant {
        self.born + Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    fn recount(&self) {
        let count = self.calls.lock().len() + self.commands.lock().len();
        self.awaited.send_if_modified(|awaited| std::mem::replace(awaited, count) != count);
    }
}

/// One call that waits for its answer; forgotten when its caller leaves.
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
pub struct Link(Arc<Inner>);

impl Link {
    /// Greets the host at the other end of `stream` and starts to listen to it. Waits for the host's
    /// greeting for as long as the caller does.
    pub async fn greet<S>(
        mut stream: S,
        lease: LeaseId,
        silence: Silence,
    ) -> Result<Link, LinkError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut decoder = Decoder::default();
        let (boot_id, pid) = loop {
            let frame = decoder.next_frame().map_err(|e| LinkError::Protocol(e.to_string()))?;
            if let Some(frame) = frame {
                match Event::decode(&frame) {
                    Ok(Some(Event::Hello { boot_id, pid, .. })) => break (boot_id, pid),
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
        let (outgoing, frames) = mpsc::channel(OUTGOING);
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
            heard: AtomicU64::new(0),
            reachable: watch::channel(true).0,
            awaited: watch::channel(0).0,
        });
        tokio::spawn(write(writer, frames, inner.closed.clone()));
        tokio::spawn(read(reader, decoder, inner.clone()));
        let link = Link(inner);
        tokio::spawn(monitor(link.clone()));
        link.send(Request::Hello { version: VERSION, features: FEATURES }).await?;
        Ok(link)
    }

    /// The host's own id, random at each of its starts.
    pub fn boot_id(&self) -> &str {
        &self.0.boot_id
    }

    /// The host's process id.
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Fires when the connection is gone.
    pub fn closed(&self) -> CancellationToken {
        self.0.closed.clone()
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Whether the host answers, as a level that can be waited for.
    pub fn reachable(&self) -> watch::Receiver<bool> {
        self.0.reachable.subscribe()
    }

    /// Sends a request and waits for its answer, within the request's limit and for no longer than the
    /// host may be silent. `make` gets the number the request has to carry.
    pub async fn call(&self, make: impl FnOnce(u32) -> Request) -> Result<Event, LinkError> {
        // A host that was paused a moment ago gets the chance to say that it runs again.
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
            Event::Reply { code: Code::Ok | Code::AlreadyApplied, .. } => Ok(answer),
            Event::Reply { code, message, .. } => Err(LinkError::Refused { code, message }),
            other => Ok(other),
        }
    }

    /// Every terminal the host holds.
    pub async fn list(&self) -> Result<Vec<TerminalInfo>, LinkError> {
        match self.call(|seq| Request::List { seq }).await? {
            Event::Terminals { terminals, .. } => Ok(terminals),
            other => Err(unexpected(&other)),
        }
    }

    /// From now on what happens in `terminal` goes to `feed`.
    pub fn listen(&self, terminal: &str, feed: Feed) {
        let listener = Listener { feed, behind: false };
        self.0.terminals.lock().insert(terminal.to_owned(), listener);
    }

    /// Nobody listens to `terminal` any more.
    pub fn unlisten(&self, terminal: &str) {
        self.0.terminals.lock().remove(terminal);
    }

    /// Asks for the output of `terminal` from an offset on.
    pub async fn attach(&self, terminal: &str, from: u64) -> Result<(), LinkError> {
        if let Some(listener) = self.0.terminals.lock().get_mut(terminal) {
            listener.behind = false;
        }
        let terminal = terminal.to_owned();
        self.call(|seq| Request::Attach { seq, terminal, from }).await.map(drop)
    }

    /// Was output of `terminal` dropped since it was attached?
    pub fn is_behind(&self, terminal: &str) -> bool {
        self.0.terminals.lock().get(terminal).is_some_and(|listener| listener.behind)
    }

    /// Asks without waiting for the answer. Said once: what does not fit is not sent.
    pub fn post(&self, make: impl FnOnce(u32) -> Request) {
        let seq = self.0.seq.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        if make(seq).encode(&mut frame).is_ok() && self.0.outgoing.try_send(frame).is_err() {
            tracing::warn!("the host takes no more requests; one was dropped");
        }
    }

    /// What happens to `command` from now on is told to `terminal` and to whoever follows it.
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

    /// How far `command` is, as a level to wait on; `None` if it is over or not of this host.
    pub fn progress(&self, command: &str) -> Option<watch::Receiver<Progress>> {
        self.0.commands.lock().get(command).map(|followed| followed.progress.subscribe())
    }

    /// `command` is over and done with.
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

/// The name of a call in logs and metrics, and how long its answer may take.
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

/// Pings a host that is silent while something is awaited from it, and declares it unreachable when it
/// stays silent. Reachable again is whatever the reader hears from: the pings are in the host's socket.
async fn monitor(link: Link) {
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
            let since = inner.last_heard().max(began);
            let silent = since.elapsed();
            let next = if silent < ping_after {
                ping_after
            } else if silent < limit || silent < busy_limit && !is_stopped(inner.pid) {
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
        // From here on the reader tells.
        let mut reachable = inner.reachable.subscribe();
        tokio::select! {
            () = inner.closed.cancelled() => return,
            _ = reachable.wait_for(|it| *it) => {}
        }
    }
}

/// Whether a process of this machine is stopped. A host that is shut in has another number here, and is
/// then taken for one that is busy.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// An answer of another kind than the request's.
pub fn unexpected(event: &Event) -> LinkError {
    LinkError::Protocol(format!("unexpected answer {event:?}"))
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
    let mut buffer = vec![0; READ];
    let link = Link(inner.clone());
    loop {
        match drain(&mut decoder, &inner) {
            Ok(behind) => {
                for terminal in behind {
                    // The owner attaches again when it has caught up.
                    link.post(|seq| Request::Detach { seq, terminal });
                }
            }
            Err(error) => {
                tracing::error!(%error, "the host's stream cannot be read on");
                break;
            }
        }
        let count = tokio::select! {
            () = inner.closed.cancelled() => break,
            read = reader.read(&mut buffer) => match read { Ok(0) | Err(_) => break, Ok(n) => n },
        };
        inner.note_heard();
        decoder.feed(&buffer[..count]);
    }
    inner.closed.cancel();
    inner.calls.lock().clear();
    // Dropping the senders tells every owner that the runtime is out of reach.
    inner.terminals.lock().clear();
    inner.commands.lock().clear();
}

/// Passes on every whole frame; answers the terminals that have fallen behind just now.
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
        if let Some(terminal) = pass_on(event, inner) {
            behind.push(terminal);
        }
    }
    Ok(behind)
}

/// Passes one event on; answers the terminal if it has just fallen behind.
fn pass_on(event: Event, inner: &Inner) -> Option<String> {
    if let Some(seq) = event.answers() {
        if let Some(call) = inner.calls.lock().remove(&seq) {
            let _ = call.send(event);
        }
        return None;
    }
    note(&event, inner);
    let sealed;
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
        Event::Sealed { command, .. } => {
            sealed = inner.commands.lock().get(command)?.terminal.clone();
            &sealed
        }
        Event::Hello { .. }
        | Event::Reply { .. }
        | Event::Terminals { .. }
        | Event::LogChunk { .. }
        | Event::CommandOutput { .. }
        | Event::Waiting { .. }
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

/// Raises the level of the command an event is about, if anybody follows it.
fn note(event: &Event, inner: &Inner) {
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
                host::wire::Stream::Stderr => p.stderr = p.stderr.max(end),
                _ => p.stdout = p.stdout.max(end),
            });
        }
        Event::Waiting { command, waiting } => change(command, &|p| p.waiting = *waiting),
        Event::Sealed { command, stdout_bytes, stderr_bytes } => change(command, &|p| {
            (p.stdout, p.stderr, p.sealed) = (*stdout_bytes, *stderr_bytes, true);
        }),
        _ => {}
    }
}
