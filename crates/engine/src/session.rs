//! Sessions: the policy of a thread while it is in use. Opened on first use, touched, expired, closed.
//!
//! A touch costs no write: it is kept in memory, stored together with the end of a command, and otherwise
//! flushed every few seconds. A crash loses at most those seconds of activity, and never an expiry. An
//! expiry is recorded before it is acted on, so that it happens once; the next start completes the rest.

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
    event::{EventKind, Events},
};
use model::{
    ChatSession, EndReason, LeaseId, LeaseState, Moment, OnExpiry, SessionEvent, SessionId,
    SessionState, SessionStatus, ThreadId, Timestamp,
};
use provider::ProviderError;
use store::{Chain, FirstUse, Page, PageRequest, SessionFilter, Store, StoreError};

/// How often touches are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// The bounds of the time between two checks of all sessions.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How many sessions are expired at the same time.
const CONCURRENT_EXPIRIES: usize = 16;

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

/// An open session with what its row does not have yet.
#[derive(Debug, Clone)]
struct Open {
    session: ChatSession,
    touched: Option<Moment>,
    /// The expiry that was announced.
    announced: Option<Timestamp>,
}

impl Open {
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

    /// Notes activity in a session; costs no write.
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

    /// Applies the policy of ended sessions for which a killed server did not.
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

    /// Checks all sessions until `stop`, then writes pending touches.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changed = self.shared.changed.subscribe();
        let mut flushed = self.shared.clock.now();
        loop {
            changed.mark_unchanged();
            let wait = self.check().await;
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timeout(wait, changed.changed()) => {}
            }
            // Sessions that open at the same time share a check.
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(MIN_CHECK_INTERVAL) => {}
            }
            let now = self.shared.clock.now();
            if now.since(&flushed) >= FLUSH_INTERVAL {
                flushed = now;
                self.flush().await;
            }
        }
        self.flush().await;
    }

    /// Checks every open session. Returns the time until the next check.
    pub async fn check(&self) -> Duration {
        let now = self.shared.clock.now();
        let all: Vec<Open> = self.lock().values().cloned().collect();
        let mut wait = MAX_CHECK_INTERVAL;
        let mut due = Vec::new();
        for open in all {
            let session = open.current();
            if let Some(ended) = self.spent(&session, now.at).await {
                due.push((open, SessionEvent::Spent(now, ended)));
                continue;
            }
            let (left, ended) = session.left(&now);
            let used = self.shared.runtimes.get().is_some_and(|r| r.in_use(&session.thread_id));
            if used && (ended == EndReason::IdleTimeout || !left.is_zero()) {
                self.touch(&session.session_id);
                continue;
            }
            if left.is_zero() {
                due.push((open, SessionEvent::Elapsed(now)));
                continue;
            }
            // A warning before the expiry needs a check, too.
            let to_warning = left.saturating_sub(session.warned(self.shared.warn_before));
            wait = wait.min(if to_warning.is_zero() { left } else { to_warning });
            self.announce(&session, left);
            let quiet = now.since(&session.last_active) >= session.quiet_after();
            if quiet && session.state == SessionState::Active {
                self.write_touch(&open).await;
                self.apply(&session.session_id, SessionEvent::Elapsed(now)).await;
            }
        }
        // In parallel: one slow pause must not delay the others.
        let expiries = stream::iter(due).map(|(open, event)| self.expire(open, event));
        expiries.buffer_unordered(CONCURRENT_EXPIRIES).collect::<()>().await;
        wait.max(MIN_CHECK_INTERVAL)
    }

    /// Returns the limit that the compute of a session has reached.
    async fn spent(&self, session: &ChatSession, at: Timestamp) -> Option<EndReason> {
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
                self.publish_expired(&expired);
                self.settle(&expired).await;
                self.record_expiry(&expired).await;
            }
            // It was ended by another request, or its thread was deleted.
            Err(StoreError::Refused(_) | StoreError::Missing { .. }) => self.forget(id),
            Err(error) => warn!(session = %id, %error, "cannot expire a session yet"),
        }
    }

    /// Applies the policy of an ended session to its compute, unless another open session uses the lease.
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

    /// Returns whether a thread with an open session uses a lease.
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
        self.shared.events.publish(EventKind::SessionExpiring {
            thread_id: session.thread_id.clone(),
            session_id: session.session_id.clone(),
            expires_at,
        });
    }

    fn publish_expired(&self, expired: &ChatSession) {
        if let SessionState::Expired { ended, .. } = expired.state {
            self.shared.events.publish(EventKind::SessionExpired {
                thread_id: expired.thread_id.clone(),
                session_id: expired.session_id.clone(),
                ended,
                on_expiry: expired.policy.on_expiry,
            });
        }
    }

    /// Records an expiry in the ledger.
    async fn record_expiry(&self, expired: &ChatSession) {
        let SessionState::Expired { ended, at } = &expired.state else { return };
        let detail = json!({
            "thread_id": expired.thread_id,
            "reason": ended,
            "on_expiry": expired.policy.on_expiry,
        });
        let subject = expired.session_id.as_str();
        if let Err(error) = self.shared.store.record(*at, "session_expired", subject, detail).await
        {
            warn!(session = %expired.session_id, %error, "cannot record an expiry");
        }
    }

    /// Writes all pending touches.
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
