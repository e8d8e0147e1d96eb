//! The handle to all terminals, and the in-memory end of each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot, watch as level};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{ReplyCode, Request};

use super::alive::Alive;
use super::drive::{ClientId, ClientMode};
use super::error::TerminalError;
use super::flight::Flights;
use super::history::{self, Offsets};
use super::link::{HostLink, LinkError};
use super::lost_hosts::LostHosts;
use super::options::Resume;
use super::output_source;
use super::owner::{self, Format, Owner, OwnerRequest, Picture, SharedTerminal, TerminalFacts};
use super::shell_start::ShellSetupFn;
use super::watch::{AtExit, WatchFrom, Watcher};
use super::window::Window;
use crate::lease::Leases;
use base::event::Events;
use base::metrics::ServerMetrics;
use model::{CommandId, Desired, InstanceId, LeaseId, Terminal, TerminalId, ThreadId};
use store::Store;

/// The settings of terminals.
#[derive(Clone)]
pub struct TerminalSettings {
    pub home: PathBuf,
    /// Bytes of output kept on disk for each terminal.
    pub log_limit: u64,
    pub scrollback: usize,
    /// Whether to answer DECRQCRA, which lets a program read the screen.
    pub checksum_reports: bool,
    pub max_per_thread: usize,
    /// How many terminals may have a running program.
    pub max: usize,
    pub metrics: ServerMetrics,
    /// Returns where the shells of a project start and what their environment contains. Creates the
    /// directories if necessary. Blocks.
    pub place: ShellSetupFn,
}

/// Bytes of recent output kept in memory while a terminal has watchers.
const WINDOW_BYTES: usize = 1 << 20;
/// Checkpoints that are written at the same time.
const CONCURRENT_WRITERS: usize = 4;
/// Requests that wait for an owner; a further caller waits for room.
const REQUEST_QUEUE_LENGTH: usize = 64;

/// The handle to all terminals. Cheap to clone.
#[derive(Clone)]
pub struct Terminals(pub(super) Arc<TerminalsInner>);

pub(super) struct TerminalsInner {
    pub(super) settings: TerminalSettings,
    pub(super) owner: owner::OwnerSettings,
    pub(super) store: Store,
    pub(super) leases: Leases,
    pub(super) events: Events,
    pub(super) live: Mutex<HashMap<TerminalId, Arc<Live>>>,
    pub(super) links: Mutex<HashMap<InstanceId, LinkSlot>>,
    /// Leases whose host was not contacted yet since the server started.
    pub(super) settling: Mutex<HashMap<LeaseId, level::Receiver<bool>>>,
    /// Leases whose host does not answer, with the time when that was noticed.
    pub(super) unreachable: level::Sender<HashMap<LeaseId, Timestamp>>,
    pub(super) flights: Arc<Flights>,
    pub(super) gone: Mutex<LostHosts>,
    pub(super) clients: AtomicU64,
    pub(super) tasks: TaskTracker,
    pub(super) stopping: CancellationToken,
}

/// The connection to one host. The lock is held while connecting, so that there is only one.
pub(super) type LinkSlot = Arc<tokio::sync::Mutex<Option<HostLink>>>;

/// A terminal that was used since the server started.
pub(super) struct Live {
    pub(super) id: TerminalId,
    pub(super) thread: ThreadId,
    pub(super) lease: LeaseId,
    pub(super) shared: Arc<SharedTerminal>,
    pub(super) asks: mpsc::Sender<Box<OwnerRequest>>,
    /// The running shell. The lock is held while one is being started, so that there is only one.
    pub(super) runtime: tokio::sync::Mutex<Option<Alive>>,
    /// The last stored version of its state.
    pub(super) version: level::Sender<u64>,
}

impl Terminals {
    /// No terminal is live yet; [`Terminals::recover`] finds those whose host still runs.
    pub fn new(
        settings: TerminalSettings,
        store: Store,
        leases: Leases,
        events: Events,
    ) -> Terminals {
        let owner = owner::OwnerSettings {
            scrollback: settings.scrollback,
            window: WINDOW_BYTES,
            checksum_reports: settings.checksum_reports,
            writers: Arc::new(Semaphore::new(CONCURRENT_WRITERS)),
            dropped: Arc::default(),
            metrics: settings.metrics.clone(),
        };
        let (tasks, stopping) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(owner::return_memory(owner.dropped.clone(), stopping.clone()));
        Terminals(Arc::new(TerminalsInner {
            settings,
            owner,
            store,
            leases,
            events,
            live: Mutex::default(),
            links: Mutex::default(),
            settling: Mutex::default(),
            unreachable: level::channel(HashMap::new()).0,
            flights: Arc::default(),
            gone: Mutex::default(),
            clients: AtomicU64::new(1),
            tasks,
            stopping,
        }))
    }

    /// Returns the current facts about a terminal that its row does not have. Starts no shell.
    pub async fn facts(&self, terminal: &Terminal) -> TerminalFacts {
        self.live(terminal).await.shared.facts()
    }

    /// Returns the number of clients of each thread's terminals, and the name of a driver. Threads without
    /// clients are left out.
    pub fn attended(&self) -> HashMap<ThreadId, (usize, Option<String>)> {
        let live = self.0.live.lock();
        let mut threads: HashMap<ThreadId, (usize, Option<String>)> = HashMap::new();
        for terminal in live.values() {
            let facts = terminal.shared.facts();
            if facts.clients > 0 {
                let (clients, driver) = threads.entry(terminal.thread.clone()).or_default();
                *clients += facts.clients;
                *driver = driver.take().or(facts.driver);
            }
        }
        threads
    }

    /// Returns the terminals with at least one client.
    pub fn watched(&self) -> Vec<TerminalId> {
        let live = self.0.live.lock();
        let watched = live.values().filter(|live| live.shared.facts().clients > 0);
        watched.map(|live| live.id.clone()).collect()
    }

    /// Types into a terminal, at most once: a repeated `write_id` has no effect.
    pub async fn input(
        &self,
        terminal: &Terminal,
        write_id: &str,
        data: Bytes,
    ) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        // A large paste is split into frames, each with its own id.
        for (part, piece) in data.chunks(wire::MAX_DATA).enumerate() {
            let write_id = match (write_id, part) {
                ("", _) => String::new(),
                (id, 0) => id.to_owned(),
                (id, part) => format!("{id}.{part}"),
            };
            let terminal = live.id.to_string();
            let data = piece.to_vec();
            link.call(|seq| Request::Input { seq, terminal, write_id, data }).await?;
        }
        live.shared.note(|facts| facts.last_activity_at = Timestamp::now());
        Ok(())
    }

    pub async fn resize(
        &self,
        terminal: &Terminal,
        cols: u16,
        rows: u16,
    ) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        let terminal = live.id.to_string();
        link.call(|seq| Request::Resize { seq, terminal, cols, rows }).await?;
        Ok(())
    }

    /// Sends a signal to the foreground program.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        let terminal = live.id.to_string();
        link.call(|seq| Request::Signal { seq, terminal, signal }).await?;
        Ok(())
    }

    /// Returns a picture of a terminal, whether or not it is live.
    pub async fn picture(
        &self,
        terminal: &Terminal,
        format: Format,
        scrollback: Option<usize>,
    ) -> Result<Picture, TerminalError> {
        let live = self.live(terminal).await;
        let (answer, picture) = oneshot::channel();
        live.ask(OwnerRequest::Picture { format, scrollback, answer }).await?;
        picture.await.map_err(|_| TerminalError::Gone)
    }

    /// Attaches a watcher. A lost shell is started again, unless its program had ended.
    pub async fn watch(
        &self,
        terminal: &Terminal,
        name: String,
        mode: ClientMode,
        from: WatchFrom,
        resume: Resume,
    ) -> Result<Watcher, TerminalError> {
        let live = self.live(terminal).await;
        let starts = match resume {
            Resume::Yes | Resume::No => true,
            Resume::UnlessStopped => {
                let lease = self.0.store.lease(&terminal.lease_id).await?;
                lease.is_none_or(|lease| lease.desired != Desired::Stopped)
            }
        };
        if starts && live.shared.facts().exit.is_none() {
            match self.alive(terminal, &live, resume).await {
                // A program that has just ended still has its last picture.
                Ok(_) | Err(TerminalError::Exited) => {}
                Err(error) => return Err(error),
            }
        }
        self.enter(terminal, &live, name, mode, from).await
    }

    /// Attaches a guest. Starts and resumes nothing, and does not keep the terminal in use.
    pub async fn watch_as_guest(
        &self,
        terminal: &Terminal,
        name: String,
        from: WatchFrom,
    ) -> Result<Watcher, TerminalError> {
        let live = self.live(terminal).await;
        self.enter(terminal, &live, name, ClientMode::Guest, from).await
    }

    async fn enter(
        &self,
        terminal: &Terminal,
        live: &Live,
        name: String,
        mode: ClientMode,
        from: WatchFrom,
    ) -> Result<Watcher, TerminalError> {
        let client = self.0.clients.fetch_add(1, Ordering::Relaxed);
        live.ask(OwnerRequest::Enter { client, name, mode }).await?;
        let (shared, asks) = (live.shared.clone(), live.asks.clone());
        let directory = self.directory(&live.id);
        let at_exit = if terminal.ends_with_program() { AtExit::Ends } else { AtExit::Restarts };
        Ok(Watcher::enter(shared, asks, client, from, directory, at_exit).await?)
    }

    /// Types on behalf of a connected client. Refused unless it is the driver.
    pub async fn type_as(
        &self,
        terminal: &Terminal,
        client: ClientId,
        write_id: &str,
        data: Bytes,
    ) -> Result<(), TerminalError> {
        let facts = self.facts(terminal).await;
        if facts.driving != Some(client) {
            return Err(TerminalError::NotDriver { driver: facts.driver });
        }
        self.input(terminal, write_id, data).await
    }

    /// Returns the kept output of a terminal as asciicast v2.
    pub fn recording(&self, terminal: &Terminal, offsets: Offsets) -> mpsc::Receiver<Bytes> {
        let size = (terminal.cols, terminal.rows);
        let title = terminal.title.clone();
        history::recording(self.directory(&terminal.terminal_id), size, title, offsets)
    }

    /// Returns the process id of a terminal's program inside its instance. Starts nothing.
    pub async fn pid(&self, terminal: &Terminal) -> Option<u32> {
        let held = self.link_of(terminal).await.ok()?.list().await.ok()?;
        let info = held.into_iter().find(|info| info.terminal == terminal.terminal_id.as_str())?;
        (info.pid != 0).then_some(info.pid)
    }

    /// Ends every process of a terminal and removes its files; safe to repeat. The caller deletes the row.
    pub async fn close(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let live = self.0.live.lock().get(id).cloned();
        if let Some(live) = live {
            let _ = live.ask(OwnerRequest::Lost("the terminal was deleted".into())).await;
            let mut runtime = live.runtime.lock().await;
            if let Some(alive) = &*runtime {
                let terminal = id.to_string();
                match alive.link.call(|seq| Request::Close { seq, terminal }).await {
                    Ok(_) | Err(LinkError::Refused { code: ReplyCode::NoSuchTerminal, .. }) => {}
                    // The host is gone, or it is found again and the terminal without a row is ended then.
                    Err(LinkError::Closed) => {}
                    // Kept in the map until it is closed, so that the caller can retry.
                    Err(error) => return Err(error.into()),
                }
                alive.link.unlisten(id.as_str());
            }
            *runtime = None;
            self.0.live.lock().remove(id);
        }
        self.lose_commands(id).await;
        self.remove_directory(id).await
    }

    /// Returns the number of terminals with a running program, and of connected clients.
    pub fn census(&self) -> (usize, usize) {
        let live = self.0.live.lock();
        let facts = live.values().map(|live| live.shared.facts());
        facts.fold((0, 0), |(alive, clients), facts| {
            (alive + usize::from(facts.live), clients + facts.clients)
        })
    }

    /// Ends the programs of terminals that were unused for `idle`, have no watcher and run no command. Their
    /// state is kept.
    pub async fn end_unused(&self, idle: Duration) {
        let before = Timestamp::now() - idle;
        let unused: Vec<TerminalId> = {
            let live = self.0.live.lock();
            let unused = |live: &&Arc<Live>| {
                let facts = live.shared.facts();
                facts.live && facts.attending == 0 && facts.last_activity_at < before
            };
            live.values().filter(unused).map(|live| live.id.clone()).collect()
        };
        for id in unused {
            if self.0.flights.open(|command| command.terminal_id == id) == 0
                && let Err(error) = self.end(&id).await
            {
                tracing::warn!(terminal = %id, %error, "cannot end an unused terminal");
            }
        }
    }

    /// Returns whether a terminal of this thread has a watcher or runs a command.
    pub fn thread_in_use(&self, thread: &ThreadId) -> bool {
        let live = self.0.live.lock();
        live.values().filter(|live| live.thread == *thread).any(|live| {
            live.shared.facts().attending > 0
                || self.0.flights.open(|command| command.terminal_id == live.id) > 0
        })
    }

    /// Ends the program of a terminal; its state and output are kept.
    pub async fn end(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let live = self.0.live.lock().get(id).cloned();
        let Some(live) = live else { return Ok(()) };
        let alive = live.runtime.lock().await.take();
        if let Some(alive) = alive {
            let terminal = id.to_string();
            alive.link.unlisten(id.as_str());
            match alive.link.call(|seq| Request::Close { seq, terminal }).await {
                Ok(_) | Err(LinkError::Refused { code: ReplyCode::NoSuchTerminal, .. }) => {}
                Err(error) => return Err(error.into()),
            }
            alive.end(id).await;
            self.lost(id).await;
            self.lose_commands(id).await;
        }
        Ok(())
    }

    /// Removes the output of commands whose rows were pruned.
    pub async fn forget_commands(&self, commands: Vec<(TerminalId, CommandId)>) {
        let home = self.0.settings.home.clone();
        let removed = tokio::task::spawn_blocking(move || {
            for (terminal, command) in commands {
                output_source::remove(&directory(&home, &terminal), &command);
            }
        });
        let _ = removed.await;
    }

    /// Writes pending checkpoints and disconnects from every host. The shells keep running.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        let all: Vec<Arc<Live>> = {
            let live = self.0.live.lock();
            live.values().cloned().collect()
        };
        let mut stopping = Vec::new();
        for live in all {
            let (answer, stopped) = oneshot::channel();
            if live.ask(OwnerRequest::Stop(answer)).await.is_ok() {
                stopping.push(stopped);
            }
        }
        for stopped in stopping {
            let _ = stopped.await;
        }
        let links: Vec<LinkSlot> = {
            let mut links = self.0.links.lock();
            links.drain().map(|(_, slot)| slot).collect()
        };
        for slot in links {
            // A connection that is being made is dropped with its task.
            if let Ok(slot) = slot.try_lock()
                && let Some(link) = &*slot
            {
                link.close();
            }
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(super) fn is_known(&self, id: &TerminalId) -> bool {
        self.0.live.lock().contains_key(id)
    }

    pub(super) fn directory(&self, id: &TerminalId) -> PathBuf {
        directory(&self.0.settings.home, id)
    }

    /// Returns the in-memory end of a terminal; creates it on first use.
    pub(super) async fn live(&self, terminal: &Terminal) -> Arc<Live> {
        self.settled(&terminal.lease_id).await;
        let found = {
            let live = self.0.live.lock();
            live.get(&terminal.terminal_id).cloned()
        };
        if let Some(live) = found {
            return live;
        }
        let log = self.directory(&terminal.terminal_id).join("log");
        let bounds = tokio::task::spawn_blocking(move || host::log::bounds(&log)).await;
        let end = match bounds {
            Ok(Ok(Some((_, end)))) => end,
            Ok(Ok(None) | Err(_)) | Err(_) => 0,
        };
        self.live_at(terminal, end)
    }

    /// Returns the in-memory end of a terminal whose output ends at `offset`.
    pub(super) fn live_at(&self, terminal: &Terminal, offset: u64) -> Arc<Live> {
        let mut all = self.0.live.lock();
        if let Some(live) = all.get(&terminal.terminal_id) {
            return live.clone();
        }
        let exit = match terminal.status {
            model::TerminalStatus::Exited(exit) => Some((exit.code, exit.signal)),
            model::TerminalStatus::Restorable
            | model::TerminalStatus::Live
            | model::TerminalStatus::Closed => None,
        };
        let shared = Arc::new(SharedTerminal {
            window: Mutex::new(Window::new(offset, self.0.owner.window)),
            head: level::channel(0).0,
            facts: Mutex::new(TerminalFacts {
                cols: terminal.cols,
                rows: terminal.rows,
                title: terminal.title.clone(),
                last_activity_at: terminal.last_activity_at,
                exit,
                clients: 0,
                attending: 0,
                driver: None,
                driving: None,
                offset,
                live: false,
            }),
        });
        let (asks, receiver) = mpsc::channel(REQUEST_QUEUE_LENGTH);
        let owner = Owner::new(
            terminal.terminal_id.to_string(),
            self.directory(&terminal.terminal_id),
            self.0.owner.clone(),
            shared.clone(),
            receiver,
        );
        self.0.tasks.spawn(owner.run());
        let live = Arc::new(Live {
            id: terminal.terminal_id.clone(),
            thread: terminal.thread_id.clone(),
            lease: terminal.lease_id.clone(),
            shared,
            asks,
            runtime: tokio::sync::Mutex::new(None),
            version: level::channel(terminal.version).0,
        });
        all.insert(terminal.terminal_id.clone(), live.clone());
        live
    }

    /// Returns a terminal that accepts input. A lost shell is started again.
    async fn interactive(
        &self,
        terminal: &Terminal,
    ) -> Result<(Arc<Live>, HostLink), TerminalError> {
        let live = self.live(terminal).await;
        if live.shared.facts().exit.is_some() {
            return Err(TerminalError::Exited);
        }
        let alive = self.alive(terminal, &live, Resume::Yes).await?;
        Ok((live, alive))
    }
}

impl Live {
    pub(super) async fn ask(&self, ask: OwnerRequest) -> Result<(), TerminalError> {
        self.asks.send(ask.into()).await.map_err(|_| TerminalError::Gone)
    }
}

/// Returns the directory of a terminal's log and checkpoint.
pub fn directory(home: &Path, id: &TerminalId) -> PathBuf {
    home.join("terminals").join(id.as_str())
}
