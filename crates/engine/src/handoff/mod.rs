//! Hand-offs: an agent asks a person for input, a secret or an approval on one terminal.
//!
//! Rows are the truth: which hand-offs are open, when they expire and whether the webhook was notified is read
//! from the store every time, so a server that was killed continues where it was. A secret is typed into the
//! terminal and then forgotten: it is in no row, event, log line or error.

mod error;
mod expiry;
mod notify;
#[cfg(test)]
mod tests;
mod waiters;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

pub use error::HandoffError;
pub use notify::{HandoffNotifier, NotifyError, Notifying};

use crate::terminal::Terminals;
use base::{
    clock::Clock,
    event::{EventKind, Events},
    keyed_lock::KeyedLock,
};
use model::{
    Handoff, HandoffAnswer, HandoffEvent, HandoffId, HandoffKind, HandoffState, Moment, Notice,
    Terminal, ThreadId,
};
use store::{HandoffAdded, HandoffFilter, HandoffLimits, Page, PageRequest, Store, StoreError};
use waiters::Waiters;

/// Further hand-offs are refused until one is settled.
const LIMITS: HandoffLimits = HandoffLimits { per_terminal: 16, total: 10_000 };

/// How long an answer waits for another one to the same hand-off, which may be typing a secret.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

/// The handle to all hand-offs. Cheap to clone.
#[derive(Clone)]
pub struct Handoffs {
    shared: Arc<SharedHandoffs>,
}

struct SharedHandoffs {
    store: Store,
    terminals: Terminals,
    events: Events,
    clock: Clock,
    notifier: Option<Arc<dyn HandoffNotifier>>,
    waiters: Waiters,
    /// Held while a hand-off is settled: a secret is typed and recorded in one step.
    settling: KeyedLock,
    changed: watch::Sender<()>,
}

/// A hand-off to open.
#[derive(Debug, Clone)]
pub struct NewHandoff {
    pub handoff_id: HandoffId,
    pub kind: HandoffKind,
    pub reason: String,
    pub options: Vec<String>,
    pub timeout: Duration,
}

/// What a person answers.
#[derive(Debug)]
pub enum HandoffResponse {
    Answer(HandoffAnswer),
    Secret(SecretText),
}

/// A secret on its way to a terminal. `Debug` does not show it.
pub struct SecretText(String);

impl SecretText {
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl Handoffs {
    /// [`run`](Self::run) and [`notify`](Self::notify) have to be spawned by the caller.
    #[must_use]
    pub fn new(
        store: Store,
        terminals: Terminals,
        events: Events,
        clock: Clock,
        notifier: Option<Arc<dyn HandoffNotifier>>,
    ) -> Self {
        let shared = SharedHandoffs {
            store,
            terminals,
            events,
            clock,
            notifier,
            waiters: Waiters::default(),
            settling: KeyedLock::new("the hand-off", SETTLE_WAIT),
            changed: watch::Sender::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Opens a hand-off. It is stored when this returns.
    pub async fn open(
        &self,
        terminal: &Terminal,
        new: NewHandoff,
    ) -> Result<Handoff, HandoffError> {
        let handoff = Handoff {
            handoff_id: new.handoff_id,
            thread_id: terminal.thread_id.clone(),
            terminal_id: terminal.terminal_id.clone(),
            kind: new.kind,
            reason: new.reason,
            options: new.options,
            state: HandoffState::Open,
            created: self.now(),
            timeout: new.timeout,
            notice: match self.shared.notifier {
                Some(_) => Notice::Pending,
                None => Notice::Unwanted,
            },
            revision: 0,
        };
        match self.shared.store.add_handoff(&handoff, LIMITS).await? {
            HandoffAdded::Added => {}
            HandoffAdded::TerminalFull => {
                return Err(HandoffError::TerminalFull { limit: LIMITS.per_terminal });
            }
            HandoffAdded::Full => return Err(HandoffError::Full { limit: LIMITS.total }),
        }
        self.shared.events.publish(EventKind::HandoffOpened {
            thread_id: handoff.thread_id.clone(),
            terminal_id: handoff.terminal_id.clone(),
            handoff_id: handoff.handoff_id.clone(),
        });
        self.shared.changed.send_replace(());
        Ok(handoff)
    }

    pub async fn get(&self, id: &HandoffId) -> Result<Option<Handoff>, StoreError> {
        self.shared.store.handoff(id).await
    }

    pub async fn list(
        &self,
        filter: HandoffFilter,
        page: PageRequest,
    ) -> Result<Page<Handoff>, StoreError> {
        self.shared.store.handoffs(filter, page).await
    }

    /// Returns the number of open hand-offs of each thread that has one.
    pub async fn open_counts(&self) -> Result<HashMap<ThreadId, u64>, StoreError> {
        self.shared.store.open_handoff_counts().await
    }

    /// Returns a hand-off once it is settled, or as it is at the deadline. `None` if it was deleted.
    pub async fn wait(
        &self,
        id: &HandoffId,
        deadline: Instant,
    ) -> Result<Option<Handoff>, StoreError> {
        loop {
            let mut waiter = self.shared.waiters.subscribe(id);
            let found = self.get(id).await;
            let is_open = matches!(&found, Ok(Some(handoff)) if handoff.is_open());
            let is_late = Instant::now() >= deadline;
            if !is_open || is_late {
                return found;
            }
            let _ = tokio::time::timeout_at(deadline, waiter.settled()).await;
        }
    }

    /// Settles a hand-off with the answer of a person. A secret is typed into the terminal first, at most once: if
    /// the server is killed before that is recorded, the next answer is recorded without being typed again.
    pub async fn answer(
        &self,
        id: &HandoffId,
        response: HandoffResponse,
    ) -> Result<Handoff, HandoffError> {
        let settle = async {
            let handoff = self.require(id).await?;
            let now = self.now();
            let answer = match (response, handoff.kind) {
                (HandoffResponse::Answer(answer), _) if handoff.is_open() => {
                    handoff.check(answer)?
                }
                (HandoffResponse::Answer(answer), _) => answer,
                (HandoffResponse::Secret(_), HandoffKind::Input | HandoffKind::Approval) => {
                    let why = "only a hand-off of kind secret is answered by a secret".to_owned();
                    return Err(model::BadAnswer { field: "secret", why }.into());
                }
                (HandoffResponse::Secret(secret), HandoffKind::Secret) => {
                    let answered = HandoffEvent::Answered(now, HandoffAnswer::default());
                    handoff.apply(answered).map_err(StoreError::from)?;
                    self.type_secret(&handoff, &secret).await?;
                    HandoffAnswer::default()
                }
            };
            self.settle(id, HandoffEvent::Answered(now, answer)).await
        };
        self.shared.settling.with(id.as_str(), settle).await?
    }

    /// Settles a hand-off without an answer.
    pub async fn decline(
        &self,
        id: &HandoffId,
        text: Option<String>,
    ) -> Result<Handoff, HandoffError> {
        let settle = self.settle(id, HandoffEvent::Declined(self.now(), text));
        self.shared.settling.with(id.as_str(), settle).await?
    }

    async fn type_secret(
        &self,
        handoff: &Handoff,
        secret: &SecretText,
    ) -> Result<(), HandoffError> {
        let terminal = self.shared.store.terminal(&handoff.terminal_id).await?;
        let missing = || HandoffError::Missing(handoff.handoff_id.clone());
        let terminal = terminal.ok_or_else(missing)?;
        let write_id = handoff.handoff_id.as_str();
        Ok(self.shared.terminals.type_secret(&terminal, write_id, secret.reveal()).await?)
    }

    async fn require(&self, id: &HandoffId) -> Result<Handoff, HandoffError> {
        self.get(id).await?.ok_or_else(|| HandoffError::Missing(id.clone()))
    }

    /// Records an event. If it settles the hand-off, publishes that and wakes the waiters.
    async fn settle(&self, id: &HandoffId, event: HandoffEvent) -> Result<Handoff, HandoffError> {
        let handoff =
            self.shared.store.apply_handoff(id, event).await.map_err(HandoffError::of(id))?;
        let (thread_id, terminal_id) = (handoff.thread_id.clone(), handoff.terminal_id.clone());
        let handoff_id = id.clone();
        let kind = match handoff.state {
            HandoffState::Open => return Ok(handoff),
            HandoffState::Answered { .. } => {
                EventKind::HandoffAnswered { thread_id, terminal_id, handoff_id }
            }
            HandoffState::Declined { .. } => {
                EventKind::HandoffDeclined { thread_id, terminal_id, handoff_id }
            }
            HandoffState::Expired { .. } => {
                EventKind::HandoffExpired { thread_id, terminal_id, handoff_id }
            }
        };
        self.shared.events.publish(kind);
        self.shared.waiters.wake(id);
        self.shared.changed.send_replace(());
        Ok(handoff)
    }

    fn now(&self) -> Moment {
        self.shared.clock.now()
    }
}
