//! The state that every handler has, and what handlers share beyond single calls: a thread on its first use,
//! and deletion.

use std::{net::SocketAddr, ops::Deref, pin::Pin, sync::Arc, time::Instant};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use base::{
    clock::Clock,
    event::{Events, Happened},
    metrics::Metrics,
};
use config::Settings;
use engine::lease::Leases;
use engine::project::{Attached, Projects};
use engine::session::{Runtimes, Sessions};
use engine::terminal::{From, Resume, Terminals, Watcher};
use model::{Moment, OnExpiry, SessionPolicy, ShellKind, Terminal, TerminalId, ThreadId};
use store::{Chain, FirstUse, Gone, Store, StoreError, ThreadChoices};

use super::{
    auth::Auth,
    budget::Budgets,
    detach::Detached,
    error::Problem,
    idempotency::Answers,
    pass::{Pass, Shares},
    removal::{self, Removal, Removals, Removing},
};

/// The size of a terminal until its first client reports one, in columns and rows.
const INITIAL_SIZE: (u16, u16) = (80, 24);

/// What every handler can reach. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The inside of [`App`].
pub struct Parts {
    /// The settings the server was started with.
    pub settings: Settings,
    /// The durable rows.
    pub store: Store,
    /// What runs behind the API.
    engine: Engine,
    /// What is counted.
    pub metrics: Metrics,
    /// Who may come in.
    pub auth: Auth,
    /// Who may look at one terminal.
    pub shares: Shares,
    /// Cancelled when the server stops: streams say so and end.
    pub stopping: CancellationToken,
    /// Tasks that outlive their request (upgraded sockets); stopping waits for them.
    pub tasks: TaskTracker,
    /// Name of the browser's cookie. Cookies ignore the port, so it is in the name.
    pub cookie: String,
    /// URL that clients reach the server at, without a path.
    pub url: String,
    /// What each class of caller may use at once.
    pub budgets: Budgets,
    /// Requests that run on without their clients.
    pub(super) detached: Detached,
    /// What was deleted and is not gone yet.
    pub(super) removals: Removals,
    pub(super) answers: Answers,
}

/// What runs behind the API. Its fields are those of [`App`], too.
pub struct Engine {
    /// What is beneath terminals.
    pub leases: Leases,
    /// Windows of policy.
    pub sessions: Sessions,
    /// Terminals that are alive.
    pub terminals: Terminals,
    /// Bodies of work: their files and memories.
    pub projects: Projects,
    /// What happens.
    pub events: Events,
    /// The time.
    pub clock: Clock,
    /// The provider of a thread that names none.
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
    /// Puts the parts together. `address` is the one really listened on.
    pub fn new(
        settings: Settings,
        address: SocketAddr,
        store: Store,
        engine: Engine,
        (auth, shares): (Auth, Shares),
        metrics: Metrics,
        stopping: CancellationToken,
    ) -> App {
        App(Arc::new(Parts {
            budgets: Budgets::new(
                settings.limits.connections,
                settings.limits.requests,
                &metrics.evicted,
            ),
            detached: Detached::new(settings.limits.requests),
            removals: Removals::default(),
            answers: Answers::default(),
            cookie: format!("stead_{}", address.port()),
            url: settings.public_url(address),
            settings,
            store,
            engine,
            metrics,
            auth,
            shares,
            stopping,
            tasks: TaskTracker::new(),
        }))
    }

    /// Name of the cookie of a browser that came by a share link.
    pub fn share_cookie(&self) -> String {
        format!("{}_share", self.cookie)
    }

    /// A link that signs one browser in, once.
    pub fn sign_in_link(&self) -> Result<String, getrandom::Error> {
        let code = self.auth.code(Instant::now())?;
        Ok(format!("{}/login?code={code}", self.url))
    }

    /// The time.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The policy of a thread that chooses none.
    pub fn policy(&self) -> SessionPolicy {
        let policy = &self.settings.policy;
        SessionPolicy {
            idle_timeout_s: policy.idle_timeout.as_secs(),
            max_duration_s: policy.max_duration.as_secs(),
            max_running: None,
            max_cost: None,
            on_expiry: match policy.on_expiry {
                config::OnExpiry::Keep => OnExpiry::Keep,
                config::OnExpiry::Pause => OnExpiry::Pause,
                config::OnExpiry::Stop => OnExpiry::Stop,
            },
        }
    }

    /// What brings a thread into being.
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

    /// A thread with its session, default terminal and lease; what is missing comes into being.
    pub async fn open_chain(&self, thread: &ThreadId) -> Result<Chain, Problem> {
        let chain = self.sessions.open(self.first_use(thread, ThreadChoices::default())).await?;
        self.sessions.touch(&chain.session.session_id);
        Ok(chain)
    }

    /// Notes that somebody does something in a thread. A failure costs a little of the session's
    /// time and nothing else.
    pub async fn used(&self, thread: &ThreadId) {
        if let Err(problem) = self.open_chain(thread).await {
            tracing::warn!(%thread, detail = problem.detail(), "cannot note activity");
        }
    }

    /// A guest's place in a terminal. It starts nothing and is no use of the thread.
    pub async fn look(
        &self,
        terminal: &Terminal,
        pass: &Pass,
        from: From,
    ) -> Result<Watcher, Problem> {
        let name = match pass.share().name.as_str() {
            "" => "guest".to_owned(),
            name => format!("guest {name}"),
        };
        Ok(self.terminals.look(terminal, name, from).await?)
    }

    /// Counts somebody in who watches a terminal, until the first answer is dropped; says what to do
    /// about an instance that does not run.
    pub async fn attend(
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

    /// Deletes a terminal. Its rows are gone when this returns; its processes go with the removal.
    pub async fn delete_terminal(&self, terminal: &Terminal) -> Result<Removal, Problem> {
        let id = &terminal.terminal_id;
        let removing = self.removals.begin("terminal", id);
        match self.store.delete_terminal(id, self.now().at).await {
            Ok(lease) => {
                let terminals = vec![(id.clone(), terminal.lease_id.clone())];
                let gone = Gone { terminals, leases: lease.into_iter().collect() };
                Ok(self.end_gone(removing, gone))
            }
            Err(error) => self.removed_by_another(removing, "terminal", id, error),
        }
    }

    /// Deletes a thread and everything only it used. The rows are gone when this returns; what they stood
    /// for goes with the removal.
    pub async fn delete_thread(&self, id: &ThreadId) -> Result<Removal, Problem> {
        let removing = self.removals.begin("thread", id);
        match self.store.delete_thread(id, self.now().at).await {
            Ok(gone) => {
                self.sessions.thread_deleted(id);
                let removal = self.end_gone(removing, gone);
                self.events.tell(Happened::ThreadDeleted { thread_id: id.clone() });
                Ok(removal)
            }
            Err(error) => self.removed_by_another(removing, "thread", id, error),
        }
    }

    /// The removal by another request, where the rows were gone already.
    fn removed_by_another(
        &self,
        own: Removing,
        noun: &str,
        id: &dyn std::fmt::Display,
        error: StoreError,
    ) -> Result<Removal, Problem> {
        drop(own);
        self.removals.of(noun, id).ok_or_else(|| error.into())
    }

    /// Ends what deleted rows leave behind, in a task of the server.
    pub(super) fn end_gone(&self, mut removing: Removing, gone: Gone) -> Removal {
        for (terminal_id, _) in &gone.terminals {
            removing.add("terminal", terminal_id);
            self.events.tell(Happened::TerminalDeleted { terminal_id: terminal_id.clone() });
        }
        let removal = removing.removal();
        let (terminals, leases) = (self.terminals.clone(), self.leases.clone());
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = removal::end(&terminals, &leases, gone) => {}
            }
            drop(removing);
        });
        removal
    }
}

/// The runtimes of threads, as sessions see them.
pub struct ThreadRuntimes {
    /// Which terminals a thread has.
    pub store: Store,
    /// Those that are alive.
    pub terminals: Terminals,
}

impl ThreadRuntimes {
    /// Shared, for whoever asks.
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
                    tracing::warn!(%thread, %error, "cannot tell which terminals to end");
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
