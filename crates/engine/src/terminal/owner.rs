//! The one task that owns a terminal's screen, its window and its seat.
//!
//! ```text
//!             output arrives, or a picture is needed
//!   Asleep ───────────────────────────────────────▶ Awake(screen)
//!      ▲                                                │
//!      └── no watcher, no output, checkpoint written ───┘
//! ```
//! Picture and position are taken in one step, so that a watcher gets a picture and then exactly what
//! follows it. The screen can always be rebuilt from the checkpoint and the log; replayed bytes are never
//! answered.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vt::{Screen, Size};
use wire::Request;

use super::drive::{Change, ClientId, ClientMode, Seat};
use super::link::HostLink;
use super::window::{WatchEvent, Window};
use super::{checkpoint, history};
use base::metrics::ServerMetrics;

/// The screen of a terminal without watchers is dropped after this time without output.
const SLEEP_AFTER: Duration = Duration::from_secs(5);
/// A changed screen is checkpointed after this time at the latest…
const CHECKPOINT_AFTER: Duration = Duration::from_secs(2);
/// …and earlier after this much output, but at least [`CHECKPOINT_SPACING`] apart.
const CHECKPOINT_BYTES: u64 = 256 << 10;
const CHECKPOINT_SPACING: Duration = Duration::from_millis(250);
/// How long freed screens are collected before their memory is returned to the system.
const TRIM_DELAY: Duration = Duration::from_secs(1);
/// Output events that are taken from the link at once.
const BATCH_EVENTS: usize = 64;

/// Settings that are the same for all owners.
#[derive(Clone)]
pub struct OwnerSettings {
    /// Lines of scrollback.
    pub scrollback: usize,
    /// Bytes of recent output kept in memory for watchers.
    pub window: usize,
    /// Whether to answer DECRQCRA.
    pub checksum_reports: bool,
    /// Limits the checkpoints that are written at the same time.
    pub writers: Arc<Semaphore>,
    /// Notified when a screen was dropped.
    pub dropped: Arc<Notify>,
    pub metrics: ServerMetrics,
}

/// What can be read without a request to the owner.
#[derive(Debug, Clone)]
pub struct TerminalFacts {
    pub cols: u16,
    pub rows: u16,
    /// The window title the program set.
    pub title: String,
    /// When there was last input or output.
    pub last_activity_at: Timestamp,
    /// Exit code and signal, if the program ended.
    pub exit: Option<(Option<i32>, Option<i32>)>,
    /// Connected clients, guests included.
    pub clients: usize,
    /// Connected clients that keep the terminal in use; guests do not.
    pub attending: usize,
    /// The name of the client that may type.
    pub driver: Option<String>,
    /// The client that may type.
    pub driving: Option<ClientId>,
    /// The offset after the last byte.
    pub offset: u64,
    /// Whether its program is running.
    pub live: bool,
}

/// State that the owner shares with watchers.
pub struct SharedTerminal {
    /// Recent output.
    pub window: Mutex<Window>,
    /// The position after the last event in the window.
    pub head: watch::Sender<u64>,
    pub facts: Mutex<TerminalFacts>,
}

impl SharedTerminal {
    pub fn facts(&self) -> TerminalFacts {
        self.facts.lock().clone()
    }

    pub fn note(&self, change: impl FnOnce(&mut TerminalFacts)) {
        change(&mut self.facts.lock());
    }

    fn push(&self, event: WatchEvent) {
        self.window.lock().push(event);
    }
}

/// A picture of the screen and the position at which it was taken.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The picture in the requested format.
    pub data: Bytes,
    /// The offset of the output after the picture.
    pub offset: u64,
    /// The position in the window at which to continue.
    pub place: u64,
    pub cols: u16,
    pub rows: u16,
    /// Cursor column and row, counted from 0, and whether it is visible.
    pub cursor: (u16, u16, bool),
    pub title: String,
    /// Whether the alternate screen is shown.
    pub alt_screen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Ansi,
    Text,
    Html,
}

/// A terminal's connection to its running program.
pub struct Runtime {
    /// The host it is on.
    pub link: HostLink,
    /// The output from `offset` on.
    pub output: mpsc::Receiver<Box<wire::Event>>,
    pub offset: u64,
    pub cols: u16,
    pub rows: u16,
}

pub enum OwnerRequest {
    Picture {
        format: Format,
        scrollback: Option<usize>,
        answer: oneshot::Sender<Picture>,
    },
    Enter {
        client: ClientId,
        name: String,
        mode: ClientMode,
    },
    Leave(ClientId),
    /// The client becomes the driver.
    TakeOver(ClientId),
    /// The client stops driving.
    HandBack(ClientId),
    /// The size of the client's window changed.
    Resize(ClientId, (u16, u16)),
    /// The program was started or found again.
    Runtime(Runtime),
    /// The program is lost, for this reason.
    Lost(String),
    /// Write the checkpoint and stop.
    Stop(oneshot::Sender<()>),
}

/// Boxed, to keep the channel small.
type Batch = Vec<Box<wire::Event>>;

enum View {
    Asleep,
    Awake(Box<Screen>),
}

pub struct Owner {
    id: String,
    directory: PathBuf,
    settings: OwnerSettings,
    shared: Arc<SharedTerminal>,
    asks: mpsc::Receiver<Box<OwnerRequest>>,
    link: Option<HostLink>,
    output: Option<mpsc::Receiver<Box<wire::Event>>>,
    view: View,
    seat: Seat,
    offset: u64,
    size: Size,
    /// The offset of the checkpoint on disk, if known.
    saved: Option<u64>,
    saving: Option<oneshot::Receiver<Option<u64>>>,
    dirty_since: Option<Instant>,
    last_save: Instant,
    last_output: Instant,
}

enum Turn {
    Output,
    Unreachable,
    Request(OwnerRequest),
    Saved(Option<u64>),
    Due,
    Over,
}

impl Owner {
    /// The screen is not loaded until it is needed.
    pub fn new(
        id: String,
        directory: PathBuf,
        settings: OwnerSettings,
        shared: Arc<SharedTerminal>,
        asks: mpsc::Receiver<Box<OwnerRequest>>,
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

    /// Runs until it is stopped or every handle is dropped.
    pub async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let due = self.due();
            let turn = tokio::select! {
                biased;
                ask = self.asks.recv() => ask.map_or(Turn::Over, |ask| Turn::Request(*ask)),
                count = receive(&mut self.output, &mut batch) =>
                    if count == 0 { Turn::Unreachable } else { Turn::Output },
                saved = finished(&mut self.saving) => Turn::Saved(saved),
                () = sleep_until(due) => Turn::Due,
            };
            match turn {
                Turn::Output => self.take(&mut batch).await,
                // The sender is gone, or another owner replaced this one in the link.
                Turn::Unreachable => {
                    self.link = None;
                    self.lose("the host cannot be reached");
                }
                Turn::Request(OwnerRequest::Stop(answer)) => {
                    Box::pin(self.save_now()).await;
                    let _ = answer.send(());
                    break;
                }
                Turn::Request(ask) => self.answer(ask).await,
                Turn::Saved(offset) => self.saved_at(offset),
                Turn::Due => {
                    self.tidy_up();
                    if matches!(self.view, View::Asleep) {
                        // Frees tens of kilobytes; most terminals are silent.
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

    /// Applies one event from the host. Replies to terminal queries are collected in `replies`.
    fn apply(&mut self, event: wire::Event, replies: &mut Vec<u8>) {
        match event {
            wire::Event::Output { offset, bytes, .. } => {
                let mut bytes = Bytes::from(bytes);
                if offset > self.offset {
                    // The host reports lost bytes as a gap. This output was sent before the host received
                    // our attach at `self.offset`, and is sent again in order.
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
                        vt::ScreenEvent::Title(title) => Some(title),
                        _ => None,
                    });
                    if let Some(title) = title {
                        self.shared.note(|facts| facts.title.clone_from(&title));
                        self.shared.push(WatchEvent::Title(title));
                    }
                }
                let at = self.offset;
                self.offset += bytes.len() as u64;
                self.shared.push(WatchEvent::Output { offset: at, bytes });
            }
            wire::Event::Resized { cols, rows, .. } => {
                if (Size { cols, rows }) != self.size {
                    self.size = Size { cols, rows };
                    if let View::Awake(screen) = &mut self.view {
                        screen.resize(self.size);
                    }
                    self.shared.note(|facts| (facts.cols, facts.rows) = (cols, rows));
                    self.shared.push(WatchEvent::Resize { cols, rows });
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
                self.shared.push(WatchEvent::Exit { code: exit.0, signal: exit.1 });
            }
            other => tracing::warn!(terminal = self.id, ?other, "not part of a terminal's output"),
        }
    }

    fn skip(&mut self, to: u64) {
        self.shared.push(WatchEvent::Gap { from: self.offset, to });
        self.offset = to;
    }

    /// Rebuilds the screen at `self.offset` from the checkpoint and the log.
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
            tracing::warn!(terminal = self.id, %error, "the log of a terminal cannot be read completely");
        }
        if screen.size() != self.size {
            screen.resize(self.size);
        }
        self.shared.note(|facts| screen.title().clone_into(&mut facts.title));
        self.view = View::Awake(Box::new(screen));
    }

    async fn answer(&mut self, ask: OwnerRequest) {
        match ask {
            OwnerRequest::Picture { format, scrollback, answer } => {
                let _ = answer.send(self.picture(format, scrollback).await);
            }
            OwnerRequest::Enter { client, name, mode } => {
                let change = self.seat.enter(client, name, mode);
                self.changed(change);
            }
            OwnerRequest::Leave(client) => {
                let change = self.seat.leave(client);
                self.changed(change);
            }
            OwnerRequest::TakeOver(client) => {
                let change = self.seat.take_over(client);
                self.changed(change);
            }
            OwnerRequest::HandBack(client) => {
                let change = self.seat.hand_back(client);
                self.changed(change);
            }
            OwnerRequest::Resize(client, size) => {
                let change = self.seat.resize(client, size);
                self.changed(change);
            }
            OwnerRequest::Runtime(runtime) => self.begin(runtime),
            OwnerRequest::Lost(why) => self.lose(&why),
            OwnerRequest::Stop(answer) => drop(answer),
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
            self.shared.push(WatchEvent::Driver(driver));
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
        let View::Awake(screen) = &self.view else { unreachable!("the screen was just loaded") };
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
            // Printed while the server was disconnected: the next picture is built from the log.
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

    /// Moves the end without an event: connected watchers get a new picture.
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
            self.shared.push(WatchEvent::Notice(why.to_owned()));
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
                // The directory was deleted with the terminal, which still has watchers.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Some(offset),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot write a checkpoint; retrying");
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

/// Returns memory to the system after screens were dropped, until `stop`.
pub async fn return_memory(dropped: Arc<Notify>, stop: CancellationToken) {
    let round = async || {
        dropped.notified().await;
        // Screens are often dropped together.
        tokio::time::sleep(TRIM_DELAY).await;
        let _ = tokio::task::spawn_blocking(host::give_back_memory).await;
    };
    while stop.run_until_cancelled(round()).await.is_some() {}
}

/// Receives the next events. Waits forever without a program; returns 0 when the connection is closed.
async fn receive(
    output: &mut Option<mpsc::Receiver<Box<wire::Event>>>,
    batch: &mut Batch,
) -> usize {
    match output {
        Some(output) => output.recv_many(batch, BATCH_EVENTS).await,
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
