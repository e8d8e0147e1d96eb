//! Replacing the host's executable in place: the process keeps its PTYs and its children, and only the
//! executable changes.
//!
//! ```text
//! request ─▶ check the executable (`host --check`) ─▶ failed: answer, continue as before
//!                                                  └▶ passed: answer, image into memory, execve
//!                                                        ─▶ `host --resume FD` takes over
//! ```

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};

use super::executable_check::ExecutableCheck;
use super::refusal::Refusal;
use super::slots::Key;
use super::terminal::{HostTerminal, Input, ProcessExit, ProgramState};
use super::timers::Due;
use super::{Host, HostSettings};
use crate::cgroup::Cgroup;
use crate::log::{Log, Position};
use crate::pty::Pty;
use crate::sys::{self, Session, Spawn};
use shell::Image;
use shell::{At, Driver};
use wire::{Event, ReplyCode, Shell};

/// How long the check of an executable may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

impl Host {
    /// Starts the check of an executable. The request is answered when the check has ended.
    pub(super) fn check_executable(
        &mut self,
        path: &[u8],
        connection: Key,
        seq: u32,
    ) -> Result<(), Refusal> {
        if self.check.is_some() {
            return Err(Refusal(ReplyCode::Busy, "another executable is being checked".into()));
        }
        // An upgrade must be possible when terminals have used up all descriptors.
        self.reserve.clear();
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        let refused = |error: &dyn std::fmt::Display| {
            Refusal(ReplyCode::BadExecutable, format!("cannot run {}: {error}", path.display()))
        };
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(|error| refused(&error))?;
        let program = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(&error))?;
        let null = null.as_fd();
        let spawned = sys::spawn(&Spawn {
            program: &program,
            argv: &[program.clone(), c"host".into(), c"--check".into()],
            env: &[],
            cwds: &[c"/".into()],
            stdio: [null, null, null],
            session: Session::NoTerminal,
            cgroup: None,
            descriptors: self.settings.descriptors,
        })
        .map_err(|error| refused(&error))?;
        self.check = Some(ExecutableCheck {
            path,
            pid: spawned.pid,
            request: (connection, seq),
            passed: false,
        });
        self.timers.arm(Due::Check, CHECK_TIMEOUT);
        Ok(())
    }

    /// Kills a check that takes too long.
    pub(super) fn kill_slow_check(&mut self) {
        if let Some(check) = self.check.as_ref().filter(|check| !check.passed) {
            let _ = rustix::process::kill_process(check.pid, Signal::KILL);
        }
    }

    /// Handles the exit of a child. Returns whether it was the check.
    pub(super) fn check_ended(&mut self, pid: Pid, exit: ProcessExit) -> bool {
        let Some(check) = self.check.as_mut().filter(|check| check.pid == pid) else {
            return false;
        };
        check.passed = exit == ProcessExit { code: 0, signal: 0 };
        if !check.passed {
            let ((connection, seq), path) = (check.request, check.path.display().to_string());
            self.check = None;
            let message = format!("{path} failed its check: {exit:?}");
            self.reply(connection, seq, ReplyCode::BadExecutable, message);
        }
        true
    }

    /// Replaces the executable if one has passed its check and no terminal is in a transition.
    pub(super) fn upgrade(&mut self) {
        // The processes of closed terminals must be ended first.
        let unsettled = |terminal: &HostTerminal| {
            terminal.driver.as_ref().is_some_and(|driver| !driver.settled())
        };
        if !self.closing.is_empty() || self.terminals.iter().any(|(_, found)| unsettled(found)) {
            return;
        }
        let Some(check) = self.check.take_if(|check| check.passed) else { return };
        let (connection, seq) = check.request;
        self.reply(connection, seq, ReplyCode::Ok, String::new());
        if let Err(error) = self.replace_executable(&check.path) {
            eprintln!("stead host: cannot execute {}: {error}", check.path.display());
        }
    }

    /// Replaces the executable. Returns only on failure, without having changed anything.
    fn replace_executable(&mut self, path: &Path) -> io::Result<()> {
        let image = self.image().write()?;
        let running = self.terminals.iter().filter(|(_, terminal)| terminal.pty().is_some());
        let drivers = running.filter_map(|(_, terminal)| terminal.driver.as_ref());
        let kept: Vec<BorrowedFd<'_>> = [image.as_fd(), self.lock.as_fd(), self.listener.as_fd()]
            .into_iter()
            .chain(
                self.terminals
                    .iter()
                    .filter_map(|(_, terminal)| terminal.pty())
                    .flat_map(|pty| [pty.master.as_fd(), pty.slave.as_fd()]),
            )
            .chain(drivers.flat_map(|driver| driver.descriptors()))
            .collect();
        for fd in &kept {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        let program = CString::new(path.as_os_str().as_bytes())?;
        let resume = CString::new(image.as_raw_fd().to_string())?;
        let argv = [program.clone(), c"host".into(), c"--resume".into(), resume];
        let error = sys::replace_executable(&program, &argv);
        for fd in &kept {
            rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        }
        Err(error)
    }

    fn image(&mut self) -> Image {
        let mut image = Image::default();
        let settings = &self.settings;
        image.put("dir", settings.dir.as_os_str().as_bytes());
        image.put("boot_id", settings.boot_id.as_bytes());
        image.put("label", settings.label.as_bytes());
        image.put_number("max_terminals", settings.max_terminals as u64);
        if let Some(descriptors) = settings.descriptors {
            image.put_number("descriptors", descriptors);
        }
        image.put_number("lock", self.lock.as_raw_fd());
        image.put_number("listener", self.listener.as_raw_fd());
        if let Some(cgroup) = &self.cgroup {
            image.put("cgroup", cgroup.path().as_os_str().as_bytes());
        }
        for terminal in self.terminals.values_mut() {
            image.put_image("terminal", &terminal.image());
        }
        image
    }

    /// Takes over the state that another executable left in this process.
    pub(crate) fn resume(image: RawFd) -> io::Result<Self> {
        let image = Image::read(sys::inherited(image)?)?;
        let path = |name: &str| {
            image.bytes(name).map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec())))
        };
        let settings = HostSettings {
            dir: path("dir").ok_or(io::ErrorKind::InvalidData)?,
            boot_id: image.text("boot_id").unwrap_or_default(),
            label: image.text("label").unwrap_or_default(),
            max_terminals: image.number("max_terminals").unwrap_or(usize::MAX),
            descriptors: image.number("descriptors"),
            exits_if_unused: false,
        };
        let lock = descriptor(&image, "lock")?;
        let listener = descriptor(&image, "listener")?;
        let cgroup = path("cgroup").map(Cgroup::resume);
        let mut host = Self::new(settings, lock, listener, cgroup)?;
        for terminal in image.images("terminal") {
            match HostTerminal::resume(&terminal) {
                Ok(terminal) => host.adopt(terminal),
                Err(error) => eprintln!("stead host: cannot take over a terminal: {error}"),
            }
        }
        // Children may have exited during the replacement.
        host.reap();
        Ok(host)
    }

    fn adopt(&mut self, terminal: HostTerminal) {
        let (id, pid) = (terminal.id.clone(), terminal.pid());
        let key = self.terminals.insert(terminal);
        self.names.insert(id, key);
        if let Some(pid) = pid {
            self.pids.insert(pid, key);
        }
        if let Err(error) = self.listen_to(key).and_then(|()| self.listen_to_driver(key)) {
            eprintln!("stead host: cannot watch a terminal: {error}");
        }
        self.adopt_commands(key);
        self.await_input(key);
        self.note_written(key);
    }

    pub(super) fn reply(&mut self, connection: Key, seq: u32, code: ReplyCode, message: String) {
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.push(&Event::Reply { seq, code, message });
        }
        self.flush(connection);
    }
}

impl HostTerminal {
    fn image(&mut self) -> Image {
        let mut image = Image::default();
        image.put("id", self.id.as_bytes());
        if let (Some(driver), ProgramState::Running { pty, .. }) = (&mut self.driver, &self.program)
        {
            let at = At { now: Instant::now(), master: pty.master.as_fd() };
            image.put_image("driver", &driver.image(at));
        }
        match &self.program {
            ProgramState::Running { pty, pid, session } => {
                image.put_number("master", pty.master.as_raw_fd());
                image.put_number("slave", pty.slave.as_raw_fd());
                image.put_number("pid", pid.as_raw_nonzero().get());
                image.put_number("session", session.as_raw_nonzero().get());
            }
            ProgramState::Exited(exit) => {
                image.put_number("code", exit.code);
                image.put_number("signal", exit.signal);
            }
        }
        image.put_number("shell", self.shell.number());
        image.put_number("cols", self.cols);
        image.put_number("rows", self.rows);
        image.put("dir", self.dir.as_os_str().as_bytes());
        let Position { end, base, length } = self.log.position();
        image.put_number("log_limit", self.log.limit());
        image.put_number("log_end", end);
        image.put_number("log_base", base);
        image.put_number("log_length", length);
        image.put("input", self.input.pending.iter().copied().collect::<Vec<u8>>());
        let ids: Vec<u8> = self.input.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        image.put("write_ids", ids);
        if let Some(cgroup) = &self.cgroup {
            image.put("cgroup", cgroup.as_os_str().as_bytes());
        }
        image.put_number("opened_ms", self.opened_ms);
        image.put_number("output_ms", self.output_ms);
        image
    }

    fn resume(image: &Image) -> io::Result<Self> {
        let path = |name: &str| {
            image.bytes(name).map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec())))
        };
        let program = match image.number::<i32>("pid").and_then(Pid::from_raw) {
            Some(pid) => ProgramState::Running {
                pty: Pty {
                    master: descriptor(image, "master")?,
                    slave: descriptor(image, "slave")?,
                },
                pid,
                session: image.number::<i32>("session").and_then(Pid::from_raw).unwrap_or(pid),
            },
            None => ProgramState::Exited(ProcessExit {
                code: image.number("code").unwrap_or(-1),
                signal: image.number("signal").unwrap_or(0),
            }),
        };
        let dir = path("dir").ok_or(io::ErrorKind::InvalidData)?;
        let (cols, rows) = (image.number("cols").unwrap_or(80), image.number("rows").unwrap_or(24));
        let position = Position {
            end: image.number("log_end").unwrap_or(0),
            base: image.number("log_base").unwrap_or(u64::MAX),
            length: image.number("log_length").unwrap_or(0),
        };
        let limit = image.number("log_limit").unwrap_or(0);
        let ids = image.bytes("write_ids").unwrap_or_default();
        Ok(Self {
            id: image.text("id").ok_or(io::ErrorKind::InvalidData)?,
            program,
            shell: Shell::from(image.number::<u8>("shell").unwrap_or(0)),
            cols,
            rows,
            log: Log::resume(dir.join("log"), limit, position, (cols, rows)),
            dir,
            watchers: Vec::new(),
            input: Input {
                pending: image.bytes("input").unwrap_or_default().iter().copied().collect(),
                ids: ids.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect(),
                awaited: false,
                wakes: 0,
                stops_output: false,
            },
            driver: match image.images("driver").next() {
                Some(driver) => Some(Box::new(Driver::resume(&driver, &sys::inherited)?)),
                None => None,
            },
            cgroup: path("cgroup"),
            opened_ms: image.number("opened_ms").unwrap_or(0),
            output_ms: image.number("output_ms").unwrap_or(0),
            awaits_sync: false,
        })
    }
}

fn descriptor(image: &Image, name: &str) -> io::Result<OwnedFd> {
    sys::inherited(image.number(name).ok_or(io::ErrorKind::InvalidData)?)
}
