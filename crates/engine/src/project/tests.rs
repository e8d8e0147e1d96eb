use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

use super::{
    cleanup::{CleanupPolicy, Decision},
    *,
};
use base::{
    clock::Clock,
    event::{EventKind, Events},
};
use files::{
    Above, Relative, Tree, TreePath,
    memory::{Expect, HotLimits, MemoryChange},
};
use model::{
    Cause, Command, CommandId, CommandStatus, Moment, Project, ProjectConfig, ProjectId,
    SessionPolicy, ShellKind, Source, TerminalId, ThreadId, Timestamp,
};
use store::{
    FinishCommand, FirstUse, PageRequest, ProjectFilter, Section, StateChange, Store, ThreadChoices,
};

const START: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

struct World {
    home: TempDir,
    now: Arc<AtomicI64>,
    events: Events,
    store: Store,
    projects: Projects,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(START));
        let (events, store, projects) = start(home.path(), &now).await;
        Self { home, now, events, store, projects }
    }

    fn at_day(&self, day: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "a calendar of a few years")]
        self.now.store(START + (day * DAY as f64) as i64, Ordering::Relaxed);
    }

    async fn create(&self, prefix: &str) -> Project {
        self.projects.create(prefix, ProjectChoices::default()).await.unwrap()
    }

    async fn tree(&self, project: &Project) -> Tree {
        self.projects.tree(project, InstanceFiles::Nowhere("no instance")).await.unwrap()
    }

    /// A thread of a project with one command and one version of its terminal's state.
    async fn work(&self, thread: &str, project: &ProjectId) -> (ThreadId, TerminalId) {
        let thread_id: ThreadId = thread.parse().unwrap();
        let now = Moment::wall(wall(&self.now));
        let choices = ThreadChoices { project_id: Some(project.clone()), ..Default::default() };
        let first = FirstUse {
            thread_id: thread_id.clone(),
            choices,
            provider: "local".into(),
            policy: SessionPolicy::default(),
            shell: ShellKind::Bash,
            size: (80, 24),
            now,
        };
        let chain = self.store.open_chain(first).await.unwrap();
        let terminal_id = chain.terminal.terminal_id;
        let mut command = Command::queued(
            CommandId::fresh(),
            terminal_id.clone(),
            "echo hello".into(),
            Source::Agent,
            0,
            now.at,
        );
        command.status = CommandStatus::Finished;
        command.stdout_bytes = 6;
        let state = StateChange {
            expected: 0,
            cause: Cause::Created,
            changed: vec![Section::new("env", vec![b'x'; 5000])],
            removed: vec![],
            cwd: "/somewhere".into(),
            env_delta: None,
            at: now.at,
        };
        let touch = Some((chain.session.session_id, now));
        let finish = FinishCommand { command, state: Some(state), touch, output: None };
        self.store.finish_command(finish).await.unwrap();
        (thread_id, terminal_id)
    }

    async fn again(self) -> Self {
        let Self { home, now, store, projects, .. } = self;
        drop((store, projects));
        let (events, store, projects) = start(home.path(), &now).await;
        Self { home, now, events, store, projects }
    }
}

fn wall(now: &AtomicI64) -> Timestamp {
    Timestamp::from_second(now.load(Ordering::Relaxed)).unwrap()
}

async fn start(home: &Path, now: &Arc<AtomicI64>) -> (Events, Store, Projects) {
    let store = Store::open(home).unwrap();
    let clock = {
        let now = now.clone();
        Clock::from_fn(move || Moment::wall(wall(&now)))
    };
    let events = Events::new(clock.clone());
    let settings = ProjectSettings {
        max_projects: 5,
        cleanup: CleanupPolicy::default(),
        trash: Duration::from_secs(7 * 86_400),
        hot: HotLimits::default(),
        attendance: AttendancePolicy::default(),
        routes: BTreeMap::new(),
    };
    let projects =
        Projects::start(home, store.clone(), clock, events.clone(), settings).await.unwrap();
    (events, store, projects)
}

async fn put(tree: &Tree, path: &str, content: &str) {
    let path = TreePath::parse(path).unwrap();
    let mut writing = tree.write(&path, Above::Make, Expect::Anything).await.unwrap();
    writing.write(bytes::Bytes::copy_from_slice(content.as_bytes())).await.unwrap();
    writing.finish().await.unwrap();
}

async fn get(tree: &Tree, path: &str) -> String {
    use tokio::io::AsyncReadExt;
    let path = TreePath::parse(path).unwrap();
    match tree.read(&path, 0, None).await {
        Ok(mut content) => {
            let mut text = String::new();
            content.bytes.read_to_string(&mut text).await.unwrap();
            text
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn projects_are_made_found_changed_and_counted() {
    let world = World::new().await;
    let web = world.create("web").await;
    assert_eq!(web.project_id.prefix(), "web");
    let tags = Some(["red".to_owned()].into());
    let choices = ProjectChoices { tags, ..Default::default() };
    world.projects.change(&web.project_id, choices).await.unwrap();
    world.create("web").await;
    world.create("api").await;
    let ids = async |prefix: Option<&str>, tag: Option<&str>| {
        let filter = ProjectFilter { prefix: prefix.map(Into::into), tag: tag.map(Into::into) };
        world.projects.list(filter, PageRequest::first(10)).await.unwrap().items.len()
    };
    assert_eq!((ids(None, None).await, ids(Some("web"), None).await), (4, 2));
    assert_eq!((ids(None, Some("red")).await, ids(Some("api"), Some("red")).await), (1, 0));
    world.create("api").await;
    let error = world.projects.create("api", ProjectChoices::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "there are 5 projects, and no more may be");

    world.work("t1", &web.project_id).await;
    let (thread, _) = world.work("t2", &web.project_id).await;
    let found = world.projects.project(&web.project_id).await.unwrap();
    assert_eq!(
        (found.statistics.sessions, found.statistics.commands, found.statistics.output_bytes),
        (2, 2, 12)
    );
    // The records of sessions outlive their thread.
    world.store.delete_thread(&thread, wall(&world.now)).await.unwrap();
    let page = world.store.session_records(&web.project_id, PageRequest::first(1)).await.unwrap();
    let cursor = page.next.clone();
    let rest = PageRequest { limit: 10, after: cursor };
    let rest = world.store.session_records(&web.project_id, rest).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len()), (1, 1));
    let copy = std::fs::read(
        world.projects.workspace(&web.project_id).await.unwrap().root.join("project.json"),
    );
    let copy: Project = serde_json::from_slice(&copy.unwrap()).unwrap();
    assert_eq!(copy.tags.len(), 1);
}

#[tokio::test]
async fn one_tree_over_all_backends() {
    let world = World::new().await;
    let routes = [("/notes/", "store"), ("/scratch", "state"), ("/workspace/big/", "filesystem")]
        .map(|(prefix, kind)| {
            (prefix.to_owned(), serde_json::from_value(serde_json::json!(kind)).unwrap())
        });
    let config = Some(ProjectConfig { routes: routes.into(), ..Default::default() });
    let choices = ProjectChoices { config, ..Default::default() };
    let project = world.projects.create("web", choices).await.unwrap();
    let tree = world.tree(&project).await;
    let places = [
        "/workspace/a/f",
        "/workspace/big/f",
        "/memories/hot/a/f",
        "/memories/persistent/f",
        "/notes/a/f",
        "/scratch/f",
    ];
    for place in places {
        put(&tree, place, place).await;
        assert_eq!(get(&tree, place).await, place);
    }
    let root = Workspace::at(world.home.path(), &project.project_id).root;
    assert!(root.join("repo/a/f").is_file() && root.join("memories/persistent/f").is_file());
    assert!(!root.join("repo/big").exists(), "the longest prefix wins");
    assert_eq!(get(&tree, "/tmp/f").await, "\"/tmp/f\": no instance");

    let list = async |path: &str, depth| {
        let found = tree.list(&TreePath::parse(path).unwrap(), depth, None, 100).await.unwrap();
        found.into_iter().map(|stat| stat.path).collect::<Vec<_>>()
    };
    assert_eq!(list("/", 1).await, ["/memories", "/notes", "/scratch", "/tmp", "/workspace"]);
    assert_eq!(list("/memories", 1).await, ["/memories/hot", "/memories/persistent"]);
    assert_eq!(list("/notes", 2).await, ["/notes/a", "/notes/a/f"]);
    assert_eq!(list("/memories/hot", 2).await, ["/memories/hot/a", "/memories/hot/a/f"]);
    let path = |text: &str| TreePath::parse(text).unwrap();
    tree.rename(&path("/notes/a"), &path("/notes/b"), Expect::Absent).await.unwrap();
    assert_eq!(get(&tree, "/notes/b/f").await, "/notes/a/f");
    tree.rename(&path("/notes/b/f"), &path("/memories/hot/g"), Expect::Absent).await.unwrap();
    assert_eq!(get(&tree, "/memories/hot/g").await, "/notes/a/f");
    assert_eq!(get(&tree, "/notes/b/f").await, "\"/notes/b/f\" does not exist");
    let found = tree.search(&path("/memories/hot"), "n.tes", Default::default()).await.unwrap();
    assert_eq!(found.matches.len(), 1);
    assert_eq!(found.matches[0].path, "/memories/hot/g");
    tree.remove_tree(&path("/scratch/f")).await.unwrap();
    tree.remove(&path("/scratch")).await.unwrap_err();
}

#[tokio::test]
async fn the_calendar_warns_deletes_and_can_be_undone() {
    let world = World::new().await;
    let old = world.create("old").await;
    let kept = world.create("kept").await;
    world.projects.pin(&kept.project_id).await.unwrap();
    let attached = world.create("seen").await;
    let id = old.project_id.clone();
    let (thread, terminal) = world.work("t", &id).await;
    put(&world.tree(&old).await, "/workspace/f", "content").await;
    put(&world.tree(&old).await, "/memories/hot/f", "content").await;
    let person = world.projects.attach(&attached.project_id).await;
    let mut heard = world.events.subscribe(None);
    let mut days = Vec::new();
    for day in 0..35 {
        world.at_day(f64::from(day) + 0.5);
        let (plan, _) = world.projects.clean_up(CleanupMode::DryRun).await.unwrap();
        let (items, gone) = world.projects.clean_up(CleanupMode::Act).await.unwrap();
        assert_eq!(plan, items, "a dry run says what is done");
        for item in items {
            assert_eq!(item.project_id, id);
            days.push((day, item.decision == Decision::Delete));
            if item.decision == Decision::Delete {
                assert_eq!(gone.terminals.len(), 1);
            }
        }
    }
    assert_eq!(days, [(28, false), (29, false), (30, false), (31, true)]);
    let mut told = Vec::new();
    for _ in 0..4 {
        if let Some(base::event::Delivery::Event(event)) = heard.next().await {
            told.push(match event.kind {
                EventKind::ProjectExpiring { project_id, .. } => format!("expiring {project_id}"),
                EventKind::ProjectDeleted { project_id, .. } => format!("deleted {project_id}"),
                other => format!("{other:?}"),
            });
        }
    }
    assert_eq!(told[..3], vec![format!("expiring {id}"); 3]);
    assert_eq!(told[3], format!("deleted {id}"));
    drop(person);

    assert!(world.projects.project(&id).await.is_err());
    assert!(world.store.thread(&thread).await.unwrap().is_none());
    assert!(!Workspace::at(world.home.path(), &id).root.exists());
    let back = world.projects.restore(&id).await.unwrap();
    assert_eq!(back.statistics.commands, 1);
    let tree = world.tree(&back).await;
    assert_eq!(get(&tree, "/workspace/f").await, "content");
    assert_eq!(get(&tree, "/memories/hot/f").await, "content");
    let state = world.store.terminal_state(&terminal, None).await.unwrap();
    assert_eq!((state.cwd.as_str(), state.sections["env"].len()), ("/somewhere", 5000));
    assert_eq!(world.store.thread(&thread).await.unwrap().unwrap().terminal_id, terminal);
    // Back in the trash, it goes for good after seven days.
    world.projects.delete(&id, "test").await.unwrap();
    world.at_day(41.0);
    world.projects.clean_up(CleanupMode::Act).await.unwrap();
    assert_eq!(world.projects.trashed().await.unwrap().len(), 1);
    world.at_day(41.6);
    world.projects.clean_up(CleanupMode::Act).await.unwrap();
    assert!(world.projects.trashed().await.unwrap().is_empty());
    assert!(world.projects.restore(&id).await.is_err());
    assert!(!world.home.path().join("trash").join(id.as_str()).exists());
}

#[tokio::test]
async fn a_crash_between_rows_and_files_is_repaired_at_the_start() {
    let world = World::new().await;
    let project = world.create("web").await;
    let id = project.project_id.clone();
    put(&world.tree(&project).await, "/workspace/f", "content").await;
    let workspace = Workspace::at(world.home.path(), &id);
    // The rows are in the trash, the files are not.
    world.store.trash_project(&id, "test", None, wall(&world.now)).await.unwrap();
    let world = world.again().await;
    assert!(!workspace.root.exists());
    let project = world.projects.restore(&id).await.unwrap();
    assert_eq!(get(&world.tree(&project).await, "/workspace/f").await, "content");
    // Lost metadata and half-written files.
    std::fs::remove_file(workspace.root.join("project.json")).unwrap();
    std::fs::write(workspace.tmp.join(".stead-part-0000000000000000"), "half").unwrap();
    std::fs::create_dir(world.home.path().join("workspaces/.import-x-00000000")).unwrap();
    let world = world.again().await;
    assert!(workspace.root.join("project.json").is_file());
    assert_eq!(std::fs::read_dir(&workspace.tmp).unwrap().count(), 0);
    assert!(!world.home.path().join("workspaces/.import-x-00000000").exists());
}

#[tokio::test]
async fn a_project_moves_to_another_machine() {
    let (here, there) = (World::new().await, World::new().await);
    let project = here.create("web").await;
    let id = project.project_id.clone();
    let (thread, _) = here.work("t", &id).await;
    let tree = here.tree(&project).await;
    put(&tree, "/workspace/src/main.rs", "fn main() {}").await;
    put(&tree, "/memories/hot/a/b", "warm").await;
    put(&tree, "/memories/persistent/c", "cold").await;
    let repo = Workspace::at(here.home.path(), &id).repo;
    std::os::unix::fs::symlink("src/main.rs", repo.join("inside")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", repo.join("outside")).unwrap();
    let archive = archive_of(&here, &id).await;

    let read = std::io::Cursor::new(archive.clone());
    let imported = there.projects.import(read, ImportLimits::default()).await.unwrap();
    assert_eq!(imported.project.project_id, id);
    assert_eq!(imported.left_out, ["repo/outside: the link leads outside"]);
    let tree = there.tree(&imported.project).await;
    assert_eq!(get(&tree, "/workspace/src/main.rs").await, "fn main() {}");
    assert_eq!(get(&tree, "/workspace/inside").await, "fn main() {}");
    assert_eq!(get(&tree, "/memories/hot/a/b").await, "warm");
    assert_eq!(get(&tree, "/memories/persistent/c").await, "cold");
    let terminal = there.store.thread(&thread).await.unwrap().unwrap().terminal_id;
    assert_eq!(there.store.terminal_state(&terminal, None).await.unwrap().cwd, "/somewhere");

    // Once more, beside the first: other ids, the same content.
    let read = std::io::Cursor::new(archive);
    let second = there.projects.import(read, ImportLimits::default()).await.unwrap();
    assert_ne!(second.project.project_id, id);
    assert_eq!(get(&there.tree(&second.project).await, "/memories/hot/a/b").await, "warm");
    assert_eq!(second.project.statistics.commands, 1);
}

async fn archive_of(world: &World, id: &ProjectId) -> Vec<u8> {
    #[derive(Clone, Default)]
    struct Out(Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Out {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let out = Out::default();
    world.projects.export(id, out.clone()).await.unwrap();
    out.0.lock().unwrap().clone()
}

/// Imports an archive with the rows of an empty project and one more entry. Returns the result as text.
async fn hostile(world: &World, make: impl Fn(&mut tar::Builder<Vec<u8>>)) -> String {
    hostile_within(world, ImportLimits { bytes: 1 << 20, entries: 100 }, make).await
}

async fn hostile_within(
    world: &World,
    limits: ImportLimits,
    make: impl Fn(&mut tar::Builder<Vec<u8>>),
) -> String {
    let project = world.create("web").await;
    let good = archive_of(world, &project.project_id).await;
    world.projects.delete(&project.project_id, "test").await.unwrap();
    world.projects.purge(&project.project_id).await.unwrap();
    let plain = zstd::stream::decode_all(&*good).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    for entry in tar::Archive::new(&*plain).entries().unwrap() {
        let entry = entry.unwrap();
        let mut header = entry.header().clone();
        let path = entry.path().unwrap().into_owned();
        tar.append_data(&mut header, path, entry).unwrap();
    }
    make(&mut tar);
    let archive = zstd::stream::encode_all(&*tar.into_inner().unwrap(), 3).unwrap();
    match world.projects.import(std::io::Cursor::new(archive), limits).await {
        Ok(imported) => format!("took {} entries", imported.entries),
        Err(error) => error.to_string(),
    }
}

/// Appends an entry whose name the crate would refuse to write.
fn raw(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, link: &str) {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    tar.append(&header, std::io::empty()).unwrap();
}

/// Cut anywhere, or with one bit changed anywhere. A compressed file has bits that mean nothing for
/// what is in it; where they are depends on what is compressed.
async fn damaged_archives_are_refused(world: &World) {
    let project = world.create("cut").await;
    put(&world.tree(&project).await, "/workspace/f", "content").await;
    let good = archive_of(world, &project.project_id).await;
    let content = zstd::decode_all(&*good).unwrap();
    let before = world.projects.list(Default::default(), PageRequest::first(100)).await.unwrap();
    for at in (0..good.len()).step_by(good.len() / 40 + 1).chain([good.len() - 1]) {
        let mut changed = good.clone();
        changed[at] ^= 0x10;
        for archive in [good[..at].to_vec(), changed] {
            if zstd::decode_all(&*archive).is_ok_and(|unpacked| unpacked == content) {
                continue;
            }
            let read = std::io::Cursor::new(archive);
            world.projects.import(read, ImportLimits::default()).await.unwrap_err();
        }
    }
    let after = world.projects.list(Default::default(), PageRequest::first(100)).await.unwrap();
    assert_eq!(after.items.len(), before.items.len());
}

#[tokio::test]
async fn hostile_archives_are_refused_and_leave_nothing() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let cases: [(&str, Type, &str, &str); 9] = [
        ("repo/../../../evil", Type::Regular, "", "it contains `..`"),
        ("/etc/evil", Type::Regular, "", "is an absolute path"),
        ("repo/link", Type::Symlink, "/etc/passwd", "leads outside"),
        ("repo/link", Type::Symlink, "../../x", "leads outside"),
        ("repo/hard", Type::Link, "repo/other", "is of the kind Link"),
        ("repo/device", Type::Char, "", "is of the kind Char"),
        ("repo/fifo", Type::Fifo, "", "is of the kind Fifo"),
        ("project.json", Type::Regular, "", "has no place in a project"),
        ("tmp/x", Type::Regular, "", "has no place in a project"),
    ];
    for (name, kind, link, expected) in cases {
        let said = hostile(&world, |tar| raw(tar, name, kind, link)).await;
        assert!(said.contains(expected), "{name}: {said}");
    }
    let said = hostile(&world, |tar| {
        raw(tar, "repo/d", Type::Symlink, "other");
        raw(tar, "repo/d/f", Type::Regular, "");
    })
    .await;
    assert!(said.contains("twice"), "{said}");
    let said = hostile(&world, |tar| {
        let mut header = tar::Header::new_gnu();
        header.set_size(8 << 20);
        header.set_mode(0o644);
        let zeros = std::io::Read::take(std::io::repeat(0), 8 << 20);
        tar.append_data(&mut header, "repo/bomb", zeros).unwrap();
    })
    .await;
    assert!(said.contains("larger than may be imported"), "{said}");
    let said = hostile(&world, |tar| {
        for number in 0..200 {
            raw(tar, &format!("repo/{number}"), Type::Regular, "");
        }
    })
    .await;
    assert!(said.contains("more than 100 entries"), "{said}");
    // A link that is inside as it is written, and outside through another.
    let said = hostile(&world, |tar| {
        raw(tar, "repo/a/b/c/up", Type::Symlink, "../../..");
        raw(tar, "repo/a/b/c/up/out", Type::Symlink, "../../../../x");
    })
    .await;
    assert!(said.contains("twice"), "{said}");
    for name in ["rows.json", "hot/memories/hot/k", "repo/f"] {
        let said = hostile(&world, |tar| {
            for _ in 0..2 {
                let mut header = tar::Header::new_gnu();
                header.set_size(0);
                header.set_mode(0o644);
                tar.append_data(&mut header, name, std::io::empty()).unwrap();
            }
        })
        .await;
        assert!(said.contains("twice"), "{name}: {said}");
    }
    let said = hostile(&world, |_| {}).await;
    assert!(said.starts_with("took "), "{said}");
    damaged_archives_are_refused(&world).await;
    for entry in std::fs::read_dir(world.home.path().join("workspaces")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with(".import-"), "{name} was left");
    }
    // Rows that would poison the store are refused as a whole.
    let project = world.create("bad").await;
    let bundle = world.store.bundle(&project.project_id).await.unwrap();
    let mut text = serde_json::to_value(&bundle).unwrap();
    text["tables"]["threads"] = serde_json::json!([{"thread_id": "a/b", "terminal_id": "x",
        "policy": "not json", "env": "{}", "labels": "{}", "created_at": 0, "updated_at": 0,
        "revision": 0, "lease_id": "l"}]);
    let bundle = serde_json::from_value(text).unwrap();
    let ids = store::Ids::Fresh("evil-00000000".parse().unwrap());
    let refused = world.store.add_bundle(bundle, ids, 100, wall(&world.now)).await;
    assert!(refused.is_err());
    assert!(world.projects.project(&"evil-00000000".parse().unwrap()).await.is_err());
}

/// Appends an entry of `size` zeros.
fn zeros(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, size: u64) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, std::io::Read::take(std::io::repeat(0), size)).unwrap();
}

#[tokio::test]
async fn an_import_is_refused_where_its_memories_or_headers_would_fill_the_server() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let limits = ImportLimits::default();
    let said = hostile_within(&world, limits, |tar| {
        zeros(tar, "hot/memories/hot/large", Type::Regular, (4 << 20) + 1);
    });
    assert_eq!(said.await, "\"memories/hot/large\" exceeds the limit of 4194304 bytes");
    let said = hostile_within(&world, limits, |tar| {
        for number in 0..16 {
            zeros(tar, &format!("hot/memories/hot/{number}"), Type::Regular, 4 << 20);
        }
    });
    assert_eq!(said.await, "the limit of 67108864 bytes of memories is reached");
    let said = hostile_within(&world, limits, |tar| {
        for number in 0..10_001 {
            zeros(tar, &format!("hot/memories/hot/{number}"), Type::Regular, 0);
        }
    });
    assert_eq!(said.await, "the limit of 10000 memories is reached");
    let said = hostile_within(&world, limits, |tar| {
        zeros(tar, "././@LongLink", Type::GNULongName, 1 << 20);
        zeros(tar, "repo/x", Type::Regular, 0);
    });
    assert_eq!(said.await, "the archive is refused: a header in it is too large");
}

#[tokio::test]
async fn a_refused_archive_shows_names_of_its_own_and_none_of_the_server() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let check = async |make: fn(&mut tar::Builder<Vec<u8>>), expected: &str| {
        let said = hostile(&world, make).await;
        assert_eq!(said, format!("the archive is refused: {expected}"));
    };
    let twice = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/d", Type::Symlink, "other");
        raw(tar, "repo/d", Type::Symlink, "other");
    };
    check(twice, "\"repo/d\" is in it twice").await;
    let below_a_file = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/f", Type::Regular, "");
        raw(tar, "repo/f/g/h", Type::Regular, "");
    };
    check(below_a_file, "\"repo/f/g/h\" is a file and a directory in it").await;
    let both = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/f", Type::Regular, "");
        raw(tar, "repo/f", Type::Directory, "");
    };
    check(both, "\"repo/f\" is in it twice").await;
}

#[tokio::test]
async fn memories_are_bounded_and_say_so() {
    let world = World::new().await;
    let project = world.create("web").await;
    let memory = world.projects.memory(&project.project_id).await.unwrap();
    let bytes = bytes::Bytes::from(vec![0; (4 << 20) + 1]);
    let path = Relative::parse("memories/hot/x").unwrap();
    let put = MemoryChange::Put { path, bytes, expect: Expect::Anything };
    let error = memory.change(put).await.unwrap_err();
    assert_eq!(error.to_string(), "\"memories/hot/x\" exceeds the limit of 4194304 bytes");
}
