//! What handlers share beyond single calls: a thread on its first use, and the end of things.

use base::event::EventKind;
use engine::project::Attached;
use engine::terminal::{Resume, WatchFrom, Watcher};
use model::{Moment, OnExpiry, SessionPolicy, ShellKind, Terminal, ThreadId};
use store::{Chain, DeletedRows, FirstUse, StoreError, ThreadChoices};

use super::{
    App,
    error::Problem,
    pass::Pass,
    removal::{Removal, Removing},
};

/// The size of a terminal nobody has looked at yet.
const FIRST_SIZE: (u16, u16) = (80, 24);

impl App {
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
                config::ExpiryAction::Keep => OnExpiry::Keep,
                config::ExpiryAction::Pause => OnExpiry::Pause,
                config::ExpiryAction::Stop => OnExpiry::Stop,
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
            size: FIRST_SIZE,
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
        from: WatchFrom,
    ) -> Result<Watcher, Problem> {
        let name = match pass.share().name.as_str() {
            "" => "guest".to_owned(),
            name => format!("guest {name}"),
        };
        Ok(self.terminals.watch_as_guest(terminal, name, from).await?)
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
                let gone = DeletedRows { terminals, leases: lease.into_iter().collect() };
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
                self.events.publish(EventKind::ThreadDeleted { thread_id: id.clone() });
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
}
