//! Projects on a real store and a real directory, with a clock that the test sets.

mod archive;

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
use provider::PlainWorkspaces;
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

    /// Creates a thread of a project with one command and one version of its terminal's state.
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

    /// Starts another server on the same directory.
    async fn restarted(self) -> Self {
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
    let projects = Projects::start(
        home,
        store.clone(),
        clock,
        events.clone(),
        settings,
        Arc::new(PlainWorkspaces),
    )
    .await
    .unwrap();
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
async fn files_of_a_project_are_written_while_its_sandbox_ends() {
    let world = World::new().await;
    let project = world.create("web").await;
    // The process of the sandbox ended after it was looked up.
    let root = world.home.path().join("ended");
    let ended = InstanceFiles::InSandbox { root, identity: |_, create| create() };
    let tree = world.projects.tree(&project, ended).await.unwrap();
    for path in ["/memories/hot/a", "/memories/persistent/b", "/workspace/c"] {
        put(&tree, path, "kept").await;
        assert_eq!(get(&tree, path).await, "kept");
    }
    assert_eq!(get(&tree, "/etc/hosts").await, format!("\"/etc/hosts\": {NOT_RUNNING}"));
}

#[tokio::test]
async fn projects_are_created_found_changed_and_limited() {
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
    assert_eq!(error.to_string(), "the limit of 5 projects is reached");

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
async fn one_file_tree_spans_all_backends() {
    let world = World::new().await;
    let routes = [("/notes/", "store"), ("/scratch", "state"), ("/workspace/big/", "filesystem")]
        .map(|(prefix, kind)| {
            (prefix.to_owned(), serde_json::from_value(serde_json::json!(kind)).unwrap())
        });
    let config = Some(ProjectConfig { routes: routes.into(), ..Default::default() });
    let choices = ProjectChoices { config, ..Default::default() };
    let project = world.projects.create("web", choices).await.unwrap();
    let tree = world.tree(&project).await;
    let paths = [
        "/workspace/a/f",
        "/workspace/big/f",
        "/memories/hot/a/f",
        "/memories/persistent/f",
        "/notes/a/f",
        "/scratch/f",
    ];
    for path in paths {
        put(&tree, path, path).await;
        assert_eq!(get(&tree, path).await, path);
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
async fn an_unused_project_is_warned_deleted_and_can_be_restored() {
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
    let mut events = world.events.subscribe(None);
    let mut days = Vec::new();
    for day in 0..35 {
        world.at_day(f64::from(day) + 0.5);
        let (plan, _) = world.projects.clean_up(CleanupMode::DryRun).await.unwrap();
        let (items, gone) = world.projects.clean_up(CleanupMode::Act).await.unwrap();
        assert_eq!(plan, items, "a dry run reports what is done");
        for item in items {
            assert_eq!(item.project_id, id);
            days.push((day, item.decision == Decision::Delete));
            if item.decision == Decision::Delete {
                assert_eq!(gone.terminals.len(), 1);
            }
        }
    }
    assert_eq!(days, [(28, false), (29, false), (30, false), (31, true)]);
    let mut published = Vec::new();
    for _ in 0..4 {
        if let Some(base::event::Delivery::Event(event)) = events.next().await {
            published.push(match event.kind {
                EventKind::ProjectExpiring { project_id, .. } => format!("expiring {project_id}"),
                EventKind::ProjectDeleted { project_id, .. } => format!("deleted {project_id}"),
                other => format!("{other:?}"),
            });
        }
    }
    assert_eq!(published[..3], vec![format!("expiring {id}"); 3]);
    assert_eq!(published[3], format!("deleted {id}"));
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
    // In the trash again, it is removed permanently after seven days.
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
async fn a_crash_between_rows_and_files_is_repaired_at_the_next_start() {
    let world = World::new().await;
    let project = world.create("web").await;
    let id = project.project_id.clone();
    put(&world.tree(&project).await, "/workspace/f", "content").await;
    let workspace = Workspace::at(world.home.path(), &id);
    // The rows are in the trash, the files are not.
    world.store.trash_project(&id, "test", None, wall(&world.now)).await.unwrap();
    let world = world.restarted().await;
    assert!(!workspace.root.exists());
    let project = world.projects.restore(&id).await.unwrap();
    assert_eq!(get(&world.tree(&project).await, "/workspace/f").await, "content");
    // Lost metadata and half-written files.
    std::fs::remove_file(workspace.root.join("project.json")).unwrap();
    std::fs::write(workspace.tmp.join(".stead-part-0000000000000000"), "half").unwrap();
    std::fs::create_dir(world.home.path().join("workspaces/.import-x-00000000")).unwrap();
    let world = world.restarted().await;
    assert!(workspace.root.join("project.json").is_file());
    assert_eq!(std::fs::read_dir(&workspace.tmp).unwrap().count(), 0);
    assert!(!world.home.path().join("workspaces/.import-x-00000000").exists());
}

#[tokio::test]
async fn a_memory_over_the_limit_is_refused() {
    let world = World::new().await;
    let project = world.create("web").await;
    let memory = world.projects.memory(&project.project_id).await.unwrap();
    let bytes = bytes::Bytes::from(vec![0; (4 << 20) + 1]);
    let path = Relative::parse("memories/hot/x").unwrap();
    let put = MemoryChange::Put { path, bytes, expect: Expect::Anything };
    let error = memory.change(put).await.unwrap_err();
    assert_eq!(error.to_string(), "\"memories/hot/x\" exceeds the limit of 4194304 bytes");
}
