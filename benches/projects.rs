//! What memories and files cost, in process and over HTTP, and how long a list of 1,000 projects
//! takes.
//!
//! `cargo bench --bench projects`. Set `TMPDIR` to a directory on the disk that matters. The figures
//! over HTTP are those of one connection that is kept open. The last column is the median as a ratio
//! to what the figure is held against: below 1 is better.
#![allow(missing_docs)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use base::{clock::Clock, event::Events};
use files::{
    Directory, Reach, TreePath,
    memory::{Expect, HotLimits, MemoryChange},
};
use project::{
    AttendancePolicy, InstanceFiles, ProjectChoices, ProjectSettings, Projects,
    cleanup::CleanupPolicy,
};
use provider::PlainWorkspaces;
use store::{PageRequest, ProjectFilter, Store};

const PROJECTS: u64 = 1000;
/// What a read is held against: of a hot memory, and of a file.
const HOT: Option<Duration> = Some(Duration::from_micros(1));
const FILE: Option<Duration> = Some(Duration::from_micros(36));
/// How long a list of all projects may take.
const LIST: Option<Duration> = Some(Duration::from_millis(10));
const CONTENT: &[u8] = &[b'x'; 1024];

fn main() -> Result<()> {
    let home = Home::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let project = runtime.block_on(in_process(&home.0))?;
    drop(runtime);
    over_http(&home.0, &project)
}

async fn in_process(home: &Path) -> Result<String> {
    let (store, clock) = (Store::open(home)?, Clock::system());
    let settings = ProjectSettings {
        max_projects: PROJECTS + 1,
        cleanup: CleanupPolicy::default(),
        trash: Duration::from_secs(7 * 86_400),
        hot: HotLimits::default(),
        attendance: AttendancePolicy::default(),
        routes: BTreeMap::new(),
    };
    let events = Events::new(clock.clone());
    let projects =
        Projects::start(home, store, clock, events, settings, Arc::new(PlainWorkspaces)).await?;
    let project = projects.create("bench", ProjectChoices::default()).await?;
    let id = project.project_id.clone();
    let memory = projects.memory(&id).await?;
    let path = TreePath::parse("/memories/hot/notes/today")?;
    let put = MemoryChange::Put {
        path: path.relative().clone(),
        bytes: CONTENT.into(),
        expect: Expect::Anything,
    };
    memory.change(put.clone()).await?;
    let workspace = projects.workspace(&id).await?;
    std::fs::write(workspace.memories.join("today"), CONTENT)?;
    std::fs::write(workspace.repo.join("today"), CONTENT)?;

    println!("in process, 1 KiB");
    report("  hot read", 200_000, HOT, || {
        ensure!(memory.get(path.relative())?.bytes.len() == 1024);
        Ok(())
    })?;
    for (what, root) in [("persistent", &workspace.memories), ("workspace", &workspace.repo)] {
        let directory = Directory::open(root, Some(&workspace.tmp), Reach::Beneath)?;
        let name = files::Relative::parse("today")?;
        let mut buffer = Vec::with_capacity(2048);
        report(&format!("  {what} read"), 20_000, FILE, || {
            buffer.clear();
            directory.read(&name)?.0.read_to_end(&mut buffer)?;
            ensure!(buffer.len() == 1024);
            Ok(())
        })?;
    }
    let mut times = Vec::new();
    for _ in 0..500 {
        let started = Instant::now();
        memory.change(put.clone()).await?;
        times.push(started.elapsed());
    }
    show("  hot write, synced", &mut times, None);
    let nowhere = InstanceFiles::Nowhere("none");
    let mut times = Vec::new();
    for _ in 0..2000 {
        let started = Instant::now();
        let tree = projects.tree(&project, nowhere.clone()).await?;
        tree.stat(&TreePath::parse("/workspace/today")?).await?;
        times.push(started.elapsed());
    }
    show("  tree and stat", &mut times, None);

    for number in 2..PROJECTS {
        let description = Some(format!("number {number}"));
        projects.create("bench", ProjectChoices { description, ..Default::default() }).await?;
    }
    let mut times = Vec::new();
    for _ in 0..50 {
        let started = Instant::now();
        let page = projects.list(ProjectFilter::default(), PageRequest::first(1000)).await?;
        times.push(started.elapsed());
        ensure!(page.items.len() as u64 == PROJECTS);
    }
    show("  list of 1,000 projects", &mut times, LIST);
    projects.memories().snapshot_all().await?;
    Ok(id.to_string())
}

fn over_http(home: &Path, project: &str) -> Result<()> {
    let server = Server::start(home)?;
    println!("over HTTP, one connection, 1 KiB");
    let mut connection = server.connect()?;
    connection.put(&format!("/api/projects/{project}/memories/hot/today"), CONTENT)?;
    connection.put(&format!("/api/projects/{project}/memories/persistent/today"), CONTENT)?;
    connection.post(&format!("/api/projects/{project}/sessions"), r#"{"thread_id":"bench"}"#)?;
    let reads = [
        ("  hot read", format!("/api/projects/{project}/memories/hot/today")),
        ("  persistent read", format!("/api/projects/{project}/memories/persistent/today")),
        ("  workspace read", "/api/threads/bench/fs/read?path=/workspace/today".to_owned()),
    ];
    for (what, path) in reads {
        report(what, 2000, None, || {
            ensure!(connection.get(&path)?.len() == 1024);
            Ok(())
        })?;
    }
    report("  list of 1,000 projects", 50, LIST, || {
        let body = connection.get("/api/projects?limit=1000")?;
        ensure!(body.len() > 100_000);
        Ok(())
    })
}

fn report(
    what: &str,
    count: usize,
    against: Option<Duration>,
    mut act: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        act()?;
        times.push(started.elapsed());
    }
    show(what, &mut times, against);
    Ok(())
}

fn show(what: &str, times: &mut [Duration], against: Option<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let ratio = against.map_or(String::new(), |against| {
        format!("  {:.2} of {against:?}", at(50).as_secs_f64() / against.as_secs_f64())
    });
    println!("{what:28} p50 {:>10.2?}  p99 {:>10.2?}{ratio}", at(50), at(99));
}

struct Server {
    child: Child,
    /// Open as long as the server runs, so that it can print more than its address.
    _out: BufReader<ChildStdout>,
    address: String,
    token: String,
}

impl Server {
    fn start(home: &Path) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stead"))
            .args(["serve", "--listen", "127.0.0.1:0", "--provider", "local", "--home"])
            .arg(home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut out = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://").context("no address")?;
        let token = std::fs::read_to_string(home.join("token"))?.trim().to_owned();
        Ok(Self { child, _out: out, address: address.to_owned(), token })
    }

    fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let head = format!("host: {}\r\nauthorization: Bearer {}\r\n", self.address, self.token);
        Ok(Connection { reader: BufReader::new(stream), head })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Connection {
    reader: BufReader<TcpStream>,
    head: String,
}

impl Connection {
    fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.send("GET", path, "", &[])
    }

    fn put(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.send("PUT", path, "", body)
    }

    fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.send("POST", path, "content-type: application/json\r\n", body.as_bytes())
    }

    fn send(&mut self, method: &str, path: &str, more: &str, body: &[u8]) -> Result<Vec<u8>> {
        let length = body.len();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\n{}{more}content-length: {length}\r\n\r\n",
            self.head
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.reader.get_mut().write_all(&request)?;
        let (mut status, mut length) = (String::new(), 0);
        self.reader.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        ensure!(status.contains(" 20"), "{status}{}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

struct Home(PathBuf);

impl Home {
    fn new() -> Result<Self> {
        let path =
            std::env::temp_dir().join(format!("stead-bench-projects-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
