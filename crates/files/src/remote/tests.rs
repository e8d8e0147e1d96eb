//! The scripts, run by the shell of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use model::{Instance, InstanceId, LeaseId, Timestamp};
use provider::{
    Capabilities, Created, Fidelity, Found, HostConnection, Intent, Metrics, Observed, Provider,
    ProviderError, Reply, ScriptOutput, Scripts,
};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::RemoteDirectory;
use crate::memory::Expect;
use crate::{
    Above, Backend, Below, FileError, FileKind, Relative, Route, SearchLimits, Tree, TreePath,
    Watched,
};

/// Runs scripts on this machine, with a small limit of their output.
#[derive(Debug)]
struct ThisMachine {
    directory: String,
    max_output_bytes: usize,
}

fn unused<T: Send + 'static>() -> Reply<'static, T> {
    Box::pin(std::future::ready(Err(ProviderError::unsupported("this", "do more"))))
}

impl Provider for ThisMachine {
    fn name(&self) -> &str {
        "this"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { hosted: false, pause: Fidelity::None, metrics: false, isolation: vec![] }
    }

    fn create<'a>(&'a self, _: &'a Intent) -> Reply<'a, Created> {
        unused()
    }

    fn inspect<'a>(&'a self, _: &'a Instance) -> Reply<'a, Observed> {
        unused()
    }

    fn pause<'a>(&'a self, _: &'a Instance) -> Reply<'a, ()> {
        unused()
    }

    fn resume<'a>(&'a self, _: &'a Instance) -> Reply<'a, ()> {
        unused()
    }

    fn destroy<'a>(&'a self, _: &'a Instance) -> Reply<'a, ()> {
        unused()
    }

    fn connect<'a>(&'a self, _: &'a Instance) -> Reply<'a, HostConnection> {
        unused()
    }

    fn find_by_label<'a>(&'a self, _: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        unused()
    }

    fn metrics<'a>(&'a self, _: &'a Instance) -> Reply<'a, Metrics> {
        unused()
    }

    fn scripts(&self) -> Option<&dyn Scripts> {
        Some(self)
    }
}

impl Scripts for ThisMachine {
    fn script_directory(&self, _: &Instance) -> String {
        self.directory.clone()
    }

    fn max_output_bytes(&self) -> usize {
        self.max_output_bytes
    }

    fn run_script<'a>(&'a self, _: &'a Instance, script: &'a str) -> Reply<'a, ScriptOutput> {
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(output.stdout.len() <= self.max_output_bytes + 1024, "{script}");
        let (stdout, stderr) = (output.stdout, output.stderr);
        let output = ScriptOutput { exit_code: output.status.code(), stdout, stderr };
        Box::pin(std::future::ready(Ok(output)))
    }

    fn put_file<'a>(&'a self, _: &'a Instance, path: &'a str, bytes: Vec<u8>) -> Reply<'a, ()> {
        fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A directory of this machine, used by scripts.
struct Fixture {
    dir: TempDir,
    temporary: TempDir,
    tree: Tree,
}

impl Fixture {
    fn new() -> Self {
        Self::with_output(64 << 10)
    }

    fn with_output(max_output_bytes: usize) -> Self {
        let (dir, temporary) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let directory = temporary.path().join("it's").display().to_string();
        let instance = Instance {
            instance_id: InstanceId::fresh(),
            generation: 1,
            reference: String::new(),
            started_at: Timestamp::UNIX_EPOCH,
        };
        let provider = Arc::new(ThisMachine { directory, max_output_bytes });
        let remote = RemoteDirectory::new(provider, instance).unwrap();
        let route = Route { prefix: Relative::root(), backend: Backend::Remote(remote) };
        Self { dir, temporary, tree: Tree::new(vec![route], Timestamp::UNIX_EPOCH) }
    }

    fn path(&self, below: &str) -> TreePath {
        TreePath::parse(&format!("{}/{below}", self.dir.path().display())).unwrap()
    }

    async fn put(&self, below: &str, bytes: &[u8], expect: Expect) -> Result<u64, FileError> {
        let mut writing = self.tree.write(&self.path(below), Above::MustExist, expect).await?;
        for piece in bytes.chunks(1 << 20) {
            writing.write(piece.to_vec().into()).await?;
        }
        Ok(writing.finish().await?.unwrap())
    }

    async fn get(&self, below: &str, offset: u64, limit: Option<u64>) -> Vec<u8> {
        let mut content = self.tree.read(&self.path(below), offset, limit).await.unwrap();
        let mut bytes = Vec::new();
        content.bytes.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(content.length, Some(bytes.len() as u64));
        bytes
    }

    async fn names(
        &self,
        below: &str,
        depth: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<String> {
        let after = after.map(|after| self.path(after));
        let found = self.tree.list(&self.path(below), depth, after.as_ref(), limit).await.unwrap();
        let top = format!("{}/", self.dir.path().display());
        found.iter().map(|stat| stat.path.strip_prefix(&top).unwrap().to_owned()).collect()
    }

    /// Checks that no unfinished file and no temporary file is left once failed writes were cleaned up.
    async fn check_clean(&self) {
        let left = || {
            let temporary = fs::read_dir(self.temporary.path().join("it's"));
            let top = fs::read_dir(self.dir.path()).unwrap();
            let left = temporary.into_iter().flatten().chain(top);
            left.map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.starts_with(".stead-part-"))
                .collect::<Vec<String>>()
        };
        for _ in 0..100 {
            if left().is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("left: {:?}", left());
    }
}

fn code<T>(result: Result<T, FileError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{error:?}").split([' ', '(', '{']).next().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_file_is_written_read_and_described() {
    let fixture = Fixture::new();
    let name = "a 'quoted' $(name) \\ é";
    let bytes: Vec<u8> = (0..=255).collect();
    let version = fixture.put(name, &bytes, Expect::Absent).await.unwrap();
    assert_eq!(fs::read(fixture.dir.path().join(name)).unwrap(), bytes);
    assert_eq!(fixture.get(name, 0, None).await, bytes);
    assert_eq!(fixture.get(name, 250, Some(3)).await, [250, 251, 252]);
    assert_eq!(fixture.get(name, 999, Some(3)).await, b"");
    let stat = fixture.tree.stat(&fixture.path(name)).await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File, 256, Some(0o644)));
    assert_eq!(stat.path, fixture.path(name).to_string());
    assert_eq!(stat.version, Some(version));
    assert!(stat.modified_at.is_some());
    fixture.put("empty", b"", Expect::Anything).await.unwrap();
    assert_eq!(fixture.get("empty", 0, None).await, b"");
    fixture.check_clean().await;
}

#[tokio::test]
async fn a_large_file_is_transferred_in_parts() {
    let fixture = Fixture::new();
    let bytes: Vec<u8> = (0..9_000_001_u32).flat_map(u32::to_le_bytes).take(9_000_001).collect();
    fixture.put("large", &bytes, Expect::Anything).await.unwrap();
    assert!(fs::read(fixture.dir.path().join("large")).unwrap() == bytes);
    let part = fixture.get("large", 100_000, Some(200_001)).await;
    assert!(part == bytes[100_000..300_001]);
    assert!(fixture.get("large", 8_000_000, None).await == bytes[8_000_000..]);
    // A file that is replaced meanwhile is not mixed with the new one.
    let opened = fixture.tree.open(&fixture.path("large")).await.unwrap();
    fixture.put("large", &bytes[1..], Expect::Anything).await.unwrap();
    let mut content = opened.part(0, None).unwrap();
    let error = content.bytes.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("changed meanwhile"), "{error}");
    fixture.check_clean().await;
}

#[tokio::test]
async fn a_write_respects_its_precondition_mode_and_links() {
    let fixture = Fixture::new();
    let version = fixture.put("a", b"1", Expect::Absent).await.unwrap();
    assert_eq!(code(fixture.put("a", b"2", Expect::Absent).await), "Exists");
    assert_eq!(code(fixture.put("a", b"2", Expect::Version(version ^ 1)).await), "Changed");
    assert_eq!(code(fixture.put("b", b"2", Expect::Version(version)).await), "Changed");
    let next = fixture.put("a", b"2", Expect::Version(version)).await.unwrap();
    assert_ne!(next, version);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
    fs::set_permissions(fixture.dir.path().join("a"), mode).unwrap();
    symlink("a", fixture.dir.path().join("link")).unwrap();
    fixture.put("link", b"3", Expect::Anything).await.unwrap();
    assert_eq!(fs::read(fixture.dir.path().join("a")).unwrap(), b"3");
    let link = fixture.tree.stat(&fixture.path("link")).await.unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (FileKind::Link, Some("a")));
    assert_eq!(fixture.tree.stat(&fixture.path("a")).await.unwrap().mode, Some(0o750));
    assert_eq!(fixture.get("link", 0, None).await, b"3");
    fixture.check_clean().await;
}

#[tokio::test]
async fn every_failure_has_its_reason() {
    let fixture = Fixture::new();
    let (tree, path) = (&fixture.tree, |below: &str| fixture.path(below));
    fixture.put("file", b"x", Expect::Anything).await.unwrap();
    fs::create_dir_all(fixture.dir.path().join("dir/full")).unwrap();
    symlink("loop", fixture.dir.path().join("loop")).unwrap();
    let fifo = fixture.dir.path().join("fifo");
    Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert_eq!(code(tree.stat(&path("none")).await), "Missing");
    assert_eq!(code(tree.stat(&path("file/x")).await), "NotDirectory");
    assert_eq!(code(tree.open(&path("none")).await), "Missing");
    assert_eq!(code(tree.open(&path("dir")).await), "IsDirectory");
    assert_eq!(code(tree.open(&path("fifo")).await), "NotRegular");
    assert_eq!(code(tree.open(&path("loop")).await), "Loop");
    assert_eq!(code(tree.list(&path("none"), 1, None, 9).await), "Missing");
    assert_eq!(code(tree.list(&path("file"), 1, None, 9).await), "NotDirectory");
    assert_eq!(code(fixture.put("dir", b"x", Expect::Anything).await), "IsDirectory");
    assert_eq!(code(fixture.put("fifo", b"x", Expect::Anything).await), "NotRegular");
    assert_eq!(code(fixture.put("none/x", b"x", Expect::Anything).await), "Missing");
    assert_eq!(code(fixture.put("file/x", b"x", Expect::Anything).await), "NotDirectory");
    assert_eq!(code(tree.make_directory(&path("dir"), Above::MustExist).await), "Exists");
    assert_eq!(code(tree.make_directory(&path("a/b"), Above::MustExist).await), "Missing");
    assert_eq!(code(tree.make_directory(&path("file"), Above::Make).await), "Exists");
    assert_eq!(code(tree.remove(&path("none")).await), "Missing");
    assert_eq!(code(tree.remove(&path("dir")).await), "NotEmpty");
    assert_eq!(code(tree.remove_tree(&path("none")).await), "Missing");
    assert_eq!(code(tree.search(&path("none"), "x", SearchLimits::default()).await), "Missing");
    assert_eq!(code(tree.search(&path("dir"), "(", SearchLimits::default()).await), "BadPattern");
    let moved = |from: &str, to: &str, expect| {
        let (from, to) = (path(from), path(to));
        async move { code(tree.rename(&from, &to, expect).await) }
    };
    assert_eq!(moved("none", "b", Expect::Anything).await, "Missing");
    assert_eq!(moved("file", "none/b", Expect::Anything).await, "Missing");
    assert_eq!(moved("file", "dir", Expect::Anything).await, "IsDirectory");
    assert_eq!(moved("file", "fifo", Expect::Absent).await, "Exists");
    assert_eq!(moved("dir", "file", Expect::Anything).await, "Exists");
    assert_eq!(moved("dir", "dir/full/x", Expect::Anything).await, "BadPath");
    fixture.check_clean().await;
}

#[tokio::test]
async fn directories_are_made_listed_moved_and_removed() {
    // Several thousand records do not fit one output.
    let fixture = Fixture::with_output(4 << 10);
    let (tree, path) = (&fixture.tree, |below: &str| fixture.path(below));
    tree.make_directory(&path("a/b"), Above::Make).await.unwrap();
    tree.make_directory(&path("a/b"), Above::Make).await.unwrap();
    let odd = "a/new\nline|x";
    for name in ["a/b/f", "a/b.txt", "a/.hidden", "a/.stead-part-1", odd, "z"] {
        fs::write(fixture.dir.path().join(name), name).unwrap();
    }
    symlink("b", fixture.dir.path().join("a/to b")).unwrap();
    let all = ["a", "a/.hidden", "a/b", "a/b/f", "a/b.txt", odd, "a/to b", "z"];
    assert_eq!(fixture.names("", 9, None, 99).await, all);
    assert_eq!(fixture.names("", 9, Some("a/b"), 2).await, ["a/b/f", "a/b.txt"]);
    assert_eq!(fixture.names("", 1, None, 99).await, ["a", "z"]);
    assert_eq!(fixture.names("a/to b", 1, None, 99).await, ["a/to b/f"]);
    let found = tree.list(&path("a"), 1, None, 99).await.unwrap();
    assert_eq!(found.last().unwrap().target.as_deref(), Some("b"));
    for number in 0..2000 {
        fs::write(fixture.dir.path().join(format!("a/b/{number:04}-{}", number * 7919)), "")
            .unwrap();
    }
    assert_eq!(fixture.names("a/b", 1, None, 9999).await.len(), 2001);
    tree.rename(&path("a/b"), &path("c"), Expect::Absent).await.unwrap();
    tree.rename(&path("z"), &path("a/b.txt"), Expect::Anything).await.unwrap();
    assert_eq!(fixture.get("a/b.txt", 0, None).await, b"z");
    tree.remove_tree(&path("c")).await.unwrap();
    tree.remove(&path("a/to b")).await.unwrap();
    assert_eq!(fixture.names("", 9, None, 99).await, ["a", "a/.hidden", "a/b.txt", odd]);
    fixture.check_clean().await;
}

#[tokio::test]
async fn text_is_searched_with_the_same_patterns_as_elsewhere() {
    let fixture = Fixture::with_output(4 << 10);
    fs::create_dir(fixture.dir.path().join("src")).unwrap();
    fs::write(fixture.dir.path().join("src/one.rs"), "let a = 1;\nfn wörld() {}\n").unwrap();
    fs::write(fixture.dir.path().join("src/-t wo"), "x\nfn two() {}").unwrap();
    fs::write(fixture.dir.path().join("binary"), b"fn three\0").unwrap();
    let noise: String = (0..3000).map(|n| format!("{}\n", n * 7919 % 104_729)).collect();
    fs::write(fixture.dir.path().join("noise"), noise).unwrap();
    let search = async |below: &str, pattern: &str| {
        let path = fixture.path(below);
        let found = fixture.tree.search(&path, pattern, SearchLimits::default()).await.unwrap();
        assert_eq!(found.stopped, None);
        let top = format!("{}/", fixture.dir.path().display());
        let line = |found: crate::Match| {
            let path = found.path.strip_prefix(&top).unwrap().to_owned();
            (path, found.line, found.column, found.text)
        };
        found.matches.into_iter().map(line).collect::<Vec<_>>()
    };
    let two = ("src/-t wo".to_owned(), 2, 1, "fn two() {}".to_owned());
    let one = ("src/one.rs".to_owned(), 2, 1, "fn wörld() {}".to_owned());
    assert_eq!(search("", r"^fn \pL+\(\)").await, [two.clone(), one.clone()]);
    assert_eq!(search("src/one.rs", r"fn").await, [one]);
    assert_eq!(search("src/-t wo", r"fn").await, [two]);
    assert_eq!(search("src", r"nothing").await, []);
    fixture.check_clean().await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_reported_until_the_watched_directory_is_removed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.dir.path().join("d")).unwrap();
    fs::write(fixture.dir.path().join("d/old"), "x").unwrap();
    let mut watch = fixture.tree.watch(&fixture.path("d"), Below::All).await.unwrap();
    let top = format!("{}/", fixture.dir.path().display());
    let mut next = async || match watch.next().await.unwrap() {
        Watched::Event(event) => {
            format!("{:?} {}", event.kind, event.path.strip_prefix(&top).unwrap())
        }
        other => format!("{other:?}"),
    };
    fs::write(fixture.dir.path().join("d/new"), "x").unwrap();
    assert_eq!(next().await, "Created d/new");
    fs::write(fixture.dir.path().join("d/old"), "longer").unwrap();
    assert_eq!(next().await, "Modified d/old");
    fs::remove_file(fixture.dir.path().join("d/old")).unwrap();
    assert_eq!(next().await, "Removed d/old");
    fs::remove_dir_all(fixture.dir.path().join("d")).unwrap();
    assert_eq!(next().await, "Gone");
}
