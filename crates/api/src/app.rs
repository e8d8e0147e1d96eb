//! The state that every handler has, and what handlers share beyond single calls: a thread on its first use,
//! and deletion.

use std::{net::SocketAddr, ops::Deref, pin::Pin, sync::Arc, time::Instant};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use base::{clock::Clock, event::Events, metrics::ServerMetrics};
use config::Settings;
use engine::handoff::Handoffs;
use engine::lease::Leases;
use engine::removal::{Removal, Removals};
use engine::sandbox::Sandboxes;
use engine::session::{Runtimes, Sessions};
use engine::terminal::{Resume, Terminals, WatchFrom, Watcher};
use model::{
    InstanceState, Lease, Moment, OnExpiry, SessionPolicy, ShellKind, Terminal, TerminalId, Thread,
    ThreadId,
};
use project::{Attached, Projects};
use store::{Chain, FirstUse, Store, ThreadChoices};

use super::{
    auth::Auth,
    budget::{Budgets, Front},
    detach::Detached,
    error::Problem,
    idempotency::KeyedRequests,
    key::Keys,
    pass::{Pass, Shares},
    readiness::{ReadinessProbes, ReadinessSubjects},
};

/// The size of a terminal until its first client reports one, in columns and rows.
const INITIAL_SIZE: (u16, u16) = (80, 24);

/// The state of the server, as every handler has it. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The fields of [`App`].
pub struct Parts {
    /// The settings the server was started with.
    pub settings: Settings,
    pub store: Store,
    engine: Engine,
    pub metrics: ServerMetrics,
    /// Tokens and browser sessions.
    pub auth: Auth,
    /// Share links, each with read-only access to one terminal.
    pub shares: Shares,
    /// Makes and checks the keys of sandboxes, volumes, ports and links.
    pub keys: Keys,
    /// Cancelled when the server stops: streams send a notice and end.
    pub stopping: CancellationToken,
    /// Tasks that outlive their request, such as upgraded sockets; shutdown waits for them.
    pub tasks: TaskTracker,
    /// Name of the session cookie. Browsers ignore the port of a cookie, so the name contains it.
    pub cookie: String,
    /// The URL of the server for clients, without a path.
    pub url: String,
    /// Limits on concurrent requests and connections of each class of caller.
    pub budgets: Budgets,
    /// Runs requests that continue after their clients disconnect.
    pub(super) detached: Detached,
    pub(super) keyed: KeyedRequests,
    pub(super) readiness: ReadinessProbes,
}

/// What the API serves. [`App`] dereferences to it.
pub struct Engine {
    pub leases: Leases,
    pub sessions: Sessions,
    pub terminals: Terminals,
    pub sandboxes: Sandboxes,
    pub handoffs: Handoffs,
    /// Deleted resources whose processes are still ending.
    pub removals: Removals,
    pub projects: Projects,
    pub events: Events,
    pub clock: Clock,
    /// Name of the default provider.
    pub provider: String,
}

impl Deref for Parts {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// `address` is the bound address, with the actual port.
    pub fn new(
        settings: Settings,
        address: SocketAddr,
        store: Store,
        engine: Engine,
        (auth, shares, keys): (Auth, Shares, Keys),
        metrics: ServerMetrics,
        stopping: CancellationToken,
    ) -> App {
        App(Arc::new(Parts {
            budgets: Budgets::new(
                settings.limits.connections,
                settings.limits.requests,
                if settings.behind_proxy { Front::Proxy } else { Front::Clients },
                &metrics.evicted,
            ),
            detached: Detached::new(settings.limits.requests),
            keyed: KeyedRequests::default(),
            readiness: ReadinessProbes::new(ReadinessSubjects {
                stopping: stopping.clone(),
                store: store.clone(),
                home: settings.home.clone(),
                terminals: engine.terminals.clone(),
                providers: engine.leases.providers().clone(),
                provider: engine.provider.clone(),
            }),
            cookie: format!("stead_{}", address.port()),
            url: settings.public_url(address),
            settings,
            store,
            engine,
            metrics,
            auth,
            shares,
            keys,
            stopping,
            tasks: TaskTracker::new(),
        }))
    }

    /// Name of the cookie that a share link is exchanged for.
    pub fn share_cookie(&self) -> String {
        format!("{}_share", self.cookie)
    }

    /// Creates a link that signs one browser in, once.
    pub fn sign_in_link(&self) -> Result<String, getrandom::Error> {
        let code = self.auth.code(Instant::now())?;
        Ok(format!("{}/login?code={code}", self.url))
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The default session policy.
    pub fn policy(&self) -> SessionPolicy {
        let policy = &self.settings.policy;
        SessionPolicy {
            idle_timeout_s: policy.idle_timeout.as_secs(),
            max_duration_s: policy.max_duration.as_secs(),
            max_running: None,
            max_cost: None,
            on_expiry: match policy.on_expiry {
                config::SessionExpiryAction::Keep => OnExpiry::Keep,
                config::SessionExpiryAction::Pause => OnExpiry::Pause,
                config::SessionExpiryAction::Stop => OnExpiry::Stop,
            },
        }
    }

    /// The request to the store that creates a thread if it does not exist.
    pub fn first_use(&self, thread: &ThreadId, choices: ThreadChoices) -> FirstUse {
        FirstUse {
            thread_id: thread.clone(),
            choices,
            provider: self.provider.clone(),
            policy: self.policy(),
            shell: ShellKind::default(),
            size: INITIAL_SIZE,
            now: self.now(),
        }
    }

    /// Returns a thread with its session, default terminal and lease; creates those that do not exist.
    pub async fn open_chain(&self, thread: &ThreadId) -> Result<Chain, Problem> {
        let chain = self.sessions.open(self.first_use(thread, ThreadChoices::default())).await?;
        self.sessions.touch(&chain.session.session_id);
        Ok(chain)
    }

    /// Records activity in a thread. A failure is logged; it only brings the session's expiry forward.
    pub async fn used(&self, thread: &ThreadId) {
        if let Err(problem) = self.open_chain(thread).await {
            tracing::warn!(%thread, detail = problem.detail(), "cannot record activity");
        }
    }

    /// Makes the instance of a thread run for a use that is no command. It belongs to an open session, so that it
    /// ends as after a command.
    pub async fn wake(&self, thread: &Thread) -> Result<(), Problem> {
        let lease = self.store.lease(&thread.lease_id).await?;
        let instance = lease.as_ref().and_then(Lease::instance);
        if matches!(instance, Some((_, InstanceState::Running))) {
            return Ok(());
        }
        let chain = self.open_chain(&thread.thread_id).await?;
        self.leases.running(&chain.thread.lease_id).await?;
        Ok(())
    }

    /// Watches a terminal as the holder of a share link. Starts nothing, and does not count as activity.
    pub async fn watch_as_guest(
        &self,
        terminal: &Terminal,
        pass: &Pass,
        from: WatchFrom,
    ) -> Result<Watcher, Problem> {
        let name = match pass.share().name.as_str() {
            "" => "guest".to_owned(),
            name => format!("guest {name}"),
        };
        Ok(self.terminals.watch_as_guest(terminal, name, from).await?)
    }

    /// Registers a client as attached to the project of a terminal, until the returned [`Attached`] is dropped.
    /// Also returns whether watching may start a stopped instance.
    pub async fn attach(
        &self,
        terminal: &Terminal,
        resume: Resume,
    ) -> Result<(Attached, Resume), Problem> {
        let missing = || Problem::missing("thread", &terminal.thread_id);
        let thread = self.store.thread(&terminal.thread_id).await?.ok_or_else(missing)?;
        let project = self.projects.project(&thread.project_id).await?;
        let attached = self.projects.attach(&project.project_id).await;
        Ok(match resume {
            Resume::Yes if !self.projects.recreates(&project) => (attached, Resume::UnlessStopped),
            resume => (attached, resume),
        })
    }

    /// Deletes a terminal. Its rows are deleted when this returns; the removal ends its processes.
    pub async fn delete_terminal(&self, terminal: &Terminal) -> Result<Removal, Problem> {
        Ok(self.removals.delete_terminal(terminal, self.now().at).await?)
    }

    /// Deletes a thread and everything that only it used. The rows are deleted when this returns; the removal
    /// ends processes and instances.
    pub async fn delete_thread(&self, id: &ThreadId) -> Result<Removal, Problem> {
        Ok(self.removals.delete_thread(id, self.now().at).await?)
    }
}

/// Ends the shells of a thread when its session expires.
pub struct ThreadRuntimes {
    pub store: Store,
    pub terminals: Terminals,
}

impl ThreadRuntimes {
    pub fn shared(store: Store, terminals: Terminals) -> Arc<dyn Runtimes> {
        Arc::new(ThreadRuntimes { store, terminals })
    }
}

impl Runtimes for ThreadRuntimes {
    fn in_use(&self, thread: &ThreadId) -> bool {
        self.terminals.thread_in_use(thread)
    }

    fn end<'a>(&'a self, thread: &'a ThreadId) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let all = match self.store.thread_terminals(thread).await {
                Ok(all) => all,
                Err(error) => {
                    tracing::warn!(%thread, %error, "cannot list the terminals to end");
                    return;
                }
            };
            let ids: Vec<TerminalId> = all.into_iter().map(|row| row.terminal_id).collect();
            for id in ids {
                if let Err(error) = self.terminals.end(&id).await {
                    tracing::warn!(terminal = %id, %error, "cannot end a terminal's shell");
                }
            }
        })
    }
}
