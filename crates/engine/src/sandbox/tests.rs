//! Expiry of sandboxes, also of those that an earlier server left in the store.

use std::{collections::BTreeMap, path::Path, time::Duration};

use base::{
    clock::Clock,
    event::{Delivery, EventKind, EventSubscription, Events},
};
use model::{ExpiryAction, Moment, PortAccess, ProjectId};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::terminal::test_support;

/// A server on a home directory. It starts no instance.
struct Server {
    sandboxes: Sandboxes,
    store: Store,
    events: EventSubscription,
    stop: CancellationToken,
}

impl Server {
    fn start(home: &Path) -> Server {
        let (clock, stop) = (Clock::system(), CancellationToken::new());
        let store = Store::open(home).unwrap();
        let events = Events::new(clock.clone());
        let listener = events.subscribe(None);
        let leases = test_support::leases(home, &store, &events, &clock, stop.clone());
        let terminals = test_support::terminals(home, &store, &events, leases.clone());
        let sessions = Sessions::new(
            store.clone(),
            leases.clone(),
            events.clone(),
            clock.clone(),
            Duration::ZERO,
        );
        let removals = Removals::new(
            store.clone(),
            leases.clone(),
            terminals.clone(),
            sessions.clone(),
            events.clone(),
            stop.clone(),
        );
        let sandboxes =
            Sandboxes::new(store.clone(), leases, terminals, sessions, removals, events, clock);
        Server { sandboxes, store, events: listener, stop }
    }

    async fn create(&self, name: &str, change: impl FnOnce(&mut Sandbox)) -> SandboxRecord {
        let now = Moment::wall(self.sandboxes.now());
        let first = test_support::first_use(name, now);
        let mut sandbox = Sandbox {
            thread_id: first.thread_id.clone(),
            project_id: ProjectId::default_project(),
            name: None,
            origin: "test".into(),
            template: "base".into(),
            build_id: None,
            user: "user".into(),
            home: "/home/user".into(),
            state: SandboxState::Active,
            started_at: now.at,
            lifetime: None,
            expires_at: None,
            on_expiry: ExpiryAction::Delete,
            expires_while_paused: false,
            delete_after_stop: None,
            auto_resume: false,
            port_access: PortAccess::Token,
            labels: BTreeMap::new(),
            extra: BTreeMap::new(),
            created_at: now.at,
            updated_at: now.at,
            revision: 0,
        };
        change(&mut sandbox);
        self.sandboxes.create(first, sandbox).await.unwrap()
    }

    /// Waits for the next sandbox to be deleted.
    async fn deleted(&mut self) -> String {
        let next = async {
            loop {
                if let Some(Delivery::Event(event)) = self.events.next().await
                    && let EventKind::ThreadDeleted { thread_id } = event.kind
                {
                    return thread_id.to_string();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(15), next).await.expect("a sandbox is deleted")
    }

    fn run(&self) {
        let (sandboxes, stop) = (self.sandboxes.clone(), self.stop.clone());
        tokio::spawn(async move { sandboxes.run(stop).await });
    }
}

#[tokio::test]
async fn a_server_expires_sandboxes_that_an_earlier_server_left() {
    let home = tempfile::tempdir().unwrap();
    let before = Server::start(home.path());
    before.create("expired", |it| it.expires_at = Some(it.started_at)).await;
    before.create("lasting", |_| {}).await;
    let paused = |it: &mut Sandbox| {
        (it.expires_at, it.state) = (Some(it.started_at), SandboxState::Suspended);
    };
    before.create("suspended", paused).await;
    let stopped = before.create("stopped", |it| it.delete_after_stop = Some(Duration::ZERO)).await;
    before.sandboxes.shared.leases.stop(&stopped.thread.lease_id).await.unwrap();
    // The server is killed before its scheduler has done anything.
    before.stop.cancel();
    drop(before);

    let mut server = Server::start(home.path());
    server.run();
    let mut deleted = [server.deleted().await, server.deleted().await];
    deleted.sort();
    assert_eq!(deleted, ["expired", "stopped"]);
    let left = server.sandboxes.all(SandboxFilter::default()).await.unwrap();
    let mut left: Vec<_> = left.iter().map(|it| it.id().as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["lasting", "suspended"]);
    assert!(server.store.thread(&"expired".parse().unwrap()).await.unwrap().is_none());
    server.stop.cancel();
}

#[tokio::test]
async fn a_changed_lifetime_and_a_stop_take_effect_at_once() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path());
    server.run();
    let sandbox = server.create("short", |_| {}).await;
    let shortened = server.sandboxes.extend(sandbox.id(), Extension::Exactly(Duration::ZERO)).await;
    assert!(shortened.unwrap().is_some());
    assert_eq!(server.deleted().await, "short");
    let sandbox = server.create("stops", |it| it.delete_after_stop = Some(Duration::ZERO)).await;
    // The scheduler may be faster than the answer.
    let _ = server.sandboxes.stop(&sandbox).await;
    assert_eq!(server.deleted().await, "stops");
    // A deletion can be repeated until it is complete.
    while server.sandboxes.delete(sandbox.id()).await.unwrap() {}
    server.stop.cancel();
}

#[tokio::test]
async fn concurrent_changes_are_all_applied() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    let sandbox = server.create("s", |_| {}).await;
    let changes = (0..8).map(|index| {
        let (sandboxes, id) = (server.sandboxes.clone(), sandbox.id().clone());
        tokio::spawn(async move {
            let add = |it: &mut Sandbox| drop(it.labels.insert(index.to_string(), String::new()));
            sandboxes.change(&id, add).await.unwrap().unwrap();
        })
    });
    for change in changes.collect::<Vec<_>>() {
        change.await.unwrap();
    }
    let changed = server.sandboxes.get(sandbox.id()).await.unwrap().unwrap();
    assert_eq!((changed.row.labels.len(), changed.row.revision), (8, 8));
}
