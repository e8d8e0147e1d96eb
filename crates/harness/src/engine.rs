//! Container engines on sockets and in directories of their own. One that a test has for itself ends with the
//! test process; those that tests share end with the test runner, which may run each test in its own process.
//! Either way a script beside the engine waits for the end of a pipe, however its writer ends.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{wait::pause, wait_for};

/// Deadline for the start of an engine.
const START_TIMEOUT: Duration = Duration::from_secs(90);

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs an engine until standard input ends, and leaves nothing of it.
const SCRIPT: &str = include_str!("engine.sh");

/// An engine that runs.
pub struct Engine {
    dir: PathBuf,
    /// Its standard input is open as long as the engine is to run; `None` if the test runner holds it.
    script: Option<Child>,
}

impl Engine {
    /// Starts an engine for this process; returns the reason if the machine cannot run one.
    fn start(kind: &str, program: &str) -> Result<Engine, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        check(kind, program)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stead-engine-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", SCRIPT, "engine.sh"]).arg(&dir).arg(kind).stdin(Stdio::piped());
        let script = spawn(command);
        Engine { dir, script: Some(script) }.up(kind)
    }

    /// Connects to the engine that all tests of a run share, and starts it for the first of them.
    fn shared(kind: &str, program: &str) -> Result<Engine, String> {
        check(kind, program)?;
        // A runner with a process for each test is the parent of all of them.
        let runner = match std::env::var_os("NEXTEST") {
            Some(_) => rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32,
            None => std::process::id(),
        };
        let dir = std::env::temp_dir().join(format!("stead-engine-{runner}-{kind}"));
        let lock = File::create(dir.with_extension("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        if fs::create_dir(&dir).is_ok() {
            let piped = r#"tail --pid="$1" -f /dev/null | sh -c "$2" engine.sh "$3" "$4""#;
            let mut command = Command::new("setsid");
            command.args(["sh", "-c", piped, "shared", &runner.to_string(), SCRIPT]);
            command.arg(&dir).arg(kind).stdin(Stdio::null());
            let mut script = spawn(command);
            // Outlives the test process, unless the test runner ends first.
            std::thread::spawn(move || script.wait());
        }
        Engine { dir, script: None }.up(kind)
    }

    /// Waits until the engine responds.
    fn up(self, kind: &str) -> Result<Engine, String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.answers() {
            if Instant::now() > deadline {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                let from = log.len().saturating_sub(2000);
                return Err(skipped(kind, &format!("it does not come up: {}", &log[from..])));
            }
            pause();
        }
        Ok(self)
    }

    /// A Docker engine that no other test uses.
    pub fn docker() -> Result<Engine, String> {
        Engine::start("docker", "dockerd")
    }

    /// A Docker engine with its own network and rules, in the network namespace of this thread.
    pub fn docker_with_network() -> Result<Engine, String> {
        Engine::start("bridge", "dockerd")
    }

    /// The address of the engine, for the server's settings.
    pub fn address(&self) -> String {
        format!("unix://{}", self.dir.join("sock").display())
    }

    fn answers(&self) -> bool {
        self.ask("GET", "/_ping").is_some_and(|answer| answer.contains("OK"))
    }

    /// Returns the body of a response, if there is one.
    pub fn ask(&self, method: &str, target: &str) -> Option<String> {
        self.ask_with(method, target, "")
    }

    fn ask_with(&self, method: &str, target: &str, body: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.dir.join("sock")).ok()?;
        let request = format!(
            "{method} {target} HTTP/1.0\r\nhost: engine\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    /// The names of its containers that carry the label of a home.
    pub fn containers(&self, home: &Path) -> Vec<String> {
        let home = home.canonicalize().unwrap();
        let filter = format!(r#"{{"label":["dev.stead.home={}"]}}"#, home.display());
        let filter: String = form_urlencoded::byte_serialize(filter.as_bytes()).collect();
        let listed = self.ask("GET", &format!("/containers/json?all=true&filters={filter}"));
        let listed: Value = serde_json::from_str(&listed.unwrap()).unwrap();
        let names = listed.as_array().unwrap().iter();
        names.map(|found| found["Names"][0].as_str().unwrap().to_owned()).collect()
    }

    /// Creates a container that is never started, from an existing image.
    pub fn make(&self, name: &str, home: &Path, image: &str) {
        let home = home.canonicalize().unwrap().display().to_string();
        let limits: Vec<Value> = ["nofile", "nproc"]
            .map(|name| json!({"Name": name, "Soft": 1024, "Hard": 1024}))
            .to_vec();
        let body = json!({
            "Image": image, "Cmd": ["/bin/true"], "Labels": {"dev.stead.home": home},
            "HostConfig": {"NetworkMode": "none", "Ulimits": limits},
        });
        let target = format!("/containers/create?name={name}");
        let made = self.ask_with("POST", &target, &body.to_string()).unwrap();
        assert!(made.contains("Id"), "{made}");
    }

    /// The image of this machine's programs, once a server has created it.
    pub fn machine_image(&self) -> String {
        let images = self.ask("GET", "/images/json").unwrap();
        let images: Value = serde_json::from_str(&images).unwrap();
        let tags = images.as_array().unwrap().iter().flat_map(|image| image["RepoTags"].as_array());
        let mut tags = tags.flatten().filter_map(Value::as_str);
        tags.find(|tag| tag.contains("stead/machine")).expect("an image").to_owned()
    }

    /// Kills the engine with SIGKILL; it stays down until [`come_back`](Self::come_back).
    pub fn go_away(&self) {
        fs::write(self.dir.join("hold"), "").unwrap();
        let pid = fs::read_to_string(self.dir.join("engine")).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_for(
            "the engine to be away",
            || if self.answers() { Err("it answers") } else { Ok(()) },
        );
    }

    pub fn come_back(&self) {
        fs::remove_file(self.dir.join("hold")).unwrap();
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.answers() {
            assert!(Instant::now() < deadline, "the engine does not come back");
            pause();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut script) = self.script.take() {
            drop(script.stdin.take());
            let _ = script.wait();
        }
    }
}

fn skipped(kind: &str, why: &str) -> String {
    format!("skipped: no {kind} on this machine: {why}")
}

/// Whether the programs are installed, and we may run them.
fn check(kind: &str, program: &str) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(skipped(kind, "the tests do not run as root"));
    }
    for program in [program, "runc"] {
        if !PATH.split(':').any(|dir| Path::new(dir).join(program).is_file()) {
            return Err(skipped(kind, &format!("there is no {program}")));
        }
    }
    Ok(())
}

fn spawn(mut command: Command) -> Child {
    command.env("PATH", PATH).env_remove("DOCKER_HOST");
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The engines that all tests of a run share, by name. Prints why one is missing.
pub fn engines() -> Vec<(&'static str, &'static Engine)> {
    static DOCKER: OnceLock<Result<Engine, String>> = OnceLock::new();
    static PODMAN: OnceLock<Result<Engine, String>> = OnceLock::new();
    let both = [
        ("docker", DOCKER.get_or_init(|| Engine::shared("docker", "dockerd"))),
        ("podman", PODMAN.get_or_init(|| Engine::shared("podman", "podman"))),
    ];
    let had = both.into_iter().filter_map(|(name, engine)| match engine {
        Ok(engine) => Some((name, engine)),
        Err(why) => {
            eprintln!("{why}");
            None
        }
    });
    had.collect()
}
