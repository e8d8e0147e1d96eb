//! Starting a program on a terminal.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::Pid;

use super::program::{ProgramLaunch, is_id};
use super::refusal::Refusal;
use super::slots::Key;
use super::terminal::{HostTerminal, Input, ProgramState};
use super::token::EventToken;
use super::{Host, program};
use crate::cgroup;
use crate::log::Log;
use crate::pty::Pty;
use crate::sys::{self, Session, Spawn, SpawnError, Spawned};
use shell::now_ms;
use wire::{ReplyCode, Sections, Shell};

/// The search path if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A terminal to open, with the fields of [`Request::Open`](wire::Request::Open).
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) terminal: String,
    pub(super) launch: ProgramLaunch,
    pub(super) cols: u16,
    pub(super) rows: u16,
    pub(super) dir: Vec<u8>,
    pub(super) log_limit: u64,
    pub(super) base_offset: u64,
    pub(super) shell: Shell,
    pub(super) state: Sections,
    pub(super) notice: Vec<u8>,
}

impl Host {
    pub(super) fn open(&mut self, opening: Opening) -> Result<Key, Refusal> {
        let id = opening.terminal;
        if !is_id(&id) {
            return Err(Refusal(
                ReplyCode::BadRequest,
                "the terminal's id is not a valid file name".into(),
            ));
        }
        if opening.cols == 0 || opening.rows == 0 {
            return Err(Refusal(
                ReplyCode::BadRequest,
                "a screen needs at least one column and one row".into(),
            ));
        }
        if self.names.contains_key(&id) || self.closing.iter().any(|closing| closing.has_id(&id)) {
            return Err(Refusal(ReplyCode::Exists, String::new()));
        }
        if self.terminals.len() >= self.settings.max_terminals {
            let message =
                format!("this host has a limit of {} terminals", self.settings.max_terminals);
            return Err(Refusal(ReplyCode::TooManyTerminals, message));
        }
        let dir = PathBuf::from(std::ffi::OsString::from_vec(opening.dir));
        let (cols, rows) = (opening.cols, opening.rows);
        let mut log =
            Log::open(dir.join("log"), opening.log_limit, opening.base_offset, (cols, rows))
                .map_err(|error| storage_refusal(&error))?;
        let pty = Pty::open(cols, rows).map_err(pty_refusal)?;
        let cgroup = self.cgroup.as_ref().and_then(|cgroup| cgroup.terminal(&id).ok());
        let path = cgroup.as_ref().map(|(path, _)| path.clone());
        let (mut driver, launch) =
            program::driver(&id, opening.shell, opening.launch, &dir, opening.state, path)
                .map_err(|error| storage_refusal(&error))?;
        let session = if driver.is_some() { Session::WithLeader } else { Session::Terminal };
        let spawned = prepare(&launch, &id).and_then(|prepared| {
            self.spawn(&prepared, &pty, cgroup.as_ref().map(|(_, procs)| procs), session)
        });
        let cgroup = cgroup.map(|(path, _)| path);
        let remove_cgroup =
            |cgroup: Option<PathBuf>| cgroup.and_then(|path| cgroup::remove(&path).err());
        let Spawned { pid, session, in_cgroup } = spawned.inspect_err(|_| {
            remove_cgroup(cgroup.clone());
        })?;
        let cgroup = if in_cgroup {
            cgroup
        } else {
            remove_cgroup(cgroup);
            None
        };
        if log.bytes() > 0 {
            log.resize(now_ms(), cols, rows);
        }
        if let Some(driver) = &mut driver {
            driver.launched(pid.as_raw_nonzero().get(), Instant::now());
        }
        let key = self.terminals.insert(HostTerminal {
            id: id.clone(),
            program: ProgramState::Running { pty, pid, session },
            shell: opening.shell,
            cols,
            rows,
            dir,
            log,
            watchers: Vec::new(),
            input: Input::default(),
            driver,
            cgroup,
            opened_ms: now_ms(),
            output_ms: 0,
            awaits_sync: false,
        });
        self.names.insert(id, key);
        self.pids.insert(pid, key);
        self.counters.opened += 1;
        if let Err(error) = self.listen_to(key).and_then(|()| self.listen_to_driver(key)) {
            self.close(key, None);
            return Err(watch_refusal(error));
        }
        self.show(key, &opening.notice);
        Ok(key)
    }

    /// Adds a terminal to the loop.
    pub(super) fn listen_to(&self, key: Key) -> Result<(), Errno> {
        match self.terminals.get(key).and_then(HostTerminal::pty) {
            Some(pty) => {
                let token = EventToken::Terminal(key).data();
                epoll::add(&self.epoll, &pty.master, token, EventFlags::IN)
            }
            None => Ok(()),
        }
    }

    fn spawn(
        &self,
        prepared: &PreparedChild,
        pty: &Pty,
        cgroup: Option<&std::fs::File>,
        session: Session,
    ) -> Result<Spawned, Refusal> {
        let slave = pty.slave.as_fd();
        sys::spawn(&Spawn {
            program: &prepared.program,
            argv: &prepared.argv,
            env: &prepared.env,
            cwds: &prepared.cwds,
            stdio: [slave, slave, slave],
            session,
            cgroup: cgroup.map(AsFd::as_fd),
            descriptors: self.settings.descriptors,
        })
        .map_err(|error| spawn_refusal(&error))
    }

    /// Runs another program on a terminal whose program has exited, with the same PTY and log. Returns
    /// its process id.
    pub(super) fn respawn(&mut self, key: Key, launch: &ProgramLaunch) -> Result<Pid, Refusal> {
        let Some(terminal) = self.terminals.get(key) else {
            return Err(Refusal(ReplyCode::NoSuchTerminal, String::new()));
        };
        let prepared = prepare(launch, &terminal.id)?;
        let Some(pty) = terminal.pty() else {
            return Err(Refusal(ReplyCode::Exited, String::new()));
        };
        let procs = terminal.cgroup.as_ref().and_then(|path| cgroup::open_procs(path).ok());
        // Input that was typed for the old program must not reach the next one.
        let _ = rustix::termios::tcflush(&pty.slave, rustix::termios::QueueSelector::IFlush);
        if let Some(leader) = terminal.session().filter(|session| Some(*session) != terminal.pid())
        {
            sys::end_session_leader(leader);
        }
        let spawned = self.spawn(&prepared, pty, procs.as_ref(), Session::WithLeader)?;
        if let Some(HostTerminal { program: ProgramState::Running { pid, session, .. }, .. }) =
            self.terminals.get_mut(key)
        {
            self.pids.remove(pid);
            (*pid, *session) = (spawned.pid, spawned.session);
            self.pids.insert(spawned.pid, key);
        }
        Ok(spawned.pid)
    }
}

/// The arguments of a child, allocated before the fork.
#[derive(Debug)]
struct PreparedChild {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwds: Vec<CString>,
}

fn prepare(launch: &ProgramLaunch, terminal: &str) -> Result<PreparedChild, Refusal> {
    let bad = |what: &str| Refusal(ReplyCode::BadRequest, what.to_owned());
    let text =
        |bytes: Vec<u8>| CString::new(bytes).map_err(|_| bad("a string contains a zero byte"));
    let name = launch.argv.first().ok_or_else(|| bad("the arguments name no program"))?;
    let mut env = launch.env.clone();
    for (key, _) in &env {
        if key.is_empty() || key.contains(&b'=') {
            return Err(bad("the name of a variable is empty or contains '='"));
        }
    }
    let mut set = |key: &[u8], value: &[u8], precedence: Precedence| match env
        .iter_mut()
        .find(|(known, _)| known == key)
    {
        Some(_) if precedence == Precedence::Given => {}
        Some((_, known)) => *known = value.to_vec(),
        None => env.push((key.to_vec(), value.to_vec())),
    };
    set(b"TERM", b"xterm-256color", Precedence::Given);
    set(b"COLORTERM", b"truecolor", Precedence::Given);
    set(b"STEAD", b"1", Precedence::Host);
    set(b"STEAD_TERMINAL", terminal.as_bytes(), Precedence::Host);
    let value = |key: &[u8]| {
        env.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_slice())
    };
    let program =
        find(name, value(b"PATH").unwrap_or(DEFAULT_PATH), &launch.cwd).ok_or_else(|| {
            Refusal(
                ReplyCode::NotExecutable,
                format!("no executable program {}", String::from_utf8_lossy(name)),
            )
        })?;
    let cwds = [launch.cwd.as_slice(), value(b"HOME").unwrap_or(b""), b"/"]
        .into_iter()
        .filter(|cwd| !cwd.is_empty())
        .map(|cwd| text(cwd.to_vec()))
        .collect::<Result<_, _>>()?;
    Ok(PreparedChild {
        program: text(program.into_os_string().into_vec())?,
        argv: launch.argv.iter().cloned().map(text).collect::<Result<_, _>>()?,
        cwds,
        env: env
            .into_iter()
            .map(|(key, value)| text([key.as_slice(), b"=", value.as_slice()].concat()))
            .collect::<Result<_, _>>()?,
    })
}

/// Which value of a variable is used if the request has one, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precedence {
    Given,
    Host,
}

/// Returns the path of a program, found as a shell would find it.
fn find(name: &[u8], path: &[u8], cwd: &[u8]) -> Option<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name));
    let cwd = Path::new(OsStr::from_bytes(cwd));
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(cwd.join(name)).filter(|path| is_executable(path));
    }
    path.split(|byte| *byte == b':')
        .map(|dir| cwd.join(OsStr::from_bytes(dir)).join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

fn code(errno: Option<i32>) -> Option<ReplyCode> {
    match Errno::from_raw_os_error(errno?) {
        Errno::MFILE | Errno::NFILE => Some(ReplyCode::NoMoreDescriptors),
        Errno::NOMEM => Some(ReplyCode::NoMemory),
        _ => None,
    }
}

fn storage_refusal(error: &io::Error) -> Refusal {
    let code = code(error.raw_os_error()).unwrap_or(ReplyCode::Storage);
    Refusal(code, format!("cannot use the terminal's log: {error}"))
}

fn pty_refusal(error: Errno) -> Refusal {
    // The text of ENOSPC would suggest a full disk.
    if error == Errno::NOSPC {
        let message = "this machine has no pseudo-terminals left (kernel.pty.max)";
        return Refusal(ReplyCode::NoMoreTerminals, message.into());
    }
    let code = code(Some(error.raw_os_error())).unwrap_or(ReplyCode::Failed);
    Refusal(code, format!("cannot open a pseudo-terminal: {error}"))
}

fn watch_refusal(error: Errno) -> Refusal {
    if error == Errno::NOSPC {
        let message = "this user has no epoll watches left (fs.epoll.max_user_watches)";
        return Refusal(ReplyCode::NoMoreWatches, message.into());
    }
    let code = code(Some(error.raw_os_error())).unwrap_or(ReplyCode::Failed);
    Refusal(code, format!("cannot watch the terminal: {error}"))
}

fn spawn_refusal(error: &SpawnError) -> Refusal {
    let cause = match error {
        SpawnError::Fork(cause) | SpawnError::Terminal(cause) | SpawnError::Execute(cause) => cause,
    };
    let code = code(cause.raw_os_error()).unwrap_or(match error {
        SpawnError::Fork(_) => ReplyCode::NoMoreProcesses,
        SpawnError::Terminal(_) => ReplyCode::Failed,
        SpawnError::Execute(_) => ReplyCode::NotExecutable,
    });
    Refusal(code, format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_would() {
        let check = |name: &str, path: &str, cwd: &str, expected: Option<&str>| {
            let found = find(name.as_bytes(), path.as_bytes(), cwd.as_bytes());
            assert_eq!(found.as_deref(), expected.map(Path::new), "{name} in {path} from {cwd}");
        };
        check("sh", "/nowhere:/bin", "/", Some("/bin/sh"));
        check("/bin/sh", "", "", Some("/bin/sh"));
        check("./sh", "", "/bin", Some("/bin/./sh"));
        check("sh", "bin", "/", Some("/bin/sh"));
        check("no-such-program", "/bin", "/", None);
        check("/etc/passwd", "", "/", None);
        check("/bin", "", "/", None);
    }

    #[test]
    fn a_refusal_names_the_resource_that_is_exhausted() {
        let check = |refusal: Refusal, expected: ReplyCode| {
            assert_eq!(refusal.0, expected, "{}", refusal.1);
        };
        check(pty_refusal(Errno::NOSPC), ReplyCode::NoMoreTerminals);
        check(watch_refusal(Errno::NOSPC), ReplyCode::NoMoreWatches);
        check(storage_refusal(&Errno::NOSPC.into()), ReplyCode::Storage);
        check(spawn_refusal(&SpawnError::Fork(Errno::AGAIN.into())), ReplyCode::NoMoreProcesses);
        for (error, expected) in [
            (Errno::MFILE, ReplyCode::NoMoreDescriptors),
            (Errno::NFILE, ReplyCode::NoMoreDescriptors),
            (Errno::NOMEM, ReplyCode::NoMemory),
        ] {
            check(pty_refusal(error), expected);
            check(watch_refusal(error), expected);
            check(storage_refusal(&error.into()), expected);
            check(spawn_refusal(&SpawnError::Fork(error.into())), expected);
        }
    }

    #[test]
    fn the_host_adds_four_variables_to_the_environment() {
        let launch = ProgramLaunch {
            argv: vec![b"/bin/sh".to_vec()],
            cwd: b"/tmp".to_vec(),
            env: vec![
                (b"TERM".to_vec(), b"dumb".to_vec()),
                (b"STEAD_TERMINAL".to_vec(), b"forged".to_vec()),
            ],
        };
        let prepared = prepare(&launch, "t1").ok().map(|prepared| prepared.env);
        let expected = [c"TERM=dumb", c"STEAD_TERMINAL=t1", c"COLORTERM=truecolor", c"STEAD=1"]
            .map(CString::from);
        assert_eq!(prepared, Some(expected.to_vec()));
    }
}
