//! The handle to all terminals, and the in-memory state of each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::TerminalError;
use super::flight::Flights;
use super::link::HostLink;
use super::lost_hosts::LostHosts;
use super::owner::{self, Owner, OwnerRequest, SharedTerminal, TerminalFacts};
use super::shell_connection::ShellConnection;
use super::shell_start::ShellSetupFn;
use super::window::Window;
use crate::lease::Leases;
use base::event::Events;
use base::lock::{StillLocked, locked};
use base::metrics::ServerMetrics;
use model::{InstanceId, LeaseId, Terminal, TerminalId, ThreadId};
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
    pub shell_setup: ShellSetupFn,
}

/// Bytes of recent output kept in memory while a terminal has watchers.
const WINDOW_BYTES: usize = 1 << 20;
/// Checkpoints that are written at the same time.
const CONCURRENT_WRITERS: usize = 4;
/// Searches in the output of all threads that run at the same time.
const CONCURRENT_SEARCHES: usize = 2;
/// Requests that wait for an owner; a further caller waits for room.
const REQUEST_QUEUE_LENGTH: usize = 64;

/// How long work that needs a terminal's shell waits while that is started or ended: somewhat longer than a provider
/// may take to create an instance.
pub(super) const SHELL_WAIT: Duration = Duration::from_secs(960);
/// How long a request that starts no shell waits meanwhile.
const LINK_WAIT: Duration = Duration::from_secs(10);

/// The handle to all terminals. Cheap to clone.
#[derive(Clone)]
pub struct Terminals(pub(super) Arc<TerminalsInner>);

pub(super) struct TerminalsInner {
    pub(super) settings: TerminalSettings,
    pub(super) owner: owner::OwnerSettings,
    pub(super) store: Store,
    pub(super) leases: Leases,
    pub(super) events: Events,
    pub(super) live: Mutex<HashMap<TerminalId, Arc<LiveTerminal>>>,
    pub(super) links: Mutex<HashMap<InstanceId, LinkSlot>>,
    /// Leases whose host was not contacted yet since the server started.
    pub(super) settling: Mutex<HashMap<LeaseId, watch::Receiver<bool>>>,
    /// Leases whose host does not answer, with the time when that was noticed.
    pub(super) unreachable: watch::Sender<HashMap<LeaseId, Timestamp>>,
    pub(super) flights: Arc<Flights>,
    pub(super) lost_hosts: Mutex<LostHosts>,
    pub(super) clients: AtomicU64,
    /// Searches that may run at the same time, fewer than the readers of the store.
    pub(super) searches: Semaphore,
    pub(super) tasks: TaskTracker,
    pub(super) stopping: CancellationToken,
}

/// The connection to one host. The lock is held while connecting, so that there is only one.
pub(super) type LinkSlot = Arc<tokio::sync::Mutex<Option<HostLink>>>;

/// A terminal that was used since the server started.
pub(super) struct LiveTerminal {
    pub(super) id: TerminalId,
    pub(super) thread: ThreadId,
    pub(super) lease: LeaseId,
    pub(super) shared: Arc<SharedTerminal>,
    pub(super) requests: mpsc::Sender<Box<OwnerRequest>>,
    /// The running shell. The lock is held while one is being started, so that there is only one.
    pub(super) runtime: tokio::sync::Mutex<Option<ShellConnection>>,
    /// The last stored version of its state.
    pub(super) version: watch::Sender<u64>,
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
            unreachable: watch::channel(HashMap::new()).0,
            flights: Arc::default(),
            lost_hosts: Mutex::default(),
            clients: AtomicU64::new(1),
            searches: Semaphore::new(CONCURRENT_SEARCHES),
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

    /// Returns the process id of a terminal's program inside its instance. Starts nothing.
    pub async fn pid(&self, terminal: &Terminal) -> Option<u32> {
        let held = self.link_of(terminal).await.ok()?.list().await.ok()?;
        let info = held.into_iter().find(|info| info.terminal == terminal.terminal_id.as_str())?;
        (info.pid != 0).then_some(info.pid)
    }

    /// Returns the number of terminals with a running program, and of connected clients.
    pub fn census(&self) -> (usize, usize) {
        let live = self.0.live.lock();
        let facts = live.values().map(|live| live.shared.facts());
        facts.fold((0, 0), |(live, clients), facts| {
            (live + usize::from(facts.live), clients + facts.clients)
        })
    }

    /// Returns whether a terminal of this thread has a watcher or runs a command.
    pub fn thread_in_use(&self, thread: &ThreadId) -> bool {
        let live = self.0.live.lock();
        live.values().filter(|live| live.thread == *thread).any(|live| {
            live.shared.facts().attending > 0
                || self.0.flights.open(|command| command.terminal_id == live.id) > 0
        })
    }

    pub(super) fn is_known(&self, id: &TerminalId) -> bool {
        self.0.live.lock().contains_key(id)
    }

    pub(super) fn directory(&self, id: &TerminalId) -> PathBuf {
        directory(&self.0.settings.home, id)
    }

    /// Returns the in-memory state of a terminal; creates it on first use.
    pub(super) async fn live(&self, terminal: &Terminal) -> Arc<LiveTerminal> {
        self.settled(&terminal.lease_id).await;
        let found = {
            let live = self.0.live.lock();
            live.get(&terminal.terminal_id).cloned()
        };
        if let Some(live) = found {
            return live;
        }
        let log = self.directory(&terminal.terminal_id).join("log");
        let bounds = base::task::blocking(move || host::log::bounds(&log)).await;
        let end = match bounds {
            Ok(Ok(Some((_, end)))) => end,
            Ok(Ok(None) | Err(_)) | Err(_) => 0,
        };
        self.live_at(terminal, end)
    }

    /// Returns the in-memory state of a terminal whose output ends at `offset`.
    pub(super) fn live_at(&self, terminal: &Terminal, offset: u64) -> Arc<LiveTerminal> {
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
            head: watch::channel(0).0,
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
        let (requests, receiver) = mpsc::channel(REQUEST_QUEUE_LENGTH);
        let owner = Owner::new(
            terminal.terminal_id.to_string(),
            self.directory(&terminal.terminal_id),
            self.0.owner.clone(),
            shared.clone(),
            receiver,
        );
        self.0.tasks.spawn(owner.run());
        let live = Arc::new(LiveTerminal {
            id: terminal.terminal_id.clone(),
            thread: terminal.thread_id.clone(),
            lease: terminal.lease_id.clone(),
            shared,
            requests,
            runtime: tokio::sync::Mutex::new(None),
            version: watch::channel(terminal.version).0,
        });
        all.insert(terminal.terminal_id.clone(), live.clone());
        live
    }
}

impl LiveTerminal {
    /// Locks the running shell.
    pub(super) async fn runtime(
        &self,
        limit: Duration,
    ) -> Result<MutexGuard<'_, Option<ShellConnection>>, StillLocked> {
        locked("the shell of the terminal", limit, self.runtime.lock()).await
    }

    /// Returns the host of the running shell.
    pub(super) async fn link(&self) -> Result<Option<HostLink>, StillLocked> {
        let connection = self.runtime(LINK_WAIT).await?;
        Ok(connection.as_ref().map(|connection| connection.link.clone()))
    }

    pub(super) async fn request(&self, request: OwnerRequest) -> Result<(), TerminalError> {
        self.requests.send(request.into()).await.map_err(|_| TerminalError::Gone)
    }
}

/// Returns the directory of a terminal's log and checkpoint.
pub fn directory(home: &Path, id: &TerminalId) -> PathBuf {
    home.join("terminals").join(id.as_str())
}
