//! The one task that owns a terminal's screen, its window and its clients.
//!
//! ```text
//!               output arrives, or a picture is needed
//!   Unloaded ─────────────────────────────────────────▶ Loaded(screen)
//!      ▲                                                   │
//!      └──── no watcher, no output, checkpoint written ────┘
//! ```
//! Picture and position are taken in one step, so that a watcher gets a picture and then exactly what
//! follows it. The screen can always be rebuilt from the checkpoint and the log; replayed bytes are never
//! answered.

mod facts;
mod output;
mod request;
mod save;
mod screen;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vt::{Screen, Size};
use wire::Request;

use super::drive::{Change, Clients};
use super::link::HostLink;
use super::window::WatchEvent;
use base::metrics::ServerMetrics;

pub use facts::{SharedTerminal, TerminalFacts};
pub use request::{Format, OwnerRequest, Picture, Runtime};

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

/// Boxed, to keep the channel small.
type Batch = Vec<Box<wire::Event>>;

enum View {
    Unloaded,
    Loaded(Box<Screen>),
}

pub struct Owner {
    id: String,
    directory: PathBuf,
    settings: OwnerSettings,
    shared: Arc<SharedTerminal>,
    requests: mpsc::Receiver<Box<OwnerRequest>>,
    link: Option<HostLink>,
    output: Option<mpsc::Receiver<Box<wire::Event>>>,
    view: View,
    clients: Clients,
    offset: u64,
    size: Size,
    /// The offset of the checkpoint on disk, if known.
    saved: Option<u64>,
    saving: Option<oneshot::Receiver<Option<u64>>>,
    dirty_since: Option<Instant>,
    last_save: Instant,
    last_output: Instant,
}

enum OwnerEvent {
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
        requests: mpsc::Receiver<Box<OwnerRequest>>,
    ) -> Owner {
        let facts = shared.facts();
        Owner {
            id,
            directory,
            settings,
            shared,
            requests,
            link: None,
            output: None,
            view: View::Unloaded,
            clients: Clients::default(),
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
            let event = tokio::select! {
                biased;
                request = self.requests.recv() =>
                    request.map_or(OwnerEvent::Over, |request| OwnerEvent::Request(*request)),
                count = receive(&mut self.output, &mut batch) =>
                    if count == 0 { OwnerEvent::Unreachable } else { OwnerEvent::Output },
                saved = finished(&mut self.saving) => OwnerEvent::Saved(saved),
                () = sleep_until(due) => OwnerEvent::Due,
            };
            match event {
                OwnerEvent::Output => self.take(&mut batch).await,
                // The sender is gone, or another owner replaced this one in the link.
                OwnerEvent::Unreachable => {
                    self.link = None;
                    self.lose("the host cannot be reached");
                }
                OwnerEvent::Request(OwnerRequest::Stop(answer)) => {
                    Box::pin(self.save_now()).await;
                    let _ = answer.send(());
                    break;
                }
                OwnerEvent::Request(request) => self.handle(request).await,
                OwnerEvent::Saved(offset) => self.saved_at(offset),
                OwnerEvent::Due => {
                    self.save_or_unload();
                    if matches!(self.view, View::Unloaded) {
                        // Frees tens of kilobytes; most terminals are silent.
                        batch = Vec::new();
                    }
                }
                OwnerEvent::Over => break,
            }
        }
    }

    async fn handle(&mut self, request: OwnerRequest) {
        match request {
            OwnerRequest::Picture { format, scrollback, answer } => {
                let _ = answer.send(self.picture(format, scrollback).await);
            }
            OwnerRequest::Enter { client, name, mode } => {
                let change = self.clients.enter(client, name, mode);
                self.changed(change);
            }
            OwnerRequest::Leave(client) => {
                let change = self.clients.leave(client);
                self.changed(change);
            }
            OwnerRequest::TakeOver(client) => {
                let change = self.clients.take_over(client);
                self.changed(change);
            }
            OwnerRequest::HandBack(client) => {
                let change = self.clients.hand_back(client);
                self.changed(change);
            }
            OwnerRequest::Resize(client, size) => {
                let change = self.clients.resize(client, size);
                self.changed(change);
            }
            OwnerRequest::Runtime(runtime) => self.begin(runtime),
            OwnerRequest::Lost(why) => self.lose(&why),
            OwnerRequest::Stop(answer) => drop(answer),
        }
    }

    fn changed(&mut self, change: Change) {
        let driver = self.clients.driver().map(str::to_owned);
        let (clients, driving) = (self.clients.len(), self.clients.driving());
        let attending = self.clients.attending();
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

    fn announce(&self) {
        let head = self.shared.window.lock().head();
        self.shared.head.send_replace(head);
    }
}

/// Returns memory to the system after screens were dropped, until `stop`.
pub async fn return_memory(dropped: Arc<Notify>, stop: CancellationToken) {
    let round = async || {
        dropped.notified().await;
        // Screens are often dropped together.
        tokio::time::sleep(TRIM_DELAY).await;
        let _ = base::task::blocking(host::give_back_memory).await;
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
