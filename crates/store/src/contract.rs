//! The contract of every backend of the store: guarantees that callers rely on.

#![expect(clippy::cloned_ref_to_slice_refs, reason = "a list of one element is easier to read")]

mod backend;
mod faults;
mod file;
mod handoffs;
mod sandboxes;

use std::{collections::BTreeMap, time::Duration};

use tempfile::TempDir;

use super::*;
use model::*;

/// A store in its own home.
struct World {
    home: TempDir,
    store: Store,
}

/// Returns the moment this many seconds after a fixed one.
fn at(second: u64) -> Moment {
    let wall = Timestamp::from_second(1_700_000_000 + i64::try_from(second).unwrap()).unwrap();
    Moment::new(wall, 7, Duration::from_secs(1_000 + second))
}

fn id(name: &str) -> ThreadId {
    name.parse().unwrap()
}

fn first_use(name: &str, second: u64) -> FirstUse {
    FirstUse {
        thread_id: id(name),
        choices: ThreadChoices::default(),
        policy: SessionPolicy::default(),
        provider: "local".into(),
        shell: ShellKind::Bash,
        size: (80, 24),
        now: at(second),
    }
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = backend::open(&home);
        Self { home, store }
    }

    /// Reopens the store, as a restarted server does.
    fn reopen(self) -> Self {
        let Self { home, store } = self;
        drop(store);
        let store = backend::open(&home);
        Self { home, store }
    }

    async fn chain(&self, name: &str) -> Chain {
        self.store.open_chain(first_use(name, 0)).await.unwrap()
    }

    /// Executes statements beside the store, each in the words of its database.
    fn execute(&self, sqlite: &str, postgres: &str) -> String {
        backend::execute(&self.home, sqlite, postgres)
    }

    fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        self.execute(&sql, &sql).parse().unwrap()
    }
}

fn change(expected: u64, sections: &[(&str, &str)]) -> StateChange {
    StateChange {
        expected,
        cause: Cause::Typed,
        changed: sections
            .iter()
            .map(|(name, bytes)| Section::new(*name, bytes.as_bytes().to_vec()))
            .collect(),
        removed: vec![],
        cwd: "/w".into(),
        env_delta: None,
        at: at(expected).at,
    }
}

fn command(chain: &Chain, text: &str, second: u64) -> Command {
    let terminal = chain.terminal.terminal_id.clone();
    let at = at(second).at;
    Command::queued(CommandId::fresh(), terminal, text.into(), Source::Agent, 0, at)
}

fn finished(command: &Command, exit_code: i32) -> Command {
    let at = command.created_at;
    let end = CommandEnd::Finished { exit_code: Some(exit_code), signal: None };
    command.start(at, 0).unwrap().end(end, at).unwrap()
}

backend::on_postgres![
    all_layers_are_created_on_first_use_and_found_again,
    recent_commands_are_listed_across_threads_or_for_one,
    a_get_does_not_create_a_thread,
    a_new_session_follows_an_expired_one_and_the_state_stays,
    a_session_expires_exactly_once,
    a_touch_postpones_the_expiry,
    a_custom_policy_is_stored_and_applies_to_the_open_session,
    a_thread_keeps_its_provider_and_its_lease,
    a_missing_terminal_or_lease_row_is_recreated_with_the_same_id,
    a_shared_lease_is_released_with_its_last_thread,
    there_is_one_default_terminal_per_thread,
    all_terminals_of_a_thread_are_counted_and_listed_in_pages,
    a_version_rises_by_one_and_persists_and_a_stale_writer_is_refused,
    unchanged_sections_are_shared_and_removed_ones_are_deleted,
    state_is_isolated_between_terminals,
    a_rollback_is_a_new_version,
    a_fork_starts_with_the_state_of_its_source,
    pruning_removes_old_versions_and_keeps_the_others_complete,
    a_destroyed_lease_is_removed_once_no_thread_refers_to_it,
    the_end_of_a_command_its_state_and_its_activity_are_one_transaction,
    a_finished_command_does_not_change,
    history_is_searched_literally_and_paged,
    a_lease_is_saved_only_at_its_last_revision,
    leases_are_listed_by_provider,
    many_concurrent_threads_are_all_created_and_listed_in_pages,
    a_failing_change_does_not_affect_others,
    messages_keep_their_order,
    an_idempotency_key_has_one_response_for_one_request,
    a_token_is_valid_by_its_hash_until_it_is_revoked,
    the_ledger_is_bounded,
    missing_json_fields_of_an_older_row_get_defaults,
    a_closed_default_terminal_is_replaced,
];

#[tokio::test]
async fn all_layers_are_created_on_first_use_and_found_again() {
    let world = World::new();
    let created = world.chain("t").await;
    assert!(created.thread_is_new && created.session_is_new);
    assert_eq!(created.thread.project_id, ProjectId::default_project());
    assert_eq!(created.thread.terminal_id, created.terminal.terminal_id);
    assert_eq!(created.thread.lease_id, created.lease.lease_id);
    assert_eq!(created.session.terminal_id, created.terminal.terminal_id);
    assert_eq!(created.session.policy, SessionPolicy::default());
    let world = world.reopen();
    let again = world.store.open_chain(first_use("t", 60)).await.unwrap();
    assert_eq!(again, Chain { thread_is_new: false, session_is_new: false, ..created });
    assert_eq!(world.store.counts().changes, 0, "finding a chain writes nothing");
}

#[tokio::test]
async fn recent_commands_are_listed_across_threads_or_for_one() {
    let world = World::new();
    let (a, b) = (world.chain("a").await, world.chain("b").await);
    for (chain, text) in [(&a, "one"), (&b, "two"), (&a, "three"), (&b, "four")] {
        world.store.save_command(&command(chain, text, 0)).await.unwrap();
    }
    let list = async |thread: Option<&str>, before: Option<CommandId>, limit| {
        let wanted = RecentCommands { thread: thread.map(id), before, limit };
        world.store.recent_commands(wanted).await.unwrap()
    };
    let texts = |found: &[RecentCommand]| -> Vec<String> {
        found.iter().map(|one| format!("{} {}", one.thread_id, one.command.text)).collect()
    };
    let first = list(None, None, 3).await;
    assert_eq!(texts(&first), ["b four", "a three", "b two"]);
    let rest = list(None, Some(first[2].command.command_id.clone()), 3).await;
    assert_eq!(texts(&rest), ["a one"]);
    assert_eq!(texts(&list(Some("a"), None, 3).await), ["a three", "a one"]);
    let latest = async |thread: &str| {
        world.store.latest_command(&id(thread)).await.unwrap().map(|command| command.text)
    };
    assert_eq!(latest("b").await.as_deref(), Some("four"));
    assert_eq!(latest("none").await, None);
    let closed = b.terminal.terminal_id;
    world.store.apply_terminal(&closed, TerminalEvent::Closed, at(1).at).await.unwrap();
    assert_eq!(texts(&list(None, None, 3).await), ["a three", "a one"]);
    assert_eq!((latest("a").await.as_deref(), latest("b").await), (Some("three"), None));
}

#[tokio::test]
async fn a_get_does_not_create_a_thread() {
    let world = World::new();
    assert_eq!(world.store.thread(&id("t")).await.unwrap(), None);
    assert_eq!(world.store.last_session(&id("t")).await.unwrap(), None);
    assert_eq!(world.count("threads"), 0);
}

#[tokio::test]
async fn a_new_session_follows_an_expired_one_and_the_state_stays() {
    let world = World::new();
    let created = world.chain("t").await;
    let terminal = &created.terminal.terminal_id;
    world.store.add_version(terminal, change(0, &[("env", "A=1")])).await.unwrap();
    let later = world.store.open_chain(first_use("t", 1800)).await.unwrap();
    let expired = later.expired.unwrap();
    assert_eq!(expired.session_id, created.session.session_id);
    assert_eq!(expired.status(), SessionStatus::Expired);
    assert!(later.session_is_new && later.session.session_id != created.session.session_id);
    assert_eq!(later.terminal.terminal_id, *terminal);
    assert_eq!(later.terminal.version, 1);
    let open = world.store.open_sessions().await.unwrap();
    assert_eq!(open, [later.session.clone()], "the expired session is filtered");
    let all = world.store.sessions(SessionFilter::All, PageRequest::first(10)).await.unwrap();
    assert_eq!(all.items.len(), 2);
    assert_eq!(world.store.last_session(&id("t")).await.unwrap().unwrap(), later.session);
}

#[tokio::test]
async fn a_session_expires_exactly_once() {
    let world = World::new();
    let session = world.chain("t").await.session.session_id;
    let expire = || world.store.apply_session(&session, SessionEvent::Elapsed(at(1800)));
    let both = tokio::join!(expire(), expire());
    assert_eq!(i32::from(both.0.is_ok()) + i32::from(both.1.is_ok()), 1, "{both:?}");
    let touched = world.store.apply_session(&session, SessionEvent::Touched(at(1801))).await;
    assert!(matches!(touched, Err(StoreError::Refused(_))), "{touched:?}");
}

#[tokio::test]
async fn a_touch_postpones_the_expiry() {
    let world = World::new();
    let before = world.chain("t").await.session;
    let touch = SessionEvent::Touched(at(100));
    let after = world.store.apply_session(&before.session_id, touch).await.unwrap();
    assert_eq!(after.expires_at(), at(1900).at);
    assert_eq!(world.store.session(&before.session_id).await.unwrap(), Some(after));
}

#[tokio::test]
async fn a_custom_policy_is_stored_and_applies_to_the_open_session() {
    let world = World::new();
    let policy = SessionPolicy {
        idle_timeout_s: 5,
        max_duration_s: 50,
        on_expiry: OnExpiry::Stop,
        ..SessionPolicy::default()
    };
    let mut first = first_use("t", 0);
    first.choices.policy = Some(policy);
    let (thread, created) = world.store.put_thread(first).await.unwrap();
    assert!(created);
    assert_eq!(thread.policy, policy);
    assert_eq!(world.store.last_session(&id("t")).await.unwrap(), None, "PUT opens no session");
    assert_eq!(world.chain("t").await.session.policy, policy);
    let longer = SessionPolicy { idle_timeout_s: 500, ..policy };
    let mut again = first_use("t", 1);
    again.choices.policy = Some(longer);
    let (_, created) = world.store.put_thread(again).await.unwrap();
    assert!(!created);
    let world = world.reopen();
    assert_eq!(world.chain("t").await.session.policy, longer);
}

#[tokio::test]
async fn a_thread_keeps_its_provider_and_its_lease() {
    let world = World::new();
    world.chain("t").await;
    let mut other = first_use("t", 1);
    other.choices.provider = Some("docker".into());
    let refused = world.store.put_thread(other).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let mut other = first_use("t", 1);
    other.choices.lease_id = Some(LeaseId::fresh());
    let refused = world.store.put_thread(other).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let mut orphan = first_use("u", 1);
    orphan.choices.lease_id = Some(LeaseId::fresh());
    let missing = world.store.put_thread(orphan).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
    assert_eq!(world.count("threads"), 1);
}

#[tokio::test]
async fn a_missing_terminal_or_lease_row_is_recreated_with_the_same_id() {
    let world = World::new();
    let created = world.chain("t").await;
    world.execute(
        "PRAGMA foreign_keys = OFF; DELETE FROM terminals; DELETE FROM leases;",
        "SET session_replication_role = replica; DELETE FROM terminals; DELETE FROM leases;",
    );
    let again = world.chain("t").await;
    assert_eq!(again.terminal.terminal_id, created.terminal.terminal_id);
    assert_eq!(again.lease.lease_id, created.lease.lease_id);
    assert_eq!(again.session.session_id, created.session.session_id);
}

#[tokio::test]
async fn a_shared_lease_is_released_with_its_last_thread() {
    let world = World::new();
    let one = world.chain("one").await;
    let mut first = first_use("two", 0);
    first.choices.lease_id = Some(one.lease.lease_id.clone());
    let two = world.store.open_chain(first).await.unwrap();
    assert_eq!(two.lease.lease_id, one.lease.lease_id);
    assert_ne!(two.terminal.terminal_id, one.terminal.terminal_id);
    let shared = world.store.lease_threads(&one.lease.lease_id).await.unwrap();
    assert_eq!(shared, [id("one"), id("two")]);
    let deleted = world.store.delete_thread(&id("one"), at(1).at).await.unwrap();
    assert_eq!(deleted.leases, []);
    assert_eq!(deleted.terminals, [(one.terminal.terminal_id, one.lease.lease_id.clone())]);
    let deleted = world.store.delete_thread(&id("two"), at(2).at).await.unwrap();
    assert_eq!(deleted.leases, [one.lease.lease_id.clone()]);
    let lease = world.store.lease(&one.lease.lease_id).await.unwrap().unwrap();
    assert_eq!(lease.desired, Desired::Destroyed);
    assert_eq!(world.store.unsettled_leases().await.unwrap(), [lease]);
}

#[tokio::test]
async fn there_is_one_default_terminal_per_thread() {
    let world = World::new();
    let created = world.chain("t").await;
    let second = Terminal { terminal_id: TerminalId::fresh(), ..created.terminal.clone() };
    let refused = world.store.add_terminal(&second).await;
    assert_eq!(refused, Err(StoreError::Exists { what: "default terminal of thread t".into() }));
    let more = Terminal { is_default: false, ..second };
    world.store.add_terminal(&more).await.unwrap();
    assert_eq!(world.store.thread_terminals(&id("t")).await.unwrap().len(), 2);
    let lost = Terminal { thread_id: id("u"), terminal_id: TerminalId::fresh(), ..more };
    let missing = world.store.add_terminal(&lost).await;
    assert_eq!(missing, Err(StoreError::Missing { what: "thread u".into() }));
}

#[tokio::test]
async fn all_terminals_of_a_thread_are_counted_and_listed_in_pages() {
    let world = World::new();
    let first = world.chain("t").await.terminal;
    let more = (0..1_010).map(|_| Terminal {
        terminal_id: TerminalId::fresh(),
        is_default: false,
        ..first.clone()
    });
    for terminal in more {
        world.store.add_terminal(&terminal).await.unwrap();
    }
    assert_eq!(world.store.count_terminals(&id("t")).await.unwrap(), 1_011);
    let all = world.store.thread_terminals(&id("t")).await.unwrap();
    let mut listed = Vec::new();
    let mut page = PageRequest::first(500);
    loop {
        let found = world.store.thread_terminals_page(&id("t"), page).await.unwrap();
        listed.extend(found.items);
        let Some(next) = found.next else { break };
        page = PageRequest { limit: 500, after: Some(next) };
    }
    assert_eq!((listed.len(), listed == all), (1_011, true));
}

#[tokio::test]
async fn a_version_rises_by_one_and_persists_and_a_stale_writer_is_refused() {
    let world = World::new();
    let terminal = world.chain("t").await.terminal.terminal_id;
    let state = [("env", "A=1"), ("functions", "f() { :; }")];
    assert_eq!(world.store.add_version(&terminal, change(0, &state)).await, Ok(1));
    assert_eq!(world.store.add_version(&terminal, change(1, &[("env", "A=2")])).await, Ok(2));
    let late = world.store.add_version(&terminal, change(1, &[("env", "A=3")])).await;
    let what = format!("terminal {terminal}");
    assert_eq!(late, Err(StoreError::Conflict { what, expected: 1, found: 2 }));
    let world = world.reopen();
    let state = world.store.terminal_state(&terminal, None).await.unwrap();
    assert_eq!(state.version, 2);
    let text = |name: &str| String::from_utf8(state.sections[name].clone()).unwrap();
    assert_eq!((text("env").as_str(), text("functions").as_str()), ("A=2", "f() { :; }"));
    let old = world.store.terminal_state(&terminal, Some(1)).await.unwrap();
    assert_eq!(old.sections["env"], b"A=1");
    let versions = world.store.versions(&terminal, PageRequest::first(1)).await.unwrap();
    assert_eq!(versions.items[0].changed, ["env"]);
    let next = PageRequest { limit: 5, after: versions.next };
    let versions = world.store.versions(&terminal, next).await.unwrap();
    assert_eq!(versions.items.len(), 1);
    assert_eq!((versions.items[0].version, versions.next), (1, None));
}

#[tokio::test]
async fn unchanged_sections_are_shared_and_removed_ones_are_deleted() {
    let world = World::new();
    let a = world.chain("a").await.terminal.terminal_id;
    let b = world.chain("b").await.terminal.terminal_id;
    let big = "x=".repeat(100_000);
    world.store.add_version(&a, change(0, &[("vars", &big), ("env", "A=1")])).await.unwrap();
    world.store.add_version(&b, change(0, &[("vars", &big)])).await.unwrap();
    assert_eq!(world.count("blobs"), 2);
    let sum = "SELECT sum(length(bytes)) FROM blobs";
    let kept: i64 = world.execute(sum, sum).parse().unwrap();
    assert!(kept < 2000, "{kept} bytes for one compressed content");
    let removal = StateChange { removed: vec!["env".into()], ..change(1, &[]) };
    world.store.add_version(&a, removal).await.unwrap();
    let state = world.store.terminal_state(&a, None).await.unwrap();
    assert_eq!(state.sections, BTreeMap::from([("vars".to_owned(), big.clone().into_bytes())]));
    world.store.delete_terminal(&a, at(9).at).await.unwrap();
    assert_eq!(world.count("blobs"), 1, "contents of another terminal stay");
    let other = world.store.terminal_state(&b, None).await.unwrap();
    assert_eq!(other.sections["vars"], big.into_bytes());
    world.store.delete_thread(&id("b"), at(9).at).await.unwrap();
    assert_eq!(world.count("blobs"), 0);
}

#[tokio::test]
async fn state_is_isolated_between_terminals() {
    let world = World::new();
    let a = world.chain("a").await.terminal.terminal_id;
    let b = world.chain("b").await.terminal.terminal_id;
    world.store.add_version(&a, change(0, &[("env", "A=1")])).await.unwrap();
    let other = world.store.terminal_state(&b, None).await.unwrap();
    assert_eq!(other, TerminalState::default());
}

#[tokio::test]
async fn a_rollback_is_a_new_version() {
    let world = World::new();
    let terminal = world.chain("t").await.terminal.terminal_id;
    let store = &world.store;
    store.add_version(&terminal, change(0, &[("env", "A=1"), ("vars", "v")])).await.unwrap();
    let second =
        StateChange { removed: vec!["vars".into()], ..change(1, &[("env", "A=2"), ("new", "n")]) };
    store.add_version(&terminal, second).await.unwrap();
    let before = store.terminal_state(&terminal, Some(1)).await.unwrap();
    assert_eq!(store.rollback(&terminal, 2, 1, BTreeMap::new(), at(5).at).await, Ok(3));
    let after = store.terminal_state(&terminal, None).await.unwrap();
    assert_eq!(after, TerminalState { version: 3, ..before });
    let listed = store.versions(&terminal, PageRequest::first(1)).await.unwrap();
    assert_eq!(listed.items[0].cause, Cause::Rollback { to: 1 });
    assert_eq!(listed.items[0].changed, ["env", "new", "vars"]);
    let stale = store.rollback(&terminal, 2, 1, BTreeMap::new(), at(6).at).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    let unknown = store.rollback(&terminal, 3, 99, BTreeMap::new(), at(6).at).await;
    assert!(matches!(unknown, Err(StoreError::Missing { .. })), "{unknown:?}");
}

#[tokio::test]
async fn a_fork_starts_with_the_state_of_its_source() {
    let world = World::new();
    let from = world.chain("t").await.terminal;
    let store = &world.store;
    store.add_version(&from.terminal_id, change(0, &[("env", "A=1")])).await.unwrap();
    store.add_version(&from.terminal_id, change(1, &[("env", "A=2")])).await.unwrap();
    let to = Terminal { terminal_id: TerminalId::fresh(), is_default: false, ..from.clone() };
    store.add_terminal(&to).await.unwrap();
    let forked =
        store.fork_state(&from.terminal_id, 1, &to.terminal_id, BTreeMap::new(), at(5).at).await;
    assert_eq!(forked, Ok(1));
    let state = store.terminal_state(&to.terminal_id, None).await.unwrap();
    assert_eq!(state.sections["env"], b"A=1");
    store.delete_terminal(&from.terminal_id, at(6).at).await.unwrap();
    let state = store.terminal_state(&to.terminal_id, None).await.unwrap();
    assert_eq!(state.sections["env"], b"A=1", "deleting the source does not affect the fork");
}

#[tokio::test]
async fn pruning_removes_old_versions_and_keeps_the_others_complete() {
    let world = World::new();
    let terminal = world.chain("t").await.terminal.terminal_id;
    for version in 0..50u64 {
        let mut next = change(version, &[("env", &format!("A={version}"))]);
        if version == 3 {
            next.changed.push(Section::new("rare", b"kept".to_vec()));
        }
        world.store.add_version(&terminal, next).await.unwrap();
    }
    let day = |days: i64| at(0).at + jiff::SignedDuration::from_hours(24 * days);
    let keep = Retention { versions: 10, days: 30, max_versions: 48, commands: 10 };
    let pruned = world.store.prune(keep, day(29)).await.unwrap();
    assert_eq!(pruned.versions, 2, "all are recent, but there are too many");
    let pruned = world.store.prune(keep, day(31)).await.unwrap();
    assert_eq!(pruned.versions, 38);
    for version in 41..=50 {
        let state = world.store.terminal_state(&terminal, Some(version)).await.unwrap();
        assert_eq!(state.sections["env"], format!("A={}", version - 1).as_bytes());
        assert_eq!(state.sections["rare"], b"kept");
    }
    let removed = world.store.terminal_state(&terminal, Some(40)).await;
    assert!(matches!(removed, Err(StoreError::Missing { .. })), "{removed:?}");
    assert_eq!(world.count("blobs"), 11);
}

#[tokio::test]
async fn a_destroyed_lease_is_removed_once_no_thread_refers_to_it() {
    let world = World::new();
    let lease = world.chain("t").await.lease;
    let wanted = lease.apply(LeaseEvent::Wanted(Desired::Destroyed)).unwrap();
    let over = world.store.save_lease(&wanted.apply(LeaseEvent::Ended).unwrap()).await.unwrap();
    world.store.prune(Retention::default(), at(1).at).await.unwrap();
    assert_eq!(world.store.lease(&lease.lease_id).await.unwrap(), Some(over), "its thread lives");
    world.store.delete_thread(&id("t"), at(2).at).await.unwrap();
    world.store.prune(Retention::default(), at(3).at).await.unwrap();
    assert_eq!(world.count("leases"), 0);
}

#[tokio::test]
async fn the_end_of_a_command_its_state_and_its_activity_are_one_transaction() {
    let world = World::new();
    let chain = world.chain("t").await;
    let queued = command(&chain, "cd /tmp", 1);
    let finish = FinishCommand {
        command: finished(&queued, 0),
        state: Some(StateChange {
            cause: Cause::Exec { command_id: queued.command_id.clone() },
            cwd: "/tmp".into(),
            env_delta: Some(BTreeMap::from([("A".into(), Some("1".into())), ("B".into(), None)])),
            ..change(0, &[("env", "A=1")])
        }),
        output: Some(Outputs { stdout: b"out".to_vec(), stderr: vec![0xff] }),
        touch: Some((chain.session.session_id.clone(), at(100))),
    };
    let done = world.store.finish_command(finish.clone()).await.unwrap();
    assert_eq!((done.version, done.command.version_after), (1, Some(1)));
    assert_eq!(world.store.counts().changes, 2, "one change for the chain, one for the command");
    let world = world.reopen();
    let stored = world.store.command(&queued.command_id).await.unwrap().unwrap();
    assert_eq!(stored, done.command);
    let terminal = world.store.terminal(&queued.terminal_id).await.unwrap().unwrap();
    assert_eq!((terminal.version, terminal.cwd.as_str()), (1, "/tmp"));
    assert_eq!(terminal.env_delta["B"], None);
    let session = world.store.session(&chain.session.session_id).await.unwrap().unwrap();
    assert_eq!(session.expires_at(), at(1900).at);

    let again = world.store.finish_command(finish.clone()).await.unwrap();
    assert_eq!(again, done, "reporting the same end twice records it once");
    let kept = world.store.command_output(&queued.command_id).await.unwrap();
    assert_eq!(kept, finish.output);
    let other =
        FinishCommand { command: finished(&queued, 1), state: None, output: None, touch: None };
    let refused = world.store.finish_command(other).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");

    let stale = FinishCommand { command: finished(&command(&chain, "x", 2), 0), ..finish };
    let refused = world.store.finish_command(stale.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(world.store.command(&stale.command.command_id).await.unwrap(), None);
}

#[tokio::test]
async fn a_finished_command_does_not_change() {
    let world = World::new();
    let chain = world.chain("t").await;
    let queued = command(&chain, "make", 1);
    world.store.save_command(&queued).await.unwrap();
    let started = queued.start(at(2).at, 7).unwrap();
    world.store.save_command(&started).await.unwrap();
    let open = world.store.unfinished_commands(&chain.terminal.terminal_id).await.unwrap();
    assert_eq!(open, [started.clone()]);
    let lost = started.end(CommandEnd::Lost, at(3).at).unwrap();
    world.store.save_command(&lost).await.unwrap();
    let refused = world.store.save_command(&started).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(world.store.command(&queued.command_id).await.unwrap(), Some(lost));
    world.store.note_late_output(&queued.command_id, 10, 5).await.unwrap();
    world.store.note_late_output(&queued.command_id, 8, 6).await.unwrap();
    let stored = world.store.command(&queued.command_id).await.unwrap().unwrap();
    assert_eq!((stored.stdout_bytes, stored.stderr_bytes), (10, 6));
    let orphan = Command { terminal_id: TerminalId::fresh(), ..command(&chain, "x", 1) };
    let missing = world.store.save_command(&orphan).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
}

#[tokio::test]
async fn history_is_searched_literally_and_paged() {
    let world = World::new();
    let chain = world.chain("t").await;
    for (second, text) in
        ["echo 100%", "echo 100x", "ls a_b", "ls axb", "ECHO hi"].iter().enumerate()
    {
        let command = command(&chain, text, second as u64);
        world.store.save_command(&command).await.unwrap();
    }
    let terminal = chain.terminal.terminal_id;
    let search = async |text: &str, limit: u32| {
        let query = CommandQuery { containing: Some(text.into()) };
        let page = PageRequest::first(limit);
        let page = world.store.commands(&terminal, query, page).await.unwrap();
        page.items.into_iter().map(|c| c.text).collect::<Vec<_>>()
    };
    assert_eq!(search("100%", 9).await, ["echo 100%"]);
    assert_eq!(search("a_b", 9).await, ["ls a_b"]);
    assert_eq!(search("echo", 9).await, ["ECHO hi", "echo 100x", "echo 100%"]);
    let mut seen = vec![];
    let mut page = PageRequest::first(2);
    loop {
        let found = world.store.commands(&terminal, CommandQuery::default(), page).await.unwrap();
        seen.extend(found.items.into_iter().map(|c| c.text));
        match found.next {
            // The cursor is formatted and parsed as by a client.
            Some(next) => {
                let after = Some(next.to_string().parse().unwrap());
                page = PageRequest { limit: 2, after };
            }
            None => break,
        }
    }
    assert_eq!(seen, ["ECHO hi", "ls axb", "ls a_b", "echo 100x", "echo 100%"]);
}

#[tokio::test]
async fn a_lease_is_saved_only_at_its_last_revision() {
    let world = World::new();
    let lease = world.chain("t").await.lease;
    let intended = lease.apply(LeaseEvent::Intended(InstanceId::fresh(), at(1).at)).unwrap();
    let saved = world.store.save_lease(&intended).await.unwrap();
    assert_eq!(saved.revision, lease.revision + 1);
    let late = world.store.save_lease(&intended).await;
    assert!(matches!(late, Err(StoreError::Conflict { expected: 0, found: 1, .. })), "{late:?}");
    let world = world.reopen();
    assert_eq!(world.store.lease(&lease.lease_id).await.unwrap(), Some(saved.clone()));
    assert_eq!(world.store.unsettled_leases().await.unwrap(), [saved]);
}

#[tokio::test]
async fn leases_are_listed_by_provider() {
    let world = World::new();
    world.chain("a").await;
    let mut first = first_use("b", 1);
    first.choices.provider = Some("docker".into());
    let docker = world.store.open_chain(first).await.unwrap().lease;
    let filter = LeaseFilter { provider: Some("docker".into()) };
    let listed = world.store.leases(filter, PageRequest::first(10)).await.unwrap();
    assert_eq!(listed.items, [docker]);
    let all = world.store.leases(LeaseFilter::default(), PageRequest::first(10)).await.unwrap();
    assert_eq!(all.items.len(), 2);
}

#[tokio::test]
async fn many_concurrent_threads_are_all_created_and_listed_in_pages() {
    let world = World::new();
    let makers: Vec<_> = (0..200)
        .map(|n| {
            let store = world.store.clone();
            // Every thread is requested twice concurrently.
            tokio::spawn(
                async move { store.open_chain(first_use(&format!("t{}", n / 2), 0)).await },
            )
        })
        .collect();
    for maker in makers {
        maker.await.unwrap().unwrap();
    }
    assert_eq!(
        [world.count("threads"), world.count("sessions"), world.count("leases")],
        [100, 100, 100]
    );
    let mut page = PageRequest::first(30);
    let mut seen = vec![];
    loop {
        let found = world.store.threads(ThreadFilter::default(), page).await.unwrap();
        seen.extend(found.items.into_iter().map(|t| t.thread_id));
        let Some(next) = found.next else { break };
        page = PageRequest { limit: 30, after: Some(next) };
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 100);
    let counts = world.store.counts();
    if !backend::is_postgres() {
        assert!(counts.commits < counts.changes, "waiters share a sync: {counts:?}");
    }
}

#[tokio::test]
async fn a_failing_change_does_not_affect_others() {
    let world = World::new();
    let lease = world.chain("t").await.lease;
    let good = (0..50).map(|n| world.store.open_chain(first_use(&format!("g{n}"), 0)));
    let stale = Lease { revision: 99, ..lease };
    let bad = (0..50).map(|_| world.store.save_lease(&stale));
    let (good, bad) =
        tokio::join!(futures_util::future::join_all(good), futures_util::future::join_all(bad));
    assert!(good.iter().all(Result::is_ok), "{good:?}");
    assert!(bad.iter().all(Result::is_err), "{bad:?}");
    assert_eq!(world.count("threads"), 51);
}

#[tokio::test]
async fn messages_keep_their_order() {
    let world = World::new();
    world.chain("t").await;
    for n in 0..5u8 {
        let message = Message {
            message_id: MessageId::fresh(),
            role: if n % 2 == 0 { Role::User } else { Role::Assistant },
            content: format!("message {n}"),
            at: at(1).at,
        };
        world.store.add_message(&id("t"), message).await.unwrap();
    }
    let page = world.store.messages(&id("t"), PageRequest::first(3)).await.unwrap();
    let next = PageRequest { limit: 3, after: page.next };
    let rest = world.store.messages(&id("t"), next).await.unwrap();
    let all: Vec<_> = page.items.into_iter().chain(rest.items).map(|m| m.content).collect();
    assert_eq!(all, ["message 0", "message 1", "message 2", "message 3", "message 4"]);
    let message = Message {
        message_id: MessageId::fresh(),
        role: Role::Tool,
        content: String::new(),
        at: at(1).at,
    };
    let missing = world.store.add_message(&id("u"), message).await;
    assert_eq!(missing, Err(StoreError::Missing { what: "thread u".into() }));
}

#[tokio::test]
async fn an_idempotency_key_has_one_response_for_one_request() {
    let world = World::new();
    let store = &world.store;
    let now = at(0).at;
    assert_eq!(store.claim_key("k", [1; 32], now).await, Ok(Claim::Fresh));
    let open = Claim::Unfinished { subject: None };
    assert_eq!(store.claim_key("k", [1; 32], now).await, Ok(open));
    store.name_key("k", "cmd_1").await.unwrap();
    let open = Claim::Unfinished { subject: Some("cmd_1".into()) };
    assert_eq!(store.claim_key("k", [1; 32], now).await, Ok(open));
    let response = StoredResponse {
        status: 201,
        headers: vec![("location".into(), "/x".into())],
        body: b"{}".to_vec(),
    };
    store.answer_key("k", response.clone()).await.unwrap();
    assert_eq!(store.claim_key("k", [2; 32], now).await, Ok(Claim::OtherRequest));
    assert_eq!(store.claim_key("k", [1; 32], now).await, Ok(Claim::Answered(response)));
    let day = now + jiff::SignedDuration::from_hours(24);
    assert_eq!(store.claim_key("k", [2; 32], day).await, Ok(Claim::Fresh));
    store.forget_key("k").await.unwrap();
    assert_eq!(store.claim_key("k", [3; 32], day).await, Ok(Claim::Fresh));
}

#[tokio::test]
async fn a_token_is_valid_by_its_hash_until_it_is_revoked() {
    let world = World::new();
    let token = Token {
        token_id: TokenId::fresh(),
        name: "ci".into(),
        scope: "all".into(),
        created_at: at(0).at,
        expires_at: Some(at(60).at),
        revoked_at: None,
    };
    world.store.add_token(&token, [9; 32]).await.unwrap();
    assert!(world.store.add_token(&token, [9; 32]).await.is_err());
    let live = world.store.live_tokens(at(0).at).await.unwrap();
    assert_eq!(live, [(token.clone(), [9; 32])]);
    world.store.revoke_token(&token.token_id, at(1).at).await.unwrap();
    world.store.revoke_token(&token.token_id, at(2).at).await.unwrap();
    let stored = world.store.tokens().await.unwrap();
    assert_eq!(stored, [Token { revoked_at: Some(at(1).at), ..token }]);
}

#[tokio::test]
async fn the_ledger_is_bounded() {
    let world = World::new();
    for n in 0..3 {
        let detail = serde_json::json!({ "why": n });
        world.store.record(at(n).at, "orphan_ended", "inst_1", detail).await.unwrap();
    }
    let entries = world.store.ledger_last(2).await.unwrap();
    assert_eq!(entries.iter().map(|e| e.id).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(entries[0].detail, serde_json::json!({ "why": 2 }));
    world.execute(
        "UPDATE sqlite_sequence SET seq = 20000 WHERE name = 'ledger'",
        "ALTER TABLE ledger ALTER COLUMN id RESTART WITH 20001",
    );
    world.store.record(at(9).at, "orphan_ended", "inst_2", serde_json::Value::Null).await.unwrap();
    assert_eq!(world.store.ledger_last(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn missing_json_fields_of_an_older_row_get_defaults() {
    let world = World::new();
    let chain = world.chain("t").await;
    let older = r#"UPDATE threads SET policy = '{"idle_timeout_s": 7}';
        UPDATE sessions SET policy = '{}', created = json_remove(created, '$.since_boot');"#;
    world.execute(older, older);
    let again = world.chain("t").await;
    assert_eq!(again.thread.policy.idle_timeout_s, 7);
    assert_eq!(again.thread.policy.max_duration_s, 86_400);
    assert_eq!(again.session.policy, SessionPolicy::default());
    assert_eq!(again.session.created, Moment::wall(chain.session.created.at));
}

#[tokio::test]
async fn a_closed_default_terminal_is_replaced() {
    let world = World::new();
    let terminal = world.chain("t").await.terminal.terminal_id;
    let store = &world.store;
    store.apply_terminal(&terminal, TerminalEvent::Started, at(1).at).await.unwrap();
    let live: Vec<_> = store.live_terminals().await.unwrap();
    assert_eq!(live.len(), 1);
    store.apply_terminal(&terminal, TerminalEvent::Closed, at(6).at).await.unwrap();
    assert_eq!(store.terminal_ids().await.unwrap(), []);
    let refused = store.apply_terminal(&terminal, TerminalEvent::Started, at(7).at).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let replacement = world.chain("t").await.terminal;
    assert_eq!((replacement.terminal_id, replacement.version), (terminal, 0));
}
