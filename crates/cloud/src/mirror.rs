//! The server's copy of the output of terminals in vendors' sandboxes.
//!
//! ```text
//!   server ◀── replies, output ─── Mirror ◀──────────── host
//!     │                             │  └▶ HOME/terminals/<id>/{log, commands}
//!     └────── requests ──────────▶ Mirror ──────────▶ host
//! ```
//! A sandbox may be deleted with everything in it. So all output is written here before the server receives it, in
//! the same files that a local host would write; output that was written while no server was connected is
//! fetched before the server learns the terminal's offset; and a command's output is fetched before the host
//! may forget it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host::log::Log;
use parking_lot::Mutex;
use shell::{Keep, Output};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::DropGuard;
use wire::{Decoder, Event, LogRecord, MAX_DATA, RecordKind, Request, Stream, TerminalInfo};

/// Our own requests have numbers from here on; the server counts from 1.
const FIRST_OWN_SEQ: u32 = 1 << 31;
/// Our own requests in the queue. Each terminal and command has a few at a time.
const MAX_OWN_REQUESTS: usize = 4096;
/// Frames of the server queued for the host.
const MAX_QUEUED_FRAMES: usize = 64;
/// The maximum number of bytes held back while a log is fetched; more ends the connection.
const MAX_HELD_BYTES: usize = 64 << 20;
/// How much of a command's output is kept by default.
const DEFAULT_KEEP: Keep = Keep { head: 8 << 20, tail: 8 << 20 };
/// Output up to this size is part of the command's receipt.
const MAX_RECEIPT_BYTES: u64 = 64 << 10;
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
const STREAM_BUFFER_BYTES: usize = 256 << 10;

/// All copies of one home. Only the latest connection writes the copy of a terminal.
#[derive(Debug)]
pub(super) struct Mirrors {
    terminals: PathBuf,
    /// The size of logs that a previous server process opened.
    limit: u64,
    logs: Mutex<HashMap<String, OwnedLog>>,
    connections: AtomicU64,
}

#[derive(Debug)]
struct OwnedLog {
    connection: u64,
    log: Log,
}

impl Mirrors {
    pub(super) fn new(terminals: PathBuf, limit: u64) -> Self {
        Self { terminals, limit, logs: Mutex::default(), connections: AtomicU64::new(1) }
    }

    /// Wraps the stream to a host so that all output is copied; `until` is dropped when the stream ends.
    pub(super) fn watch(
        self: &Arc<Self>,
        host: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        until: DropGuard,
    ) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
        let (from_host, to_host) = tokio::io::split(host);
        let (from_server, to_server) = tokio::io::split(ours);
        let (frames, outgoing) = mpsc::channel(MAX_QUEUED_FRAMES);
        let (own, own_outgoing) = mpsc::channel(MAX_OWN_REQUESTS);
        let mirror = Arc::new(Mirror {
            connection: self.connections.fetch_add(1, Ordering::Relaxed),
            mirrors: self.clone(),
            own,
            state: Mutex::default(),
        });
        tokio::spawn(write(to_host, outgoing, own_outgoing));
        let (up, down) = (mirror.clone(), mirror);
        tokio::spawn(async move {
            let up = up.up(from_server, frames);
            // When either direction ends, the other is dropped.
            tokio::select! {
                () = up => {}
                result = down.clone().down(from_host, to_server) => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection to a host in a sandbox ended");
                    }
                }
            }
            down.settle();
            drop(until);
        });
        theirs
    }
}

struct Mirror {
    connection: u64,
    mirrors: Arc<Mirrors>,
    own: mpsc::Sender<Vec<u8>>,
    state: Mutex<MirrorState>,
}

#[derive(Default)]
struct MirrorState {
    seq: u32,
    /// What our own pending requests are for.
    pending: HashMap<u32, OwnRequest>,
    /// The command streams that the server reads.
    reads: HashMap<u32, (String, Stream)>,
    commands: HashMap<String, CommandCopy>,
    /// Terminals whose log is being fetched, and up to which offset.
    behind: HashMap<String, u64>,
    /// Commands that the host may forget once their output is fetched, with the frame that requests it.
    forgetting: HashMap<String, Vec<u8>>,
}

enum OwnRequest {
    Log(String),
    Output(String, Stream),
}

struct CommandCopy {
    terminal: String,
    keep: Keep,
    stdout: Option<Output>,
    stderr: Option<Output>,
    /// The length of both streams at the end of the command, which its receipt has if it is small.
    at_end: Option<u64>,
    /// The length of both streams, once the host has reported it.
    total: Option<u64>,
}

impl CommandCopy {
    fn new(terminal: String, keep: Keep) -> Self {
        Self { terminal, keep, stdout: None, stderr: None, at_end: None, total: None }
    }

    /// Returns whether the receipt has the whole output.
    fn is_in_receipt(&self) -> bool {
        self.total.is_some_and(|total| total <= MAX_RECEIPT_BYTES && self.at_end == self.total)
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut host: W,
    mut frames: mpsc::Receiver<Vec<u8>>,
    mut own: mpsc::Receiver<Vec<u8>>,
) {
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = own.recv() => frame,
            frame = frames.recv() => match frame { Some(frame) => frame, None => return },
        };
        if host.write_all(&frame).await.is_err() {
            return;
        }
    }
}

fn encoded(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 5);
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.push(kind);
    frame.extend_from_slice(payload);
    frame
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

impl Mirror {
    /// Forwards from the server to the host.
    async fn up<R: AsyncRead + Unpin>(&self, mut server: R, frames: mpsc::Sender<Vec<u8>>) {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let mut whole = Vec::new();
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => {
                        let bytes = encoded(frame.kind, frame.payload);
                        let passes = match Request::decode(&frame) {
                            Ok(Some(request)) => self.requested(request, &bytes),
                            Ok(None) | Err(_) => true,
                        };
                        if passes {
                            whole.push(bytes);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            for frame in whole {
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
            match server.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => decoder.feed(&buffer[..count]),
            }
        }
    }

    /// Records a request. Returns whether it is forwarded at once.
    fn requested(&self, request: Request, frame: &[u8]) -> bool {
        match request {
            Request::Open { terminal, log_limit, base_offset, cols, rows, .. } => {
                self.take_log(&terminal, log_limit, base_offset, (cols, rows));
                true
            }
            Request::Close { terminal, .. } => {
                self.mirrors.logs.lock().remove(&terminal);
                true
            }
            Request::Exec { terminal, command, keep_head, keep_tail, .. } => {
                let keep = Keep { head: keep_head, tail: keep_tail };
                self.state.lock().commands.insert(command, CommandCopy::new(terminal, keep));
                true
            }
            Request::ExecRead { seq, command, stream, .. } => {
                self.state.lock().reads.insert(seq, (command, stream));
                true
            }
            Request::ExecForget { command, .. } => self.may_forget(command, frame),
            _ => true,
        }
    }

    /// Returns whether the host may forget a command at once; if not, its output is fetched first.
    fn may_forget(&self, command: String, frame: &[u8]) -> bool {
        let mut state = self.state.lock();
        match state.commands.get(&command) {
            None => return true,
            Some(copied) if copied.is_in_receipt() => {
                state.commands.remove(&command);
                return true;
            }
            Some(_) => {}
        }
        if state.forgetting.insert(command.clone(), frame.to_vec()).is_none() {
            self.fetch_output(&mut state, command, Stream::Stdout);
        }
        false
    }

    /// Forwards from the host to the server.
    async fn down<R, W>(self: Arc<Self>, mut host: R, mut server: W) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        // Frames held back until the copies have caught up.
        let mut held: VecDeque<Vec<u8>> = VecDeque::new();
        let mut held_bytes = 0;
        let mut ticks = interval(SYNC_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while let Some(frame) = decoder.next_frame().map_err(broken)? {
                let bytes = encoded(frame.kind, frame.payload);
                let event = Event::decode(&frame).map_err(broken)?;
                if event.is_none_or(|event| self.copy_event(event)) {
                    held_bytes += bytes.len();
                    held.push_back(bytes);
                }
            }
            if self.state.lock().behind.is_empty() {
                held_bytes = 0;
                for frame in held.drain(..) {
                    server.write_all(&frame).await?;
                }
            } else if held_bytes > MAX_HELD_BYTES {
                return Err(broken("too much output arrived while a log was fetched"));
            }
            tokio::select! {
                read = host.read(&mut buffer) => match read? {
                    0 => return Ok(()),
                    count => decoder.feed(&buffer[..count]),
                },
                _ = ticks.tick() => self.sync(),
            }
        }
    }

    /// Copies what an event reports. Returns whether the server receives the event.
    fn copy_event(&self, event: Event) -> bool {
        match event {
            Event::Output { terminal, offset, time_ms, bytes } => {
                self.with_log(&terminal, |log| {
                    append(log, RecordKind::Output, offset, time_ms, &bytes);
                });
                true
            }
            Event::Resized { terminal, offset, cols, rows, time_ms } => {
                self.with_log(&terminal, |log| {
                    if offset >= log.end() {
                        log.resize(time_ms, cols, rows);
                    }
                });
                true
            }
            Event::Gap { terminal, to, .. } => {
                self.with_log(&terminal, |log| log.skip_to(to));
                true
            }
            Event::Terminals { terminals, .. } => {
                for info in terminals {
                    self.catch_up(info);
                }
                true
            }
            Event::LogChunk { seq, next, records, .. } if seq >= FIRST_OWN_SEQ => {
                self.fetched_log(seq, next, records);
                false
            }
            Event::ExecChunk { seq, offset, bytes, .. } if seq >= FIRST_OWN_SEQ => {
                self.fetched_output(seq, offset, &bytes);
                false
            }
            // Our own request was refused: there is nothing to fetch.
            Event::Reply { seq, .. } if seq >= FIRST_OWN_SEQ => {
                self.refused(seq);
                false
            }
            Event::ExecChunk { seq, offset, bytes, .. } => {
                let mut state = self.state.lock();
                if let Some((command, stream)) = state.reads.remove(&seq)
                    && let Some(output) = self.output(&mut state, &command, stream)
                    // A read from the middle does not extend the copy.
                    && offset <= output.written()
                {
                    copy(output, offset, &bytes);
                }
                true
            }
            Event::Done { command, stdout_bytes, stderr_bytes, .. } => {
                if let Some(copied) = self.state.lock().commands.get_mut(&command) {
                    copied.at_end = Some(stdout_bytes + stderr_bytes);
                }
                true
            }
            Event::Sealed { command, stdout_bytes, stderr_bytes } => {
                if let Some(copied) = self.state.lock().commands.get_mut(&command) {
                    copied.total = Some(stdout_bytes + stderr_bytes);
                }
                true
            }
            Event::Reply { seq, .. } => {
                self.state.lock().reads.remove(&seq);
                true
            }
            _ => true,
        }
    }

    /// Opens the log of a terminal for this connection.
    fn take_log(&self, terminal: &str, limit: u64, base: u64, size: (u16, u16)) {
        let mut logs = self.mirrors.logs.lock();
        if logs.get(terminal).is_some_and(|held| held.connection > self.connection) {
            return;
        }
        // Close the log of the previous connection before opening it again.
        logs.remove(terminal);
        let dir = self.mirrors.terminals.join(terminal).join("log");
        match Log::open(dir, limit, base, size) {
            Ok(log) => {
                logs.insert(terminal.to_owned(), OwnedLog { connection: self.connection, log });
            }
            Err(error) => tracing::error!(terminal, %error, "cannot copy the output of a terminal"),
        }
    }

    fn with_log<T>(&self, terminal: &str, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
        let mut logs = self.mirrors.logs.lock();
        let held = logs.get_mut(terminal)?;
        (held.connection == self.connection).then(|| {
            let done = act(&mut held.log);
            if held.log.is_sync_due() {
                sync(&mut held.log);
            }
            done
        })
    }

    /// Fetches output that is not copied yet.
    fn catch_up(&self, info: TerminalInfo) {
        let TerminalInfo { terminal, cols, rows, end_offset, first_offset, commands, .. } = info;
        // A terminal that is being deleted has no directory, and must not get one.
        if !self.mirrors.terminals.join(&terminal).is_dir() {
            return;
        }
        let held = self.with_log(&terminal, |log| log.end());
        let end = held.or_else(|| {
            self.take_log(&terminal, self.mirrors.limit, 0, (cols, rows));
            self.with_log(&terminal, |log| log.end())
        });
        let mut state = self.state.lock();
        for command in commands {
            let copied = || CommandCopy::new(terminal.clone(), DEFAULT_KEEP);
            state.commands.entry(command.command).or_insert_with(copied);
        }
        let Some(end) = end.filter(|end| *end < end_offset) else { return };
        if state.behind.insert(terminal.clone(), end_offset).is_none() {
            self.fetch_log(&mut state, terminal, end.max(first_offset));
        }
    }

    fn ask(&self, state: &mut MirrorState, about: OwnRequest, make: impl FnOnce(u32) -> Request) {
        let seq = FIRST_OWN_SEQ | state.seq;
        state.seq = (state.seq + 1) % FIRST_OWN_SEQ;
        let mut frame = Vec::new();
        // A request that cannot be queued is treated as refused.
        if make(seq).encode(&mut frame).is_ok() && self.own.try_send(frame).is_ok() {
            state.pending.insert(seq, about);
        } else {
            tracing::warn!("cannot complete a copy: too many requests are queued");
            self.give_up(state, about);
        }
    }

    fn fetch_log(&self, state: &mut MirrorState, terminal: String, from: u64) {
        let limit = MAX_DATA as u32;
        let name = terminal.clone();
        self.ask(state, OwnRequest::Log(name), |seq| Request::ReadLog {
            seq,
            terminal,
            from,
            limit,
        });
    }

    fn fetched_log(&self, seq: u32, next: u64, records: Vec<LogRecord>) {
        let mut state = self.state.lock();
        let Some(OwnRequest::Log(terminal)) = state.pending.remove(&seq) else { return };
        let empty = records.is_empty();
        let end = self.with_log(&terminal, |log| {
            for LogRecord { kind, offset, time_ms, data } in records {
                match (kind, data.as_slice()) {
                    (RecordKind::Resize, [a, b, c, d]) if offset >= log.end() => {
                        let (cols, rows) =
                            (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
                        log.resize(time_ms, cols, rows);
                    }
                    (RecordKind::Resize, _) => {}
                    (kind, data) => append(log, kind, offset, time_ms, data),
                }
            }
            log.end()
        });
        let wanted = state.behind.get(&terminal).copied().unwrap_or(0);
        match end {
            Some(end) if end < wanted && !empty => {
                self.fetch_log(&mut state, terminal, next.max(end));
            }
            Some(_) | None => {
                state.behind.remove(&terminal);
            }
        }
    }

    fn fetch_output(&self, state: &mut MirrorState, command: String, stream: Stream) {
        let from = self.output(state, &command, stream).map_or(0, |output| output.written());
        let limit = MAX_DATA as u32;
        let about = OwnRequest::Output(command.clone(), stream);
        self.ask(state, about, |seq| Request::ExecRead { seq, command, stream, from, limit });
    }

    fn fetched_output(&self, seq: u32, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let Some(OwnRequest::Output(command, stream)) = state.pending.remove(&seq) else { return };
        if let Some(output) = self.output(&mut state, &command, stream) {
            // Bytes that the host did not keep are missing here as well.
            output.skip_to(offset);
            copy(output, offset, bytes);
        }
        match (stream, bytes.is_empty()) {
            (stream, false) => self.fetch_output(&mut state, command, stream),
            (Stream::Stdout, true) => self.fetch_output(&mut state, command, Stream::Stderr),
            (_, true) => self.forget(&mut state, &command),
        }
    }

    fn refused(&self, seq: u32) {
        let mut state = self.state.lock();
        if let Some(about) = state.pending.remove(&seq) {
            self.give_up(&mut state, about);
        }
    }

    /// Stops waiting for something that cannot be fetched.
    fn give_up(&self, state: &mut MirrorState, about: OwnRequest) {
        match about {
            OwnRequest::Log(terminal) => {
                state.behind.remove(&terminal);
            }
            OwnRequest::Output(command, _) => self.forget(state, &command),
        }
    }

    /// Lets the host forget a command whose copy is complete.
    fn forget(&self, state: &mut MirrorState, command: &str) {
        if let Some(mut copied) = state.commands.remove(command) {
            for output in [&mut copied.stdout, &mut copied.stderr].into_iter().flatten() {
                output.settle();
            }
        }
        if let Some(frame) = state.forgetting.remove(command)
            && self.own.try_send(frame).is_err()
        {
            tracing::debug!(command, "cannot request the host to forget a command");
        }
    }

    fn output<'a>(
        &self,
        state: &'a mut MirrorState,
        command: &str,
        stream: Stream,
    ) -> Option<&'a mut Output> {
        let copied = state.commands.get_mut(command)?;
        let (slot, suffix) = match stream {
            Stream::Stderr => (&mut copied.stderr, "err"),
            Stream::Stdout | Stream::Other(_) => (&mut copied.stdout, "out"),
        };
        if slot.is_none() {
            let dir = self.mirrors.terminals.join(&copied.terminal).join("commands");
            std::fs::create_dir_all(&dir).ok()?;
            let path = dir.join(format!("{command}.{suffix}"));
            let found = Output::left(path.clone());
            *slot = Some(found.unwrap_or_else(|_| Output::new(path, copied.keep)));
        }
        slot.as_mut()
    }

    fn sync(&self) {
        let mut logs = self.mirrors.logs.lock();
        for held in logs.values_mut().filter(|held| held.connection == self.connection) {
            sync(&mut held.log);
        }
    }

    /// Closes all copies when the connection ends.
    fn settle(&self) {
        let mut state = self.state.lock();
        for copied in state.commands.values_mut() {
            for output in [&mut copied.stdout, &mut copied.stderr].into_iter().flatten() {
                output.settle();
            }
        }
        self.sync();
        let mut logs = self.mirrors.logs.lock();
        logs.retain(|_, held| held.connection != self.connection);
    }
}

/// Appends the part of `bytes` that is new.
fn append(log: &mut Log, kind: RecordKind, offset: u64, time_ms: u64, bytes: &[u8]) {
    // Bytes that were never reported are a gap here as well.
    log.skip_to(offset);
    let known = usize::try_from(log.end() - offset).unwrap_or(usize::MAX);
    if let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
        log.append(kind, time_ms, fresh);
    }
}

/// As [`append`], but does nothing if bytes before `offset` are missing.
fn copy(output: &mut Output, offset: u64, bytes: &[u8]) {
    let known = output.written().checked_sub(offset).map(usize::try_from);
    if let Some(Ok(known)) = known
        && let Some(fresh) = bytes.get(known..)
    {
        output.append(fresh);
    }
}

fn sync(log: &mut Log) {
    if let Some(job) = log.sync() {
        // A failing disk shows in the log: its durable offset stops advancing.
        base::task::blocking(move || job.run());
    }
}
