//! The contract of hand-offs.

use std::{collections::HashMap, time::Duration};

use super::{World, at};
use crate::*;
use model::*;

const LIMITS: HandoffLimits = HandoffLimits { per_terminal: 2, total: 3 };

fn handoff(chain: &Chain, second: u64) -> Handoff {
    Handoff {
        handoff_id: HandoffId::fresh(),
        thread_id: chain.thread.thread_id.clone(),
        terminal_id: chain.thread.terminal_id.clone(),
        kind: HandoffKind::Approval,
        reason: "deploy?".into(),
        options: vec!["yes".into(), "later".into()],
        state: HandoffState::Open,
        created: at(second),
        timeout: Duration::from_secs(60),
        notice: Notice::Pending,
        revision: 0,
    }
}

super::backend::on_postgres![
    an_open_hand_off_is_there_after_a_restart_and_is_settled_once,
    open_hand_offs_are_bounded_and_go_with_their_terminal,
    a_damaged_hand_off_is_refused,
];

#[tokio::test]
async fn an_open_hand_off_is_there_after_a_restart_and_is_settled_once() {
    let world = World::new();
    let chain = world.chain("t").await;
    let asked = handoff(&chain, 1);
    assert_eq!(world.store.add_handoff(&asked, LIMITS).await, Ok(HandoffAdded::Added));
    let world = world.reopen();
    assert_eq!(world.store.open_handoffs().await.unwrap(), [asked.clone()]);
    let id = &asked.handoff_id;
    let notified = world.store.apply_handoff(id, HandoffEvent::Notified).await.unwrap();
    assert_eq!((notified.notice, notified.revision), (Notice::Delivered, 1));
    let early = world.store.apply_handoff(id, HandoffEvent::Elapsed(at(2))).await.unwrap();
    assert_eq!(early, notified, "nothing is written before the time is over");
    let answer = HandoffAnswer { approve: Some(true), option: Some("yes".into()), text: None };
    let event = HandoffEvent::Answered(at(3), answer.clone());
    let answered = world.store.apply_handoff(id, event).await.unwrap();
    assert_eq!(answered.state, HandoffState::Answered { at: at(3).at, answer });
    let world = world.reopen();
    assert_eq!(world.store.handoff(id).await.unwrap(), Some(answered));
    let again = world.store.apply_handoff(id, HandoffEvent::Declined(at(4), None)).await;
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
    assert_eq!(world.store.open_handoffs().await.unwrap(), []);
    let missing = world.store.apply_handoff(&HandoffId::fresh(), HandoffEvent::Notified).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
}

#[tokio::test]
async fn open_hand_offs_are_bounded_and_go_with_their_terminal() {
    let world = World::new();
    let (one, two) = (world.chain("one").await, world.chain("two").await);
    let add = async |asked: &Handoff| world.store.add_handoff(asked, LIMITS).await.unwrap();
    let first = handoff(&one, 1);
    assert_eq!(add(&first).await, HandoffAdded::Added);
    assert_eq!(add(&handoff(&one, 2)).await, HandoffAdded::Added);
    assert_eq!(add(&handoff(&one, 3)).await, HandoffAdded::TerminalFull);
    assert_eq!(add(&handoff(&two, 4)).await, HandoffAdded::Added);
    assert_eq!(add(&handoff(&two, 5)).await, HandoffAdded::Full);
    let counts =
        HashMap::from([(one.thread.thread_id.clone(), 2), (two.thread.thread_id.clone(), 1)]);
    assert_eq!(world.store.open_handoff_counts().await.unwrap(), counts);
    let declined = HandoffEvent::Declined(at(5), Some("no".into()));
    world.store.apply_handoff(&first.handoff_id, declined).await.unwrap();
    assert_eq!(add(&handoff(&two, 6)).await, HandoffAdded::Added);

    let list = async |filter: HandoffFilter| {
        world.store.handoffs(filter, PageRequest::first(10)).await.unwrap().items.len()
    };
    assert_eq!(list(HandoffFilter::default()).await, 4);
    let open = HandoffFilter { status: Some(HandoffStatus::Open), ..HandoffFilter::default() };
    assert_eq!(list(open).await, 3);
    let of_two = HandoffFilter { thread: Some("two".parse().unwrap()), ..HandoffFilter::default() };
    assert_eq!(list(of_two).await, 2);
    let page = world.store.handoffs(HandoffFilter::default(), PageRequest::first(1)).await.unwrap();
    assert_eq!(page.items[0].created, at(6), "the newest is first");
    let next = PageRequest { limit: 10, after: page.next };
    let rest = world.store.handoffs(HandoffFilter::default(), next).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (3, None));

    world.store.delete_terminal(&one.thread.terminal_id, at(7).at).await.unwrap();
    assert_eq!(list(HandoffFilter::default()).await, 2);
    let orphan =
        world.store.add_handoff(&handoff(&one, 8), HandoffLimits { total: 9, ..LIMITS }).await;
    assert!(matches!(orphan, Err(StoreError::Missing { .. })), "{orphan:?}");
}

#[tokio::test]
async fn a_damaged_hand_off_is_refused() {
    let world = World::new();
    let chain = world.chain("t").await;
    let asked = handoff(&chain, 1);
    world.store.add_handoff(&asked, LIMITS).await.unwrap();
    world.execute(
        "DROP TRIGGER handoffs_updated_checksum; UPDATE handoffs SET reason = 'x'",
        "UPDATE handoffs SET options = 'x'",
    );
    let read = world.store.handoff(&asked.handoff_id).await;
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
}
