//! The host in this process: what a server asks of it over the wire, and what it tells.
//!
//! One task owns everything of an instance. Followers tell it what happens inside; whoever is connected
//! hears of it. A connection that does not listen for long is closed: the server comes again and is told
//! what it missed.

mod commands;
mod requests;
mod typing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::log::Entry;
use host::wire::{
    Code, Decoder, Event, FEATURES, MAX_DATA, RecordKind, Request, Shell, Stream, VERSION, features,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Commands;
use super::follow::{Follower, Heard, Reach};
use super::kept::Kept;
use super::program::Player;
use super::terminal::{Command, Terminal, now_ms};
use model::InstanceId;

/// Messages that wait for the host.
const INBOX: usize = 256;
/// Frames that wait for a connection; one that does not take them is closed.
const OUTGOING: usize = 1024;
/// What is buffered between us and the server.
const BUFFER: usize = 256 << 10;
/// How often what was written goes to stable storage.
const SYNC: Duration = Duration::from_secs(1);
/// The most that is read at once of a command's output or of a log.
const CHUNK: usize = 1 << 20;

/// What there is to do.
enum Turn {
    Connected(DuplexStream, DropGuard),
    Asked(u64, Asked),
    Left(u64),
    /// An answer that took a while.
    Answer(u64, Event),
    Tick,
}

enum Asked {
    Known(Request),
    Unknown { seq: Option<u32>, code: Code },
}

/// The way to a host.
#[derive(Debug)]
pub(super) struct Handle {
    turns: mpsc::Sender<Turn>,
    held: watch::Sender<bool>,
    over: CancellationToken,
}

impl Handle {
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub(super) fn hold(&self, held: bool) {
        self.held.send_if_modified(|was| std::mem::replace(was, held) != held);
    }

    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// A stream to it; one that nobody serves any more ends at once.
    pub(super) fn connect(&self, until: DropGuard) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let _ = self.turns.try_send(Turn::Connected(ours, until));
        theirs
    }
}

/// Somebody who is connected.
struct Connection {
    frames: mpsc::Sender<Vec<u8>>,
    attached: HashSet<String>,
    /// Commands whose output is sent, and how far each stream was.
    watched: HashMap<String, [u64; 2]>,
    _until: DropGuard,
}

/// The task. See the module.
pub(super) struct Host {
    instance: String,
    dir: PathBuf,
    root: String,
    reach: Reach,
    turns: mpsc::Sender<Turn>,
    over: CancellationToken,
    terminals: BTreeMap<String, Terminal>,
    connections: HashMap<u64, Connection>,
    connected: u64,
    /// Who waits for the end of a quiet command.
    asked: HashMap<String, (u64, u32)>,
}

type Answer = Result<Option<Event>, Refusal>;

/// Why something is not done.
struct Refusal(Code, String);

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self(code, String::new())
    }
}

impl Host {
    /// Starts the host of an instance, with what a server before us kept in `dir`.
    pub(super) fn start(
        instance: &InstanceId,
        dir: PathBuf,
        root: &str,
        commands: Arc<dyn Commands>,
    ) -> Handle {
        let (turns, inbox) = mpsc::channel(INBOX);
        let (heard, hears) = mpsc::channel(INBOX);
        let (held, is_held) = watch::channel(false);
        let over = CancellationToken::new();
        let host = Self {
            instance: instance.to_string(),
            dir,
            root: root.to_owned(),
            reach: Reach { commands, held: is_held, heard },
            turns: turns.clone(),
            over: over.clone(),
            terminals: BTreeMap::new(),
            connections: HashMap::new(),
            connected: 0,
            asked: HashMap::new(),
        };
        tokio::spawn(host.run(inbox, hears));
        Handle { turns, held, over }
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Turn>, mut hears: mpsc::Receiver<Heard>) {
        let over = self.over.clone();
        self.recover();
        let mut ticks = interval(SYNC);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = over.cancelled() => break,
                Some(heard) = hears.recv() => self.heard(heard),
                Some(turn) = inbox.recv() => self.turn(turn),
                _ = ticks.tick() => self.turn(Turn::Tick),
            }
        }
        // Whoever is connected sees the stream end with us; so do the followers.
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Connected(stream, until) => self.welcome(stream, until),
            Turn::Asked(connection, Asked::Known(request)) => self.answer(connection, request),
            Turn::Asked(connection, Asked::Unknown { seq, code }) => {
                if let Some(seq) = seq {
                    self.send(connection, &reply(seq, code, ""));
                }
            }
            Turn::Left(connection) => {
                self.connections.remove(&connection);
            }
            Turn::Answer(connection, event) => self.send(connection, &event),
            Turn::Tick => {
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
        let (frames, outgoing) = mpsc::channel(OUTGOING);
        tokio::spawn(write(writer, outgoing));
        tokio::spawn(read(reader, number, self.turns.clone()));
        let (attached, watched) = (HashSet::new(), HashMap::new());
        self.connections.insert(number, Connection { frames, attached, watched, _until: until });
        let hello = Event::Hello {
            version: VERSION,
            features: FEATURES & features::EXEC,
            boot_id: format!("remote-{}", self.instance),
            pid: 0,
            label: self.instance.clone(),
        };
        self.send(number, &hello);
    }

    /// Takes up what a server before us left.
    fn recover(&mut self) {
        for kept in Kept::all(&self.dir) {
            let Some((terminal, open)) = Terminal::restore(kept) else { continue };
            let id = terminal.id.clone();
            self.terminals.insert(id.clone(), terminal);
            for command in open {
                self.find(&id, &command);
            }
            self.advance(&id);
        }
    }

    /// Looks for a command that a server before us started.
    fn find(&mut self, terminal: &str, id: &str) {
        let found = self.terminals.get_mut(terminal);
        if let Some(found) = found
            && found.commands.get(id).is_some_and(|command| !command.ptys.is_empty())
            && let Some(start) = found.start(&self.root, id)
            && let Some(player) = self.player(terminal, id)
        {
            tokio::spawn(player.play(start, Vec::new()));
            return;
        }
        if let Some(follower) = self.follower(terminal, id) {
            tokio::spawn(follower.find());
        }
    }

    /// Who plays a command that is a terminal's program.
    fn player(&mut self, id: &str, command: &str) -> Option<Player> {
        let follower = self.follower(id, command)?;
        self.terminals.get_mut(id)?.player(command, follower)
    }

    fn follower(&self, id: &str, command: &str) -> Option<Follower> {
        let terminal = self.terminals.get(id)?;
        let place = terminal.place(&self.root, command)?;
        let asked = terminal.commands.get(command)?;
        let limit = (asked.spec.timeout_ms > 0).then(|| {
            let gone = now_ms().saturating_sub(asked.started_ms);
            let left = asked.spec.timeout_ms.saturating_sub(gone);
            // Longer than anybody waits is for ever; the clock cannot count it.
            Duration::from_millis(left.min(1 << 40))
        });
        let names = (id.to_owned(), command.to_owned());
        let (keep, cancel) = (asked.spec.keep, asked.cancel.subscribe());
        Some(Follower::new(self.reach.clone(), names, place, keep, limit, cancel))
    }

    fn answer(&mut self, connection: u64, request: Request) {
        let Some(seq) = request.seq() else { return };
        match self.handle(connection, seq, request) {
            Ok(Some(event)) => self.send(connection, &event),
            Ok(None) => {}
            Err(Refusal(code, message)) => self.send(connection, &reply(seq, code, &message)),
        }
    }

    fn terminal(&mut self, id: &str) -> Result<&mut Terminal, Code> {
        self.terminals.get_mut(id).ok_or(Code::NoSuchTerminal)
    }

    fn drivable(&mut self, id: &str) -> Result<(), Code> {
        match self.terminal(id)?.opened.shell {
            Shell::Bash | Shell::Zsh | Shell::Sh => Ok(()),
            Shell::Plain | Shell::Other(_) => Err(Code::NotDrivable),
        }
    }

    /// The terminal that has a command.
    fn terminal_of(&self, command: &str) -> Result<String, Code> {
        let has = |terminal: &&Terminal| terminal.commands.contains_key(command);
        let found = self.terminals.values().find(has);
        found.map(|terminal| terminal.id.clone()).ok_or(Code::NoSuchCommand)
    }

    fn command(&mut self, terminal: &str, command: &str) -> Option<&mut Command> {
        self.terminals.get_mut(terminal)?.commands.get_mut(command)
    }

    /// Puts bytes on a terminal's screen.
    fn show(&mut self, id: &str, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_DATA) {
            let Some(terminal) = self.terminals.get_mut(id) else { return };
            let (offset, time_ms) = terminal.show(piece);
            if terminal.log.is_due() {
                sync(terminal);
            }
            let terminal = id.to_owned();
            let event = Event::Output { terminal, offset, time_ms, bytes: piece.to_vec() };
            self.tell_attached(id, &event);
        }
    }

    /// Shows that a terminal waits for somebody to type.
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
            && let Err(error) = terminal.kept().save(&self.dir.join(id))
        {
            tracing::error!(terminal = id, %error, "cannot note what it takes to go on");
        }
    }

    fn send(&mut self, connection: u64, event: &Event) {
        let Some(found) = self.connections.get(&connection) else { return };
        let mut frame = Vec::new();
        if let Err(error) = event.encode(&mut frame) {
            tracing::error!(%error, "what happened in a terminal does not fit a frame");
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

fn ok(seq: u32) -> Answer {
    Ok(Some(reply(seq, Code::Ok, "")))
}

fn reply(seq: u32, code: Code, message: &str) -> Event {
    Event::Reply { seq, code, message: message.to_owned() }
}

fn exited(id: &str, offset: u64, code: i32) -> Event {
    Event::Exited { terminal: id.to_owned(), offset, code, signal: 0 }
}

fn number(stream: Stream) -> Result<usize, Code> {
    match stream {
        Stream::Stdout => Ok(0),
        Stream::Stderr => Ok(1),
        Stream::Other(_) => Err(Code::BadRequest),
    }
}

/// An entry of a log, as it is told.
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

/// Random letters and digits.
fn mark() -> String {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the kernel has random bytes");
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sync(terminal: &mut Terminal) {
    if let Some(job) = terminal.log.sync() {
        // A disk that fails is said by the log itself: its durable offset stands still.
        tokio::task::spawn_blocking(move || job.run());
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

async fn read(mut from: ReadHalf<DuplexStream>, connection: u64, turns: mpsc::Sender<Turn>) {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    'connected: loop {
        let mut asked = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => asked.push(match Request::decode(&frame) {
                    Ok(Some(request)) => Asked::Known(request),
                    Ok(None) => Asked::Unknown { seq: frame.seq(), code: Code::Unsupported },
                    Err(_) => Asked::Unknown { seq: frame.seq(), code: Code::BadRequest },
                }),
                Err(_) => break 'connected,
            }
        }
        for asked in asked {
            if turns.send(Turn::Asked(connection, asked)).await.is_err() {
                return;
            }
        }
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => decoder.feed(&buffer[..count]),
        }
    }
    let _ = turns.send(Turn::Left(connection)).await;
}
