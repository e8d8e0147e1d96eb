//! The server under test: its directory, its process, and the hosts it leaves running.

use std::{
    fs::{self, OpenOptions},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{http::Http, rng::Rng};

/// How long the server may take to answer after it was started, on a loaded machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a request may take before it counts as unanswered.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a condition is polled.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The directory of one run: `home` for the server, `person` as the user's home, `server.log`.
#[derive(Debug, Clone)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Creates a directory below `parent`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(parent: &Path) -> Result<RunDirectory> {
        let name = format!("stead-chaos-{}", std::process::id());
        RunDirectory::make(parent.join(name))
    }

    /// Creates a directory for another server of the same run.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn below(&self, name: &str) -> Result<RunDirectory> {
        RunDirectory::make(self.0.join(name))
    }

    fn make(path: PathBuf) -> Result<RunDirectory> {
        for part in ["home", "person"] {
            fs::create_dir_all(path.join(part))?;
        }
        Ok(RunDirectory(path))
    }

    /// Returns the directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the server's home.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Returns the directories of instances that exist now, with the pool's.
    #[must_use]
    pub fn instances(&self) -> Vec<PathBuf> {
        ["run", "sandboxes"]
            .iter()
            .flat_map(|part| fs::read_dir(self.home().join(part)).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    }

    /// Returns the pids of the hosts of leases that run now.
    #[must_use]
    pub fn hosts(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        for instance in self.instances().into_iter().filter(|path| !is_warm(path)) {
            if let Ok(pid) = fs::read_to_string(instance.join("host.pid")) {
                // A file that outlived its host may have the pid of an unrelated process.
                let pid = pid.trim().parse::<i32>().ok();
                pids.extend(pid.filter(|pid| is_host_of(*pid, &instance)));
                continue;
            }
            for cgroup in cgroups(&cgroup_name(&instance)) {
                let Ok(procs) = fs::read_to_string(cgroup.join("cgroup.procs")) else { continue };
                // The launcher and the host are the first processes of a sandbox; shells come later.
                pids.extend(
                    procs.lines().filter_map(|pid| pid.parse().ok()).filter(|p| is_host(*p)),
                );
            }
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Returns whether a path belongs to the pool of a server, which keeps sandboxes ready.
#[must_use]
pub fn is_warm(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("warm-"))
}

/// Returns the name of the cgroup of an instance: one that came from the pool keeps the name it had there.
#[must_use]
pub fn cgroup_name(instance: &Path) -> String {
    let label = fs::read(instance.join("label")).unwrap_or_default();
    let label: serde_json::Value = serde_json::from_slice(&label).unwrap_or_default();
    let directory = instance.file_name().unwrap_or_default().to_string_lossy();
    label["name"].as_str().unwrap_or(&directory).to_owned()
}

fn is_host_of(pid: i32, instance: &Path) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let directory = instance.as_os_str().as_encoded_bytes();
    command.split(|byte| *byte == 0).any(|argument| argument == directory)
}

fn is_host(pid: i32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).any(|argument| argument == b"host")
}

/// Returns the cgroups of an instance.
#[must_use]
pub fn cgroups(instance: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut roots = vec![PathBuf::from("/sys/fs/cgroup")];
    roots.extend(
        fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path()),
    );
    for root in roots {
        for parent in ["stead", "stead-sandboxes"] {
            let path = root.join(parent).join(instance);
            if path.is_dir() {
                found.push(path);
            }
        }
    }
    found
}

/// Sends a signal. Returns `false` if the process has already exited.
pub fn signal(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// A server process that can be restarted.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    directory: RunDirectory,
    provider: String,
    arguments: Vec<String>,
    address: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// Starts a server on a free port, with further arguments.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start(
        binary: &Path,
        directory: &RunDirectory,
        provider: &str,
        arguments: Vec<String>,
    ) -> Result<Server> {
        let mut server = Server::new(binary, directory, provider, arguments)?;
        server.restart()?;
        Ok(server)
    }

    /// Creates a server that does not run yet.
    ///
    /// # Errors
    /// If there is no free port, or its directory cannot be written to.
    pub fn new(
        binary: &Path,
        directory: &RunDirectory,
        provider: &str,
        arguments: Vec<String>,
    ) -> Result<Server> {
        let server = Server {
            binary: binary.to_owned(),
            directory: directory.clone(),
            provider: provider.to_owned(),
            arguments,
            address: free_address()?,
            child: None,
        };
        server.set_clock_offset(0)?;
        Ok(server)
    }

    /// Restarts the server at the same address and waits until it is ready.
    ///
    /// # Errors
    /// If it ends, or is not ready in time.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = self.directory.path().join("server.log");
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(&self.binary)
            .args(["serve", "--listen", &self.address.to_string(), "--home"])
            .arg(self.directory.home())
            .args(&self.arguments)
            .env("HOME", self.directory.path().join("person"))
            .env("STEAD_PROVIDER", &self.provider)
            .env("STEAD_CLOCK_FILE", self.clock_file())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.child = Some(child);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten()) {
                self.child = None;
                bail!("the server exited during its start: {status}");
            }
            let mut http = self.http();
            http.timeout = Duration::from_secs(5);
            if !http.token.is_empty()
                && matches!(http.get("/readyz"), Ok(answer) if answer.status == 200)
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the server was not ready within {START_TIMEOUT:?}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Lets the wall clock of the server be `seconds` ahead, from now on.
    ///
    /// # Errors
    /// If the file that the server reads cannot be replaced.
    pub fn set_clock_offset(&self, seconds: i64) -> Result<()> {
        let unfinished = self.clock_file().with_extension("unfinished");
        fs::write(&unfinished, seconds.to_string())?;
        Ok(fs::rename(unfinished, self.clock_file())?)
    }

    fn clock_file(&self) -> PathBuf {
        self.directory.path().join("clock")
    }

    /// Returns a client with the token.
    #[must_use]
    pub fn http(&self) -> Http {
        let token = fs::read_to_string(self.directory.home().join("token")).unwrap_or_default();
        let token = token.trim().to_owned();
        Http { address: self.address, token, timeout: REQUEST_TIMEOUT }
    }

    /// Returns the pid while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok())
    }

    /// Kills the server with SIGKILL and waits for its exit.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the server with SIGTERM. Returns how long that took, or `None` if it had to be killed.
    pub fn stop(&mut self) -> Option<Duration> {
        let started = Instant::now();
        signal(self.pid()?, Signal::TERM);
        while started.elapsed() < START_TIMEOUT {
            let child = self.child.as_mut()?;
            if matches!(child.try_wait(), Ok(Some(_))) {
                self.child = None;
                return Some(started.elapsed());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill();
        None
    }

    /// Removes every sandbox of the home, after the server has ended.
    pub fn end_sandboxes(&self) {
        let mut command = Command::new(&self.binary);
        let _ = command.args(["namespace", "end"]).arg(self.directory.home()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        for pid in self.directory.hosts() {
            signal(pid, Signal::KILL);
        }
        if self.directory.home().join("sandboxes").exists() {
            self.end_sandboxes();
        }
    }
}

/// Finds an address outside the range that outgoing connections use, so that none takes it while the server is down.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let mut rng = Rng::new(u64::from(std::process::id()), &[99]);
    for _ in 0..1000 {
        let address: SocketAddr = format!("127.0.0.1:{}", rng.between(12_000, 31_000)).parse()?;
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between 12000 and 31000")
}
