//! Faults of PostgreSQL: a call succeeds durably or fails clearly, and nothing happens twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use harness::{Postgres, wait_for};

use super::{at, backend::open_url, command, first_use, id};
use crate::*;
use model::*;

/// Writes from several tasks until it is stopped. Returns the texts of the messages that were acknowledged, and of those
/// that failed, per task.
async fn write_until(store: &Store, stop: &Arc<AtomicBool>) -> Vec<(Vec<String>, Vec<String>)> {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, stop) = (store.clone(), stop.clone());
        writers.spawn(async move {
            let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let content = format!("{writer}-{number}");
                let message = Message {
                    message_id: MessageId::fresh(),
                    role: Role::User,
                    content: content.clone(),
                    at: at(number).at,
                };
                match store.add_message(&id("t"), message).await {
                    Ok(()) => acknowledged.push(content),
                    Err(StoreError::Unavailable { .. }) => failed.push(content),
                    Err(other) => panic!("{other}"),
                }
            }
            (acknowledged, failed)
        });
    }
    writers.join_all().await
}

/// Disturbs the server while messages are written, and compares what is stored with what was acknowledged.
fn survives(disturb: impl FnOnce(&mut Postgres) + Send) {
    let Some(mut server) = Postgres::start() else { return };
    server.create("faults");
    let store = open_url(&server.url("faults"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(store.open_chain(first_use("t", 0))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (outcomes, count) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| runtime.block_on(write_until(&store, &stop)));
        let enough = |count: u64| {
            wait_for("writes", || {
                let commits = store.counts().commits;
                if commits >= count { Ok(commits) } else { Err(commits) }
            })
        };
        enough(50);
        disturb(&mut server);
        let before = store.counts().commits;
        let count = enough(before + 50);
        stop.store(true, Ordering::Relaxed);
        (writing.join().unwrap(), count)
    });
    let stored = server.query("faults", "SELECT content FROM messages");
    let mut stored: Vec<&str> = stored.lines().collect();
    let total = stored.len();
    stored.sort_unstable();
    stored.dedup();
    assert_eq!(stored.len(), total, "nothing is written twice");
    let (mut acknowledged, mut unknown) = (0, 0);
    for (succeeded, failed) in outcomes {
        acknowledged += succeeded.len();
        for content in &succeeded {
            assert!(stored.binary_search(&content.as_str()).is_ok(), "{content} is lost");
        }
        unknown += failed.iter().filter(|it| stored.binary_search(&it.as_str()).is_ok()).count();
    }
    eprintln!(
        "{acknowledged} acknowledged, {unknown} of unknown outcome are stored, {count} commits"
    );
    assert_eq!(total, acknowledged + unknown);
    assert_eq!(runtime.block_on(store.probe()), Ok(()));
}

#[test]
fn what_is_acknowledged_survives_a_crash_of_postgresql() {
    survives(|server| {
        for _ in 0..3 {
            server.kill();
            server.resume();
        }
    });
}

#[test]
fn what_is_acknowledged_survives_a_restart_of_postgresql() {
    survives(|server| {
        server.stop();
        server.resume();
    });
}

#[test]
fn a_terminated_connection_is_replaced() {
    survives(|server| {
        for _ in 0..20 {
            let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                          WHERE application_name = 'stead' AND pid <> pg_backend_pid()";
            server.query("faults", others);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_an_error_and_the_next_works() {
    let Some(server) = Postgres::start() else { return };
    server.create("faults");
    let store = open_url(&server.url("faults"));
    let slow = store
        .write(|db| {
            db.on_postgres("SELECT set_config('statement_timeout', '100ms', true)", ())?;
            Ok(db.on_postgres("SELECT pg_sleep(5)", ())?)
        })
        .await;
    let reason = slow.unwrap_err().to_string();
    assert!(reason.contains("statement timeout"), "{reason}");
    assert_eq!(store.probe().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_conflicts_is_repeated() {
    let Some(server) = Postgres::start() else { return };
    server.create("faults");
    let store = open_url(&server.url("faults"));
    // Each reads the number and writes the next one; without repetitions, most would fail, or overwrite each other.
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let store = store.clone();
        writers.spawn(async move { store.probe().await });
    }
    assert!(writers.join_all().await.iter().all(Result::is_ok));
    assert_eq!(server.query("faults", "SELECT value FROM meta WHERE key = 'probe'"), "40");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_all_characters_is_stored_and_lists_are_ordered_by_bytes() {
    let Some(server) = Postgres::start() else { return };
    server.create("faults");
    let store = open_url(&server.url("faults"));
    let names = ["Z", "a", "a-b", "aB", "ab", "é", "\u{10000}"];
    for name in names.iter().rev() {
        store.open_chain(first_use(name, 0)).await.unwrap();
    }
    let listed = store.threads(ThreadFilter::default(), PageRequest::first(10)).await.unwrap();
    let listed: Vec<String> = listed.items.iter().map(|it| it.thread_id.to_string()).collect();
    assert_eq!(listed, names);
    let chain = store.open_chain(first_use("a", 0)).await.unwrap();
    let text = "nul \0 and \u{10FFFF} and é";
    let queued = command(&chain, text, 1);
    store.save_command(&queued).await.unwrap();
    assert_eq!(store.command(&queued.command_id).await.unwrap().unwrap().text, text);
}

#[test]
fn a_second_server_of_the_same_database_is_refused() {
    let Some(server) = Postgres::start() else { return };
    server.create("faults");
    let store = open_url(&server.url("faults"));
    let second = Store::open_postgres(&server.url("faults")).unwrap_err();
    assert_eq!(
        second.to_string(),
        "the PostgreSQL database cannot be used: another server uses it"
    );
    drop(store);
    Store::open_postgres(&server.url("faults")).unwrap();
}

#[test]
fn a_database_that_would_lose_changes_is_refused() {
    let Some(server) = Postgres::start() else { return };
    server.create("faults");
    server.query("postgres", "ALTER DATABASE faults SET synchronous_commit = off");
    let refused = Store::open_postgres(&server.url("faults")).unwrap_err().to_string();
    assert!(refused.contains("synchronous_commit is off"), "{refused}");
    let found = inspect_postgres(&server.url("postgres")).unwrap();
    assert_eq!((found.applied, found.known), (0, 1), "an inspection changes nothing");
    let began = std::time::Instant::now();
    let absent = Store::open_postgres("postgres://user@%2Fno-such-directory/x").unwrap_err();
    assert!(matches!(absent, OpenError::Store(_)), "{absent}");
    assert!(began.elapsed() < Duration::from_secs(10));
}
