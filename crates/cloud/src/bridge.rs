//! `stead cloud …`: the programs that run inside vendors' sandboxes in addition to the host.
//!
//! `bridge DIR NAME LABEL` carries the host's socket over standard input and output, as lines. It starts the
//! host if there is none, and kills the previous bridge, which a dead server may have left behind.
//! `start DIR LABEL` only starts the host, and `measure DIR` prints the resource usage of the host and its
//! programs. `copy PATH` copies this executable to another volume of its pod.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::line::{BridgeLine, MAX_LINE_BYTES, MAX_LINE_CHARS, StreamEnd, take};

/// Printed before the name when the bridge is ready.
pub(super) const READY: &str = "stead bridge ready";
/// Printed when the host has closed the connection.
pub(super) const CLOSED: &str = "stead bridge over";
/// How long the previous bridge may take to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `stead cloud` with these arguments.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let text =
        |at: usize| arguments.get(at).map(|word: &OsString| word.to_string_lossy().into_owned());
    let result = match (text(0).as_deref(), arguments.get(1)) {
        (Some("bridge"), Some(dir)) => {
            let (name, label) = (text(2).unwrap_or_default(), text(3).unwrap_or_default());
            bridge(Path::new(dir), &name, &label)
        }
        (Some("start"), Some(dir)) => {
            connect(Path::new(dir), &text(2).unwrap_or_default()).map(drop)
        }
        (Some("measure"), Some(dir)) => measure(Path::new(dir)),
        (Some("copy"), Some(path)) => copy_program(Path::new(path)),
        _ => Err(io::Error::other(
            "usage: stead cloud bridge DIR NAME LABEL | start DIR LABEL | measure DIR | copy PATH",
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
    let _alone = replace_predecessor(dir)?;
    make_raw();
    let socket = connect(dir, label)?;
    let shared = Arc::new(BridgeState {
        end: Mutex::new(StreamEnd::inside()),
        acknowledged: Condvar::new(),
        out: Mutex::new(io::stdout()),
    });
    shared.print(&format!("\n{READY} {name}\n"))?;
    let (from_host, to_host) = (socket.try_clone()?, socket);
    let down = shared.clone();
    thread::spawn(move || {
        let _ = down.forward_out(from_host);
        let _ = down.print(&format!("{CLOSED}\n"));
        std::process::exit(0);
    });
    shared.forward_in(to_host)
}

struct BridgeState {
    end: Mutex<StreamEnd>,
    acknowledged: Condvar,
    out: Mutex<io::Stdout>,
}

impl BridgeState {
    fn print(&self, text: &str) -> io::Result<()> {
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Forwards from the host to the server.
    fn forward_out(&self, mut host: UnixStream) -> io::Result<()> {
        let mut buffer = vec![0; MAX_LINE_BYTES];
        loop {
            let count = host.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let mut end = self.end.lock();
            while end.room() < count {
                self.acknowledged.wait(&mut end);
            }
            let text = end.send(&buffer[..count]);
            drop(end);
            self.print(&text)?;
        }
    }

    /// Forwards from the server to the host.
    fn forward_in(&self, mut host: UnixStream) -> io::Result<()> {
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
                let Some(line) = BridgeLine::parse(&line) else { continue };
                let mut end = self.end.lock();
                let bytes = end
                    .receive(line)
                    .map_err(|_| io::Error::other("bytes from the server are missing"))?;
                let answer = end.answer();
                drop(end);
                self.acknowledged.notify_all();
                host.write_all(&bytes)?;
                if let Some(answer) = answer {
                    self.print(&answer)?;
                }
            }
            if pending.len() > MAX_LINE_CHARS {
                pending.clear();
            }
        }
    }
}

/// Makes this the only bridge of a directory, by killing the previous one.
fn replace_predecessor(dir: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("bridge.lock"))?;
    let deadline = Instant::now() + PREDECESSOR_TIMEOUT;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let before = fs::read_to_string(dir.join("bridge.lock")).unwrap_or_default();
        if let Some(pid) = before.trim().parse().ok().filter(|pid| is_bridge(*pid)) {
            let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("the previous bridge does not end"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

fn is_bridge(pid: i32) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
    arguments.next() == Some(b"cloud") && arguments.next() == Some(b"bridge")
}

/// Makes standard input raw, if it is a terminal: it would echo and translate the bytes.
fn make_raw() {
    let stdin = io::stdin();
    if let Ok(mut mode) = tcgetattr(&stdin) {
        mode.make_raw();
        let _ = tcsetattr(&stdin, OptionalActions::Now, &mode);
    }
}

/// Connects to the host, and starts one if there is none.
fn connect(dir: &Path, label: &str) -> io::Result<UnixStream> {
    match host::client::connect(dir) {
        Ok(socket) => Ok(socket),
        Err(_) => {
            start(dir, label)?;
            host::client::connect(dir)
        }
    }
}

/// Starts the host in a new session.
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
    // The host closes its output when it listens.
    let output = String::from_utf8_lossy(&started.stdout);
    match output.trim() {
        "ready" => Ok(()),
        other => Err(io::Error::other(format!("the host did not start: {other}"))),
    }
}

/// Copies this executable. The copy may be run by every user.
fn copy_program(path: &Path) -> io::Result<()> {
    fs::copy(std::env::current_exe()?, path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn measure(dir: &Path) -> io::Result<()> {
    let pid = fs::read_to_string(dir.join("host.pid"))?;
    let pid = pid.trim().parse().map_err(io::Error::other)?;
    if host::client::connect(dir).is_err() {
        return Err(io::Error::other("no host is running"));
    }
    let metrics = provider::local::measured(pid, vec![PathBuf::from(dir)]);
    println!("{}", serde_json::to_string(&metrics)?);
    Ok(())
}
