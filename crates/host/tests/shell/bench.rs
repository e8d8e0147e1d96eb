//! A real shell on a real PTY with its driver, and a loop as small as one can be.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use host::shell::{At, Driver, Effect, Happened, Keep, Kind, Launch, Setup, Spec, State, Status};
use host::wire::{IfBusy, StdinMode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A terminal under test.
pub struct Bench {
    pub driver: Driver,
    pub dir: PathBuf,
    /// Where its shell began.
    pub work: PathBuf,
    /// What a watcher saw.
    pub log: Vec<u8>,
    pub happened: VecDeque<Happened>,
    pub respawned: u32,
    master: OwnedFd,
    child: Child,
    inotify: OwnedFd,
    commands: u32,
}

/// What came of a command.
#[derive(Debug)]
pub struct Ran {
    pub status: Status,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
}

impl Bench {
    pub fn new(kind: Kind) -> Self {
        let program: &[u8] = match kind {
            Kind::Bash => b"/bin/bash",
            Kind::Zsh => b"/bin/zsh",
            Kind::Sh => b"/bin/sh",
        };
        Self::with(kind, program, State::default())
    }

    pub fn with(kind: Kind, program: &[u8], state: State) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stead-shell-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let work = dir.join("work");
        fs::create_dir_all(&work).unwrap();
        let terminal = format!("term_{}_{number}", std::process::id());
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", dir.to_str().unwrap()),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm-256color"),
            ("STEAD_TERMINAL", &terminal),
        ];
        let env = env.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let setup = Setup {
            terminal,
            kind,
            program: program.to_vec(),
            env: env.to_vec(),
            cwd: work.clone(),
            dir: dir.clone(),
            cgroup: None,
        };
        let (mut driver, launch) = Driver::new(setup, state, Instant::now()).unwrap();
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&inotify, driver.ctl_dir(), inotify::WatchFlags::CREATE).unwrap();
        let (child, master) = start(&launch);
        driver.launched(i32::try_from(child.id()).unwrap(), Instant::now());
        Self {
            driver, dir, work, log: Vec::new(), happened: VecDeque::new(), respawned: 0,
            master, child, inotify, commands: 0,
        }
    }

    /// Runs the loop until `done` is satisfied; panics with what it saw after `limit`.
    pub fn until(&mut self, limit: Duration, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "no {what} within {limit:?}; happened: {:?}; screen: {:?}",
                self.happened,
                String::from_utf8_lossy(&self.log)
            );
            self.turn();
        }
    }

    /// One turn of the loop.
    pub fn turn(&mut self) {
        let now = Instant::now();
        let mut wait = Duration::from_millis(5);
        if let Some(due) = self.driver.deadline() {
            wait = wait.min(due.saturating_duration_since(now));
        }
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        {
            let driver = self.driver.fd();
            let mut polled = [
                PollFd::new(&self.master, PollFlags::IN),
                PollFd::new(&self.inotify, PollFlags::IN),
                PollFd::new(&driver, PollFlags::IN),
            ];
            let _ = poll(&mut polled, Some(&timeout));
        }
        let mut effects = Vec::new();
        let mut names = Vec::new();
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        let master = self.master.try_clone().unwrap();
        let at = At { now: Instant::now(), master: master.as_fd() };
        for name in names {
            self.driver.ctl(&name, at, &mut effects);
        }
        self.driver.ready(at, &mut effects);
        if self.driver.deadline().is_some_and(|due| due <= at.now) {
            self.driver.tick(at, &mut effects);
        }
        self.perform(effects);
        self.read_terminal();
        if let Some(status) = self.child.try_wait().unwrap() {
            while self.read_terminal() {}
            let mut effects = Vec::new();
            let at = At { now: Instant::now(), master: master.as_fd() };
            self.driver.exited(status.code(), status.signal(), at, &mut effects);
            self.perform(effects);
        }
    }

    fn read_terminal(&mut self) -> bool {
        let mut buffer = [0; 16384];
        let Ok(length @ 1..) = rustix::io::read(&self.master, &mut buffer) else {
            return false;
        };
        let mut effects = Vec::new();
        let master = self.master.try_clone().unwrap();
        self.driver.output(At { now: Instant::now(), master: master.as_fd() }, &mut effects);
        self.perform(effects);
        self.log.extend_from_slice(&buffer[..length]);
        true
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Type(bytes) => {
                    rustix::io::write(&self.master, &bytes).unwrap();
                }
                Effect::Show(bytes) => self.log.extend_from_slice(&bytes),
                Effect::Emit(event) => self.happened.push_back(event),
                Effect::Respawn(launch) => {
                    let (child, master) = start(&launch);
                    self.child = child;
                    self.master = master;
                    self.respawned += 1;
                    self.driver.launched(i32::try_from(self.child.id()).unwrap(), Instant::now());
                }
            }
        }
    }

    /// A person types.
    pub fn types(&mut self, bytes: &[u8]) {
        let master = self.master.try_clone().unwrap();
        self.driver.typed(bytes, At { now: Instant::now(), master: master.as_fd() });
        rustix::io::write(&self.master, bytes).unwrap();
    }

    pub fn spec(&mut self, text: &[u8]) -> Spec {
        self.commands += 1;
        Spec {
            command: format!("cmd_{}", self.commands),
            text: text.to_vec(),
            timeout: Some(Duration::from_secs(30)),
            stdin: StdinMode::Null,
            stdin_data: Vec::new(),
            env: Vec::new(),
            cwd: None,
            if_busy: IfBusy::Wait,
            keep: Keep { head: 8 << 20, tail: 8 << 20 },
        }
    }

    pub fn submit(&mut self, spec: Spec) -> Result<(), host::wire::Code> {
        let mut effects = Vec::new();
        let master = self.master.try_clone().unwrap();
        let result = self.driver.exec(spec, At { now: Instant::now(), master: master.as_fd() }, &mut effects);
        self.perform(effects);
        result
    }

    pub fn with_driver<T>(&mut self, act: impl FnOnce(&mut Driver, At, &mut Vec<Effect>) -> T) -> T {
        let mut effects = Vec::new();
        let master = self.master.try_clone().unwrap();
        let result = act(&mut self.driver, At { now: Instant::now(), master: master.as_fd() }, &mut effects);
        self.perform(effects);
        result
    }

    pub fn run_spec(&mut self, spec: Spec) -> Ran {
        let id = spec.command.clone();
        let begun = Instant::now();
        self.submit(spec).unwrap();
        let mut status = None;
        self.until(Duration::from_secs(90), "end of the command", |bench| {
            while let Some(event) = bench.happened.pop_front() {
                if let Happened::Done { command, status: found } = event
                    && command == id
                {
                    status = Some(found);
                    return true;
                }
            }
            false
        });
        let took = begun.elapsed();
        let status = status.unwrap();
        Ran { stdout: self.output(&id, 0), stderr: self.output(&id, 1), status, took }
    }

    pub fn run(&mut self, text: &str) -> Ran {
        let spec = self.spec(text.as_bytes());
        self.run_spec(spec)
    }

    /// All that is kept of a stream.
    pub fn output(&self, command: &str, stream: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let (piece, _) = self.driver.read(command, stream, from, 1 << 20).unwrap().unwrap();
            if piece.bytes.is_empty() {
                return all;
            }
            from = piece.next;
            all.extend_from_slice(&piece.bytes);
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn start(launch: &Launch) -> (Child, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = fs::OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.to_bytes())).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    rustix::io::ioctl_fionbio(&master, true).unwrap();
    let mut command = Command::new("setsid");
    command.arg("--ctty");
    for argument in &launch.argv {
        command.arg(OsStr::from_bytes(argument));
    }
    command.env_clear();
    for (name, value) in &launch.env {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    command.current_dir(&launch.cwd);
    command.stdin(Stdio::from(slave.try_clone().unwrap()));
    command.stdout(Stdio::from(slave.try_clone().unwrap()));
    command.stderr(Stdio::from(slave));
    (command.spawn().unwrap(), master)
}
