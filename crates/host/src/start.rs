//! Starting a host: its arguments, its directory and its socket.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::cgroup::Cgroup;
use crate::serve::{Host, HostSettings};
use crate::socket::{PID_FILE, SOCKET, short_path};
use crate::sys;
use shell::run_dir;

/// The default limit of terminals per host.
const MAX_TERMINALS: usize = 4096;

/// How long a host may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The line that a host writes to standard output when it listens.
const READY: &str = "ready";

/// Why a host cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The arguments are invalid.
    #[error(
        "{0}; usage: stead host --dir DIR [--label TEXT] [--max-terminals N] [--detach] [--no-cgroup] \
         [--listen-fd N]"
    )]
    Usage(String),
    /// Another host serves the directory.
    #[error("a host is already running in {}", .0.display())]
    Running(PathBuf),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The started host did not report that it is ready.
    #[error("the host did not start: {0}")]
    Failed(String),
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { what, source }
}

/// What the arguments request.
#[derive(Debug, PartialEq, Eq)]
enum HostCommand {
    Serve(HostOptions),
    /// Only reports that this executable works.
    Check,
    /// Continues with the state that another executable left in this process.
    Resume(i32),
}

#[derive(Debug, PartialEq, Eq)]
struct HostOptions {
    dir: PathBuf,
    label: String,
    max_terminals: usize,
    detach: bool,
    cgroup: bool,
    /// A socket that is already bound, at a path the host itself cannot see.
    listen_fd: Option<i32>,
    exits_if_unused: bool,
    /// Seccomp filters to install before anything else.
    filter_fd: Option<i32>,
}

/// Runs `stead host` with the arguments that follow `host`, and returns when the host has ended.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let result = match parse(args) {
        Ok(HostCommand::Check) => Ok(()),
        Ok(HostCommand::Serve(options)) => serve(options),
        Ok(HostCommand::Resume(image)) => resume(image),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The process that waits for the ready line reads standard output.
            println!("{error}");
            eprintln!("stead host: {error}");
            ExitCode::from(if matches!(error, StartError::Running(_)) { 3 } else { 2 })
        }
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<HostCommand, StartError> {
    let mut args = args.into_iter();
    let mut dir = None;
    let mut label = String::new();
    let mut max_terminals = MAX_TERMINALS;
    let mut detach = false;
    let mut cgroup = true;
    let mut listen_fd = None;
    let mut exits_if_unused = false;
    let mut filter_fd = None;
    while let Some(name) = args.next() {
        let name = name.to_string_lossy().into_owned();
        let mut value =
            || args.next().ok_or_else(|| StartError::Usage(format!("{name} needs a value")));
        match name.as_str() {
            "--check" => return Ok(HostCommand::Check),
            "--resume" => {
                let text = value()?.to_string_lossy().into_owned();
                let image = text.parse();
                return image
                    .map(HostCommand::Resume)
                    .map_err(|_| StartError::Usage(format!("{text} is not a descriptor")));
            }
            "--detach" => detach = true,
            "--no-cgroup" => cgroup = false,
            "--leave-unused" => exits_if_unused = true,
            "--listen-fd" | "--filter-fd" => {
                let text = value()?.to_string_lossy().into_owned();
                let fd = text.parse();
                let fd =
                    fd.map_err(|_| StartError::Usage(format!("{text} is not a descriptor")))?;
                let slot = if name == "--listen-fd" { &mut listen_fd } else { &mut filter_fd };
                *slot = Some(fd);
            }
            "--dir" => dir = Some(PathBuf::from(value()?)),
            "--label" => label = value()?.to_string_lossy().into_owned(),
            "--max-terminals" => {
                let text = value()?.to_string_lossy().into_owned();
                max_terminals = text.parse().map_err(|_| {
                    StartError::Usage(format!("{text} is not a number of terminals"))
                })?;
            }
            other => return Err(StartError::Usage(format!("unknown argument {other}"))),
        }
    }
    let dir = dir.ok_or_else(|| StartError::Usage("--dir is missing".into()))?;
    Ok(HostCommand::Serve(HostOptions {
        dir,
        label,
        max_terminals,
        detach,
        cgroup,
        listen_fd,
        exits_if_unused,
        filter_fd,
    }))
}

fn serve(options: HostOptions) -> Result<(), StartError> {
    if let Some(fd) = options.filter_fd {
        filter(fd).map_err(io("filter system calls"))?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&options.dir)
        .map_err(io("create the host's directory"))?;
    let dir = options.dir.canonicalize().map_err(io("resolve the host's directory"))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o700))
        .map_err(io("restrict access to the host's directory"))?;
    if options.detach {
        sys::detach().map_err(io("leave the starter's session"))?;
        std::env::set_current_dir("/").map_err(io("leave the starter's directory"))?;
    }
    let lock = lock(&dir)?;
    let listener = match options.listen_fd {
        Some(fd) => take_listener(fd),
        None => listen(&dir).map(OwnedFd::from),
    };
    let listener = listener.map_err(io("listen on the host's socket"))?;
    fs::write(dir.join(PID_FILE), format!("{}\n", std::process::id()))
        .map_err(io("write the host's process id"))?;
    let settings = HostSettings {
        dir: dir.clone(),
        boot_id: boot_id().map_err(io("read a random number"))?,
        label: options.label,
        max_terminals: options.max_terminals,
        exits_if_unused: options.exits_if_unused,
        descriptors: harden().map_err(io("prepare the process"))?,
    };
    let instance =
        dir.file_name().map_or("host".into(), |name| name.to_string_lossy().into_owned());
    let cgroup = if options.cgroup { Cgroup::create(&instance) } else { None };
    let mut host = Host::new(settings, lock, listener, cgroup).map_err(io("start the loop"))?;
    run_dir::remove_orphans();
    println!("{READY}");
    let _ = io::stdout().flush();
    if options.detach {
        detach_output(&dir).map_err(io("detach from the starter's output"))?;
    }
    host.run().map_err(io("wait for events"))
}

fn resume(image: i32) -> Result<(), StartError> {
    harden().map_err(io("prepare the process"))?;
    let mut host = Host::resume(image).map_err(io("take over the terminals"))?;
    host.run().map_err(io("wait for events"))
}

/// Installs seccomp filters for this process and its children. Each filter is encoded as the count of
/// its instructions, then the instructions.
fn filter(fd: i32) -> io::Result<()> {
    let mut bytes = Vec::new();
    File::from(sys::inherited(fd)?).read_to_end(&mut bytes)?;
    let mut rest = bytes.as_slice();
    while let Some((count, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_ne_bytes(*count) as usize * 8;
        let (program, after) =
            after.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        sys::install_seccomp_filter(program)?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Makes this host the only one of its directory.
fn lock(dir: &Path) -> Result<OwnedFd, StartError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("host.lock"))
        .map_err(io("open the host's lock"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Running(dir.to_owned())),
        Err(error) => Err(io("lock the host's directory")(error.into())),
    }
}

fn listen(dir: &Path) -> io::Result<UnixListener> {
    let (_fd, short) = short_path(dir)?;
    // The lock is held, so the host that created the socket has exited.
    let _ = fs::remove_file(dir.join(SOCKET));
    let listener = UnixListener::bind(short.join(SOCKET))?;
    fs::set_permissions(dir.join(SOCKET), Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens on an inherited socket. `listen` is called again, because the kernel reports the process that
/// called it as the peer.
fn take_listener(fd: i32) -> io::Result<OwnedFd> {
    let listener = sys::inherited(fd)?;
    rustix::net::listen(&listener, 128)?;
    Ok(listener)
}

/// Prepares the process: ignores signals that would end it by accident, prevents other processes of the
/// user from inspecting it, and makes it the subreaper of its orphans. Returns the former soft limit of
/// descriptors.
pub(crate) fn harden() -> io::Result<Option<u64>> {
    sys::configure_allocator();
    sys::ignore_signals();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Without the raised limit the host has fewer terminals, but it works.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    Ok(limit.current)
}

fn boot_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Detaches from the starter's output. Later errors are written to a file beside the socket.
fn detach_output(dir: &Path) -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let errors = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(dir.join("host.err"))?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&errors)?;
    Ok(())
}

/// Starts a host in a session of its own, so that signals to the caller's process group do not reach
/// it. Returns when the host listens. Blocking.
///
/// # Errors
/// [`StartError`] if the host could not be started, or reported why it cannot run.
pub fn spawn_detached(exe: &Path, run_dir: &Path, label: &str) -> Result<(), StartError> {
    let mut child = Command::new(exe)
        .arg("host")
        .arg("--detach")
        .arg("--dir")
        .arg(run_dir)
        .args(["--label", label])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(io("start a host"))?;
    let output = match child.stdout.take() {
        Some(stdout) => first_line(stdout.into()).map_err(io("read the host's first line"))?,
        None => String::new(),
    };
    let _ = child.wait();
    if output.trim() == READY { Ok(()) } else { Err(StartError::Failed(output.trim().to_owned())) }
}

/// Returns the first line that the host writes before the timeout.
fn first_line(stdout: OwnedFd) -> io::Result<String> {
    let limit = Timespec { tv_sec: START_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let mut output = Vec::new();
    let mut buffer = [0; 512];
    while !output.contains(&b'\n') && output.len() < 4096 {
        let mut poll = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&limit))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match rustix::io::read(&stdout, &mut buffer)? {
            0 => break,
            count => output.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn arguments_are_parsed_or_named_in_the_error() {
        let check = |args: &[&str], expected: Result<HostCommand, &str>| {
            let parsed = parse(args.iter().map(OsString::from)).map_err(|error| error.to_string());
            match expected {
                Ok(expected) => assert_eq!(parsed.unwrap(), expected, "{args:?}"),
                Err(part) => assert!(parsed.unwrap_err().contains(part), "{args:?}"),
            }
        };
        let options = |detach| HostOptions {
            dir: "/d".into(),
            label: "l".into(),
            max_terminals: MAX_TERMINALS,
            detach,
            cgroup: true,
            listen_fd: None,
            exits_if_unused: false,
            filter_fd: None,
        };
        check(&["--dir", "/d", "--label", "l"], Ok(HostCommand::Serve(options(false))));
        check(&["--detach", "--dir", "/d", "--label", "l"], Ok(HostCommand::Serve(options(true))));
        check(&["--check"], Ok(HostCommand::Check));
        check(&[], Err("--dir is missing"));
        check(&["--dir"], Err("--dir needs a value"));
        check(&["--dir", "/d", "--max-terminals", "x"], Err("x is not a number"));
        check(&["--dir", "/d", "--listen-fd", "x"], Err("x is not a descriptor"));
        check(&["--dir", "/d", "--colour"], Err("unknown argument --colour"));
    }
}
