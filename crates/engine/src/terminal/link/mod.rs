//! One connection to a host, shared by all terminals on it.
//!
//! Requests carry a number, and replies are matched by it. Events of a terminal go to the terminal's own
//! channels without waiting: output that does not fit is dropped here and requested again by offset, so
//! that a busy terminal cannot delay another.
//!
//! While a reply or the end of a command is awaited, a silent host is pinged. A host that stays silent is
//! unreachable: every call fails at once with [`LinkError::Unreachable`], the connection is kept, and the
//! first byte from the host makes it reachable again.

mod error;
mod io;
mod monitor;
mod shared;
mod silence;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use wire::{Decoder, Event, FEATURES, ReplyCode, Request, TerminalInfo, VERSION};

use base::outbound::bounded;
use io::{read, write};
use model::LeaseId;
use monitor::monitor;
use provider::HostConnection;
use shared::{LinkShared, Listener, TrackedCommand};

pub use error::{LinkError, unexpected};
pub use shared::{Progress, TerminalChannels};
pub use silence::SilenceLimits;

/// Frames that wait to be written; a further caller waits for room.
const OUTGOING_FRAMES: usize = 256;
/// The timeout of one call to a host that answers pings.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a script, which waits until the shell is at its prompt.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);

/// How many connections were made.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// A live connection to a host. Cheap to clone.
#[derive(Clone)]
pub struct HostLink(Arc<LinkShared>);

impl HostLink {
    /// Waits for the greeting of the host and starts to receive its events. The caller sets the timeout.
    pub async fn greet(
        connection: HostConnection,
        lease: LeaseId,
        silence: SilenceLimits,
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
        let inner = Arc::new(LinkShared {
            number: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
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
            connected_at: Instant::now(),
            last_received: AtomicU64::new(0),
            reachable: watch::channel(true).0,
            awaited: watch::channel(0).0,
        });
        tokio::spawn(write(writer, frames, inner.closed.clone()));
        tokio::spawn(read(reader, decoder, inner.clone()));
        tokio::spawn(monitor(inner.clone()));
        let link = HostLink(inner);
        link.send(Request::Hello { version: VERSION, features: FEATURES }).await?;
        Ok(link)
    }

    /// Returns the id of this run of the host: random at each of its starts.
    pub fn boot_id(&self) -> &str {
        &self.0.boot_id
    }

    /// Returns the number of this connection: greater than that of every earlier one.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns whether the host is behind a network, where bytes in transit can be lost.
    pub fn is_remote(&self) -> bool {
        self.0.silence == SilenceLimits::REMOTE
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
        tokio::select! {
            biased;
            () = self.0.closed.cancelled() => return Err(LinkError::Closed),
            Ok(_) = reachable.wait_for(|it| *it) => {}
            () = tokio::time::sleep(SilenceLimits::LOCAL.limit) => return Err(self.unreachable()),
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

    /// Returns the TCP ports that programs listen on, in ascending order.
    pub async fn ports(&self) -> Result<Vec<u16>, LinkError> {
        match self.call(|seq| Request::Ports { seq }).await? {
            Event::PortsReply { ports, .. } => Ok(ports),
            other => Err(unexpected(&other)),
        }
    }

    /// Forwards the events of `terminal` to `channels`.
    pub fn listen(&self, terminal: &str, channels: TerminalChannels) {
        let listener = Listener { channels, behind: false };
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
        self.0.post(make);
    }

    /// Queues a request without waiting for a reply.
    pub async fn queue(&self, make: impl FnOnce(u32) -> Request) -> Result<(), LinkError> {
        self.send(make(self.0.seq.fetch_add(1, Ordering::Relaxed))).await
    }

    /// Tracks the progress of `command`, and forwards its records to `terminal`.
    pub fn follow(&self, command: &str, terminal: &str) -> watch::Receiver<Progress> {
        let mut commands = self.0.commands.lock();
        let tracked = commands.entry(command.to_owned()).or_insert_with(|| TrackedCommand {
            terminal: terminal.to_owned(),
            progress: watch::channel(Progress::default()).0,
        });
        let progress = tracked.progress.subscribe();
        drop(commands);
        self.0.recount();
        progress
    }

    /// Returns the progress of `command`; `None` if it has ended or is not on this host.
    pub fn progress(&self, command: &str) -> Option<watch::Receiver<Progress>> {
        self.0.commands.lock().get(command).map(|tracked| tracked.progress.subscribe())
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

/// A call that waits for its reply; removed when the caller stops waiting.
struct Call<'a> {
    inner: &'a LinkShared,
    seq: u32,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.inner.calls.lock().remove(&self.seq);
        self.inner.recount();
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
        Request::TypeSecret { .. } => "host.type_secret",
        Request::Resize { .. } => "host.resize",
        Request::Signal { .. } => "host.signal",
        Request::AckExit { .. } => "host.ack_exit",
        Request::Trim { .. } => "host.trim",
        Request::ReadLog { .. } => "host.read_log",
        Request::Show { .. } => "host.show",
        Request::Metrics { .. } => "host.metrics",
        Request::Ports { .. } => "host.ports",
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
