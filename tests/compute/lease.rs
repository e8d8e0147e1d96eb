//! A lease has at most one instance, also after crashes and faults.

use std::{sync::Arc, time::Duration};

use base::event::EventKind;
use engine::lease::{IfPaused, LeaseError};
use model::{Desired, InstanceState, LeaseState, OnExpiry, SessionPolicy};
use provider::{Found, Intent, Observed, Provider};
use store::{LeaseFilter, PageRequest};

use super::{
    Hands, World,
    faulty::{Fault, Faulty},
    link::Link,
    local,
    provider::{kill_host, living},
};
use harness::Home;

impl World {
    async fn state(&self, thread: &str) -> LeaseState {
        let lease = self.lease(thread).await;
        self.store.lease(&lease).await.unwrap().unwrap().state
    }

    async fn end_all(self) {
        let leases = self.store.leases(LeaseFilter::default(), PageRequest::first(1000)).await;
        for lease in leases.unwrap().items {
            self.leases.destroy(&lease.lease_id).await.unwrap();
        }
        assert_eq!(self.instances().await, 0);
        assert_eq!(living(self.home.path()), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_on_a_cold_lease_get_one_instance() {
    let world = World::new();
    let lease = world.lease("t").await;
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let (leases, lease) = (world.leases.clone(), lease.clone());
            tokio::spawn(async move { leases.running(&lease).await.unwrap() })
        })
        .collect();
    let mut seen = Vec::new();
    for caller in callers {
        seen.push(caller.await.unwrap().instance);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].generation, 1);
    assert_eq!(world.instances().await, 1);
    world.end_all().await;
}

#[tokio::test]
async fn an_instance_is_new_reused_resumed_recreated_and_destroyed() {
    let world = World::new();
    let lease = world.lease("t").await;
    let first = world.leases.running(&lease).await.unwrap();
    assert!(!first.recreated);
    assert_eq!(world.leases.running(&lease).await.unwrap(), first, "reused");

    let paused = world.leases.pause(&lease).await.unwrap();
    assert_eq!(paused.instance().unwrap().1, InstanceState::Paused);
    let refused = world.leases.running_if(&lease, IfPaused::Refuse).await;
    assert!(matches!(refused, Err(LeaseError::Paused { .. })), "{refused:?}");
    let resumed = world.leases.running(&lease).await.unwrap();
    assert_eq!(resumed.instance, first.instance, "resumed");

    kill_host(world.home.path(), &first.instance.instance_id);
    let lost = wait_lost(&world, &first).await;
    assert!(matches!(lost, LeaseState::Dead { .. }), "{lost:?}");
    let second = world.leases.running(&lease).await.unwrap();
    assert!(second.recreated);
    assert_eq!(second.instance.generation, 2);
    assert_ne!(second.instance.instance_id, first.instance.instance_id);

    let over = world.leases.destroy(&lease).await.unwrap();
    assert_eq!(over.state, LeaseState::Destroyed);
    let refused = world.leases.running(&lease).await;
    assert!(matches!(refused, Err(LeaseError::Destroyed { .. })), "{refused:?}");
    world.leases.reap().await;
    assert_eq!(world.instances().await, 0);
    let happened: Vec<_> = super::published(&world.events, &world.events.subscribe(None))
        .iter()
        .map(|what| match what {
            EventKind::InstanceCreated { .. } => "created",
            EventKind::InstancePaused { .. } => "paused",
            EventKind::InstanceResumed { .. } => "resumed",
            EventKind::InstanceLost { .. } => "lost",
            EventKind::InstanceEnded { .. } => "ended",
            EventKind::LeaseDestroyed { .. } => "destroyed",
            _ => "",
        })
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(happened, ["created", "paused", "resumed", "lost", "created", "ended", "destroyed"]);
    world.end_all().await;
}

/// Reports a loss to the lease worker until the kernel has closed the host's socket.
async fn wait_lost(world: &World, running: &engine::lease::RunningInstance) -> LeaseState {
    let deadline = std::time::Instant::now() + harness::WAIT_TIMEOUT;
    loop {
        let id = &running.instance.instance_id;
        let state = world.leases.lost(&running.lease_id, id).await.unwrap().state;
        if matches!(state, LeaseState::Dead { .. }) {
            return state;
        }
        assert!(std::time::Instant::now() < deadline, "{state:?}");
    }
}

#[tokio::test]
async fn a_server_that_starts_finds_the_instance_that_runs() {
    let world = World::new();
    let lease = world.lease("t").await;
    let before = world.leases.running(&lease).await.unwrap();
    let world = world.crash().await;
    world.leases.recover().await.unwrap();
    let after = world.leases.running(&lease).await.unwrap();
    assert_eq!(after, before, "the instance after a restart is the same");
    assert_eq!(world.instances().await, 1);
    world.end_all().await;
}

#[tokio::test]
async fn a_crash_between_intent_and_record_ends_in_one_instance() {
    // A crash can leave only the intent, or also the instance.
    for made in [false, true] {
        let world = World::new();
        let lease = world.open("t").await.lease;
        let instance = model::InstanceId::fresh();
        let intended =
            lease.apply(model::LeaseEvent::Intended(instance.clone(), lease.created_at)).unwrap();
        let intended = world.store.save_lease(&intended).await.unwrap();
        let intent = Intent {
            lease_id: lease.lease_id.clone(),
            generation: intended.generation,
            instance_id: instance.clone(),
            spec: serde_json::Value::Null,
        };
        if made {
            world.provider.create(&intent).await.unwrap();
        }
        let world = world.crash().await;
        world.leases.recover().await.unwrap();
        let running = world.leases.running(&lease.lease_id).await.unwrap();
        assert_eq!(
            running.instance.instance_id == instance,
            made,
            "an existing instance is adopted"
        );
        assert_eq!(running.instance.generation, if made { 1 } else { 2 });
        assert_eq!(world.instances().await, 1);
        world.end_all().await;
    }
}

#[tokio::test]
async fn a_crash_while_pausing_resuming_or_ending_is_finished_by_the_next_start() {
    let world = World::new();
    let lease = world.lease("t").await;
    world.leases.running(&lease).await.unwrap();
    // The pause is requested and recorded, but not executed.
    let stored = world.store.lease(&lease).await.unwrap().unwrap();
    let wanted = stored.apply(model::LeaseEvent::Wanted(Desired::Paused)).unwrap();
    world.store.save_lease(&wanted).await.unwrap();
    let world = world.crash().await;
    world.leases.recover().await.unwrap();
    assert!(matches!(world.state("t").await, LeaseState::Paused(_)));

    // The resume is executed, but not recorded.
    let LeaseState::Paused(instance) = world.state("t").await else { panic!("not paused") };
    let stored = world.store.lease(&lease).await.unwrap().unwrap();
    let wanted = stored.apply(model::LeaseEvent::Wanted(Desired::Running)).unwrap();
    world.store.save_lease(&wanted).await.unwrap();
    world.provider.resume(&instance).await.unwrap();
    let world = world.crash().await;
    world.leases.recover().await.unwrap();
    assert!(matches!(world.state("t").await, LeaseState::Running(_)));

    // The thread is deleted, but its instance is not ended.
    let deleted =
        world.store.delete_thread(&"t".parse().unwrap(), instance.started_at).await.unwrap();
    assert_eq!(deleted.leases, std::slice::from_ref(&lease));
    let world = world.crash().await;
    world.leases.recover().await.unwrap();
    let stored = world.store.lease(&lease).await.unwrap().unwrap();
    assert_eq!(stored.state, LeaseState::Destroyed);
    assert_eq!(world.instances().await, 0);
    assert_eq!(living(world.home.path()), Vec::<String>::new());
}

#[tokio::test]
async fn orphans_are_ended_and_recorded() {
    let world = World::new();
    let lease = world.lease("t").await;
    let running = world.leases.running(&lease).await.unwrap();
    let orphan = Intent {
        lease_id: model::LeaseId::fresh(),
        generation: 1,
        instance_id: model::InstanceId::fresh(),
        spec: serde_json::Value::Null,
    };
    world.provider.create(&orphan).await.unwrap();
    // A second instance of a lease that has one.
    let double = Intent { lease_id: lease.clone(), generation: 9, ..orphan.clone() };
    let double = Intent { instance_id: model::InstanceId::fresh(), ..double };
    world.provider.create(&double).await.unwrap();
    assert_eq!(world.instances().await, 3);
    assert_eq!(world.leases.reap().await, 2);
    let found: Vec<Found> = world.provider.find_by_label(None).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].instance_id, running.instance.instance_id);
    let ledger = world.store.ledger_last(10).await.unwrap();
    let mut subjects: Vec<_> = ledger.iter().map(|entry| entry.subject.clone()).collect();
    let mut expected = vec![orphan.instance_id.to_string(), double.instance_id.to_string()];
    subjects.sort();
    expected.sort();
    assert_eq!(subjects, expected);
    assert!(ledger.iter().all(|entry| entry.kind == "orphan_ended"));
    world.end_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreliable_provider_causes_one_instance_and_no_orphan() {
    // Every pair of faults, and a long sequence of faults.
    let mut plans: Vec<Vec<Fault>> = Vec::new();
    for first in Fault::ALL {
        for second in Fault::ALL {
            plans.push(vec![first, second, Fault::None]);
        }
    }
    plans.push(vec![
        Fault::AnswerLost,
        Fault::AnswerLost,
        Fault::AnswerLost,
        Fault::ServerError,
        Fault::Undelivered,
        Fault::Doubled,
        Fault::None,
    ]);
    for plan in plans {
        let home = Arc::new(Home::new());
        let provider = Arc::new(Faulty::new(local(home.path()), plan.clone()));
        let world = World::with(home, Hands::default(), provider);
        let lease = world.lease("t").await;
        let callers = (0..8).map(|_| world.leases.running(&lease));
        let mut instances = Vec::new();
        for result in futures_util::future::join_all(callers).await {
            match result {
                Ok(running) => instances.push(running.instance),
                Err(LeaseError::Provider { .. }) => {}
                Err(error) => panic!("{plan:?}: {error:?}"),
            }
        }
        instances.dedup();
        assert!(instances.len() <= 1, "{plan:?}: {instances:?}");
        let again = until_ok(|| world.leases.running(&lease)).await;
        if let Some(instance) = instances.first() {
            assert_eq!(again.instance, *instance, "{plan:?}");
        }
        until_ok(|| world.leases.pause(&lease)).await;
        until_ok(|| world.leases.running(&lease)).await;
        world.leases.reap().await;
        let alive: Vec<_> = local(world.home.path()).find_by_label(None).await.unwrap();
        let alive = alive.into_iter().filter(|found| found.observed != Observed::Gone);
        assert_eq!(alive.count(), 1, "{plan:?}");
        until_ok(|| world.leases.destroy(&lease)).await;
        assert_eq!(world.instances().await, 0, "{plan:?}");
        assert_eq!(living(world.home.path()), Vec::<String>::new(), "{plan:?}");
    }
}

/// Retries until a call succeeds.
async fn until_ok<T, F: Future<Output = Result<T, LeaseError>>>(ask: impl Fn() -> F) -> T {
    let mut last = None;
    for _ in 0..20 {
        match ask().await {
            Ok(value) => return value,
            Err(error) => last = Some(error),
        }
    }
    panic!("twenty attempts failed: {last:?}");
}

#[tokio::test]
async fn a_lease_that_loses_its_instance_too_often_is_retried_after_a_delay() {
    let world = World::new();
    let lease = world.lease("t").await;
    let mut made = 0;
    let exhausted = loop {
        match world.leases.running(&lease).await {
            Ok(running) => {
                made += 1;
                kill_host(world.home.path(), &running.instance.instance_id);
                wait_lost(&world, &running).await;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(made, 10);
    let LeaseError::Exhausted { retry_after, .. } = exhausted else { panic!("{exhausted:?}") };
    assert!(retry_after > Duration::from_secs(500), "{retry_after:?}");
    world.end_all().await;
}

#[tokio::test]
async fn a_destroyed_lease_that_is_needed_again_keeps_its_id() {
    let world = World::new();
    let lease = world.lease("t").await;
    world.leases.running(&lease).await.unwrap();
    world.leases.destroy(&lease).await.unwrap();
    assert_eq!(world.lease("t").await, lease);
    let running = world.leases.running(&lease).await.unwrap();
    assert_eq!(running.instance.generation, 2);
    world.end_all().await;
}

#[tokio::test]
async fn a_shared_instance_ends_with_the_last_of_its_threads() {
    let world = World::new();
    let one = world.open("one").await;
    let mut first = world.first_use("two");
    first.choices.lease_id = Some(one.lease.lease_id.clone());
    let policy = SessionPolicy { on_expiry: OnExpiry::Keep, ..SessionPolicy::default() };
    first.choices.policy = Some(policy);
    world.sessions.open(first).await.unwrap();
    let running = world.leases.running(&one.lease.lease_id).await.unwrap();
    let mut link = Link::new(world.leases.connect(&running).await.unwrap().stream).await;
    link.open_ticking(world.home.path()).await;
    let at = one.thread.created_at;
    let deleted = world.store.delete_thread(&"one".parse().unwrap(), at).await.unwrap();
    assert_eq!(deleted.leases, []);
    link.ticks().await;
    let deleted = world.store.delete_thread(&"two".parse().unwrap(), at).await.unwrap();
    for lease in deleted.leases {
        world.leases.destroy(&lease).await.unwrap();
    }
    assert_eq!(world.instances().await, 0);
    assert_eq!(living(world.home.path()), Vec::<String>::new());
}
