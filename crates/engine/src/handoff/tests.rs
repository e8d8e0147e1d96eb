//! Hand-offs on a store that an earlier server left, with a clock and a webhook of the test.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use base::event::Delivery;
use model::{HandoffStatus, Timestamp};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::terminal::test_support::{first_use, leases, terminals};

/// How long a test waits for something that should happen at once.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Refuses this many notifications, then accepts all.
struct Webhook {
    refusals: AtomicUsize,
    accepted: AtomicUsize,
}

impl HandoffNotifier for Webhook {
    fn notify<'a>(&'a self, handoff: &'a Handoff) -> Notifying<'a> {
        assert!(handoff.is_open());
        let left = self.refusals.load(Ordering::Relaxed);
        self.refusals.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            match left {
                0 => Ok(()),
                _ => Err(NotifyError { reason: "answered 500".into() }),
            }
        })
    }
}

struct World {
    handoffs: Handoffs,
    events: Events,
    terminal: Terminal,
    /// Seconds since the first moment.
    seconds: Arc<AtomicU64>,
}

impl World {
    async fn start(home: &Path, webhook: Option<Arc<Webhook>>) -> World {
        let seconds = Arc::new(AtomicU64::new(0));
        let read = seconds.clone();
        let clock = Clock::from_fn(move || {
            let second = read.load(Ordering::Relaxed);
            let wall = Timestamp::from_second(1_700_000_000 + i64::try_from(second).unwrap());
            Moment::new(wall.unwrap(), 1, Duration::from_secs(second))
        });
        let store = Store::open(home).unwrap();
        let events = Events::new(clock.clone());
        let leases = leases(home, &store, &events, &clock, CancellationToken::new());
        let terminals = terminals(home, &store, &events, leases);
        let first = first_use("t", clock.now());
        let chain = store.open_chain(first).await.unwrap();
        let terminal = store.terminal(&chain.thread.terminal_id).await.unwrap().unwrap();
        let notifier = webhook.map(|webhook| webhook as Arc<dyn HandoffNotifier>);
        let handoffs = Handoffs::new(store, terminals, events.clone(), clock, notifier);
        World { handoffs, events, terminal, seconds }
    }

    async fn open(&self, kind: HandoffKind, seconds: u64) -> Handoff {
        let new = NewHandoff {
            handoff_id: HandoffId::fresh(),
            kind,
            reason: "why".into(),
            options: vec![],
            timeout: Duration::from_secs(seconds),
        };
        self.handoffs.open(&self.terminal, new).await.unwrap()
    }
}

fn text(text: &str) -> HandoffResponse {
    HandoffResponse::Answer(HandoffAnswer { text: Some(text.into()), ..HandoffAnswer::default() })
}

#[tokio::test]
async fn a_waiter_gets_the_answer_and_no_channel_is_left() {
    let home = tempfile::tempdir().unwrap();
    let world = World::start(home.path(), None).await;
    let asked = world.open(HandoffKind::Input, 60).await;
    let now = world.handoffs.wait(&asked.handoff_id, Instant::now()).await.unwrap();
    assert_eq!(now, Some(asked.clone()), "a deadline that is over returns the open hand-off");
    let deadline = Instant::now() + WAIT_TIMEOUT;
    {
        let mut leaves = Box::pin(world.handoffs.wait(&asked.handoff_id, deadline));
        assert!(futures_util::poll!(leaves.as_mut()).is_pending());
        assert_eq!(world.handoffs.shared.waiters.count(), 1);
    }
    assert_eq!(world.handoffs.shared.waiters.count(), 0, "a client that leaves leaves no channel");
    let (handoffs, id) = (world.handoffs.clone(), asked.handoff_id.clone());
    let waiting = tokio::spawn(async move { handoffs.wait(&id, deadline).await });
    let answered = world.handoffs.answer(&asked.handoff_id, text("blue")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Some(answered));
    assert_eq!(world.handoffs.shared.waiters.count(), 0);
    let again = world.handoffs.answer(&asked.handoff_id, text("red")).await;
    assert!(matches!(again, Err(HandoffError::Store(StoreError::Refused(_)))), "{again:?}");
}

#[tokio::test]
async fn an_open_hand_off_expires_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let first = World::start(home.path(), None).await;
    let asked = first.open(HandoffKind::Approval, 60).await;
    drop(first);
    let world = World::start(home.path(), None).await;
    assert_eq!(world.handoffs.expire_due().await, Duration::from_secs(20), "it is asked again");
    world.seconds.store(50, Ordering::Relaxed);
    assert_eq!(world.handoffs.expire_due().await, Duration::from_secs(10));
    let mut events = world.events.subscribe(None);
    world.seconds.store(60, Ordering::Relaxed);
    let late = world.handoffs.decline(&asked.handoff_id, None).await;
    assert!(matches!(late, Err(HandoffError::Store(StoreError::Refused(_)))), "{late:?}");
    world.handoffs.expire_due().await;
    let found = world.handoffs.get(&asked.handoff_id).await.unwrap().unwrap();
    assert_eq!(found.status(), HandoffStatus::Expired);
    let Some(Delivery::Event(event)) = events.next().await else { panic!("no event") };
    let (thread_id, terminal_id) = (asked.thread_id, asked.terminal_id);
    let handoff_id = asked.handoff_id;
    assert_eq!(event.kind, EventKind::HandoffExpired { thread_id, terminal_id, handoff_id });
}

#[tokio::test]
async fn a_notification_is_repeated_until_it_is_accepted_also_by_the_next_server() {
    let home = tempfile::tempdir().unwrap();
    let webhook = Arc::new(Webhook { refusals: 1.into(), accepted: 0.into() });
    let first = World::start(home.path(), Some(webhook.clone())).await;
    let asked = first.open(HandoffKind::Input, 60).await;
    assert_eq!(asked.notice, Notice::Pending);
    let mut failed = HashMap::new();
    let wait = first.handoffs.notify_pending(&mut failed).await;
    assert!(wait <= Duration::from_secs(1) && webhook.accepted.load(Ordering::Relaxed) == 0);
    drop(first);
    let world = World::start(home.path(), Some(webhook.clone())).await;
    for _ in 0..2 {
        world.handoffs.notify_pending(&mut HashMap::new()).await;
    }
    assert_eq!(webhook.accepted.load(Ordering::Relaxed), 1);
    let found = world.handoffs.get(&asked.handoff_id).await.unwrap().unwrap();
    assert_eq!(found.notice, Notice::Delivered);
}

#[tokio::test]
async fn a_settled_hand_off_is_not_announced() {
    let home = tempfile::tempdir().unwrap();
    let webhook = Arc::new(Webhook { refusals: 0.into(), accepted: 0.into() });
    let world = World::start(home.path(), Some(webhook.clone())).await;
    let asked = world.open(HandoffKind::Input, 60).await;
    world.handoffs.decline(&asked.handoff_id, Some("busy".into())).await.unwrap();
    world.handoffs.notify_pending(&mut HashMap::new()).await;
    assert_eq!(webhook.accepted.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_answer_of_the_wrong_kind_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let world = World::start(home.path(), None).await;
    let input = world.open(HandoffKind::Input, 60).await;
    let secret = HandoffResponse::Secret(SecretText::new("hunter2".into()));
    assert_eq!(format!("{secret:?}"), "Secret(SecretText(…))");
    let refused = world.handoffs.answer(&input.handoff_id, secret).await;
    assert!(matches!(refused, Err(HandoffError::BadAnswer(_))), "{refused:?}");
    let asked = world.open(HandoffKind::Secret, 60).await;
    let refused = world.handoffs.answer(&asked.handoff_id, text("hunter2")).await;
    assert!(matches!(refused, Err(HandoffError::BadAnswer(_))), "{refused:?}");
    let missing = world.handoffs.decline(&HandoffId::fresh(), None).await;
    assert!(matches!(missing, Err(HandoffError::Missing(_))), "{missing:?}");
}
