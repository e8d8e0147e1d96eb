//! The contract of sandboxes.

use std::{collections::BTreeMap, time::Duration};

use model::*;
use tempfile::TempDir;

use super::super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn open() -> (TempDir, Store) {
    let home = tempfile::tempdir().unwrap();
    let store = super::backend::open(&home);
    (home, store)
}

fn raw(home: &TempDir) -> rusqlite::Connection {
    crate::connect::connect(&home.path().join("stead.db")).unwrap()
}

fn sandbox(name: &str, second: i64) -> Sandbox {
    Sandbox {
        thread_id: name.parse().unwrap(),
        project_id: ProjectId::default_project(),
        name: None,
        origin: "one".into(),
        template: "base".into(),
        build_id: None,
        user: "user".into(),
        home: "/home/user".into(),
        state: SandboxState::Active,
        started_at: at(second),
        lifetime: Some(Duration::from_secs(60)),
        expires_at: Some(at(second + 100)),
        on_expiry: ExpiryAction::Delete,
        expires_while_paused: false,
        delete_after_stop: None,
        auto_resume: false,
        port_access: PortAccess::Public,
        labels: BTreeMap::from([("who".into(), name.into())]),
        extra: BTreeMap::from([("k".into(), "v".into())]),
        created_at: at(second),
        updated_at: at(second),
        revision: 0,
    }
}

async fn create(store: &Store, sandbox: Sandbox) -> Result<SandboxRecord, StoreError> {
    let choices =
        ThreadChoices { sandbox: Some(Box::new(sandbox.clone())), ..ThreadChoices::default() };
    let first = FirstUse {
        thread_id: sandbox.thread_id.clone(),
        choices,
        policy: SessionPolicy::default(),
        provider: "local".into(),
        shell: ShellKind::Bash,
        size: (80, 24),
        now: Moment::wall(sandbox.created_at),
    };
    store.open_chain(first).await?;
    Ok(store.sandbox(&sandbox.thread_id).await?.expect("it was just created"))
}

async fn ids(store: &Store, filter: SandboxFilter, order: SandboxOrder) -> Vec<String> {
    let page = store.sandboxes(filter, order, PageRequest::first(100)).await.unwrap();
    page.items.iter().map(|it| it.id().to_string()).collect()
}

super::backend::on_postgres![
    a_sandbox_is_stored_completely_and_deleted_with_its_thread,
    a_sandbox_is_saved_only_at_its_last_revision,
    a_name_is_unique_and_a_refused_sandbox_leaves_no_thread,
    sandboxes_are_listed_by_page_and_filter,
    sql_and_model_agree_on_the_status_and_expiry_of_sandboxes,
];

#[tokio::test]
async fn a_sandbox_is_stored_completely_and_deleted_with_its_thread() {
    let (home, store) = open();
    let mut full = sandbox("s", 0);
    full.name = Some("name".into());
    full.build_id = Some("b1".parse().unwrap());
    full.delete_after_stop = Some(Duration::from_secs(60));
    let created = create(&store, full.clone()).await.unwrap();
    assert_eq!(created.row, full);
    assert_eq!(created.thread.lease_id, created.lease.lease_id);
    assert_eq!(created.last_active_at, Some(at(0)));
    drop(store);
    let store = super::backend::open(&home);
    let project = ProjectId::default_project();
    assert_eq!(store.sandbox(&full.thread_id).await.unwrap(), Some(created.clone()));
    assert_eq!(store.sandbox_named(&project, "one", "name").await.unwrap(), Some(created));
    assert_eq!(store.sandbox_named(&project, "two", "name").await.unwrap(), None);
    store.delete_thread(&full.thread_id, at(1)).await.unwrap();
    assert_eq!(store.sandbox(&full.thread_id).await.unwrap(), None);
    assert_eq!(store.sandbox_count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_sandbox_is_saved_only_at_its_last_revision() {
    let (_home, store) = open();
    let created = create(&store, sandbox("s", 0)).await.unwrap().row;
    let next = created.apply(SandboxEvent::Suspended).unwrap();
    let saved = store.save_sandbox(&next).await.unwrap();
    assert_eq!((saved.state, saved.revision), (SandboxState::Suspended, 1));
    let refused = store.save_sandbox(&created).await;
    assert!(matches!(refused, Err(StoreError::Conflict { expected: 0, found: 1, .. })));
    store.delete_thread(&created.thread_id, at(1)).await.unwrap();
    assert!(matches!(store.save_sandbox(&saved).await, Err(StoreError::Missing { .. })));
}

#[tokio::test]
async fn a_name_is_unique_and_a_refused_sandbox_leaves_no_thread() {
    let (_home, store) = open();
    let named = |id: &str, name: &str| Sandbox { name: Some(name.into()), ..sandbox(id, 0) };
    create(&store, named("a", "x")).await.unwrap();
    let refused = create(&store, named("b", "x")).await.unwrap_err();
    assert_eq!(refused.to_string(), "a sandbox with the name x already exists");
    assert_eq!(store.thread(&"b".parse().unwrap()).await.unwrap(), None);
    create(&store, Sandbox { origin: "two".into(), ..named("c", "x") }).await.unwrap();
    let other = create(&store, named("d", "y")).await.unwrap().row;
    let renamed = Sandbox { name: Some("x".into()), ..other };
    assert!(matches!(store.save_sandbox(&renamed).await, Err(StoreError::Exists { .. })));
}

#[tokio::test]
async fn sandboxes_are_listed_by_page_and_filter() {
    let (_home, store) = open();
    for (second, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let second = i64::try_from(second).unwrap();
        let mut new = sandbox(name, second);
        new.labels.insert("even".into(), (second % 2 == 0).to_string());
        if name == "d" {
            (new.origin, new.template) = ("two".into(), "other".into());
        }
        create(&store, new).await.unwrap();
    }
    create(&store, Sandbox { build_id: Some("x".parse().unwrap()), ..sandbox("build", 9) })
        .await
        .unwrap();
    let all = SandboxFilter::default;
    let newest = SandboxOrder::NewestFirst;
    assert_eq!(ids(&store, all(), newest).await, ["d", "c", "b", "a"]);
    let one = SandboxFilter { origin: Some("one".into()), ..all() };
    assert_eq!(ids(&store, one, SandboxOrder::OldestFirst).await, ["a", "b", "c"]);
    let builds = SandboxFilter { purpose: SandboxPurpose::Build, ..all() };
    assert_eq!(ids(&store, builds, newest).await, ["build"]);
    let other = SandboxFilter { template: Some("other".into()), ..all() };
    assert_eq!(ids(&store, other, newest).await, ["d"]);
    let from = SandboxFilter { started_from: Some(at(2)), ..all() };
    assert_eq!(ids(&store, from, newest).await, ["d", "c"]);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = vec![
        vec![pair("even", "true")],
        vec![pair("who", "absent"), pair("who", "c"), pair("who", "b")],
    ];
    assert_eq!(ids(&store, SandboxFilter { labels, ..all() }, newest).await, ["c"]);

    for order in [newest, SandboxOrder::OldestFirst] {
        let (mut request, mut found) = (PageRequest::first(2), Vec::new());
        loop {
            let page = store.sandboxes(all(), order, request.clone()).await.unwrap();
            found.extend(page.items.iter().map(|it| it.id().to_string()));
            match page.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, ids(&store, all(), order).await);
    }
}

#[tokio::test]
async fn sql_and_model_agree_on_the_status_and_expiry_of_sandboxes() {
    let (_home, store) = open();
    let states = [
        SandboxState::Active,
        SandboxState::Paused,
        SandboxState::Suspended,
        SandboxState::Archived,
    ];
    let instance = || Instance {
        instance_id: InstanceId::fresh(),
        generation: 1,
        reference: String::new(),
        started_at: at(0),
    };
    let (mut count, mut created) = (0, tokio::task::JoinSet::new());
    for state in states {
        for desired in [Desired::Running, Desired::Paused, Desired::Stopped] {
            for observed in
                [LeaseState::Idle, LeaseState::Running(instance()), LeaseState::Paused(instance())]
            {
                for on_expiry in [ExpiryAction::Delete, ExpiryAction::Pause, ExpiryAction::Suspend]
                {
                    for choice in 0..8 {
                        let mut new = sandbox(&format!("s{count}"), 0);
                        count += 1;
                        (new.state, new.on_expiry) = (state, on_expiry);
                        new.expires_while_paused = choice & 1 == 1;
                        new.expires_at = (choice & 2 == 2).then(|| at(100));
                        new.delete_after_stop = (choice & 4 == 4).then(|| Duration::from_secs(50));
                        let (store, observed) = (store.clone(), observed.clone());
                        created.spawn(async move {
                            let mut lease = create(&store, new).await.unwrap().lease;
                            (lease.desired, lease.state) = (desired, observed);
                            store.save_lease(&lease).await.unwrap();
                        });
                    }
                }
            }
        }
    }
    created.join_all().await;
    let everything = store
        .sandboxes(SandboxFilter::default(), SandboxOrder::OldestFirst, PageRequest::first(1000))
        .await
        .unwrap()
        .items;
    assert_eq!(everything.len(), count);
    for status in [
        SandboxStatus::Running,
        SandboxStatus::Paused,
        SandboxStatus::Suspended,
        SandboxStatus::Stopped,
        SandboxStatus::Archived,
    ] {
        let filter = SandboxFilter { statuses: vec![status], ..SandboxFilter::default() };
        let page = store.sandboxes(filter, SandboxOrder::OldestFirst, PageRequest::first(1000));
        let found = page.await.unwrap().items;
        let expected: Vec<_> =
            everything.iter().filter(|it| it.status() == status).cloned().collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{status:?}");
    }
    for second in [0, 49, 50, 99, 100, 1000] {
        let found = store.due_sandboxes(at(second)).await.unwrap();
        let mut ids: Vec<_> = found.due.iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        let is_due =
            |it: &&SandboxRecord| matches!(it.row.expiry(&it.lease, at(second)), Expiry::Due(_));
        let mut expected: Vec<_> =
            everything.iter().filter(is_due).map(|it| it.id().clone()).collect();
        expected.sort();
        assert_eq!(ids, expected, "at {second}");
        assert_eq!(found.next, (second < 100).then(|| at(100)));
    }
}

/// Inserts a thread with the labels that an earlier version wrote for a sandbox.
fn labelled(home: &TempDir, id: &str, labels: &[(&str, &str)]) {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let db = raw(home);
    let (lease, terminal) = (LeaseId::fresh().to_string(), TerminalId::fresh().to_string());
    db.execute(
        "INSERT INTO leases (lease_id, provider, desired, generation, word, state, created_at, updated_at)
         VALUES (?1, 'local', 'running', 0, 'idle', '{\"state\":\"idle\"}', 0, 0)",
        [&lease],
    )
    .unwrap();
    db.execute(
        "INSERT INTO threads (thread_id, project_id, terminal_id, lease_id, policy, labels, created_at,
                              updated_at)
         VALUES (?1, 'default-00000000', ?2, ?3, ?4, ?5, 5, 6)",
        [id, &terminal, &lease, &row::to_json(&SessionPolicy::default()),
            &row::to_json(&labels)],
    )
    .unwrap();
}

const E2B: &[(&str, &str)] = &[
    ("sandbox.api", "e2b"),
    ("sandbox.template", "base"),
    ("sandbox.started", "2026-11-17T13:14:15.123456Z"),
    ("sandbox.ends", "2026-11-17T13:19:15Z"),
    ("sandbox.on_timeout", "pause"),
    ("sandbox.auto_resume", "true"),
    ("sandbox.home", "/root/local"),
    ("sandbox.metadata.who", "me"),
    ("sandbox.metadata.", "empty"),
    ("sandbox.more.pauses_files", "true"),
    ("sandbox.more.asleep", "true"),
    ("sandbox.more.alias", "it's \"base\""),
    ("mine", "stays"),
];
const DAYTONA: &[(&str, &str)] = &[
    ("sandbox.api", "daytona"),
    ("sandbox.template", "default"),
    ("sandbox.started", "2026-11-17T13:14:15.1Z"),
    ("sandbox.ends", "9999-12-30T22:00:00.999999999Z"),
    ("sandbox.on_timeout", "kill"),
    ("sandbox.auto_resume", "false"),
    ("sandbox.home", "/home/daytona"),
    ("sandbox.more.name", "mine"),
    ("sandbox.more.ports", "key"),
    ("sandbox.more.auto_delete", "3"),
    ("sandbox.more.auto_stop", "15"),
    ("sandbox.more.archived", "true"),
    ("sandbox.more.signing", "salt"),
];

fn check_migrated(e2b: &SandboxRecord, daytona: &SandboxRecord) {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let expected = Sandbox {
        thread_id: e2b.row.thread_id.clone(),
        project_id: e2b.row.project_id.clone(),
        name: None,
        origin: "e2b".into(),
        template: "base".into(),
        build_id: None,
        user: "user".into(),
        home: "/root/local".into(),
        state: SandboxState::Suspended,
        started_at: time("2026-11-17T13:14:15.123456Z"),
        lifetime: None,
        expires_at: Some(time("2026-11-17T13:19:15Z")),
        on_expiry: ExpiryAction::Suspend,
        expires_while_paused: false,
        delete_after_stop: None,
        auto_resume: true,
        port_access: PortAccess::Public,
        labels: map(&[("who", "me"), ("", "empty")]),
        extra: map(&[("alias", "it's \"base\"")]),
        created_at: Timestamp::from_microsecond(5).unwrap(),
        updated_at: Timestamp::from_microsecond(6).unwrap(),
        revision: 0,
    };
    assert_eq!(e2b.row, expected);
    assert_eq!(e2b.thread.labels, map(&[("mine", "stays")]));
    let expected = Sandbox {
        thread_id: daytona.row.thread_id.clone(),
        project_id: daytona.row.project_id.clone(),
        name: Some("mine".into()),
        origin: "daytona".into(),
        template: "default".into(),
        user: "daytona".into(),
        home: "/home/daytona".into(),
        state: SandboxState::Archived,
        started_at: time("2026-11-17T13:14:15.1Z"),
        expires_at: None,
        on_expiry: ExpiryAction::Delete,
        expires_while_paused: true,
        delete_after_stop: Some(Duration::from_secs(180)),
        auto_resume: false,
        port_access: PortAccess::Token,
        labels: map(&[]),
        extra: map(&[("auto_stop", "15"), ("signing", "salt")]),
        ..expected
    };
    assert_eq!(daytona.row, expected);
    assert_eq!(daytona.thread.labels, map(&[]));
}

#[tokio::test]
async fn sandboxes_in_labels_of_an_earlier_version_are_migrated_to_rows() {
    let home = tempfile::tempdir().unwrap();
    schema::migrate_to(&raw(&home), 7).unwrap();
    labelled(&home, "e", E2B);
    labelled(&home, "d", DAYTONA);
    // A duplicate name: earlier versions checked a name before writing it, not in the same transaction.
    labelled(&home, "twin", DAYTONA);
    labelled(&home, "build", &[&E2B[..4], &[("sandbox.more.build", "b1")]].concat());
    labelled(&home, "thread", &[("sandbox.api", "e2b"), ("other", "x")]);
    let store = Store::open(home.path()).unwrap();
    let get = async |id: &str| store.sandbox(&id.parse().unwrap()).await.unwrap();
    check_migrated(&get("e").await.unwrap(), &get("d").await.unwrap());
    let build = get("build").await.unwrap().row;
    assert_eq!((build.build_id, build.home.as_str()), ("b1".parse().ok(), "/home/user"));
    assert_eq!(get("twin").await.unwrap().row.name, None);
    assert_eq!(get("thread").await, None);
    let thread = store.thread(&"thread".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(thread.labels.len(), 2, "labels of a thread without a sandbox stay");
}

#[tokio::test]
async fn lifetimes_of_an_earlier_version_become_a_column() {
    let home = tempfile::tempdir().unwrap();
    schema::migrate_to(&raw(&home), 15).unwrap();
    labelled(&home, "native", &[]);
    labelled(&home, "vendor", &[]);
    let insert = "INSERT INTO sandboxes (thread_id, project_id, origin, template, user, home, state, started_at,
            on_expiry, expires_while_paused, auto_resume, port_access, extra, created_at, updated_at)
        VALUES (?1, 'default-00000000', ?2, '', 'root', '/root', 'active', 1, 'suspend', 0, 1, 'token', ?3, 1, 1)";
    let extra = r#"{"timeout_s":"600","k":"v"}"#;
    for row in [["native", "stead", extra], ["vendor", "e2b", extra]] {
        raw(&home).execute(insert, row).unwrap();
    }
    let store = Store::open(home.path()).unwrap();
    let get = async |id: &str| store.sandbox(&id.parse().unwrap()).await.unwrap().unwrap().row;
    let (native, vendor) = (get("native").await, get("vendor").await);
    let extra = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    assert_eq!((native.lifetime, native.extra), (Some(Duration::from_secs(600)), extra));
    assert_eq!((vendor.lifetime, vendor.extra.len()), (None, 2));
}

#[tokio::test]
async fn a_project_deleted_by_an_earlier_version_is_restored_with_its_sandboxes() {
    let (home, store) = open();
    let project: ProjectId = "default-00000000".parse().unwrap();
    labelled(&home, "e", E2B);
    labelled(&home, "d", DAYTONA);
    let mut bundle = store.bundle(&project).await.unwrap();
    bundle.tables.remove("sandboxes");
    let other: ProjectId = "other-12345678".parse().unwrap();
    for thread in ["e", "d"] {
        store.delete_thread(&thread.parse().unwrap(), at(0)).await.unwrap();
    }
    store.add_bundle(bundle, Ids::Fresh(other.clone()), 10, at(1)).await.unwrap();
    let get = async |id: &str| store.sandbox(&id.parse().unwrap()).await.unwrap().unwrap();
    let (e2b, daytona) = (get("e").await, get("d").await);
    assert_eq!(e2b.row.project_id, other);
    check_migrated(&e2b, &daytona);
    let again: ProjectId = "again-12345678".parse().unwrap();
    let bundle = store.bundle(&other).await.unwrap();
    store.add_bundle(bundle, Ids::Fresh(again.clone()), 10, at(2)).await.unwrap();
    let filter = SandboxFilter { origin: Some("e2b".into()), ..SandboxFilter::default() };
    let all = store.sandboxes(filter, SandboxOrder::OldestFirst, PageRequest::first(9)).await;
    let copy = all.unwrap().items.into_iter().find(|it| it.row.project_id == again).unwrap();
    assert_eq!(
        Sandbox { thread_id: e2b.row.thread_id.clone(), project_id: other, ..copy.row },
        e2b.row
    );
}
