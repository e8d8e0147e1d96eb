//! Windows of policy on threads: opened on first use, touched, expired, closed.
//!
//! A touch costs no write: it is kept in memory, rides along when a command ends, and is otherwise
//! written every few seconds. A crash therefore loses at most those seconds of activity, and never
//! an expiry. What has expired is recorded before anything is done about it, so that it is seen once;
//! what a crash left undone is done at the next start.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::lease::{LeaseError, Leases};
use base::{
    clock::Clock,
    event::{Events, Happened},
};
use model::{
    ChatSession, Ended, LeaseId, LeaseState, Moment, OnExpiry, SessionEvent, SessionId,
    SessionState, SessionStatus, ThreadId, Timestamp,
};
use provider::ProviderError;
use store::{Chain, FirstUse, Page, PageRequest, Store, StoreError};

/// How long touches wait in memory at most.
const FLUSH: Duration = Duration::from_secs(10);

/// The longest and the shortest time between two looks at all sessions.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// How many sessions expire at once.
const AT_ONCE: usize = 16;

/// What the runtimes of a thread can be asked. The terminals answer it.
pub trait Runtimes: Send + Sync {
    /// Whether a command runs or a person is attached.
    fn in_use(&self, thread: &ThreadId) -> bool;

    /// Ends them; the durable state stays.
    fn end<'a>(&'a self, thread: &'a ThreadId) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The handle to all sessions; cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    leases: Leases,
    events: Events,
    clock: Clock,
    warn_before: Duration,
    runtimes: OnceLock<Arc<dyn Runtimes>>,
    open: Mutex<HashMap<SessionId, Open>>,
    changed: watch::Sender<()>,
}

/// What is known of an open session beyond its row.
#[derive(Debug, Clone)]
struct Open {
    session: ChatSession,
    touched: Option<Moment>,
    /// The end that was announced.
    announced: Option<Timestamp>,
}

impl Open {
    fn new(session: ChatSession) -> Self {
        Self { session, touched: None, announced: None }
    }

    /// The session with the touches that are not written yet.
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
    /// The handle. [`run`](Self::run) has to be spawned by whoever makes it. `warn_before` is how long
    /// before its end a session is reported to be expiring.
    #[must_use]
    pub fn new(
        store: Store,
        leases: Leases,
        events: Events,
        clock: Clock,
        warn_before: Duration,
    ) -> Self {
        let shared = Shared {
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

    /// Says who answers for the runtimes; once, before anything expires.
    pub fn set_runtimes(&self, runtimes: Arc<dyn Runtimes>) {
        let _ = self.shared.runtimes.set(runtimes);
    }

    /// The chain of a thread with an open session; whatever is missing comes into being.
    pub async fn open(&self, first: FirstUse) -> Result<Chain, StoreError> {
        let chain = self.shared.store.open_chain(first).await?;
        let thread_id = chain.thread.thread_id.clone();
        if chain.thread_is_new {
            self.shared.events.tell(Happened::ThreadCreated { thread_id: thread_id.clone() });
        }
        if let Some(expired) = &chain.expired {
            // Its thread is in use again: nothing is done to the runtimes.
            self.forget(&expired.session_id);
            self.tell_expired(expired);
        }
        if chain.session_is_new {
            self.shared.events.tell(Happened::SessionOpened {
                thread_id,
                session_id: chain.session.session_id.clone(),
                expires_at: chain.session.expires_at(),
            });
        }
        self.remember(chain.session.clone());
        Ok(chain)
    }

    /// Notes activity in a session; costs no write.
    pub fn touch(&self, id: &SessionId) {
        let now = self.shared.clock.now();
        if let Some(open) = self.lock().get_mut(id) {
            open.touched = Some(now);
        }
    }

    /// Notes activity in a session that is about to be written with something else; answers what to
    /// write along.
    #[must_use]
    pub fn touch_along(&self, id: &SessionId) -> (SessionId, Moment) {
        let now = self.shared.clock.now();
        if let Some(open) = self.lock().get_mut(id) {
            // Written by the other, as far as this process is concerned.
            open.session.last_active = now;
            open.session.state = SessionState::Active;
            open.touched = None;
        }
        (id.clone(), now)
    }

    /// Notes activity in the open session of a thread, and writes it. Refused if there is none.
    pub async fn touch_durably(&self, thread: &ThreadId) -> Result<ChatSession, StoreError> {
        let session = self.require(thread).await?;
        let event = SessionEvent::Touched(self.shared.clock.now());
        let touched = self.shared.store.apply_session(&session.session_id, event).await?;
        self.remember(touched.clone());
        Ok(touched)
    }

    /// The open session of a thread, or the last one it had, with all that is known of it.
    pub async fn current(&self, thread: &ThreadId) -> Result<Option<ChatSession>, StoreError> {
        let Some(stored) = self.shared.store.last_session(thread).await? else {
            return Ok(None);
        };
        Ok(Some(self.as_known(stored)))
    }

    /// The sessions of all threads, newest first, with all that is known of them. A page may hold
    /// fewer than were asked for: what is not yet written can make one differ from its row.
    pub async fn list(
        &self,
        status: Option<SessionStatus>,
        page: PageRequest,
    ) -> Result<Page<ChatSession>, StoreError> {
        let open = status.map(|status| match status {
            SessionStatus::Active | SessionStatus::Idle => true,
            SessionStatus::Expired | SessionStatus::Closed => false,
        });
        let Page { items, next } = self.shared.store.sessions(open, page).await?;
        let known = items.into_iter().map(|stored| self.as_known(stored));
        let items =
            known.filter(|known| status.is_none_or(|status| known.status() == status)).collect();
        Ok(Page { items, next })
    }

    /// A session with what its row does not say yet.
    fn as_known(&self, mut session: ChatSession) -> ChatSession {
        if !session.is_open() {
            return session;
        }
        if let Some(touched) = self.lock().get(&session.session_id).and_then(|open| open.touched) {
            session.last_active = touched;
            session.state = SessionState::Active;
        }
        // One whose time is over is shown as what it is, even if nobody has looked yet.
        session.apply(SessionEvent::Elapsed(self.shared.clock.now())).unwrap_or(session)
    }

    /// Closes the open session of a thread, and does to its runtimes what its policy says.
    pub async fn close(&self, thread: &ThreadId) -> Result<ChatSession, StoreError> {
        let session = self.require(thread).await?;
        let event = SessionEvent::Closed(self.shared.clock.now());
        let closed = self.shared.store.apply_session(&session.session_id, event).await?;
        self.forget(&closed.session_id);
        self.shared.events.tell(Happened::SessionClosed {
            thread_id: thread.clone(),
            session_id: closed.session_id.clone(),
        });
        self.settle(&closed).await;
        Ok(closed)
    }

    /// Takes in a policy that was changed on a thread.
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

    /// How many sessions are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.lock().len()
    }

    /// What a server that starts does: takes in the open sessions, and does what a crash left undone
    /// to the compute of sessions that had ended.
    pub async fn recover(&self) -> Result<(), StoreError> {
        for session in self.shared.store.open_sessions().await? {
            self.remember(session);
        }
        Ok(())
    }

    /// Does what the end of a session asks for where a server was killed before it did.
    pub async fn settle_ended(&self) {
        if let Err(error) = self.try_settle_ended().await {
            tracing::error!(%error, "cannot settle the sessions that have ended");
        }
    }

    async fn try_settle_ended(&self) -> Result<(), StoreError> {
        for lease in self.shared.store.unsettled_leases().await? {
            if !matches!(lease.state, LeaseState::Running(_)) {
                continue;
            }
            for thread in self.shared.store.lease_threads(&lease.lease_id).await? {
                if let Some(session) = self.shared.store.last_session(&thread).await? {
                    if session.is_open() {
                        break;
                    }
                    self.settle(&session).await;
                }
            }
        }
        Ok(())
    }

    /// Looks after all sessions until told to stop, and then writes the touches that wait.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changed = self.shared.changed.subscribe();
        let mut flushed = self.shared.clock.now();
        loop {
            changed.mark_unchanged();
            let wait = self.look().await;
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timeout(wait, changed.changed()) => {}
            }
            // Many sessions that open at once are looked at once.
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(LOOK.0) => {}
            }
            let now = self.shared.clock.now();
            if now.since(&flushed) >= FLUSH {
                flushed = now;
                self.flush().await;
            }
        }
        self.flush().await;
    }

    /// Looks at every open session once; answers when to look again.
    pub async fn look(&self) -> Duration {
        let now = self.shared.clock.now();
        let all: Vec<Open> = self.lock().values().cloned().collect();
        let mut wait = LOOK.1;
        let mut due = Vec::new();
        for open in all {
            let session = open.current();
            if let Some(ended) = self.spent(&session, now.at).await {
                due.push((open, SessionEvent::Spent(now, ended)));
                continue;
            }
            let (left, ended) = session.left(&now);
            let used = self.shared.runtimes.get().is_some_and(|r| r.in_use(&session.thread_id));
            if used && (ended == Ended::IdleTimeout || !left.is_zero()) {
                self.touch(&session.session_id);
                continue;
            }
            if left.is_zero() {
                due.push((open, SessionEvent::Elapsed(now)));
                continue;
            }
            // A warning that is due before the end is a reason to look, too.
            let to_warning = left.saturating_sub(session.warned(self.shared.warn_before));
            wait = wait.min(if to_warning.is_zero() { left } else { to_warning });
            self.announce(&session, left);
            let quiet = now.since(&session.last_active) >= session.quiet_after();
            if quiet && session.state == SessionState::Active {
                self.write_touch(&open).await;
                self.apply(&session.session_id, SessionEvent::Elapsed(now)).await;
            }
        }
        // What is slow to pause holds nobody else up.
        let expiries = stream::iter(due).map(|(open, event)| self.expire(open, event));
        expiries.buffer_unordered(AT_ONCE).collect::<()>().await;
        wait.max(LOOK.0)
    }

    /// Which limit the compute beneath a session has reached, if there is one and it has.
    async fn spent(&self, session: &ChatSession, at: Timestamp) -> Option<Ended> {
        if !session.policy.counts() {
            return None;
        }
        let thread = self.shared.store.thread(&session.thread_id).await.ok()??;
        let lease = self.shared.store.lease(&thread.lease_id).await.ok()??;
        let ran = lease.ran_at(at).saturating_sub(session.ran_before);
        session.policy.spent(ran, self.shared.leases.price(&lease))
    }

    async fn expire(&self, open: Open, event: SessionEvent) {
        self.write_touch(&open).await;
        let id = &open.session.session_id;
        match self.shared.store.apply_session(id, event).await {
            Ok(session) if session.is_open() => self.remember(session),
            Ok(expired) => {
                self.forget(id);
                self.tell_expired(&expired);
                self.settle(&expired).await;
                self.write_down(&expired).await;
            }
            // Somebody else ended it, or its thread is gone.
            Err(StoreError::Refused(_) | StoreError::Missing { .. }) => self.forget(id),
            Err(error) => warn!(session = %id, %error, "cannot expire a session yet"),
        }
    }

    /// Does to the runtimes of an ended session what its policy says, unless somebody else with an
    /// open session stands on the same lease.
    async fn settle(&self, ended: &ChatSession) {
        if let Err(error) = self.try_settle(ended).await {
            warn!(session = %ended.session_id, %error, "cannot settle an ended session's compute");
        }
    }

    async fn try_settle(&self, ended: &ChatSession) -> Result<(), LeaseError> {
        let thread = &ended.thread_id;
        if ended.policy.on_expiry == OnExpiry::Keep {
            return Ok(());
        }
        if ended.policy.on_expiry == OnExpiry::Stop
            && let Some(runtimes) = self.shared.runtimes.get()
        {
            runtimes.end(thread).await;
        }
        let Some(thread) = self.shared.store.thread(thread).await? else { return Ok(()) };
        if self.is_shared(&thread.lease_id).await? {
            return Ok(());
        }
        let paused = match ended.policy.on_expiry {
            OnExpiry::Keep => return Ok(()),
            OnExpiry::Stop => None,
            OnExpiry::Pause => Some(self.shared.leases.pause(&thread.lease_id).await),
        };
        let result = match paused {
            Some(Err(LeaseError::Provider {
                source: ProviderError::Unsupported { .. }, ..
            })) => {
                if let Some(runtimes) = self.shared.runtimes.get() {
                    runtimes.end(&thread.thread_id).await;
                }
                self.shared.leases.stop(&thread.lease_id).await
            }
            Some(result) => result,
            None => self.shared.leases.stop(&thread.lease_id).await,
        };
        match result {
            Ok(_) | Err(LeaseError::NoInstance { .. } | LeaseError::Destroyed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a thread with an open session stands on a lease.
    async fn is_shared(&self, lease: &LeaseId) -> Result<bool, StoreError> {
        let threads = self.shared.store.lease_threads(lease).await?;
        let open = self.lock();
        Ok(open.values().any(|open| threads.contains(&open.session.thread_id)))
    }

    fn announce(&self, session: &ChatSession, left: Duration) {
        let expires_at = session.expires_at();
        if left > session.warned(self.shared.warn_before) {
            return;
        }
        let mut open = self.lock();
        let Some(open) = open.get_mut(&session.session_id) else { return };
        if open.announced == Some(expires_at) {
            return;
        }
        open.announced = Some(expires_at);
        self.shared.events.tell(Happened::SessionExpiring {
            thread_id: session.thread_id.clone(),
            session_id: session.session_id.clone(),
            expires_at,
        });
    }

    fn tell_expired(&self, expired: &ChatSession) {
        if let SessionState::Expired { ended, .. } = expired.state {
            self.shared.events.tell(Happened::SessionExpired {
                thread_id: expired.thread_id.clone(),
                session_id: expired.session_id.clone(),
                ended,
                on_expiry: expired.policy.on_expiry,
            });
        }
    }

    /// Puts an expiry, and what was done about it, into the ledger.
    async fn write_down(&self, expired: &ChatSession) {
        let SessionState::Expired { ended, at } = &expired.state else { return };
        let detail = json!({
            "thread_id": expired.thread_id,
            "reason": ended,
            "on_expiry": expired.policy.on_expiry,
        });
        let subject = expired.session_id.as_str();
        if let Err(error) = self.shared.store.record(*at, "session_expired", subject, detail).await
        {
            warn!(session = %expired.session_id, %error, "cannot write down an expiry");
        }
    }

    /// Writes every touch that waits.
    pub async fn flush(&self) {
        let all: Vec<Open> =
            self.lock().values().filter(|open| open.touched.is_some()).cloned().collect();
        let writes = all.iter().map(|open| self.write_touch(open));
        futures_util::future::join_all(writes).await;
    }

    async fn write_touch(&self, open: &Open) {
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
                open.insert(id, Open::new(session));
            }
        }
        drop(open);
        self.shared.changed.send_replace(());
    }

    fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Open>> {
        self.shared.open.lock()
    }
}
