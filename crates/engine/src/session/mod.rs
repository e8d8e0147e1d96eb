//! Sessions: the policy of a thread while it is in use. Opened on first use, touched, expired, closed.
//!
//! A touch is kept in memory, stored together with the end of a command, and otherwise flushed every few
//! seconds. A crash loses at most those seconds of activity, and never an expiry. An expiry is recorded before
//! it is acted on, so that it happens once; the next start completes the rest.

mod expiry;
mod settle;

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tracing::warn;

use crate::lease::Leases;
use base::{
    clock::Clock,
    event::{EventKind, Events},
};
use model::{
    ChatSession, Moment, SessionEvent, SessionId, SessionState, SessionStatus, ThreadId, Timestamp,
};
use store::{Chain, FirstUse, Page, PageRequest, SessionFilter, Store, StoreError};

/// The shells of threads, as sessions see them.
pub trait Runtimes: Send + Sync {
    /// Returns whether a command runs or a client is attached.
    fn in_use(&self, thread: &ThreadId) -> bool;

    /// Ends the shells of a thread; the durable state is kept.
    fn end<'a>(&'a self, thread: &'a ThreadId) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The handle to all sessions; cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<SharedSessions>,
}

struct SharedSessions {
    store: Store,
    leases: Leases,
    events: Events,
    clock: Clock,
    warn_before: Duration,
    runtimes: OnceLock<Arc<dyn Runtimes>>,
    open: Mutex<HashMap<SessionId, OpenSession>>,
    changed: watch::Sender<()>,
}

/// An open session and the changes that its row does not have yet.
#[derive(Debug, Clone)]
struct OpenSession {
    session: ChatSession,
    touched: Option<Moment>,
    /// The expiry that was announced.
    announced: Option<Timestamp>,
}

impl OpenSession {
    fn new(session: ChatSession) -> Self {
        Self { session, touched: None, announced: None }
    }

    /// Returns the session with touches that are not written yet.
    fn current(&self) -> ChatSession {
        let mut session = self.session.clone();
        if let Some(touched) = self.touched {
            session.last_active = touched;
            session.state = SessionState::Active;
        }
        session
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// The caller spawns [`run`](Self::run). `warn_before` is how long before its expiry a session is
    /// reported as expiring.
    #[must_use]
    pub fn new(
        store: Store,
        leases: Leases,
        events: Events,
        clock: Clock,
        warn_before: Duration,
    ) -> Self {
        let shared = SharedSessions {
            store,
            leases,
            events,
            clock,
            warn_before,
            runtimes: OnceLock::new(),
            open: Mutex::default(),
            changed: watch::Sender::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the runtimes; called once, before any session expires.
    pub fn set_runtimes(&self, runtimes: Arc<dyn Runtimes>) {
        let _ = self.shared.runtimes.set(runtimes);
    }

    /// Returns a thread with its open session, terminal and lease. Creates what is missing.
    pub async fn open(&self, first: FirstUse) -> Result<Chain, StoreError> {
        let chain = self.shared.store.open_chain(first).await?;
        let thread_id = chain.thread.thread_id.clone();
        if chain.thread_is_new {
            self.shared.events.publish(EventKind::ThreadCreated { thread_id: thread_id.clone() });
        }
        if let Some(expired) = &chain.expired {
            // The thread is in use again, so its shells are left alone.
            self.forget(&expired.session_id);
            self.publish_expired(expired);
        }
        if chain.session_is_new {
            self.shared.events.publish(EventKind::SessionOpened {
                thread_id,
                session_id: chain.session.session_id.clone(),
                expires_at: chain.session.expires_at(),
            });
        }
        self.remember(chain.session.clone());
        Ok(chain)
    }

    /// Notes activity in a session, in memory only.
    pub fn touch(&self, id: &SessionId) {
        let now = self.shared.clock.now();
        if let Some(open) = self.lock().get_mut(id) {
            open.touched = Some(now);
        }
    }

    /// Notes activity in the open session of a thread, and stores it. Refused if there is none.
    pub async fn touch_durably(&self, thread: &ThreadId) -> Result<ChatSession, StoreError> {
        let session = self.require(thread).await?;
        let event = SessionEvent::Touched(self.shared.clock.now());
        let touched = self.shared.store.apply_session(&session.session_id, event).await?;
        self.remember(touched.clone());
        Ok(touched)
    }

    /// Returns the open session of a thread, or its last one.
    pub async fn current(&self, thread: &ThreadId) -> Result<Option<ChatSession>, StoreError> {
        let Some(stored) = self.shared.store.last_session(thread).await? else {
            return Ok(None);
        };
        Ok(Some(self.as_known(stored)))
    }

    /// Returns the sessions of all threads, newest first. A page may hold fewer than requested, because
    /// unwritten touches can change the status of a row.
    pub async fn list(
        &self,
        status: Option<SessionStatus>,
        page: PageRequest,
    ) -> Result<Page<ChatSession>, StoreError> {
        let filter = match status {
            None => SessionFilter::All,
            Some(SessionStatus::Active | SessionStatus::Idle) => SessionFilter::Open,
            Some(SessionStatus::Expired | SessionStatus::Closed) => SessionFilter::Ended,
        };
        let Page { items, next } = self.shared.store.sessions(filter, page).await?;
        let known = items.into_iter().map(|stored| self.as_known(stored));
        let items =
            known.filter(|known| status.is_none_or(|status| known.status() == status)).collect();
        Ok(Page { items, next })
    }

    /// Adds unwritten touches to a session.
    fn as_known(&self, mut session: ChatSession) -> ChatSession {
        if !session.is_open() {
            return session;
        }
        if let Some(touched) = self.lock().get(&session.session_id).and_then(|open| open.touched) {
            session.last_active = touched;
            session.state = SessionState::Active;
        }
        // An expired session is shown as expired before the next check records it.
        session.apply(SessionEvent::Elapsed(self.shared.clock.now())).unwrap_or(session)
    }

    /// Closes the open session of a thread, and applies its policy to the compute.
    pub async fn close(&self, thread: &ThreadId) -> Result<ChatSession, StoreError> {
        let session = self.require(thread).await?;
        let event = SessionEvent::Closed(self.shared.clock.now());
        let closed = self.shared.store.apply_session(&session.session_id, event).await?;
        self.forget(&closed.session_id);
        self.shared.events.publish(EventKind::SessionClosed {
            thread_id: thread.clone(),
            session_id: closed.session_id.clone(),
        });
        self.settle(&closed).await;
        Ok(closed)
    }

    /// Applies a policy that was changed on a thread.
    pub async fn policy_changed(&self, thread: &ThreadId) -> Result<(), StoreError> {
        if let Some(session) = self.shared.store.last_session(thread).await?
            && session.is_open()
        {
            self.remember(session);
        }
        Ok(())
    }

    /// Forgets the sessions of a thread that was deleted.
    pub fn thread_deleted(&self, thread: &ThreadId) {
        self.lock().retain(|_, open| open.session.thread_id != *thread);
    }

    /// Loads the open sessions after a start.
    pub async fn recover(&self) -> Result<(), StoreError> {
        for session in self.shared.store.open_sessions().await? {
            self.remember(session);
        }
        Ok(())
    }

    /// Writes all pending touches.
    pub async fn flush(&self) {
        let all: Vec<OpenSession> =
            self.lock().values().filter(|open| open.touched.is_some()).cloned().collect();
        let writes = all.iter().map(|open| self.write_touch(open));
        futures_util::future::join_all(writes).await;
    }

    async fn write_touch(&self, open: &OpenSession) {
        let Some(touched) = open.touched else { return };
        let id = &open.session.session_id;
        self.apply(id, SessionEvent::Touched(touched)).await;
        if let Some(open) = self.lock().get_mut(id)
            && open.touched == Some(touched)
        {
            open.touched = None;
        }
    }

    async fn apply(&self, id: &SessionId, event: SessionEvent) {
        match self.shared.store.apply_session(id, event).await {
            Ok(session) => {
                if let Some(open) = self.lock().get_mut(id) {
                    open.session = session;
                }
            }
            Err(StoreError::Refused(_)) => {}
            Err(StoreError::Missing { .. }) => self.forget(id),
            Err(error) => warn!(session = %id, %error, "cannot write to a session yet"),
        }
    }

    async fn require(&self, thread: &ThreadId) -> Result<ChatSession, StoreError> {
        let session = self.shared.store.last_session(thread).await?;
        let session = session.filter(ChatSession::is_open);
        let none = || StoreError::Missing { what: format!("open session of thread {thread}") };
        session.ok_or_else(none)
    }

    fn remember(&self, session: ChatSession) {
        let id = session.session_id.clone();
        let mut open = self.lock();
        match open.get_mut(&id) {
            Some(known) if known.session.revision > session.revision => return,
            Some(known) => {
                let newer = known.touched.filter(|t| !t.since(&session.last_active).is_zero());
                known.touched = newer;
                known.session = session;
            }
            None => {
                open.insert(id, OpenSession::new(session));
            }
        }
        drop(open);
        self.shared.changed.send_replace(());
    }

    fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, OpenSession>> {
        self.shared.open.lock()
    }
}
