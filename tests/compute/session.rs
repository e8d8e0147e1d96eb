//! Sessions open, are touched, expire once, and apply their policy to the compute.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base::event::EventKind;
use engine::session::Runtimes;
use model::{
    EndReason, Hours, LeaseState, Money, OnExpiry, SessionPolicy, SessionStatus, ThreadId,
};
use store::StoreError;

use super::World;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Fake {
    used: AtomicBool,
    ended: Mutex<Vec<ThreadId>>,
}

impl Runtimes for Fake {
    fn in_use(&self, _: &ThreadId) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    fn end<'a>(&'a self, thread: &'a ThreadId) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.ended.lock().unwrap().push(thread.clone());
        Box::pin(std::future::ready(()))
    }
}

impl World {
    fn fake(&self) -> Arc<Fake> {
        let fake = Arc::new(Fake::default());
        self.sessions.set_runtimes(fake.clone());
        fake
    }

    async fn open_with(&self, thread: &str, idle_s: u64, max_s: u64, on_expiry: OnExpiry) {
        let mut first = self.first_use(thread);
        let policy = SessionPolicy {
            idle_timeout_s: idle_s,
            max_duration_s: max_s,
            on_expiry,
            ..SessionPolicy::default()
        };
        first.choices.policy = Some(policy);
        self.sessions.open(first).await.unwrap();
    }

    async fn status(&self, thread: &str) -> SessionStatus {
        self.sessions.current(&thread.parse().unwrap()).await.unwrap().unwrap().status()
    }

    fn count_events(&self, matches: fn(&EventKind) -> bool) -> usize {
        let all = self.events.subscribe(Some(0)).missed;
        all.iter().filter(|event| matches(&event.kind)).count()
    }
}

#[tokio::test]
async fn a_session_is_reused_until_it_expires() {
    let world = World::new();
    let first = world.open("t").await.session.session_id;
    world.hands.turn(1799 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.open("t").await.session.session_id, first);
    world.hands.turn(SECOND);
    world.sessions.check().await;
    assert_eq!(world.status("t").await, SessionStatus::Expired);
    assert_ne!(world.open("t").await.session.session_id, first);
    assert_eq!(world.count_events(|kind| matches!(kind, EventKind::SessionOpened { .. })), 2);
}

#[tokio::test]
async fn an_expiry_is_reported_once_by_concurrent_observers() {
    let world = World::new();
    world.open("t").await;
    world.hands.turn(1800 * SECOND);
    let opening = world.open("t");
    let (_, _, _) = tokio::join!(world.sessions.check(), opening, world.sessions.check());
    let expired = world.count_events(|kind| matches!(kind, EventKind::SessionExpired { .. }));
    assert_eq!(expired, 1);
}

#[tokio::test]
async fn a_touch_postpones_and_survives_a_restart() {
    let world = World::new();
    let session = world.open("t").await.session.session_id;
    world.hands.turn(1000 * SECOND);
    world.sessions.touch(&session);
    world.hands.turn(1000 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.status("t").await, SessionStatus::Idle);
    world.sessions.flush().await;
    let world = world.crash().await;
    world.sessions.recover().await.unwrap();
    world.sessions.check().await;
    assert_eq!(world.open("t").await.session.session_id, session);
    let touched = world.sessions.touch_durably(&"t".parse().unwrap()).await.unwrap();
    assert_eq!(touched.status(), SessionStatus::Active);
    world.hands.turn(1799 * SECOND);
    world.sessions.check().await;
    assert_ne!(world.status("t").await, SessionStatus::Expired);
}

#[tokio::test]
async fn a_touch_costs_no_write() {
    let world = World::new();
    let session = world.open("t").await.session.session_id;
    let before = world.store.counts().changes;
    for _ in 0..1000 {
        world.sessions.touch(&session);
    }
    assert_eq!(world.store.counts().changes, before);
    world.sessions.flush().await;
    assert_eq!(world.store.counts().changes, before + 1);
}

#[tokio::test]
async fn a_running_command_is_activity_but_not_beyond_the_maximum() {
    let world = World::new();
    let fake = world.fake();
    world.open_with("t", 10, 100, OnExpiry::Keep).await;
    fake.used.store(true, Ordering::SeqCst);
    for _ in 0..12 {
        world.hands.turn(8 * SECOND);
        world.sessions.check().await;
        assert_ne!(world.status("t").await, SessionStatus::Expired);
    }
    world.hands.turn(4 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.status("t").await, SessionStatus::Expired);
    let by_maximum = |what: &EventKind| {
        matches!(what, EventKind::SessionExpired { ended: EndReason::MaxDuration, .. })
    };
    assert_eq!(world.count_events(by_maximum), 1);
}

#[tokio::test]
async fn an_expiring_session_is_reported_once() {
    let world = World::new();
    let session = world.open("t").await.session.session_id;
    let soon = |what: &EventKind| matches!(what, EventKind::SessionExpiring { .. });
    world.hands.turn(1600 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.count_events(soon), 0);
    world.hands.turn(100 * SECOND);
    world.sessions.check().await;
    world.sessions.check().await;
    assert_eq!(world.count_events(soon), 1);
    world.sessions.touch(&session);
    world.hands.turn(1700 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.count_events(soon), 2, "once for each approaching end");
}

#[tokio::test]
async fn a_session_of_a_few_seconds_is_warned_of_its_end() {
    let world = World::new();
    world.fake();
    let soon = |what: &EventKind| matches!(what, EventKind::SessionExpiring { .. });
    world.open_with("t", 4, 3600, OnExpiry::Keep).await;
    // The loop sleeps for the returned time, which ends when the warning is due.
    let wait = world.sessions.check().await;
    assert_eq!((world.count_events(soon), wait), (0, 2 * SECOND));
    world.hands.turn(wait);
    let wait = world.sessions.check().await;
    assert_eq!((world.count_events(soon), wait), (1, 2 * SECOND));
    world.hands.turn(wait);
    world.sessions.check().await;
    assert_eq!(world.status("t").await, SessionStatus::Expired);
    assert_eq!(world.count_events(soon), 1);
}

#[tokio::test]
async fn an_expiry_pauses_the_instance_and_the_next_use_resumes_it() {
    let world = World::new();
    let lease = world.lease("t").await;
    let before = world.leases.running(&lease).await.unwrap();
    world.hands.turn(1800 * SECOND);
    world.sessions.check().await;
    let state = world.store.lease(&lease).await.unwrap().unwrap().state;
    assert!(matches!(state, LeaseState::Paused(_)), "{state:?}");
    world.open("t").await;
    assert_eq!(world.leases.running(&lease).await.unwrap().instance, before.instance);
    world.leases.destroy(&lease).await.unwrap();
}

#[tokio::test]
async fn a_session_ends_when_its_compute_reaches_a_limit() {
    let world = World::new();
    let mut first = world.first_use("t");
    let policy = SessionPolicy { max_running: Some(Hours::from(0.25)), ..SessionPolicy::default() };
    first.choices.policy = Some(policy);
    let chain = world.sessions.open(first.clone()).await.unwrap();
    let lease = chain.lease.lease_id;
    // The time before the instance starts is not counted.
    world.hands.turn(600 * SECOND);
    world.leases.running(&lease).await.unwrap();
    world.hands.turn(800 * SECOND);
    world.sessions.touch(&chain.session.session_id);
    world.sessions.check().await;
    assert_ne!(world.status("t").await, SessionStatus::Expired);
    world.leases.pause(&lease).await.unwrap();
    world.hands.turn(500 * SECOND);
    world.sessions.check().await;
    assert_ne!(world.status("t").await, SessionStatus::Expired);
    world.leases.running(&lease).await.unwrap();
    world.hands.turn(101 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.status("t").await, SessionStatus::Expired);
    let spent = |what: &EventKind| {
        matches!(what, EventKind::SessionExpired { ended: EndReason::MaxRunning, .. })
    };
    assert_eq!(world.count_events(spent), 1);
    let row = world.store.lease(&lease).await.unwrap().unwrap();
    assert!(matches!(row.state, LeaseState::Paused(_)), "{row:?}");
    assert_eq!(row.ran, 901 * SECOND);
    let by_provider = world.store.ran_by_provider(row.updated_at).await.unwrap();
    assert_eq!(by_provider, [("local".to_owned(), 901 * SECOND)]);
    // The next session starts at zero, and a price of zero never reaches a limit.
    first.choices.policy = Some(SessionPolicy { max_cost: Some(Money(1)), ..policy });
    first.now = world.first_use("t").now;
    world.sessions.open(first).await.unwrap();
    world.leases.running(&lease).await.unwrap();
    world.hands.turn(800 * SECOND);
    world.sessions.check().await;
    assert_ne!(world.status("t").await, SessionStatus::Expired);
    world.leases.destroy(&lease).await.unwrap();
}

#[tokio::test]
async fn a_close_ends_the_runtime_but_keeps_the_state() {
    let world = World::new();
    let fake = world.fake();
    let thread: ThreadId = "t".parse().unwrap();
    world.open_with("t", 10, 100, OnExpiry::Stop).await;
    let lease = world.lease("t").await;
    world.leases.running(&lease).await.unwrap();
    let closed = world.sessions.close(&thread).await.unwrap();
    assert_eq!(closed.status(), SessionStatus::Closed);
    assert_eq!(*fake.ended.lock().unwrap(), std::slice::from_ref(&thread));
    assert_eq!(world.store.lease(&lease).await.unwrap().unwrap().state, LeaseState::Idle);
    assert_eq!(world.instances().await, 0);
    let again = world.sessions.close(&thread).await;
    assert!(matches!(again, Err(StoreError::Missing { .. })), "{again:?}");
    let reopened = world.open("t").await;
    assert!(reopened.session_is_new && !reopened.thread_is_new);
    assert_eq!(reopened.lease.lease_id, lease);
}

#[tokio::test]
async fn an_expiry_does_not_pause_an_instance_that_another_session_uses() {
    let world = World::new();
    let lease = world.lease("one").await;
    world.leases.running(&lease).await.unwrap();
    world.hands.turn(1000 * SECOND);
    let mut first = world.first_use("two");
    first.choices.lease_id = Some(lease.clone());
    world.sessions.open(first).await.unwrap();
    world.hands.turn(800 * SECOND);
    world.sessions.check().await;
    assert_eq!(world.status("one").await, SessionStatus::Expired);
    let state = world.store.lease(&lease).await.unwrap().unwrap().state;
    assert!(matches!(state, LeaseState::Running(_)), "{state:?}");
    world.hands.turn(1000 * SECOND);
    world.sessions.check().await;
    let state = world.store.lease(&lease).await.unwrap().unwrap().state;
    assert!(matches!(state, LeaseState::Paused(_)), "{state:?}");
    world.leases.destroy(&lease).await.unwrap();
}

#[tokio::test]
async fn an_expiry_that_a_crash_interrupted_is_completed_at_the_next_start() {
    let world = World::new();
    let chain = world.open("t").await;
    world.leases.running(&chain.lease.lease_id).await.unwrap();
    world.hands.turn(1800 * SECOND);
    let now = world.first_use("t").now;
    let event = model::SessionEvent::Elapsed(now);
    world.store.apply_session(&chain.session.session_id, event).await.unwrap();
    let world = world.crash().await;
    world.leases.recover().await.unwrap();
    world.sessions.recover().await.unwrap();
    world.sessions.settle_ended().await;
    let state = world.store.lease(&chain.lease.lease_id).await.unwrap().unwrap().state;
    assert!(matches!(state, LeaseState::Paused(_)), "{state:?}");
    world.leases.destroy(&chain.lease.lease_id).await.unwrap();
}
