//! The one task that owns a terminal's screen, its window and its seat.
//!
//! ```text
//!             output arrives, or somebody looks
//!   Asleep ───────────────────────────────────────▶ Awake(screen)
//!      ▲                                                │
//!      └── nobody watches, nothing is said, all is on disk ┘
//! ```
//! Picture and place are taken in one step here, so that a watcher gets a picture and then
//! exactly what comes after it. The screen can always be made again from the checkpoint and the
//! log; bytes fed for that are never answered.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use host::wire::{self, Request};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vt::{Screen, Size};

use super::drive::{Change, ClientId, Mode, Seat};
use super::link::Link;
use super::window::{Event, Window};
use super::{checkpoint, history};
use base::metrics::Metrics;

/// A terminal that was silent for so long and that nobody watches needs no screen in memory.
const SLEEP_AFTER: Duration = Duration::from_secs(5);
/// A changed picture is on disk after so long at the latest…
const CHECKPOINT_AFTER: Duration = Duration::from_secs(2);
/// …and earlier when so much was printed, though not oftener than [`CHECKPOINT_SPACING`].
const CHECKPOINT_BYTES: u64 = 256 << 10;
const CHECKPOINT_SPACING: Duration = Duration::from_millis(250);
/// How long after a screen was let go its memory is given back, with that of others.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// Output events taken from the link at once.
const BATCH: usize = 64;

/// What does not change while the server runs.
#[derive(Clone)]
pub struct Settings {
    /// Lines kept above the screen.
    pub scrollback: usize,
    /// Bytes of recent output kept in memory for watchers.
    pub window: usize,
    /// Whether DECRQCRA is answered.
    pub checksum_reports: bool,
    /// How many checkpoints are written at the same time.
    pub writers: Arc<Semaphore>,
    /// Told when a screen was let go.
    pub dropped: Arc<Notify>,
    /// Where snapshots are counted.
    pub metrics: Metrics,
}

/// What anybody may know without asking the owner.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// The window title the program set.
    pub title: String,
    /// When there was last input or output.
    pub last_activity_at: Timestamp,
    /// How the program ended, if it did.
    pub exit: Option<(Option<i32>, Option<i32>)>,
    /// How many clients are connected.
    pub clients: usize,
    /// How many of them keep it in use; guests do not.
    pub attending: usize,
    /// Who has the keyboard, by name.
    pub driver: Option<String>,
    /// Who has the keyboard.
    pub driving: Option<ClientId>,
    /// The offset after the last byte.
    pub offset: u64,
    /// Whether a program stands behind it.
    pub live: bool,
}

/// What watchers share with the owner.
pub struct Shared {
    /// Recent output.
    pub window: Mutex<Window>,
    /// The place after the last event in the window.
    pub head: watch::Sender<u64>,
    /// See [`Facts`].
    pub facts: Mutex<Facts>,
}

impl Shared {
    /// The facts as they are.
    pub fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    /// Changes the facts.
    pub fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock());
    }

    fn push(&self, event: Event) {
        self.window.lock().push(event);
    }
}

/// A picture and the place at which it was taken.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Bytes that make the same terminal.
    pub data: Bytes,
    /// The offset up to which output is in it.
    pub offset: u64,
    /// The place in the window from which to go on.
    pub place: u64,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// Cursor column and row, from 0, and whether it shows.
    pub cursor: (u16, u16, bool),
    /// The window title.
    pub title: String,
    /// Whether the alternate screen is shown.
    pub alt_screen: bool,
}

/// How a picture is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Escape sequences.
    Ansi,
    /// Plain text.
    Text,
    /// HTML.
    Html,
}

/// A live end of the terminal.
pub struct Runtime {
    /// The host it is on.
    pub link: Link,
    /// Its output, from `offset` on.
    pub output: mpsc::Receiver<Box<wire::Event>>,
    /// The offset at which it was attached.
    pub offset: u64,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What the owner can be asked for.
pub enum Ask {
    /// A picture of now.
    Picture { format: Format, scrollback: Option<usize>, answer: oneshot::Sender<Picture> },
    /// A client comes.
    Enter { client: ClientId, name: String, mode: Mode },
    /// A client goes.
    Leave(ClientId),
    /// A client takes the keyboard.
    TakeOver(ClientId),
    /// A client gives the keyboard away.
    HandBack(ClientId),
    /// A client's window has this size.
    Resize(ClientId, (u16, u16)),
    /// There is a program beneath (again).
    Runtime(Runtime),
    /// The program beneath cannot be reached any more.
    Lost(String),
    /// Something to tell the watchers.
    Notice(String),
    /// Write the checkpoint and end.
    Stop(oneshot::Sender<()>),
}

/// Events as the channel, which is to be small, hands them over.
type Batch = Vec<Box<wire::Event>>;

enum View {
    Asleep,
    Awake(Box<Screen>),
}

/// The task. See the module.
pub struct Owner {
    id: String,
    directory: PathBuf,
    settings: Settings,
    shared: Arc<Shared>,
    asks: mpsc::Receiver<Box<Ask>>,
    link: Option<Link>,
    output: Option<mpsc::Receiver<Box<wire::Event>>>,
    view: View,
    seat: Seat,
    offset: u64,
    size: Size,
    /// The offset of the picture on disk, if it is known.
    saved: Option<u64>,
    saving: Option<oneshot::Receiver<Option<u64>>>,
    dirty_since: Option<Instant>,
    last_save: Instant,
    last_output: Instant,
}

enum Turn {
    Output,
    Unreachable,
    Ask(Ask),
    Saved(Option<u64>),
    Due,
    Over,
}

impl Owner {
    /// An owner of a terminal that ends at `offset`, asleep.
    pub fn new(
        id: String,
        directory: PathBuf,
        settings: Settings,
        shared: Arc<Shared>,
        asks: mpsc::Receiver<Box<Ask>>,
    ) -> Owner {
        let facts = shared.facts();
        Owner {
            id,
            directory,
            settings,
            shared,
            asks,
            link: None,
            output: None,
            view: View::Asleep,
            seat: Seat::default(),
            offset: facts.offset,
            size: Size { cols: facts.cols, rows: facts.rows },
            saved: None,
            saving: None,
            dirty_since: None,
            last_save: Instant::now(),
            last_output: Instant::now(),
        }
    }

    /// Runs until it is stopped or nobody can ask any more.
    pub async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let due = self.due();
            let turn = tokio::select! {
                biased;
                ask = self.asks.recv() => ask.map_or(Turn::Over, |ask| Turn::Ask(*ask)),
                count = receive(&mut self.output, &mut batch) =>
                    if count == 0 { Turn::Unreachable } else { Turn::Output },
                saved = finished(&mut self.saving) => Turn::Saved(saved),
                () = sleep_until(due) => Turn::Due,
            };
            match turn {
                Turn::Output => self.take(&mut batch).await,
                // Nobody sends any more, or somebody listens in our place: nothing to take back.
                Turn::Unreachable => {
                    self.link = None;
                    self.lose("the host cannot be reached");
                }
                Turn::Ask(Ask::Stop(answer)) => {
                    Box::pin(self.save_now()).await;
                    let _ = answer.send(());
                    break;
                }
                Turn::Ask(ask) => self.answer(ask).await,
                Turn::Saved(offset) => self.saved_at(offset),
                Turn::Due => {
                    self.tidy_up();
                    if matches!(self.view, View::Asleep) {
                        // A full batch is tens of kilobytes, and most terminals are silent.
                        batch = Vec::new();
                    }
                }
                Turn::Over => break,
            }
        }
    }

    async fn take(&mut self, batch: &mut Batch) {
        if matches!(self.view, View::Asleep) {
            Box::pin(self.wake()).await;
        }
        let mut replies = Vec::new();
        for event in batch.drain(..) {
            self.apply(*event, &mut replies);
        }
        let now = Instant::now();
        self.last_output = now;
        self.dirty_since.get_or_insert(now);
        let offset = self.offset;
        self.shared.note(|facts| {
            facts.offset = offset;
            facts.last_activity_at = Timestamp::now();
        });
        self.announce();
        if let Some(link) = &self.link {
            if !replies.is_empty() {
                let terminal = self.id.clone();
                link.post(|seq| Request::Input {
                    seq,
                    terminal,
                    write_id: String::new(),
                    data: replies,
                });
            }
            if link.is_behind(&self.id)
                && self.output.as_ref().is_some_and(mpsc::Receiver::is_empty)
            {
                let _ = Box::pin(link.attach(&self.id, self.offset)).await;
            }
        }
    }

    /// One event from the host, in order. Replies to queries are gathered in `replies`.
    fn apply(&mut self, event: wire::Event, replies: &mut Vec<u8>) {
        match event {
            wire::Event::Output { offset, bytes, .. } => {
                let mut bytes = Bytes::from(bytes);
                if offset > self.offset {
                    // What is really missing the host says with a gap. This was sent before the
                    // host heard that we go on from `self.offset`; it comes again, in order.
                    return;
                }
                let known = self.offset.saturating_sub(offset);
                if known >= bytes.len() as u64 {
                    return;
                }
                bytes = bytes.slice(known as usize..);
                if let View::Awake(screen) = &mut self.view {
                    let fed = screen.feed(&bytes);
                    replies.extend_from_slice(&fed.replies);
                    let title = fed.events.into_iter().rev().find_map(|event| match event {
                        vt::Event::Title(title) => Some(title),
                        _ => None,
                    });
                    if let Some(title) = title {
                        self.shared.note(|facts| facts.title.clone_from(&title));
                        self.shared.push(Event::Title(title));
                    }
                }
                let at = self.offset;
                self.offset += bytes.len() as u64;
                self.shared.push(Event::Output { offset: at, bytes });
            }
            wire::Event::Resized { cols, rows, .. } => {
                if (Size { cols, rows }) != self.size {
                    self.size = Size { cols, rows };
                    if let View::Awake(screen) = &mut self.view {
                        screen.resize(self.size);
                    }
                    self.shared.note(|facts| (facts.cols, facts.rows) = (cols, rows));
                    self.shared.push(Event::Resize { cols, rows });
                }
            }
            wire::Event::Gap { to, .. } => {
                if to > self.offset {
                    self.skip(to);
                }
            }
            wire::Event::Exited { code, signal, .. } => {
                let exit = ((signal == 0).then_some(code), (signal != 0).then_some(signal));
                self.shared.note(|facts| (facts.exit, facts.live) = (Some(exit), false));
                self.shared.push(Event::Exit { code: exit.0, signal: exit.1 });
            }
            other => tracing::warn!(terminal = self.id, ?other, "not part of a terminal's output"),
        }
    }

    fn skip(&mut self, to: u64) {
        self.shared.push(Event::Gap { from: self.offset, to });
        self.offset = to;
    }

    /// Makes the screen again from the checkpoint and the log, as of `self.offset`.
    async fn wake(&mut self) {
        let directory = self.directory.clone();
        let loaded = tokio::task::spawn_blocking(move || checkpoint::load(&directory)).await;
        let found = loaded.ok().flatten().filter(|found| found.offset <= self.offset);
        let (mut screen, from) = match found {
            Some(found) => {
                self.saved = Some(found.offset);
                (found.screen, found.offset)
            }
            None => (Screen::new(self.size, self.settings.scrollback), 0),
        };
        screen.set_checksum_reports(self.settings.checksum_reports);
        if let Err(error) = history::replay(&self.directory, from, self.offset, &mut screen).await {
            tracing::warn!(terminal = self.id, %error, "the log cannot be read back whole");
        }
        if screen.size() != self.size {
            screen.resize(self.size);
        }
        self.shared.note(|facts| screen.title().clone_into(&mut facts.title));
        self.view = View::Awake(Box::new(screen));
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Picture { format, scrollback, answer } => {
                let _ = answer.send(self.picture(format, scrollback).await);
            }
            Ask::Enter { client, name, mode } => {
                let change = self.seat.enter(client, name, mode);
                self.changed(change);
            }
            Ask::Leave(client) => {
                let change = self.seat.leave(client);
                self.changed(change);
            }
            Ask::TakeOver(client) => {
                let change = self.seat.take_over(client);
                self.changed(change);
            }
            Ask::HandBack(client) => {
                let change = self.seat.hand_back(client);
                self.changed(change);
            }
            Ask::Resize(client, size) => {
                let change = self.seat.resize(client, size);
                self.changed(change);
            }
            Ask::Runtime(runtime) => self.begin(runtime),
            Ask::Lost(why) => self.lose(&why),
            Ask::Notice(text) => {
                self.shared.push(Event::Notice(text));
                self.announce();
            }
            Ask::Stop(answer) => drop(answer),
        }
    }

    fn changed(&mut self, change: Change) {
        let driver = self.seat.driver().map(str::to_owned);
        let (clients, driving) = (self.seat.len(), self.seat.driving());
        let attending = self.seat.attending();
        self.shared.note(|facts| {
            facts.clients = clients;
            facts.attending = attending;
            facts.driver.clone_from(&driver);
            facts.driving = driving;
        });
        if change.driver {
            self.shared.push(Event::Driver(driver));
            self.announce();
        }
        if let (Some((cols, rows)), Some(link)) = (change.size, &self.link)
            && (Size { cols, rows }) != self.size
        {
            let terminal = self.id.clone();
            link.post(|seq| Request::Resize { seq, terminal, cols, rows });
        }
    }

    async fn picture(&mut self, format: Format, scrollback: Option<usize>) -> Picture {
        let began = Instant::now();
        if matches!(self.view, View::Asleep) {
            Box::pin(self.wake()).await;
        }
        let View::Awake(screen) = &self.view else { unreachable!("it was woken just now") };
        let lines = scrollback.unwrap_or(usize::MAX);
        let data = match format {
            Format::Ansi => screen.snapshot_with(lines),
            Format::Text => screen.text(scrollback.unwrap_or(0)).into_bytes(),
            Format::Html => screen.html(scrollback.unwrap_or(0)).into_bytes(),
        };
        self.settings.metrics.snapshot_seconds.observe(began.elapsed().as_secs_f64());
        self.settings.metrics.snapshot_bytes.observe(data.len() as f64);
        let cursor = screen.cursor();
        self.last_output = Instant::now();
        Picture {
            data: data.into(),
            offset: self.offset,
            place: self.shared.window.lock().head(),
            cols: self.size.cols,
            rows: self.size.rows,
            cursor: (cursor.col, cursor.row, cursor.visible),
            title: screen.title().to_owned(),
            alt_screen: screen.alt_screen(),
        }
    }

    fn begin(&mut self, runtime: Runtime) {
        if runtime.offset > self.offset {
            // Printed while nobody listened: the log has it, and the next look reads it.
            self.view = View::Asleep;
            self.skip_silently(runtime.offset);
        }
        self.size = Size { cols: runtime.cols, rows: runtime.rows };
        if let View::Awake(screen) = &mut self.view {
            screen.resize(self.size);
        }
        let offset = self.offset;
        self.shared.note(|facts| {
            (facts.cols, facts.rows) = (runtime.cols, runtime.rows);
            (facts.live, facts.exit, facts.offset) = (true, None, offset);
        });
        self.link = Some(runtime.link);
        self.output = Some(runtime.output);
    }

    /// Moves the end without an event: watchers that are there get a new picture.
    fn skip_silently(&mut self, to: u64) {
        let mut window = self.shared.window.lock();
        window.restart(to);
        drop(window);
        self.offset = to;
        self.announce();
    }

    fn lose(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            link.unlisten(&self.id);
        }
        self.output = None;
        let exited = self.shared.facts().exit.is_some();
        self.shared.note(|facts| facts.live = false);
        if !exited {
            self.shared.push(Event::Notice(why.to_owned()));
            self.announce();
        }
    }

    fn announce(&self) {
        let head = self.shared.window.lock().head();
        self.shared.head.send_replace(head);
    }

    fn due(&self) -> Option<Instant> {
        if matches!(self.view, View::Asleep) {
            return None;
        }
        let save = self.dirty_since.filter(|_| self.saving.is_none()).map(|since| {
            let printed = self.offset - self.saved.unwrap_or(0);
            let early = self.last_save + CHECKPOINT_SPACING;
            if printed >= CHECKPOINT_BYTES { early } else { since + CHECKPOINT_AFTER }
        });
        let sleep = self.seat.is_empty().then(|| self.last_output + SLEEP_AFTER);
        save.into_iter().chain(sleep).min()
    }

    fn tidy_up(&mut self) {
        let now = Instant::now();
        if self.dirty_since.is_some() && self.saving.is_none() {
            self.start_saving();
            return;
        }
        let silent = now.duration_since(self.last_output) >= SLEEP_AFTER;
        if silent && self.seat.is_empty() && self.dirty_since.is_none() && self.saving.is_none() {
            self.view = View::Asleep;
            self.shared.window.lock().clear();
            self.settings.dropped.notify_one();
        } else if silent {
            self.last_output = now;
        }
    }

    fn start_saving(&mut self) {
        let View::Awake(screen) = &self.view else { return };
        let bytes = checkpoint::encode(self.offset, screen);
        let (sender, receiver) = oneshot::channel();
        let (directory, offset) = (self.directory.clone(), self.offset);
        let writers = self.settings.writers.clone();
        self.dirty_since = None;
        self.last_save = Instant::now();
        self.saving = Some(receiver);
        tokio::spawn(async move {
            let _permit = writers.acquire_owned().await;
            let saved = tokio::task::spawn_blocking(move || checkpoint::save(&directory, &bytes));
            let result = match saved.await {
                Ok(Ok(())) => Some(offset),
                // Its directory went with the terminal, which somebody still watches.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Some(offset),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot write a checkpoint; it is tried again");
                    None
                }
                Err(_) => None,
            };
            let _ = sender.send(result);
        });
    }

    fn saved_at(&mut self, offset: Option<u64>) {
        self.saving = None;
        match offset {
            Some(offset) => self.saved = Some(offset),
            None => self.dirty_since = Some(Instant::now()),
        }
    }

    async fn save_now(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
        if self.dirty_since.is_some() {
            self.start_saving();
            if let Some(saving) = self.saving.take() {
                let _ = saving.await;
            }
        }
    }
}

/// Gives memory back to the system after screens were let go, until it is told to stop.
pub async fn give_back(dropped: Arc<Notify>, stop: CancellationToken) {
    let round = async || {
        dropped.notified().await;
        // Terminals that fell silent together fall asleep together.
        tokio::time::sleep(GIVE_BACK_AFTER).await;
        let _ = tokio::task::spawn_blocking(host::give_back_memory).await;
    };
    while stop.run_until_cancelled(round()).await.is_some() {}
}

/// The next events of a live terminal; waits for ever when there is none, 0 when it is cut off.
async fn receive(
    output: &mut Option<mpsc::Receiver<Box<wire::Event>>>,
    batch: &mut Batch,
) -> usize {
    match output {
        Some(output) => output.recv_many(batch, BATCH).await,
        None => std::future::pending().await,
    }
}

async fn finished(saving: &mut Option<oneshot::Receiver<Option<u64>>>) -> Option<u64> {
    match saving {
        Some(saving) => saving.await.unwrap_or(None),
        None => std::future::pending().await,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
