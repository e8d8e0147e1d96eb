//! A separate host for each test, and the requests that many tests send.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use host::client::Client;
use wire::{Event, ReplyCode, Request, Shell, TerminalInfo};

/// How long a test waits for a condition before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(20);

pub const EXE: &str = env!("CARGO_BIN_EXE_stead-host");

/// A directory that is deleted at the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stead-host-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running host.
pub struct Host {
    pub dir: Dir,
    pub run: PathBuf,
    pub process: Child,
}

impl Host {
    pub fn start() -> Self {
        Self::start_with(&[], |_| ())
    }

    pub fn start_with(args: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let dir = Dir::new();
        // The cgroup is named after the directory, so that concurrent tests need different names.
        let run = dir.0.join(dir.0.file_name().unwrap());
        let mut command = Command::new(EXE);
        command.arg("host").arg("--dir").arg(&run).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        change(&mut command);
        let process = command.spawn().unwrap();
        let mut host = Self { dir, run, process };
        let mut output = String::new();
        let stdout = host.process.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut output).unwrap();
        assert_eq!(output, "ready\n");
        host
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn connect(&self) -> Session {
        Session::connect(&self.run)
    }

    /// Returns the directory of a terminal.
    pub fn terminal(&self, id: &str) -> PathBuf {
        self.dir.0.join("terminals").join(id)
    }

    /// Returns a request that opens a terminal; [`Session::open`] sets its `seq`.
    pub fn opening(&self, id: &str, argv: &[&str]) -> Request {
        use std::os::unix::ffi::OsStrExt;
        Request::Open {
            seq: 0,
            terminal: id.into(),
            argv: argv.iter().map(|text| text.as_bytes().to_vec()).collect(),
            cwd: b"/".to_vec(),
            env: [("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("PS1", "$ ")]
                .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .to_vec(),
            cols: 80,
            rows: 24,
            dir: self.terminal(id).as_os_str().as_bytes().to_vec(),
            log_limit: 64 << 20,
            base_offset: 0,
            shell: Shell::Plain,
            state: Vec::new(),
            notice: Vec::new(),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let until = Instant::now() + TIMEOUT;
        let mut requested = false;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            // The host may not have noticed yet that the connections of the test are closed.
            if !requested && let Ok(mut client) = Client::connect(&self.run) {
                let seq = client.seq();
                requested = client.ask(&Request::Shutdown { seq }, TIMEOUT).is_ok();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that collects the output of each terminal.
pub struct Session {
    pub client: Client,
    pub boot_id: String,
    pub pid: u32,
    pub output: Vec<u8>,
    /// All other events that are not answers, in order.
    pub events: Vec<Event>,
}

impl Session {
    pub fn connect(run: &Path) -> Self {
        let mut client = Client::connect(run).unwrap();
        let Event::Hello { version, boot_id, pid, .. } = client.receive(TIMEOUT).unwrap() else {
            panic!("the first event of a host is its hello")
        };
        assert_eq!(version, wire::VERSION);
        Self { client, boot_id, pid, output: Vec::new(), events: Vec::new() }
    }

    /// Sends a request with the next sequence number. Returns its answer.
    pub fn ask(&mut self, make: impl FnOnce(u32) -> Request) -> Event {
        let seq = self.client.seq();
        self.client.ask(&make(seq), TIMEOUT).unwrap()
    }

    /// Sends a request. Returns the code and the message of the reply.
    pub fn code(&mut self, make: impl FnOnce(u32) -> Request) -> (ReplyCode, String) {
        match self.ask(make) {
            Event::Reply { code, message, .. } => (code, message),
            other => panic!("expected a reply, got {other:?}"),
        }
    }

    pub fn ok(&mut self, make: impl FnOnce(u32) -> Request) {
        let (code, message) = self.code(make);
        assert_eq!(code, ReplyCode::Ok, "{message}");
    }

    pub fn open(&mut self, opening: Request) {
        let (code, message) = self.try_open(opening);
        assert_eq!(code, ReplyCode::Ok, "{message}");
    }

    pub fn try_open(&mut self, opening: Request) -> (ReplyCode, String) {
        self.code(|number| {
            let mut opening = opening;
            if let Request::Open { seq, .. } = &mut opening {
                *seq = number;
            }
            opening
        })
    }

    pub fn attach(&mut self, terminal: &str, from: u64) {
        self.ok(|seq| Request::Attach { seq, terminal: terminal.into(), from });
    }

    pub fn input(&mut self, terminal: &str, data: &[u8]) {
        let (terminal, data) = (terminal.into(), data.to_vec());
        self.ok(|seq| Request::Input { seq, terminal, write_id: String::new(), data });
    }

    pub fn list(&mut self) -> Vec<TerminalInfo> {
        match self.ask(|seq| Request::List { seq }) {
            Event::Terminals { terminals, .. } => terminals,
            other => panic!("expected a list, got {other:?}"),
        }
    }

    pub fn info(&mut self, terminal: &str) -> TerminalInfo {
        self.list().into_iter().find(|info| info.terminal == terminal).unwrap()
    }

    /// Receives one event, and collects the output.
    pub fn step(&mut self) -> Event {
        let event = self.client.receive(TIMEOUT).unwrap_or_else(|error| {
            let events: Vec<String> = self
                .events
                .iter()
                .map(|event| format!("{event:?}").chars().take(120).collect())
                .collect();
            panic!("{error}; output so far {:?}, events {events:#?}", text(&self.output))
        });
        match &event {
            Event::Output { bytes, .. } => self.output.extend_from_slice(bytes),
            other => self.events.push(other.clone()),
        }
        event
    }

    /// Receives events until the output contains a text.
    pub fn see(&mut self, wanted: &str) {
        while !contains(&self.output, wanted.as_bytes()) {
            self.step();
        }
    }

    /// Receives events until a terminal's exit is reported.
    pub fn exited(&mut self, wanted: &str) -> (u64, i32, i32) {
        loop {
            if let Event::Exited { terminal, offset, code, signal } = self.step()
                && terminal == wanted
            {
                return (offset, code, signal);
            }
        }
    }
}

pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

pub fn text(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(2000);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

/// Polls until a condition holds, for conditions without an event.
pub fn wait_until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < until, "timed out waiting until {what}");
        // Leaves the CPU to the processes under test.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}
