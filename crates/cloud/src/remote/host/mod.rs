//! The in-process host: serves the wire protocol for one instance.
//!
//! One task owns all terminals of the instance. Followers report what happens inside; the task forwards it
//! to the connected servers. A connection whose queue is full is closed: the server reconnects and reads
//! what it missed from the log.

mod commands;
mod requests;
mod typing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::log::Entry;
use shell::now_ms;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{
    Decoder, Event, FEATURES, MAX_DATA, RecordKind, ReplyCode, Request, Shell, Stream, VERSION,
    features,
};

use super::follow::{CommandUpdate, Follower, InstanceLink};
use super::instance::CommandRunner;
use super::program::ProgramRunner;
use super::saved::SavedTerminal;
use super::terminal::{RemoteCommand, RemoteTerminal};
use model::InstanceId;

const MAX_QUEUED_EVENTS: usize = 256;
/// Frames queued for a connection; when the queue is full, the connection is closed.
const MAX_QUEUED_FRAMES: usize = 1024;
const STREAM_BUFFER_BYTES: usize = 256 << 10;
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of bytes of a log or of a command's output per request.
const MAX_READ_BYTES: usize = 1 << 20;

enum HostEvent {
    Connected(DuplexStream, DropGuard),
    Request(u64, IncomingFrame),
    Disconnected(u64),
    /// The reply to a request that had to call the instance.
    Reply(u64, Event),
    Tick,
}

/// A frame of a server: a request that this version knows, or what to reply to one that it does not.
enum IncomingFrame {
    Request(Request),
    Unknown { seq: Option<u32>, code: ReplyCode },
}

/// A handle to the task of an in-process host.
#[derive(Debug)]
pub(super) struct RemoteHandle {
    events: mpsc::Sender<HostEvent>,
    paused: watch::Sender<bool>,
    stopped: CancellationToken,
}

impl RemoteHandle {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_cancelled()
    }

    pub(super) fn pause(&self) {
        self.paused.send_if_modified(|paused| !std::mem::replace(paused, true));
    }

    pub(super) fn resume(&self) {
        self.paused.send_if_modified(|paused| std::mem::replace(paused, false));
    }

    pub(super) fn stop(&self) {
        self.stopped.cancel();
    }

    /// Opens a stream to the host; if the host has stopped, the stream ends at once.
    pub(super) fn connect(&self, until: DropGuard) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
        let _ = self.events.try_send(HostEvent::Connected(ours, until));
        theirs
    }
}

struct ServerConnection {
    frames: mpsc::Sender<Vec<u8>>,
    attached: HashSet<String>,
    /// Commands whose output is sent, with the next offset of each stream.
    watched: HashMap<String, [u64; 2]>,
    _until: DropGuard,
}

/// The state of the task.
pub(super) struct RemoteHost {
    instance: String,
    dir: PathBuf,
    root: String,
    link: InstanceLink,
    events: mpsc::Sender<HostEvent>,
    stopped: CancellationToken,
    terminals: BTreeMap<String, RemoteTerminal>,
    connections: HashMap<u64, ServerConnection>,
    connected: u64,
    /// Connection and request that wait for the end of an internal command.
    awaited: HashMap<String, (u64, u32)>,
}

type RequestResult = Result<Option<Event>, RequestRefusal>;

struct RequestRefusal(ReplyCode, String);

impl From<ReplyCode> for RequestRefusal {
    fn from(code: ReplyCode) -> Self {
        Self(code, String::new())
    }
}

impl RemoteHost {
    /// Starts the host of an instance, with the terminals that a previous server process saved in `dir`.
    pub(super) fn start(
        instance: &InstanceId,
        dir: PathBuf,
        root: &str,
        commands: Arc<dyn CommandRunner>,
    ) -> RemoteHandle {
        let (events, inbox) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (follower_updates, updates) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (paused, is_paused) = watch::channel(false);
        let stopped = CancellationToken::new();
        let host = Self {
            instance: instance.to_string(),
            dir,
            root: root.to_owned(),
            link: InstanceLink { commands, paused: is_paused, updates: follower_updates },
            events: events.clone(),
            stopped: stopped.clone(),
            terminals: BTreeMap::new(),
            connections: HashMap::new(),
            connected: 0,
            awaited: HashMap::new(),
        };
        tokio::spawn(host.run(inbox, updates));
        RemoteHandle { events, paused, stopped }
    }

    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<HostEvent>,
        mut updates: mpsc::Receiver<CommandUpdate>,
    ) {
        let stopped = self.stopped.clone();
        self.recover();
        let mut ticks = interval(SYNC_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopped.cancelled() => break,
                Some(update) = updates.recv() => self.updated(update),
                Some(event) = inbox.recv() => self.apply(event),
                _ = ticks.tick() => self.apply(HostEvent::Tick),
            }
        }
        // Dropping `self` ends all streams and followers.
    }

    fn apply(&mut self, event: HostEvent) {
        match event {
            HostEvent::Connected(stream, until) => self.welcome(stream, until),
            HostEvent::Request(connection, IncomingFrame::Request(request)) => {
                self.answer(connection, request)
            }
            HostEvent::Request(connection, IncomingFrame::Unknown { seq, code }) => {
                if let Some(seq) = seq {
                    self.send(connection, &reply(seq, code, ""));
                }
            }
            HostEvent::Disconnected(connection) => {
                self.connections.remove(&connection);
            }
            HostEvent::Reply(connection, event) => self.send(connection, &event),
            HostEvent::Tick => {
                for terminal in self.terminals.values_mut() {
                    sync(terminal);
                }
            }
        }
    }

    fn welcome(&mut self, stream: DuplexStream, until: DropGuard) {
        self.connected += 1;
        let number = self.connected;
        let (reader, writer) = tokio::io::split(stream);
        let (frames, outgoing) = mpsc::channel(MAX_QUEUED_FRAMES);
        tokio::spawn(write(writer, outgoing));
        tokio::spawn(read(reader, number, self.events.clone()));
        let (attached, watched) = (HashSet::new(), HashMap::new());
        self.connections
            .insert(number, ServerConnection { frames, attached, watched, _until: until });
        let hello = Event::Hello {
            version: VERSION,
            features: FEATURES & features::EXEC,
            boot_id: format!("remote-{}", self.instance),
            pid: 0,
            label: self.instance.clone(),
        };
        self.send(number, &hello);
    }

    /// Restores the terminals that a previous server process saved.
    fn recover(&mut self) {
        for saved in SavedTerminal::all(&self.dir) {
            let Some((terminal, open)) = RemoteTerminal::restore(saved) else { continue };
            let id = terminal.id.clone();
            self.terminals.insert(id.clone(), terminal);
            for command in open {
                self.find(&id, &command);
            }
            self.advance(&id);
        }
    }

    /// Follows a command that a previous server process started.
    fn find(&mut self, terminal: &str, id: &str) {
        let found = self.terminals.get_mut(terminal);
        if let Some(found) = found
            && found.commands.get(id).is_some_and(|command| !command.ptys.is_empty())
            && let Some(start) = found.start(&self.root, id)
            && let Some(runner) = self.runner(terminal, id)
        {
            tokio::spawn(runner.run(start, Vec::new()));
            return;
        }
        if let Some(follower) = self.follower(terminal, id) {
            tokio::spawn(follower.find());
        }
    }

    fn runner(&mut self, id: &str, command: &str) -> Option<ProgramRunner> {
        let follower = self.follower(id, command)?;
        self.terminals.get_mut(id)?.runner(command, follower)
    }

    fn follower(&self, id: &str, command: &str) -> Option<Follower> {
        let terminal = self.terminals.get(id)?;
        let command_dir = terminal.command_dir(&self.root, command)?;
        let asked = terminal.commands.get(command)?;
        let limit = (asked.spec.timeout_ms > 0).then(|| {
            let elapsed = now_ms().saturating_sub(asked.started_ms);
            let left = asked.spec.timeout_ms.saturating_sub(elapsed);
            // Capped, because adding a larger duration to an instant overflows.
            Duration::from_millis(left.min(1 << 40))
        });
        let names = (id.to_owned(), command.to_owned());
        let (keep, cancel) = (asked.spec.keep, asked.cancel.subscribe());
        Some(Follower::new(self.link.clone(), names, command_dir, keep, limit, cancel))
    }

    fn answer(&mut self, connection: u64, request: Request) {
        let Some(seq) = request.seq() else { return };
        match self.handle(connection, seq, request) {
            Ok(Some(event)) => self.send(connection, &event),
            Ok(None) => {}
            Err(RequestRefusal(code, message)) => {
                self.send(connection, &reply(seq, code, &message))
            }
        }
    }

    fn terminal(&mut self, id: &str) -> Result<&mut RemoteTerminal, ReplyCode> {
        self.terminals.get_mut(id).ok_or(ReplyCode::NoSuchTerminal)
    }

    fn drivable(&mut self, id: &str) -> Result<(), ReplyCode> {
        match self.terminal(id)?.opened.shell {
            Shell::Bash | Shell::Zsh | Shell::Sh => Ok(()),
            Shell::Plain | Shell::Other(_) => Err(ReplyCode::NotDrivable),
        }
    }

    fn terminal_of(&self, command: &str) -> Result<String, ReplyCode> {
        let has = |terminal: &&RemoteTerminal| terminal.commands.contains_key(command);
        let found = self.terminals.values().find(has);
        found.map(|terminal| terminal.id.clone()).ok_or(ReplyCode::NoSuchCommand)
    }

    fn command(&mut self, terminal: &str, command: &str) -> Option<&mut RemoteCommand> {
        self.terminals.get_mut(terminal)?.commands.get_mut(command)
    }

    /// Appends bytes to a terminal's log and sends them to its watchers.
    fn show(&mut self, id: &str, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_DATA) {
            let Some(terminal) = self.terminals.get_mut(id) else { return };
            let (offset, time_ms) = terminal.show(piece);
            if terminal.log.is_sync_due() {
                sync(terminal);
            }
            let terminal = id.to_owned();
            let event = Event::Output { terminal, offset, time_ms, bytes: piece.to_vec() };
            self.tell_attached(id, &event);
        }
    }

    /// Prints the prompt, unless a command runs.
    fn prompt(&mut self, id: &str) {
        if let Some(terminal) = self.terminals.get(id)
            && terminal.running.is_none()
        {
            let prompt = terminal.prompt();
            self.show(id, &prompt);
        }
    }

    fn keep(&self, id: &str) {
        if let Some(terminal) = self.terminals.get(id)
            && let Err(error) = terminal.saved().save(&self.dir.join(id))
        {
            tracing::error!(terminal = id, %error, "cannot save the state of a terminal");
        }
    }

    fn send(&mut self, connection: u64, event: &Event) {
        let Some(found) = self.connections.get(&connection) else { return };
        let mut frame = Vec::new();
        if let Err(error) = event.encode(&mut frame) {
            tracing::error!(%error, "an event of a terminal does not fit a frame");
            return;
        }
        if found.frames.try_send(frame).is_err() {
            self.connections.remove(&connection);
        }
    }

    fn broadcast(&mut self, event: Option<Event>) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        for connection in all {
            if let Some(event) = &event {
                self.send(connection, event);
            }
        }
    }

    fn tell_attached(&mut self, terminal: &str, event: &Event) {
        let attached = self.connections.iter().filter(|(_, it)| it.attached.contains(terminal));
        let attached: Vec<u64> = attached.map(|(number, _)| *number).collect();
        for connection in attached {
            self.send(connection, event);
        }
    }
}

fn ok(seq: u32) -> RequestResult {
    Ok(Some(reply(seq, ReplyCode::Ok, "")))
}

fn reply(seq: u32, code: ReplyCode, message: &str) -> Event {
    Event::Reply { seq, code, message: message.to_owned() }
}

fn exited(id: &str, offset: u64, code: i32) -> Event {
    Event::Exited { terminal: id.to_owned(), offset, code, signal: 0 }
}

fn number(stream: Stream) -> Result<usize, ReplyCode> {
    match stream {
        Stream::Stdout => Ok(0),
        Stream::Stderr => Ok(1),
        Stream::Other(_) => Err(ReplyCode::BadRequest),
    }
}

/// Converts a log entry to an event.
fn logged(id: &str, entry: Entry) -> Option<Event> {
    let terminal = id.to_owned();
    match entry {
        Entry::Gap { from, to } => Some(Event::Gap { terminal, from, to }),
        Entry::Record(record) => {
            let (offset, time_ms) = (record.offset, record.time_ms);
            match (record.kind, record.data.as_slice()) {
                (RecordKind::Resize, [a, b, c, d]) => {
                    let (cols, rows) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
                    Some(Event::Resized { terminal, offset, cols, rows, time_ms })
                }
                (RecordKind::Resize, _) => None,
                _ => Some(Event::Output { terminal, offset, time_ms, bytes: record.data }),
            }
        }
    }
}

/// Returns 32 random hexadecimal digits.
fn mark() -> String {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the kernel has random bytes");
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sync(terminal: &mut RemoteTerminal) {
    if let Some(job) = terminal.log.sync() {
        // A failing disk shows in the log: its durable offset stops advancing.
        base::task::blocking(move || job.run());
    }
}

async fn write(mut to: WriteHalf<DuplexStream>, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn read(mut from: ReadHalf<DuplexStream>, connection: u64, events: mpsc::Sender<HostEvent>) {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    'connected: loop {
        let mut asked = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => asked.push(match Request::decode(&frame) {
                    Ok(Some(request)) => IncomingFrame::Request(request),
                    Ok(None) => {
                        IncomingFrame::Unknown { seq: frame.seq(), code: ReplyCode::Unsupported }
                    }
                    Err(_) => {
                        IncomingFrame::Unknown { seq: frame.seq(), code: ReplyCode::BadRequest }
                    }
                }),
                Err(_) => break 'connected,
            }
        }
        for asked in asked {
            if events.send(HostEvent::Request(connection, asked)).await.is_err() {
                return;
            }
        }
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => decoder.feed(&buffer[..count]),
        }
    }
    let _ = events.send(HostEvent::Disconnected(connection)).await;
}
