//! `stead cloud …`: what runs inside other people's sandboxes beside the host.
//!
//! `bridge DIR NAME LABEL` carries the host's socket over standard input and output, as lines. It starts
//! the host if there is none, and ends the bridge before it: a server that is gone has left one behind
//! that nobody feeds any more. `start DIR LABEL` only starts the host, and `measure DIR` tells what the
//! host and its programs use.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::line::{End, LONGEST, Line, PIECE, take};

/// What goes before the name when the bridge stands.
pub(super) const READY: &str = "stead bridge ready";
/// What is said when the host has gone.
pub(super) const OVER: &str = "stead bridge over";
/// How long the bridge before may take to be gone.
const FENCE: Duration = Duration::from_secs(10);

/// Runs `stead cloud` with the arguments that follow.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let text = |at: usize| words.get(at).map(|word: &OsString| word.to_string_lossy().into_owned());
    let result = match (text(0).as_deref(), words.get(1)) {
        (Some("bridge"), Some(dir)) => {
            let (name, label) = (text(2).unwrap_or_default(), text(3).unwrap_or_default());
            bridge(Path::new(dir), &name, &label)
        }
        (Some("start"), Some(dir)) => reach(Path::new(dir), &text(2).unwrap_or_default()).map(drop),
        (Some("measure"), Some(dir)) => measure(Path::new(dir)),
        _ => Err(io::Error::other(
            "usage: stead cloud bridge DIR NAME LABEL | start DIR LABEL | measure DIR",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("stead cloud: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bridge(dir: &Path, name: &str, label: &str) -> io::Result<()> {
    let _alone = fence(dir)?;
    raw();
    let socket = reach(dir, label)?;
    let shared = Arc::new(Shared {
        end: Mutex::new(End::inside()),
        moved: Condvar::new(),
        out: Mutex::new(io::stdout()),
    });
    shared.say(&format!("\n{READY} {name}\n"))?;
    let (from_host, to_host) = (socket.try_clone()?, socket);
    let down = shared.clone();
    thread::spawn(move || {
        let _ = down.carry_out(from_host);
        let _ = down.say(&format!("{OVER}\n"));
        std::process::exit(0);
    });
    shared.carry_in(to_host)
}

struct Shared {
    end: Mutex<End>,
    moved: Condvar,
    out: Mutex<io::Stdout>,
}

impl Shared {
    fn say(&self, text: &str) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// From the host to the server.
    fn carry_out(&self, mut host: UnixStream) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        loop {
            let count = host.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            while end.room() < count {
                end = self.moved.wait(end).unwrap_or_else(PoisonError::into_inner);
            }
            let text = end.send(&buffer[..count]);
            drop(end);
            self.say(&text)?;
        }
    }

    /// From the server to the host.
    fn carry_in(&self, mut host: UnixStream) -> io::Result<()> {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; 64 << 10];
        let mut pending = Vec::new();
        loop {
            let count = stdin.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            pending.extend_from_slice(&buffer[..count]);
            while let Some(line) = take(&mut pending) {
                let Some(line) = Line::parse(&line) else { continue };
                let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = end
                    .receive(line)
                    .map_err(|_| io::Error::other("something of the server's is missing"))?;
                let answer = end.answer();
                drop(end);
                self.moved.notify_all();
                host.write_all(&bytes)?;
                if let Some(answer) = answer {
                    self.say(&answer)?;
                }
            }
            if pending.len() > LONGEST {
                pending.clear();
            }
        }
    }
}

/// Makes this the only bridge of a directory.
fn fence(dir: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("bridge.lock"))?;
    let deadline = Instant::now() + FENCE;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let before = fs::read_to_string(dir.join("bridge.lock")).unwrap_or_default();
        if let Some(pid) = before.trim().parse().ok().filter(|pid| is_bridge(*pid)) {
            let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("the bridge before this one does not go away"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Whether a process is a bridge of ours.
fn is_bridge(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"cloud") && words.next() == Some(b"bridge")
}

/// A terminal would answer, cut and change what goes through it.
fn raw() {
    let stdin = io::stdin();
    if let Ok(mut mode) = tcgetattr(&stdin) {
        mode.make_raw();
        let _ = tcsetattr(&stdin, OptionalActions::Now, &mode);
    }
}

/// Connects to the host, which is started if there is none.
fn reach(dir: &Path, label: &str) -> io::Result<UnixStream> {
    match host::client::connect(dir) {
        Ok(socket) => Ok(socket),
        Err(_) => {
            start(dir, label)?;
            host::client::connect(dir)
        }
    }
}

/// Starts the host in a session of its own.
fn start(dir: &Path, label: &str) -> io::Result<()> {
    let started = Command::new(std::env::current_exe()?)
        .args(["host", "--detach", "--no-cgroup", "--label", label, "--dir"])
        .arg(dir)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?
        .wait_with_output()?;
    // Its output ends when it has let go of it, and that is when it listens.
    let said = String::from_utf8_lossy(&started.stdout);
    match said.trim() {
        "ready" => Ok(()),
        other => Err(io::Error::other(format!("the host did not start: {other}"))),
    }
}

fn measure(dir: &Path) -> io::Result<()> {
    let pid = fs::read_to_string(dir.join("host.pid"))?;
    let pid = pid.trim().parse().map_err(io::Error::other)?;
    if host::client::connect(dir).is_err() {
        return Err(io::Error::other("there is no host"));
    }
    let metrics = provider::local::measured(pid, vec![PathBuf::from(dir)]);
    println!("{}", serde_json::to_string(&metrics)?);
    Ok(())
}
