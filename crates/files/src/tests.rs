use std::{
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;

use crate::*;
use crate::{FileError, FileKind, Relative, Stat, memory::Expect};
use tempfile::TempDir;

struct Fixture {
    temp: TempDir,
    directory: Directory,
}

impl Fixture {
    /// Creates a root and a staging directory, with a secret next to the root.
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for name in ["root", "staging"] {
            std::fs::create_dir(temp.path().join(name)).unwrap();
        }
        std::fs::write(temp.path().join("secret"), "secret").unwrap();
        let staging = temp.path().join("staging");
        let root = temp.path().join("root");
        let directory = Directory::open(&root, Some(&staging), Reach::Beneath).unwrap();
        Self { temp, directory }
    }

    fn root(&self, below: &str) -> std::path::PathBuf {
        self.temp.path().join("root").join(below)
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let (mut file, _) = self.directory.read(&relative(path)).map_err(variant)?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn write(&self, path: &str, content: &str) -> Result<Stat, String> {
        self.write_expecting(path, content, Expect::Anything)
    }

    fn write_expecting(&self, path: &str, content: &str, expect: Expect) -> Result<Stat, String> {
        let mut part =
            self.directory.write(&relative(path), Above::Make, expect).map_err(variant)?;
        part.write(content.as_bytes()).map_err(variant)?;
        part.finish().map_err(variant)
    }

    fn names(&self, depth: u32) -> Vec<String> {
        let all = self.directory.list(&Relative::root(), depth, None, 1000).unwrap();
        all.into_iter().map(|stat| stat.path).collect()
    }

    fn staging_is_empty(&self) -> bool {
        std::fs::read_dir(self.temp.path().join("staging")).unwrap().next().is_none()
    }
}

fn relative(text: &str) -> Relative {
    Relative::parse(text).unwrap()
}

/// Returns the variant name of an error, for tables.
fn variant(error: FileError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '{', '(']).next().unwrap().to_owned()
}

#[test]
fn a_file_is_written_atomically_and_read_back() {
    let fixture = Fixture::new();
    fixture.write("a/b/c.txt", "one").unwrap();
    assert_eq!(fixture.read("a/b/c.txt").unwrap(), "one");
    std::fs::set_permissions(fixture.root("a/b/c.txt"), PermissionsExt::from_mode(0o755)).unwrap();
    let stat = fixture.write("a/b/c.txt", "two!").unwrap();
    assert_eq!((stat.size, stat.mode, stat.kind), (4, Some(0o755), FileKind::File));
    // An abandoned write leaves no file.
    let mut part =
        fixture.directory.write(&relative("x"), Above::MustExist, Expect::Anything).unwrap();
    part.write(b"half").unwrap();
    assert_eq!(fixture.names(9), ["a", "a/b", "a/b/c.txt"]);
    drop(part);
    assert!(fixture.staging_is_empty());
    assert_eq!(
        fixture
            .directory
            .write(&relative("q/r"), Above::MustExist, Expect::Anything)
            .map_err(variant)
            .unwrap_err(),
        "Missing"
    );
}

#[test]
fn a_write_may_have_a_precondition() {
    let fixture = Fixture::new();
    let first = fixture.write_expecting("f", "1", Expect::Absent).unwrap();
    assert_eq!(fixture.write_expecting("f", "2", Expect::Absent).unwrap_err(), "Exists");
    let version = Expect::Version(first.version.unwrap());
    fixture.write_expecting("f", "2", version).unwrap();
    assert_eq!(fixture.write_expecting("f", "3", version).unwrap_err(), "Changed");
    assert_eq!(fixture.write_expecting("g", "3", version).unwrap_err(), "Changed");
    assert_eq!(fixture.read("f").unwrap(), "2");
    assert!(fixture.staging_is_empty());
}

#[test]
fn links_are_followed_inside_and_refused_outside() {
    let fixture = Fixture::new();
    fixture.write("d/real", "inside").unwrap();
    for (target, name) in [
        ("d/real", "file"),
        ("d", "dir"),
        ("../secret", "up"),
        ("/etc/passwd", "absolute"),
        ("..", "above"),
        ("d/../../secret", "zigzag"),
        ("loop", "loop"),
        ("/proc/self/root/etc/passwd", "magic"),
        ("nowhere", "dangling"),
        ("d/../made", "to-be-made"),
    ] {
        symlink(target, fixture.root(name)).unwrap();
    }
    let check = |path: &str, expected: &str| {
        assert_eq!(fixture.read(path).unwrap_or_else(|error| error), expected, "{path}");
    };
    check("file", "inside");
    check("dir/real", "inside");
    check("up", "Outside");
    check("absolute", "Outside");
    check("above/secret", "Outside");
    check("zigzag", "Outside");
    check("magic", "Outside");
    check("loop", "Loop");
    check("dangling", "Missing");
    check("dir", "IsDirectory");
    check("d/real/x", "NotDirectory");

    for path in ["up", "absolute", "above/x", "zigzag", "magic"] {
        assert_eq!(fixture.write(path, "x").unwrap_err(), "Outside", "{path}");
        let stat = fixture.directory.stat(&relative(path));
        match path {
            "above/x" => assert_eq!(stat.map_err(variant).unwrap_err(), "Outside"),
            _ => assert_eq!(stat.unwrap().kind, FileKind::Link),
        }
    }
    fixture.write("file", "through").unwrap();
    assert_eq!(std::fs::read_to_string(fixture.root("d/real")).unwrap(), "through");
    fixture.write("to-be-made", "made").unwrap();
    assert_eq!(fixture.read("made").unwrap(), "made");
    assert_eq!(fixture.write("loop", "x").unwrap_err(), "Loop");
    assert_eq!(std::fs::read_to_string(fixture.temp.path().join("secret")).unwrap(), "secret");
    // Removing or moving a link affects the link itself.
    fixture.directory.remove(&relative("up")).unwrap();
    fixture.directory.remove_tree(&relative("above")).unwrap();
    fixture
        .directory
        .rename(&relative("absolute"), &relative("elsewhere"), Expect::Absent)
        .unwrap();
    assert!(fixture.temp.path().join("secret").exists());
    assert_eq!(std::fs::read_link(fixture.root("elsewhere")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn special_files_are_refused_without_blocking() {
    let fixture = Fixture::new();
    let make = |arguments: &[&str]| Command::new("mknod").args(arguments).status().unwrap();
    let path = |name: &str| fixture.root(name).display().to_string();
    assert!(make(&[&path("fifo"), "p"]).success());
    std::os::unix::net::UnixListener::bind(fixture.root("socket")).unwrap();
    let mut names = vec!["fifo", "socket"];
    // Only a privileged user can create devices.
    if make(&[&path("zero"), "c", "1", "5"]).success() {
        names.push("zero");
    }
    for name in names {
        assert_eq!(fixture.read(name).unwrap_err(), "NotRegular", "{name}");
        assert_eq!(fixture.write(name, "x").unwrap_err(), "NotRegular", "{name}");
        assert_eq!(fixture.directory.stat(&relative(name)).unwrap().kind, FileKind::Other);
    }
    let found = fixture
        .directory
        .search(&Relative::root(), ".", SearchLimits::default(), &AtomicBool::new(false))
        .unwrap();
    assert_eq!(found.files, 0);
}

#[test]
fn a_race_with_links_never_leads_outside() {
    let fixture = Fixture::new();
    fixture.write("inside/secret", "inside").unwrap();
    std::fs::create_dir(fixture.temp.path().join("outside")).unwrap();
    std::fs::write(fixture.temp.path().join("outside/secret"), "outside").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (racing, root, outside) =
        (stop.clone(), fixture.root(""), fixture.temp.path().join("outside"));
    let racer = std::thread::spawn(move || {
        while !racing.load(Ordering::Relaxed) {
            // The name alternates between a directory and a link that leads outside.
            let _ = std::fs::rename(root.join("inside"), root.join("kept"));
            let _ = symlink(&outside, root.join("inside"));
            let _ = std::fs::remove_file(root.join("inside"));
            let _ = std::fs::rename(root.join("kept"), root.join("inside"));
        }
    });
    let (mut seen, mut rounds) = (0, 0);
    // On a busy machine the two may take turns so that one round after another finds the link.
    while rounds < 4000 || seen == 0 {
        rounds += 1;
        match fixture.read("inside/secret") {
            Ok(text) => {
                assert_eq!(text, "inside");
                seen += 1;
            }
            Err(error) => assert!(
                ["Outside", "Missing", "NotDirectory", "Changed"].contains(&error.as_str()),
                "{error}"
            ),
        }
        let written = fixture.write("inside/new", "x");
        assert!(written.is_ok() || !fixture.temp.path().join("outside/new").exists());
        let _ = fixture.directory.remove_tree(&relative("inside/new"));
    }
    stop.store(true, Ordering::Relaxed);
    racer.join().unwrap();
    assert_eq!(std::fs::read_dir(fixture.temp.path().join("outside")).unwrap().count(), 1);
}

#[test]
fn a_list_is_sorted_and_paginated() {
    let fixture = Fixture::new();
    for path in ["a/x/1", "a/y", "a-b", "b", "c/1", "c/2"] {
        fixture.write(path, "").unwrap();
    }
    assert_eq!(fixture.names(1), ["a", "a-b", "b", "c"]);
    let all = ["a", "a/x", "a/x/1", "a/y", "a-b", "b", "c", "c/1", "c/2"];
    assert_eq!(fixture.names(3), all);
    for limit in 1..10 {
        let (mut after, mut paged): (Option<Relative>, Vec<String>) = (None, Vec::new());
        loop {
            let page = fixture.directory.list(&Relative::root(), 3, after.as_ref(), limit).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(relative(&last.path));
            paged.extend(page.into_iter().map(|stat| stat.path));
        }
        assert_eq!(paged, all, "{limit}");
    }
    let below = fixture.directory.list(&relative("c"), 1, Some(&relative("c/1")), 9).unwrap();
    assert_eq!(below.into_iter().map(|stat| stat.path).collect::<Vec<_>>(), ["c/2"]);
}

#[test]
fn trees_of_any_depth_are_removed() {
    let fixture = Fixture::new();
    let deep = vec!["d"; 1500].join("/");
    std::fs::create_dir_all(fixture.root(&deep)).unwrap();
    std::fs::write(fixture.root(&deep).join("f"), "").unwrap();
    assert_eq!(fixture.directory.remove(&relative("d")).map_err(variant).unwrap_err(), "NotEmpty");
    fixture.directory.remove_tree(&relative("d")).unwrap();
    assert!(fixture.names(1).is_empty() && fixture.staging_is_empty());
    assert_eq!(
        fixture.directory.remove_tree(&Relative::root()).map_err(variant).unwrap_err(),
        "NotSupported"
    );
    assert_eq!(fixture.directory.remove(&relative("x")).map_err(variant).unwrap_err(), "Missing");
}

#[test]
fn a_write_reports_the_file_that_it_wrote() {
    let fixture = Fixture::new();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let _ = std::fs::write(fixture.root("other"), "of another writer");
                let _ = std::fs::rename(fixture.root("other"), fixture.root("a"));
                let _ = std::fs::remove_file(fixture.root("a"));
            }
        });
        let sizes: Vec<_> =
            (0..300).map(|_| fixture.write("a", "own").map(|stat| stat.size)).collect();
        end.store(true, Ordering::Relaxed);
        assert!(sizes.iter().all(|size| *size == Ok(3)), "{sizes:?}");
    });
}

#[test]
fn a_move_replaces_only_files() {
    let fixture = Fixture::new();
    fixture.write("a", "a").unwrap();
    fixture.write("b", "b").unwrap();
    fixture.write("d/e", "e").unwrap();
    let rename = |from: &str, to: &str, expect| {
        fixture.directory.rename(&relative(from), &relative(to), expect).map_err(variant)
    };
    assert_eq!(rename("a", "b", Expect::Absent).unwrap_err(), "Exists");
    assert_eq!(rename("a", "d", Expect::Anything).unwrap_err(), "IsDirectory");
    assert_eq!(rename("d", "d/f", Expect::Anything).unwrap_err(), "BadPath");
    assert_eq!(rename("x", "y", Expect::Anything).unwrap_err(), "Missing");
    assert_eq!(rename("a", "x/y", Expect::Anything).unwrap_err(), "Missing");
    rename("a", "b", Expect::Anything).unwrap();
    rename("d", "g", Expect::Absent).unwrap();
    rename("b", "b", Expect::Absent).unwrap();
    assert_eq!(
        (fixture.names(2), fixture.read("b").unwrap()),
        (vec!["b".into(), "g".into(), "g/e".into()], "a".into())
    );
}

#[test]
fn names_that_are_too_long_are_refused() {
    let fixture = Fixture::new();
    let long = "n".repeat(255);
    fixture.write(&long, "x").unwrap();
    // Each name is short enough, but the whole path is too long for the kernel.
    let deep = vec!["n".repeat(250); 15].join("/");
    fixture.write(&deep, "x").unwrap();
    assert_eq!(fixture.read(&deep).unwrap(), "x");
    assert!(Relative::parse(&vec!["n".repeat(250); 17].join("/")).is_err());
}

#[test]
fn a_search_is_linear_and_reports_reached_limits() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\ntwo fish\n").unwrap();
    fixture.write("d/b.txt", "red fish\nblue fish").unwrap();
    std::fs::write(fixture.root("binary"), b"fish\0fish").unwrap();
    std::fs::write(fixture.root("evil"), "a".repeat(100_000)).unwrap();
    symlink(fixture.temp.path().join("secret"), fixture.root("link")).unwrap();
    let search = |pattern: &str, limits: SearchLimits| {
        fixture.directory.search(&Relative::root(), pattern, limits, &AtomicBool::new(false))
    };
    let lines = |found: &SearchResult| -> Vec<String> {
        let show = |found: &Match| {
            format!("{}:{}:{}:{}", found.path, found.line, found.column, found.text)
        };
        found.matches.iter().map(show).collect()
    };
    let found = search("f[i]sh$", SearchLimits::default()).unwrap();
    assert_eq!(
        lines(&found),
        ["a.txt:2:5:two fish", "d/b.txt:1:5:red fish", "d/b.txt:2:6:blue fish"]
    );
    assert_eq!(found.stopped, None);
    let found = search("fish", SearchLimits { matches: 2, ..SearchLimits::default() }).unwrap();
    assert_eq!((found.matches.len(), found.stopped.is_some()), (2, true));
    // A pattern that takes exponential time with backtracking.
    search("(a|a)*(a|a)*b", SearchLimits::default()).unwrap();
    assert_eq!(search("secret", SearchLimits::default()).unwrap().matches, []);
    assert_eq!(search("(", SearchLimits::default()).map_err(variant).unwrap_err(), "BadPattern");
    assert_eq!(
        search("(((a{1000}){1000}){1000})", SearchLimits::default()).map_err(variant).unwrap_err(),
        "BadPattern"
    );
    let stopped = fixture.directory.search(
        &Relative::root(),
        "x",
        SearchLimits::default(),
        &AtomicBool::new(true),
    );
    assert!(stopped.unwrap().stopped.is_some());
}

#[tokio::test]
async fn a_watch_reports_changes_below() {
    let fixture = Fixture::new();
    fixture.write("d/old", "").unwrap();
    let mut watch = fixture.directory.watch(&Relative::root(), Below::All).unwrap();
    let mut next = async || {
        let wait = tokio::time::timeout(Duration::from_secs(5), watch.next());
        match wait.await.expect("an event within five seconds").unwrap() {
            Watched::Event(event) => format!("{:?} {}", event.kind, event.path),
            other => format!("{other:?}"),
        }
    };
    fixture.write("d/new", "x").unwrap();
    assert_eq!(next().await, "Created d/new");
    std::fs::create_dir_all(fixture.root("e/f")).unwrap();
    assert_eq!((next().await, next().await), ("Created e".into(), "Created e/f".into()));
    fixture.write("e/f/g", "x").unwrap();
    assert_eq!(next().await, "Created e/f/g");
    fixture.directory.remove(&relative("d/old")).unwrap();
    assert_eq!(next().await, "Removed d/old");
    fixture.directory.rename(&relative("d"), &relative("h"), Expect::Absent).unwrap();
    assert_eq!((next().await, next().await), ("Removed d".into(), "Created h".into()));
    assert_eq!(next().await, "Created h/new");
    std::fs::write(fixture.root("h/new"), "y").unwrap();
    assert_eq!(next().await, "Modified h/new");
}

#[tokio::test]
async fn a_detailed_watch_reports_every_step() {
    let fixture = Fixture::new();
    fixture.write("old", "1").unwrap();
    let mut watch = fixture.directory.watch_closely(&Relative::root(), Below::All).unwrap();
    let mut next = async |count: usize| {
        let mut seen = Vec::new();
        while seen.len() < count {
            let wait = tokio::time::timeout(Duration::from_secs(60), watch.next());
            let reported = match wait.await.unwrap_or_else(|_| panic!("only {seen:?}")).unwrap() {
                Watched::Event(event) => format!("{:?} {}", event.kind, event.path),
                other => format!("{other:?}"),
            };
            seen.push(reported);
        }
        seen.join(", ")
    };
    // An atomic write is reported as `Appeared`, a rename as `MovedAway` and `Created`.
    let unstaged = Directory::open(&fixture.root(""), None, Reach::Beneath).unwrap();
    let mut part = unstaged.write(&relative("old"), Above::MustExist, Expect::Anything).unwrap();
    part.write(b"2").unwrap();
    part.finish().unwrap();
    assert_eq!(next(1).await, "Appeared old");
    std::fs::rename(fixture.root("old"), fixture.root("new")).unwrap();
    assert_eq!(next(2).await, "MovedAway old, Created new");
    let mode = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fixture.root("new"), mode).unwrap();
    assert_eq!(next(1).await, "Permitted new");
    std::fs::write(fixture.root("new"), "3").unwrap();
    assert_eq!(next(1).await, "Modified new");
    // Nested directories are each reported once.
    std::fs::create_dir_all(fixture.root("d/e")).unwrap();
    std::fs::write(fixture.root("d/e/f"), "").unwrap();
    assert_eq!(next(3).await, "Created d, Appeared d/e, Appeared d/e/f");
    // A renamed directory is watched under its new name.
    std::fs::rename(fixture.root("d"), fixture.root("g")).unwrap();
    std::fs::write(fixture.root("g/e/h"), "").unwrap();
    assert_eq!(next(3).await, "MovedAway d, Created g, Created g/e/h");
    std::fs::remove_dir_all(fixture.root("g/e")).unwrap();
    let mut removed: Vec<String> = next(3).await.split(", ").map(str::to_owned).collect();
    removed.sort();
    assert_eq!(removed, ["Removed g/e", "Removed g/e/f", "Removed g/e/h"]);
    // The removal of the root is reported last.
    std::fs::remove_file(fixture.root("new")).unwrap();
    assert_eq!(next(1).await, "Removed new");
}

#[test]
fn files_are_created_as_the_owner_of_the_root() {
    use std::sync::atomic::AtomicU32;
    static CREATED: AtomicU32 = AtomicU32::new(0);
    let fixture = Fixture::new();
    let scope: IdentityScope = |owner, create| {
        assert_eq!(owner.0, rustix::process::geteuid().as_raw());
        CREATED.fetch_add(1, Ordering::Relaxed);
        create();
    };
    let directory = fixture.directory.clone().as_its_owner(scope).unwrap();
    directory.make_directory(&relative("d")).unwrap();
    directory.make_link("d", &relative("l")).unwrap();
    let mut part = directory.write(&relative("d/f"), Above::MustExist, Expect::Anything).unwrap();
    part.write(b"x").unwrap();
    part.finish().unwrap();
    directory.rename(&relative("d/f"), &relative("g"), Expect::Absent).unwrap();
    assert_eq!(CREATED.load(Ordering::Relaxed), 5, "two for a file: its creation and its name");
    assert_eq!(fixture.read("g").unwrap(), "x");
}

#[test]
fn new_files_in_a_shared_directory_belong_to_root_inside() {
    use base::shared_users::SharedUsers;
    use std::os::unix::fs::{MetadataExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can change owners");
        return;
    }
    let fixture = Fixture::new();
    let first = SharedUsers::for_name(b"x").first();
    chown(fixture.root(""), Some(first + 1000), Some(first + 100)).unwrap();
    fixture.write("d/f", "x").unwrap();
    fixture.directory.make_link("d", &relative("l")).unwrap();
    for name in ["d", "d/f", "l"] {
        let kind = std::fs::symlink_metadata(fixture.root(name)).unwrap();
        assert_eq!((kind.uid(), kind.gid()), (first, first), "{name}");
        let shown = fixture.directory.stat(&relative(name)).unwrap();
        assert_eq!(shown.owner, Some((0, 0)), "{name}");
    }
    // A file that is replaced keeps its owner.
    chown(fixture.root("d/f"), Some(first + 7), Some(first + 8)).unwrap();
    assert_eq!(fixture.write("d/f", "y").unwrap().owner, Some((7, 8)));
}

#[tokio::test]
async fn a_file_is_watched_by_its_name() {
    let fixture = Fixture::new();
    fixture.write("f", "1").unwrap();
    let mut watch = fixture.directory.watch(&relative("f"), Below::Children).unwrap();
    fixture.write("other", "1").unwrap();
    fixture.write("f", "2").unwrap();
    let wait = tokio::time::timeout(Duration::from_secs(5), watch.next());
    assert_eq!(wait.await.unwrap().unwrap(), Watched::Event(FileEvent::created("f")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No path of dots, slashes, links and names reads or writes outside of the root.
    #[test]
    fn no_path_leaves_the_root(parts in prop::collection::vec(
        prop::sample::select(vec!["..", ".", "up", "abs", "d", "f", "", "...", "d/up"]), 1..8))
    {
        let fixture = Fixture::new();
        fixture.write("d/f", "in").unwrap();
        symlink("..", fixture.root("up")).unwrap();
        symlink("../..", fixture.root("d/up")).unwrap();
        symlink(fixture.temp.path(), fixture.root("abs")).unwrap();
        let mut text = parts.join("/");
        for last in ["", "/secret", "/root/../secret"] {
            text.push_str(last);
            let Ok(path) = Relative::parse(&text) else { continue };
            if let Ok((mut file, _)) = fixture.directory.read(&path) {
                let mut content = String::new();
                file.read_to_string(&mut content).unwrap();
                prop_assert_ne!(content, "secret");
            }
            if let Ok(mut part) = fixture.directory.write(&path, Above::Make, Expect::Anything) {
                part.write(b"x").unwrap();
                let _ = part.finish();
            }
            let _ = fixture.directory.remove_tree(&path);
        }
        let outside = std::fs::read_dir(fixture.temp.path()).unwrap().count();
        prop_assert_eq!(outside, 3);
        prop_assert_eq!(std::fs::read_to_string(fixture.temp.path().join("secret")).unwrap(), "secret");
    }
}
