//! The server process: start, stop, kill.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use crate::{Client, WAIT_TIMEOUT, program, run, wait_for};

/// A temporary home directory, removed at the end of the test.
#[derive(Debug)]
pub struct Home(PathBuf);

impl Home {
    pub fn new() -> Home {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("stead-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Home(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn token(&self) -> String {
        fs::read_to_string(self.0.join("token")).unwrap().trim().to_owned()
    }

    /// Kills every host of this home, by its pid file.
    pub fn end_hosts(&self) {
        let Ok(instances) = fs::read_dir(self.0.join("run")) else { return };
        for instance in instances.flatten() {
            let Ok(pid) = fs::read_to_string(instance.path().join("host.pid")) else { continue };
            if let Ok(pid) = pid.trim().parse::<i32>() {
                signal(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.end_hosts();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if self.0.join("sandboxes").exists() || mounts.contains(&*self.0.to_string_lossy()) {
            let mut command = Command::new(program());
            let _ = command.args(["namespace", "end"]).arg(&self.0).status();
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// A running server. Dropping it sends SIGKILL; its hosts live until the home is dropped.
pub struct Server {
    child: Child,
    pid: i32,
    pub address: SocketAddr,
    pub token: String,
    pub link: Option<String>,
    /// What it printed after the link.
    pub facts: String,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `stead serve` on a free port and waits until it listens.
    pub fn start(home: &Home) -> Server {
        Server::start_with(home, &[])
    }

    pub fn start_with(home: &Home, arguments: &[&str]) -> Server {
        Server::start_as(home, arguments, &[])
    }

    /// Starts it again on the same address.
    pub fn start_at(home: &Home, address: SocketAddr) -> Server {
        Server::launch(home, &address.to_string(), &[], &[])
    }

    pub fn start_as(home: &Home, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        Server::launch(home, "127.0.0.1:0", arguments, environment)
    }

    fn launch(
        home: &Home,
        address: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Server {
        let mut command = Command::new(program());
        command
            .args(["serve", "--listen", address, "--home"])
            .arg(home.path())
            .args(arguments)
            .envs(environment.iter().copied());
        Server::begin(home, command, !arguments.contains(&"--no-auth"))
            .unwrap_or_else(|output| panic!("{output}"))
    }

    /// Starts it under another program, which injects faults. Returns its output if it failed before it
    /// listened.
    pub fn start_beneath(home: &Home, program: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .arg(crate::program())
            .args(["serve", "--listen", "127.0.0.1:0", "--home"])
            .arg(home.path());
        Server::begin(home, command, true)
    }

    fn begin(home: &Home, mut command: Command, signs_in: bool) -> Result<Server, String> {
        // Shells must not read the start-up files of the user who runs the tests.
        let person = home.path().join("person");
        fs::create_dir_all(&person).unwrap();
        // Tests do not depend on the machine's sandboxes, unless they ask for them.
        if !command.get_envs().any(|(name, _)| name == "STEAD_PROVIDER") {
            command.env("STEAD_PROVIDER", "local");
        }
        let mut child = command
            .env("HOME", &person)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (sink, mut stderr) = (log.clone(), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = ["listening on http://", "listening on https://"]
            .iter()
            .find_map(|start| line.trim_end().strip_prefix(start));
        let Some(address) = address else {
            let _ = child.wait();
            let log = log.lock().unwrap();
            return Err(format!("the server printed {line:?} and logged {log:?}"));
        };
        let address = address.parse().unwrap();
        let mut link = None;
        if signs_in {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            link = line.trim_end().strip_prefix("sign in (works once): ").map(str::to_owned);
        }
        // All lines are one write, so they were read together.
        let facts = String::from_utf8_lossy(stdout.buffer()).into_owned();
        let pid = fs::read_to_string(home.path().join("lock")).unwrap().trim().parse().unwrap();
        Ok(Server { child, pid, address, token: home.token(), link, facts, log })
    }

    /// A client with the server's token.
    pub fn client(&self) -> Client {
        Client::new(self.address, Some(&self.token))
    }

    /// A client without a token.
    pub fn stranger(&self) -> Client {
        Client::new(self.address, None)
    }

    /// Pid of the server itself, not of the program it was started under.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Sends a request although the server may be killed at any moment.
    pub fn attempt(&self, method: &str, target: &str, body: &str) {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             connection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(self) {
        drop(self);
    }

    /// Sends SIGKILL and starts another server in its place.
    pub fn kill_and_start(&mut self, home: &Home) {
        self.kill_and_start_as(home, &[], &[]);
    }

    /// The same with arguments and environment for the other server.
    pub fn kill_and_start_as(
        &mut self,
        home: &Home,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        *self = Server::start_as(home, arguments, environment);
    }

    /// Sends SIGTERM without waiting for the end.
    pub fn terminate(&self) {
        signal(self.pid(), rustix::process::Signal::TERM);
    }

    /// Sends SIGTERM; returns the exit status and the duration.
    pub fn stop(mut self) -> (ExitStatus, std::time::Duration) {
        let started = Instant::now();
        self.terminate();
        let status = self.wait();
        (status, started.elapsed())
    }

    /// Waits for the server to end.
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the server to end", || child.try_wait().unwrap().ok_or("it runs"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log());
        }
    }
}

/// Whether this machine can run sandboxes; prints the reason if it cannot.
pub fn has_sandboxes() -> bool {
    let output = run(&["doctor", "--inspect"], &[("HOME", "/nonexistent")]);
    if !output.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stdout));
    }
    output.status.success()
}

/// Opens the database of a home, also while a server runs. The rows that this connection changes lose their checksums.
pub fn database(home: &Path) -> rusqlite::Connection {
    use rusqlite::{functions::FunctionFlags, types::Null};
    let database = rusqlite::Connection::open(home.join("stead.db")).unwrap();
    database.busy_timeout(WAIT_TIMEOUT).unwrap();
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    database.create_scalar_function("row_checksum", -1, flags, |_| Ok(Null)).unwrap();
    database
}

/// Flips a bit of a text in the database of a home whose server has ended.
pub fn flip_bit(home: &Path, text: &str) {
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    database(home).query_row(checkpoint, [], |_| Ok(())).unwrap();
    let file = home.join("stead.db");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
}
