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

struct Place {
    temp: TempDir,
    directory: Directory,
}

impl Place {
    /// A root and a staging directory, with a secret beside the root.
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
        let (mut file, _) = self.directory.read(&relative(path)).map_err(word)?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn write(&self, path: &str, content: &str) -> Result<Stat, String> {
        self.write_expecting(path, content, Expect::Anything)
    }

    fn write_expecting(&self, path: &str, content: &str, expect: Expect) -> Result<Stat, String> {
        let mut part = self.directory.write(&relative(path), Above::Make, expect).map_err(word)?;
        part.write(content.as_bytes()).map_err(word)?;
        part.finish().map_err(word)
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

/// The kind of an error, for tables.
fn word(error: FileError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '{', '(']).next().unwrap().to_owned()
}

#[test]
fn a_file_is_written_whole_and_read_back() {
    let place = Place::new();
    place.write("a/b/c.txt", "one").unwrap();
    assert_eq!(place.read("a/b/c.txt").unwrap(), "one");
    std::fs::set_permissions(place.root("a/b/c.txt"), PermissionsExt::from_mode(0o755)).unwrap();
    let stat = place.write("a/b/c.txt", "two!").unwrap();
    assert_eq!((stat.size, stat.mode, stat.kind), (4, Some(0o755), FileKind::File));
    // One that was given up never was.
    let mut part =
        place.directory.write(&relative("x"), Above::MustExist, Expect::Anything).unwrap();
    part.write(b"half").unwrap();
    assert_eq!(place.names(9), ["a", "a/b", "a/b/c.txt"]);
    drop(part);
    assert!(place.staging_is_empty());
    assert_eq!(
        place
            .directory
            .write(&relative("q/r"), Above::MustExist, Expect::Anything)
            .map_err(word)
            .unwrap_err(),
        "Missing"
    );
}

#[test]
fn a_write_may_say_what_it_takes_for_granted() {
    let place = Place::new();
    let first = place.write_expecting("f", "1", Expect::Absent).unwrap();
    assert_eq!(place.write_expecting("f", "2", Expect::Absent).unwrap_err(), "Exists");
    let version = Expect::Version(first.version.unwrap());
    place.write_expecting("f", "2", version).unwrap();
    assert_eq!(place.write_expecting("f", "3", version).unwrap_err(), "Changed");
    assert_eq!(place.write_expecting("g", "3", version).unwrap_err(), "Changed");
    assert_eq!(place.read("f").unwrap(), "2");
    assert!(place.staging_is_empty());
}

#[test]
fn links_are_followed_inside_and_refused_outside() {
    let place = Place::new();
    place.write("d/real", "inside").unwrap();
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
        symlink(target, place.root(name)).unwrap();
    }
    let check = |path: &str, expected: &str| {
        assert_eq!(place.read(path).unwrap_or_else(|error| error), expected, "{path}");
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
        assert_eq!(place.write(path, "x").unwrap_err(), "Outside", "{path}");
        let stat = place.directory.stat(&relative(path));
        match path {
            "above/x" => assert_eq!(stat.map_err(word).unwrap_err(), "Outside"),
            _ => assert_eq!(stat.unwrap().kind, FileKind::Link),
        }
    }
    place.write("file", "through").unwrap();
    assert_eq!(std::fs::read_to_string(place.root("d/real")).unwrap(), "through");
    place.write("to-be-made", "made").unwrap();
    assert_eq!(place.read("made").unwrap(), "made");
    assert_eq!(place.write("loop", "x").unwrap_err(), "Loop");
    assert_eq!(std::fs::read_to_string(place.temp.path().join("secret")).unwrap(), "secret");
    // A link that is removed or moved is itself removed or moved.
    place.directory.remove(&relative("up")).unwrap();
    place.directory.remove_tree(&relative("above")).unwrap();
    place.directory.rename(&relative("absolute"), &relative("elsewhere"), Expect::Absent).unwrap();
    assert!(place.temp.path().join("secret").exists());
    assert_eq!(std::fs::read_link(place.root("elsewhere")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn what_is_no_file_is_refused_and_never_blocks() {
    let place = Place::new();
    let make = |arguments: &[&str]| Command::new("mknod").args(arguments).status().unwrap();
    let path = |name: &str| place.root(name).display().to_string();
    assert!(make(&[&path("fifo"), "p"]).success());
    std::os::unix::net::UnixListener::bind(place.root("socket")).unwrap();
    let mut names = vec!["fifo", "socket"];
    // Only a privileged user makes devices.
    if make(&[&path("zero"), "c", "1", "5"]).success() {
        names.push("zero");
    }
    for name in names {
        assert_eq!(place.read(name).unwrap_err(), "NotRegular", "{name}");
        assert_eq!(place.write(name, "x").unwrap_err(), "NotRegular", "{name}");
        assert_eq!(place.directory.stat(&relative(name)).unwrap().kind, FileKind::Other);
    }
    let found = place
        .directory
        .search(&Relative::root(), ".", SearchLimits::default(), &AtomicBool::new(false))
        .unwrap();
    assert_eq!(found.files, 0);
}

#[test]
fn a_race_of_links_never_leads_outside() {
    let place = Place::new();
    place.write("inside/secret", "inside").unwrap();
    std::fs::create_dir(place.temp.path().join("outside")).unwrap();
    std::fs::write(place.temp.path().join("outside/secret"), "outside").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (racing, root, outside) = (stop.clone(), place.root(""), place.temp.path().join("outside"));
    let racer = std::thread::spawn(move || {
        while !racing.load(Ordering::Relaxed) {
            // The name is a directory and a link outside by turns.
            let _ = std::fs::rename(root.join("inside"), root.join("kept"));
            let _ = symlink(&outside, root.join("inside"));
            let _ = std::fs::remove_file(root.join("inside"));
            let _ = std::fs::rename(root.join("kept"), root.join("inside"));
        }
    });
    let mut seen = 0;
    for _ in 0..4000 {
        match place.read("inside/secret") {
            Ok(text) => {
                assert_eq!(text, "inside");
                seen += 1;
            }
            Err(error) => assert!(
                ["Outside", "Missing", "NotDirectory", "Changed"].contains(&error.as_str()),
                "{error}"
            ),
        }
        let written = place.write("inside/new", "x");
        assert!(written.is_ok() || !place.temp.path().join("outside/new").exists());
        let _ = place.directory.remove_tree(&relative("inside/new"));
    }
    stop.store(true, Ordering::Relaxed);
    racer.join().unwrap();
    assert!(seen > 0);
    assert_eq!(std::fs::read_dir(place.temp.path().join("outside")).unwrap().count(), 1);
}

#[test]
fn a_list_is_paged_in_order() {
    let place = Place::new();
    for path in ["a/x/1", "a/y", "a-b", "b", "c/1", "c/2"] {
        place.write(path, "").unwrap();
    }
    assert_eq!(place.names(1), ["a", "a-b", "b", "c"]);
    let all = ["a", "a/x", "a/x/1", "a/y", "a-b", "b", "c", "c/1", "c/2"];
    assert_eq!(place.names(3), all);
    for limit in 1..10 {
        let (mut after, mut paged): (Option<Relative>, Vec<String>) = (None, Vec::new());
        loop {
            let page = place.directory.list(&Relative::root(), 3, after.as_ref(), limit).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(relative(&last.path));
            paged.extend(page.into_iter().map(|stat| stat.path));
        }
        assert_eq!(paged, all, "{limit}");
    }
    let below = place.directory.list(&relative("c"), 1, Some(&relative("c/1")), 9).unwrap();
    assert_eq!(below.into_iter().map(|stat| stat.path).collect::<Vec<_>>(), ["c/2"]);
}

#[test]
fn trees_of_any_depth_are_removed() {
    let place = Place::new();
    let deep = vec!["d"; 1500].join("/");
    std::fs::create_dir_all(place.root(&deep)).unwrap();
    std::fs::write(place.root(&deep).join("f"), "").unwrap();
    assert_eq!(place.directory.remove(&relative("d")).map_err(word).unwrap_err(), "NotEmpty");
    place.directory.remove_tree(&relative("d")).unwrap();
    assert!(place.names(1).is_empty() && place.staging_is_empty());
    assert_eq!(
        place.directory.remove_tree(&Relative::root()).map_err(word).unwrap_err(),
        "NotSupported"
    );
    assert_eq!(place.directory.remove(&relative("x")).map_err(word).unwrap_err(), "Missing");
}

#[test]
fn a_move_replaces_only_what_it_may() {
    let place = Place::new();
    place.write("a", "a").unwrap();
    place.write("b", "b").unwrap();
    place.write("d/e", "e").unwrap();
    let rename = |from: &str, to: &str, expect| {
        place.directory.rename(&relative(from), &relative(to), expect).map_err(word)
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
        (place.names(2), place.read("b").unwrap()),
        (vec!["b".into(), "g".into(), "g/e".into()], "a".into())
    );
}

#[test]
fn names_that_are_too_long_are_refused_by_name() {
    let place = Place::new();
    let long = "n".repeat(255);
    place.write(&long, "x").unwrap();
    // Each name is short enough, all together are not for the kernel.
    let deep = vec!["n".repeat(250); 15].join("/");
    place.write(&deep, "x").unwrap();
    assert_eq!(place.read(&deep).unwrap(), "x");
    assert!(Relative::parse(&vec!["n".repeat(250); 17].join("/")).is_err());
}

#[test]
fn a_search_is_linear_bounded_and_says_what_it_left_out() {
    let place = Place::new();
    place.write("a.txt", "one\ntwo fish\n").unwrap();
    place.write("d/b.txt", "red fish\nblue fish").unwrap();
    std::fs::write(place.root("binary"), b"fish\0fish").unwrap();
    std::fs::write(place.root("evil"), "a".repeat(100_000)).unwrap();
    symlink(place.temp.path().join("secret"), place.root("link")).unwrap();
    let search = |pattern: &str, limits: SearchLimits| {
        place.directory.search(&Relative::root(), pattern, limits, &AtomicBool::new(false))
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
    // A pattern that would take for ever by backtracking.
    search("(a|a)*(a|a)*b", SearchLimits::default()).unwrap();
    assert_eq!(search("secret", SearchLimits::default()).unwrap().matches, []);
    assert_eq!(search("(", SearchLimits::default()).map_err(word).unwrap_err(), "BadPattern");
    assert_eq!(
        search("(((a{1000}){1000}){1000})", SearchLimits::default()).map_err(word).unwrap_err(),
        "BadPattern"
    );
    let stopped = place.directory.search(
        &Relative::root(),
        "x",
        SearchLimits::default(),
        &AtomicBool::new(true),
    );
    assert!(stopped.unwrap().stopped.is_some());
}

#[tokio::test]
async fn a_watcher_sees_what_happens_below() {
    let place = Place::new();
    place.write("d/old", "").unwrap();
    let mut watch = place.directory.watch(&Relative::root(), Below::All).unwrap();
    let mut next = async || {
        let wait = tokio::time::timeout(Duration::from_secs(5), watch.next());
        match wait.await.expect("an event within five seconds").unwrap() {
            Watched::Event(event) => format!("{:?} {}", event.kind, event.path),
            other => format!("{other:?}"),
        }
    };
    place.write("d/new", "x").unwrap();
    assert_eq!(next().await, "Created d/new");
    std::fs::create_dir_all(place.root("e/f")).unwrap();
    assert_eq!((next().await, next().await), ("Created e".into(), "Created e/f".into()));
    place.write("e/f/g", "x").unwrap();
    assert_eq!(next().await, "Created e/f/g");
    place.directory.remove(&relative("d/old")).unwrap();
    assert_eq!(next().await, "Removed d/old");
    place.directory.rename(&relative("d"), &relative("h"), Expect::Absent).unwrap();
    assert_eq!((next().await, next().await), ("Removed d".into(), "Created h".into()));
    assert_eq!(next().await, "Created h/new");
    std::fs::write(place.root("h/new"), "y").unwrap();
    assert_eq!(next().await, "Modified h/new");
}

#[tokio::test]
async fn who_watches_closely_is_told_every_step() {
    let place = Place::new();
    place.write("old", "1").unwrap();
    let mut watch = place.directory.watch_closely(&Relative::root(), Below::All).unwrap();
    let mut next = async |count: usize| {
        let mut seen = Vec::new();
        while seen.len() < count {
            let wait = tokio::time::timeout(Duration::from_secs(60), watch.next());
            let told = match wait.await.unwrap_or_else(|_| panic!("only {seen:?}")).unwrap() {
                Watched::Event(event) => format!("{:?} {}", event.kind, event.path),
                other => format!("{other:?}"),
            };
            seen.push(told);
        }
        seen.join(", ")
    };
    // Written whole beside, it appears; renamed, it had another name before.
    let beside = Directory::open(&place.root(""), None, Reach::Beneath).unwrap();
    let mut part = beside.write(&relative("old"), Above::MustExist, Expect::Anything).unwrap();
    part.write(b"2").unwrap();
    part.finish().unwrap();
    assert_eq!(next(1).await, "Appeared old");
    std::fs::rename(place.root("old"), place.root("new")).unwrap();
    assert_eq!(next(2).await, "MovedAway old, Created new");
    let mode = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.root("new"), mode).unwrap();
    assert_eq!(next(1).await, "Permitted new");
    std::fs::write(place.root("new"), "3").unwrap();
    assert_eq!(next(1).await, "Modified new");
    // What is made at once is told, each once.
    std::fs::create_dir_all(place.root("d/e")).unwrap();
    std::fs::write(place.root("d/e/f"), "").unwrap();
    assert_eq!(next(3).await, "Created d, Appeared d/e, Appeared d/e/f");
    // A directory that is renamed is watched under its other name.
    std::fs::rename(place.root("d"), place.root("g")).unwrap();
    std::fs::write(place.root("g/e/h"), "").unwrap();
    assert_eq!(next(3).await, "MovedAway d, Created g, Created g/e/h");
    std::fs::remove_dir_all(place.root("g/e")).unwrap();
    let mut removed: Vec<String> = next(3).await.split(", ").map(str::to_owned).collect();
    removed.sort();
    assert_eq!(removed, ["Removed g/e", "Removed g/e/f", "Removed g/e/h"]);
    // And so is the end of all.
    std::fs::remove_file(place.root("new")).unwrap();
    assert_eq!(next(1).await, "Removed new");
}

#[tokio::test]
async fn a_file_is_watched_by_its_name() {
    let place = Place::new();
    place.write("f", "1").unwrap();
    let mut watch = place.directory.watch(&relative("f"), Below::Children).unwrap();
    place.write("other", "1").unwrap();
    place.write("f", "2").unwrap();
    let wait = tokio::time::timeout(Duration::from_secs(5), watch.next());
    assert_eq!(wait.await.unwrap().unwrap(), Watched::Event(FileEvent::created("f")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No path made of dots, slashes, links and names reads or writes what is outside.
    #[test]
    fn no_path_leaves_the_root(parts in prop::collection::vec(
        prop::sample::select(vec!["..", ".", "up", "abs", "d", "f", "", "...", "d/up"]), 1..8))
    {
        let place = Place::new();
        place.write("d/f", "in").unwrap();
        symlink("..", place.root("up")).unwrap();
        symlink("../..", place.root("d/up")).unwrap();
        symlink(place.temp.path(), place.root("abs")).unwrap();
        let mut text = parts.join("/");
        for last in ["", "/secret", "/root/../secret"] {
            text.push_str(last);
            let Ok(path) = Relative::parse(&text) else { continue };
            if let Ok((mut file, _)) = place.directory.read(&path) {
                let mut content = String::new();
                file.read_to_string(&mut content).unwrap();
                prop_assert_ne!(content, "secret");
            }
            if let Ok(mut part) = place.directory.write(&path, Above::Make, Expect::Anything) {
                part.write(b"x").unwrap();
                let _ = part.finish();
            }
            let _ = place.directory.remove_tree(&path);
        }
        let outside = std::fs::read_dir(place.temp.path()).unwrap().count();
        prop_assert_eq!(outside, 3);
        prop_assert_eq!(std::fs::read_to_string(place.temp.path().join("secret")).unwrap(), "secret");
    }
}
