//! A thread that another API calls a sandbox: what that wants to know of it is in the thread's labels,
//! and its time runs out here.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::Notify;

use super::{
    build::{self, Builds, OF_BUILD},
    home::{self, User},
    key::Keys,
    process::Processes,
    reach::Network,
};
use crate::Compat;
use api::error::{Code, Problem};
use engine::lease::LeaseError;
use machine::volume::Volumes;
use model::{
    Env, InstanceState, Lease, LeaseId, OnExpiry, SessionPolicy, Thread, ThreadId, Timestamp,
};
use provider::Fidelity;
use store::{PageRequest, StoreError, ThreadChoices, ThreadFilter};

/// Sandboxes at most; each is a thread with compute of its own.
const MOST: usize = 10_000;
/// The policy of sessions that never end by themselves: the sandbox's own time does.
pub const LASTING: SessionPolicy = SessionPolicy {
    idle_timeout_s: 10 * 365 * 86_400,
    max_duration_s: 10 * 365 * 86_400,
    on_expiry: OnExpiry::Keep,
    max_running: None,
    max_cost: None,
};
/// How many sandboxes may change at the same time.
const TURNS: usize = 64;
/// How often a sandbox that may have stopped by itself is looked at.
const LOOK: Duration = Duration::from_secs(20);
/// The longest time a sandbox can be given.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

const API: &str = "sandbox.api";
const TEMPLATE: &str = "sandbox.template";
const STARTED: &str = "sandbox.started";
const ENDS: &str = "sandbox.ends";
const ON_TIMEOUT: &str = "sandbox.on_timeout";
const AUTO_RESUME: &str = "sandbox.auto_resume";
const AT_HOME: &str = "sandbox.home";
const METADATA: &str = "sandbox.metadata.";
const MORE: &str = "sandbox.more.";
/// Under what is known besides: that it is paused with its files alone, or is to be at its end.
const ASLEEP: &str = "asleep";
/// See [`ASLEEP`].
pub const PAUSES_FILES: &str = "pauses_files";

/// Whose word a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// E2B's.
    E2b,
    /// Daytona's.
    Daytona,
}

impl Api {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Api::E2b => "e2b",
            Api::Daytona => "daytona",
        }
    }

    fn of(word: &str) -> Option<Api> {
        [Api::E2b, Api::Daytona].into_iter().find(|api| api.word() == word)
    }

    /// The user that programs expect to be.
    pub fn user(self) -> &'static str {
        match self {
            Api::E2b => "user",
            Api::Daytona => "daytona",
        }
    }

    /// Where that user is at home.
    pub fn home(self) -> &'static str {
        match self {
            Api::E2b => "/home/user",
            Api::Daytona => "/home/daytona",
        }
    }
}

/// What happens when a sandbox's time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// It is deleted.
    Kill,
    /// It is paused.
    Pause,
}

impl OnTimeout {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            OnTimeout::Kill => "kill",
            OnTimeout::Pause => "pause",
        }
    }
}

/// A thread as a sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// The thread.
    pub thread: Thread,
    facts: Facts,
}

/// What is known of a sandbox beyond its thread. Its fields are those of [`Sandbox`], too.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whose word it is.
    pub api: Api,
    /// What it was made from.
    pub template: String,
    /// When it was made, or last resumed.
    pub started: Timestamp,
    /// When its time is over.
    pub ends: Timestamp,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether a request wakes it when it is paused.
    pub auto_resume: bool,
    /// The home directory of its user.
    pub home: String,
    /// A client's own notes.
    pub metadata: BTreeMap<String, String>,
    /// What the one API knows of it and others do not.
    pub more: BTreeMap<String, String>,
}

/// What a new sandbox is to be.
#[derive(Debug, Clone)]
pub struct NewSandbox {
    /// Whose word it is.
    pub api: Api,
    /// Its id.
    pub id: ThreadId,
    /// What it is made from; the name of a provider chooses that.
    pub template: String,
    /// How long it has.
    pub timeout: Duration,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether a request wakes it when it is paused.
    pub auto_resume: bool,
    /// What its programs have in their environment.
    pub env: Env,
    /// A client's own notes.
    pub metadata: BTreeMap<String, String>,
    /// What the one API knows of it and others do not.
    pub more: BTreeMap<String, String>,
    /// The policy of its sessions, if it has one beside its time.
    pub policy: Option<SessionPolicy>,
    /// What it may reach.
    pub network: Network,
    /// Settings of its provider beyond those that its template and its network say.
    pub settings: serde_json::Map<String, Value>,
    /// A fork of another's lease; it says then what the sandbox is made from.
    pub fork: Option<LeaseId>,
}

/// How a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or will on its next use.
    Running,
    /// It holds still.
    Paused,
}

impl Sandbox {
    /// The thread as a sandbox, if it is one.
    pub fn of(thread: Thread) -> Option<Sandbox> {
        let label = |name: &str| thread.labels.get(name).cloned();
        let time = |name: &str| label(name)?.parse::<Timestamp>().ok();
        let notes = |prefix: &str| {
            let pairs = thread.labels.iter();
            let pairs = pairs.filter_map(|(name, value)| {
                Some((name.strip_prefix(prefix)?.to_owned(), value.clone()))
            });
            pairs.collect()
        };
        let api = Api::of(&label(API)?)?;
        let facts = Facts {
            api,
            template: label(TEMPLATE)?,
            started: time(STARTED)?,
            ends: time(ENDS)?,
            on_timeout: match label(ON_TIMEOUT).as_deref() {
                Some("pause") => OnTimeout::Pause,
                _ => OnTimeout::Kill,
            },
            auto_resume: label(AUTO_RESUME).as_deref() == Some("true"),
            home: label(AT_HOME).unwrap_or_else(|| api.home().to_owned()),
            metadata: notes(METADATA),
            more: notes(MORE),
        };
        Some(Sandbox { thread, facts })
    }

    /// Its id.
    pub fn id(&self) -> &ThreadId {
        &self.thread.thread_id
    }
}

impl Deref for Sandbox {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl Facts {
    /// Whether it holds still with its files alone.
    pub fn is_asleep(&self) -> bool {
        self.more.contains_key(ASLEEP)
    }

    /// When its time has to be looked at, at the latest. What a session's end does is not told here, so
    /// that a sandbox that is deleted some time after it stopped is looked at now and then.
    fn looked_at(&self, now: Timestamp) -> Timestamp {
        match self.api {
            Api::Daytona if self.more.get("auto_delete").is_some_and(|it| !it.starts_with('-')) => {
                now.checked_add(LOOK).unwrap_or(Timestamp::MAX).min(self.ends)
            }
            Api::E2b | Api::Daytona => self.ends,
        }
    }

    /// What the thread's labels say of it.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (API.to_owned(), self.api.word().to_owned()),
            (TEMPLATE.to_owned(), self.template.clone()),
            (STARTED.to_owned(), self.started.to_string()),
            (ENDS.to_owned(), self.ends.to_string()),
            (ON_TIMEOUT.to_owned(), self.on_timeout.word().to_owned()),
            (AUTO_RESUME.to_owned(), self.auto_resume.to_string()),
            (AT_HOME.to_owned(), self.home.clone()),
        ]);
        for (prefix, notes) in [(METADATA, &self.metadata), (MORE, &self.more)] {
            for (name, value) in notes {
                labels.insert(format!("{prefix}{name}"), value.clone());
            }
        }
        labels
    }
}

/// All sandboxes of a server.
pub struct Sandboxes {
    /// What opens one of them.
    pub keys: Keys,
    /// The time at which each is to be looked at again.
    known: Mutex<HashMap<ThreadId, Timestamp>>,
    /// Their programs, of those that were asked for since the server started.
    processes: Mutex<HashMap<ThreadId, Arc<Processes>>>,
    /// Watched directories that are asked about.
    pub(super) watchers: super::e2b::Watchers,
    /// What sandboxes have used.
    pub(super) usage: super::usage::Usage,
    /// Builds of templates.
    pub(super) builds: Builds,
    /// Interpreters that remember.
    pub(super) contexts: super::interpreter::Contexts,
    /// What sandboxes share.
    pub(super) volumes: Arc<Volumes>,
    /// Held while a sandbox with volumes comes into being, and while a volume goes.
    pub(super) mounting: tokio::sync::Mutex<()>,
    /// One of them is held while a sandbox's labels change or it is deleted: neither may undo the other.
    changing: [tokio::sync::Mutex<()>; TURNS],
    /// Told when one of the times changed.
    pub(super) changed: Notify,
}

impl Sandboxes {
    /// Those of a server with this token and home; what the store remembers is found by
    /// [`expire`](super::expire).
    pub fn new(token: &str, home: &Path) -> Sandboxes {
        Sandboxes {
            keys: Keys::new(token),
            known: Mutex::default(),
            processes: Mutex::default(),
            watchers: super::e2b::Watchers::default(),
            usage: super::usage::Usage::default(),
            builds: Builds::default(),
            contexts: super::interpreter::Contexts::default(),
            volumes: Arc::new(Volumes::new(home)),
            mounting: tokio::sync::Mutex::default(),
            changing: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            changed: Notify::new(),
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, HashMap<ThreadId, Timestamp>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one's turn to change a sandbox.
    pub(super) async fn turn(&self, id: &ThreadId) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = blake3::hash(id.as_str().as_bytes());
        self.changing[usize::from(hash.as_bytes()[0]) % TURNS].lock().await
    }

    /// The ids of all.
    pub fn ids(&self) -> Vec<ThreadId> {
        self.known().keys().cloned().collect()
    }

    /// The programs of one.
    pub fn processes(&self, id: &ThreadId) -> Arc<Processes> {
        let mut all = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(id.clone()).or_default().clone()
    }

    pub(super) fn note(&self, id: &ThreadId, at: Timestamp) {
        self.known().insert(id.clone(), at);
        self.changed.notify_one();
    }

    fn forget(&self, id: &ThreadId) {
        self.known().remove(id);
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.watchers.forget(id);
        self.usage.forget(id);
        self.contexts.forget(id);
    }
}

impl Compat {
    /// The sandbox with this id.
    pub async fn sandbox(&self, id: &ThreadId) -> Result<Option<Sandbox>, Problem> {
        let thread = self.store.thread(id).await?;
        Ok(thread.and_then(Sandbox::of))
    }

    /// Every sandbox of an API, the youngest first; not those in which templates are built.
    pub async fn all_sandboxes(&self, api: Api) -> Result<Vec<Sandbox>, Problem> {
        let mut all = Vec::new();
        for id in self.sandboxes.ids() {
            match self.sandbox(&id).await? {
                Some(sandbox) if sandbox.more.contains_key(OF_BUILD) => {}
                Some(sandbox) if sandbox.api == api => all.push(sandbox),
                Some(_) => {}
                // Deleted as a thread.
                None => self.sandboxes.forget(&id),
            }
        }
        all.sort_by(|a, b| (b.started, b.id()).cmp(&(a.started, a.id())));
        Ok(all)
    }

    /// How a sandbox is, and what it stands on.
    pub async fn sandbox_state(
        &self,
        sandbox: &Sandbox,
    ) -> Result<(State, Option<Lease>), Problem> {
        let lease = self.store.lease(&sandbox.thread.lease_id).await?;
        let state = match lease.as_ref().and_then(Lease::instance) {
            _ if sandbox.is_asleep() => State::Paused,
            Some((_, InstanceState::Paused)) => State::Paused,
            _ => State::Running,
        };
        Ok((state, lease))
    }

    /// Makes a sandbox, and what it stands on.
    pub async fn make_sandbox(&self, new: NewSandbox) -> Result<Sandbox, Problem> {
        if self.sandboxes.known().len() >= MOST {
            let detail = format!("there are {MOST} sandboxes; kill one first");
            return Err(Problem::new(Code::TooManyRequests, detail));
        }
        let held = self.hold_volumes(&new).await?;
        let NewSandbox { api, id, .. } = new.clone();
        let lease = match &new.fork {
            Some(lease) => self.store.lease(lease).await?,
            None => None,
        };
        let begins = match &lease {
            Some(_) => None,
            None => self.begins_with(api, &new.template).await?,
        };
        let from = begins.as_ref().map_or(&new.template, |begins| &begins.snapshot);
        let (provider, spec) = match lease {
            Some(lease) => (lease.provider, None),
            None => self.made_from(from, &new.network, new.settings).await?,
        };
        let home = home_on(&provider, api).await;
        let now = self.now().at;
        let mut env = Env::from([
            ("HOME".to_owned(), home.clone()),
            ("USER".to_owned(), api.user().to_owned()),
            ("LOGNAME".to_owned(), api.user().to_owned()),
        ]);
        if let Some(path) = self.path_inside(&provider) {
            env.insert("PATH".to_owned(), format!("{home}/{}:{path}", home::PROGRAMS));
        }
        let (mut template, mut more, mut cwd) = (new.template, new.more, home.clone());
        if let Some(begins) = &begins {
            begins.shape(&mut template, &mut env, &mut more, &mut cwd);
        }
        env.extend(new.env);
        let facts = Facts {
            api,
            template,
            started: now,
            ends: now.checked_add(new.timeout).unwrap_or(Timestamp::MAX),
            on_timeout: new.on_timeout,
            auto_resume: new.auto_resume,
            home: home.clone(),
            metadata: new.metadata,
            more,
        };
        let choices = ThreadChoices {
            provider: Some(provider),
            spec,
            fork: new.fork,
            policy: Some(new.policy.unwrap_or(LASTING)),
            env: Some(env),
            cwd: Some(cwd),
            labels: Some(facts.labels()),
            ..ThreadChoices::default()
        };
        let chain = self.sessions.open(self.first_use(&id, choices)).await?;
        drop(held);
        let sandbox = Sandbox { thread: chain.thread, facts };
        self.sandboxes.note(&id, sandbox.looked_at(now));
        let furnished = async {
            self.furnish(&sandbox).await?;
            self.start_with(&sandbox, begins.as_ref()).await
        };
        match furnished.await {
            Ok(()) => Ok(sandbox),
            Err(problem) => {
                self.kill_sandbox(&id).await?;
                Err(problem)
            }
        }
    }

    /// The provider that a template stands for, and its settings. A template is the name of a provider, of
    /// a snapshot of files or [of an image](build::of_image); anything else is the server's own choice.
    async fn made_from(
        &self,
        template: &str,
        network: &Network,
        mut spec: serde_json::Map<String, Value>,
    ) -> Result<(String, Option<Value>), Problem> {
        let providers = self.leases.providers();
        let mut name = self.provider.clone();
        if let Some((provider, image)) = build::image_of(template) {
            name = provider.to_owned();
            spec.insert("image".to_owned(), image.into());
        } else if providers.named(template).is_ok() {
            name = template.to_owned();
        } else {
            for provider in providers.all() {
                // One that cannot tell has none to begin with.
                let Some(disks) = provider.disks() else { continue };
                let found = disks.snapshots().await.unwrap_or_default();
                if found.iter().any(|snapshot| snapshot.name == template) {
                    name = provider.name().to_owned();
                    spec.insert("snapshot".to_owned(), template.into());
                }
            }
        }
        let spec = self.reaching(&name, spec, network)?;
        Ok((name, spec))
    }

    /// Starts what a new sandbox stands on, and makes its home.
    async fn furnish(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        self.leases.running(&sandbox.thread.lease_id).await?;
        let files = self.sandbox_files(sandbox).await?;
        let user = User { name: sandbox.api.user(), home: sandbox.home.clone() };
        let (_, lease) = self.sandbox_state(sandbox).await?;
        // On this machine itself the files are not ours to furnish.
        let own = lease.is_some_and(|lease| lease.provider != "local");
        files
            .act(move |directory| if own { user.move_in(directory) } else { user.house(directory) })
            .await?;
        Ok(())
    }

    /// Where programs are on a provider that has files of its own.
    fn path_inside(&self, provider: &str) -> Option<String> {
        let provider = self.leases.providers().named(provider).ok()?;
        provider.profile().environment?.remove("PATH")
    }

    async fn save(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        let choices = ThreadChoices { labels: Some(sandbox.labels()), ..ThreadChoices::default() };
        self.store.put_thread(self.first_use(sandbox.id(), choices)).await?;
        self.sandboxes.note(sandbox.id(), sandbox.looked_at(self.now().at));
        Ok(())
    }

    /// Gives a sandbox so long from now on; where `only_more`, never less than it has.
    pub async fn extend_sandbox(
        &self,
        id: &ThreadId,
        timeout: Duration,
        only_more: bool,
    ) -> Result<bool, Problem> {
        let ends = self.now().at.checked_add(timeout).unwrap_or(Timestamp::MAX);
        let changed = self.change_sandbox(id, |facts| {
            facts.ends = if only_more { ends.max(facts.ends) } else { ends };
        });
        Ok(changed.await?.is_some())
    }

    /// Changes what is known of a sandbox; `None` if there is none.
    pub async fn change_sandbox(
        &self,
        id: &ThreadId,
        change: impl FnOnce(&mut Facts),
    ) -> Result<Option<Sandbox>, Problem> {
        let _turn = self.sandboxes.turn(id).await;
        let Some(mut sandbox) = self.sandbox(id).await? else { return Ok(None) };
        change(&mut sandbox.facts);
        self.save(&sandbox).await?;
        Ok(Some(sandbox))
    }

    /// Changes what programs that are started from now on have in their environment.
    pub async fn change_sandbox_env(
        &self,
        id: &ThreadId,
        change: impl FnOnce(&mut Env),
    ) -> Result<(), Problem> {
        let _turn = self.sandboxes.turn(id).await;
        let Some(mut sandbox) = self.sandbox(id).await? else { return Ok(()) };
        change(&mut sandbox.thread.env);
        let choices = ThreadChoices { env: Some(sandbox.thread.env), ..ThreadChoices::default() };
        self.store.put_thread(self.first_use(id, choices)).await?;
        Ok(())
    }

    /// Makes a sandbox go on; whether it held still.
    pub async fn wake_sandbox(
        &self,
        sandbox: &Sandbox,
        timeout: Option<Duration>,
    ) -> Result<bool, Problem> {
        let (state, _) = self.sandbox_state(sandbox).await?;
        let paused = state == State::Paused;
        if paused {
            // Its time runs again from here, so that it is not paused at once for the time it slept.
            let time = timeout.unwrap_or(Duration::from_secs(300));
            let _ = self.extend_sandbox(sandbox.id(), time, false).await?;
        } else if let Some(time) = timeout {
            let _ = self.extend_sandbox(sandbox.id(), time, true).await?;
        }
        if sandbox.is_asleep() {
            self.change_sandbox(sandbox.id(), |facts| drop(facts.more.remove(ASLEEP))).await?;
        }
        self.leases.running(&sandbox.thread.lease_id).await?;
        Ok(paused)
    }

    /// Makes a sandbox hold still with its files alone: its programs end. Where files do not outlive
    /// them it is paused as a whole. `false` if it holds still already.
    pub async fn suspend_sandbox(&self, sandbox: &Sandbox) -> Result<bool, Problem> {
        let (state, lease) = self.sandbox_state(sandbox).await?;
        let provider = lease.map(|lease| self.leases.providers().named(&lease.provider));
        if !provider.is_some_and(|it| it.is_ok_and(|it| it.profile().suspend != Fidelity::None)) {
            return self.pause_sandbox(sandbox).await;
        }
        if state == State::Paused {
            // What holds still cannot be told to end.
            self.leases.running(&sandbox.thread.lease_id).await?;
        }
        self.stop_sandbox(sandbox).await?;
        let note = |facts: &mut Facts| drop(facts.more.insert(ASLEEP.to_owned(), "true".into()));
        self.change_sandbox(sandbox.id(), note).await?;
        Ok(state == State::Running)
    }

    /// Makes a sandbox hold still; `false` if it does.
    pub async fn pause_sandbox(&self, sandbox: &Sandbox) -> Result<bool, Problem> {
        if self.sandbox_state(sandbox).await?.0 == State::Paused {
            return Ok(false);
        }
        let lease = &sandbox.thread.lease_id;
        match self.leases.pause(lease).await {
            // Nothing runs yet, or any more: what is to be paused is made first.
            Err(LeaseError::NoInstance { .. }) => {
                self.leases.running(lease).await?;
                self.leases.pause(lease).await?;
            }
            paused => drop(paused?),
        }
        Ok(true)
    }

    /// Ends every process of a sandbox; its files and the state of its shells stay.
    pub async fn stop_sandbox(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        for terminal in self.store.thread_terminals(sandbox.id()).await? {
            self.terminals.end(&terminal.terminal_id).await?;
        }
        self.leases.stop(&sandbox.thread.lease_id).await?;
        self.sandboxes.contexts.forget(sandbox.id());
        if let Api::Daytona = sandbox.api {
            let (_, lease) = self.sandbox_state(sandbox).await?;
            if let Some(at) = super::daytona::deletes_at(sandbox, lease.as_ref()) {
                self.sandboxes.note(sandbox.id(), at);
            }
        }
        self.sandboxes
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(sandbox.id());
        Ok(())
    }

    /// Gives the sessions of a sandbox another policy.
    pub async fn set_sandbox_policy(
        &self,
        sandbox: &Sandbox,
        policy: SessionPolicy,
    ) -> Result<(), Problem> {
        let choices = ThreadChoices { policy: Some(policy), ..ThreadChoices::default() };
        self.store.put_thread(self.first_use(sandbox.id(), choices)).await?;
        self.sessions.policy_changed(sandbox.id()).await?;
        Ok(())
    }

    /// Deletes a sandbox with everything in it; `false` if there is none.
    pub async fn kill_sandbox(&self, id: &ThreadId) -> Result<bool, Problem> {
        let turn = self.sandboxes.turn(id).await;
        if self.sandbox(id).await?.is_none() {
            return Ok(false);
        }
        let removal = self.delete_thread(id).await?;
        self.sandboxes.forget(id);
        // Others wait for the same turn; what a provider takes to end an instance is not their time.
        drop(turn);
        removal.wait().await;
        Ok(true)
    }

    pub(super) async fn load_sandboxes(&self) -> Result<(), StoreError> {
        let mut request = PageRequest::first(1000);
        loop {
            let page = self.store.threads(ThreadFilter::default(), request.clone()).await?;
            for sandbox in page.items.into_iter().filter_map(Sandbox::of) {
                let at = sandbox.looked_at(self.now().at);
                self.sandboxes.known().insert(sandbox.id().clone(), at);
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The provider beneath a sandbox; empty if there is none.
    pub(super) async fn provider_of(&self, id: &ThreadId) -> Result<String, Problem> {
        let Some(thread) = self.store.thread(id).await? else { return Ok(String::new()) };
        let lease = self.store.lease(&thread.lease_id).await?;
        Ok(lease.map_or_else(String::new, |lease| lease.provider))
    }

    /// Ends or pauses a sandbox whose time is over.
    pub(super) async fn expire_sandbox(&self, id: &ThreadId) -> Result<(), Problem> {
        let Some(sandbox) = self.sandbox(id).await? else {
            self.sandboxes.forget(id);
            return Ok(());
        };
        if let Api::Daytona = sandbox.api {
            let (_, lease) = self.sandbox_state(&sandbox).await?;
            let stopped = super::daytona::deletes_at(&sandbox, lease.as_ref());
            match stopped.unwrap_or(Timestamp::MAX).min(sandbox.ends) {
                at if at <= self.now().at => {
                    tracing::info!(sandbox = %id, "a sandbox is deleted: its time is over");
                    self.kill_sandbox(id).await?;
                }
                _ => self.sandboxes.note(id, sandbox.looked_at(self.now().at)),
            }
            return Ok(());
        }
        if sandbox.ends > self.now().at {
            self.sandboxes.note(id, sandbox.ends);
            return Ok(());
        }
        match sandbox.on_timeout {
            OnTimeout::Kill if self.sandbox_state(&sandbox).await?.0 == State::Paused => {
                self.sandboxes.known().insert(id.clone(), Timestamp::MAX);
            }
            OnTimeout::Kill => {
                tracing::info!(sandbox = %id, "the time of a sandbox is over");
                self.kill_sandbox(id).await?;
            }
            OnTimeout::Pause => {
                tracing::info!(sandbox = %id, "a sandbox is paused: its time is over");
                match sandbox.more.contains_key(PAUSES_FILES) {
                    true => self.suspend_sandbox(&sandbox).await?,
                    false => self.pause_sandbox(&sandbox).await?,
                };
                self.sandboxes.known().insert(id.clone(), Timestamp::MAX);
            }
        }
        Ok(())
    }
}

/// Where programs are at home under a provider. On this machine itself that is a real directory, which
/// a server that may not make it cannot have.
async fn home_on(provider: &str, api: Api) -> String {
    let home = api.home();
    if provider != "local" {
        return home.to_owned();
    }
    match tokio::fs::create_dir_all(home).await {
        Ok(()) => home.to_owned(),
        Err(_) => std::env::var("HOME").unwrap_or_else(|_| "/tmp".to_owned()),
    }
}
