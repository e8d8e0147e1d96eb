//! The host's event loop: connections, PTYs, children and timers on one epoll, in one thread.
//!
//! The loop never waits for a server: a PTY is always drained, into the log first and then to the attached
//! connections that keep up. It never waits for `fsync` either, which runs in a thread of its own. Each
//! descriptor gets a bounded share of every iteration, so that a flood delays a quiet terminal by no more
//! than that share.

mod close;
mod closing;
mod command_output;
mod connection;
mod connections;
mod drivers;
mod exec;
mod executable_check;
mod executions;
mod open;
mod processes;
mod program;
mod records;
mod refusal;
mod requests;
mod slots;
mod stream;
mod terminal;
mod timers;
mod token;
mod upgrade;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::cgroup::Cgroup;
use crate::log::{SCRATCH_BYTES, Syncer};
use crate::socket::{PID_FILE, SOCKET};
use crate::sys;
use closing::Closing;
use connection::Connection;
use executable_check::ExecutableCheck;
use executions::Executions;
use slots::{Key, Slots};
use terminal::{HostTerminal, ProcessExit};
use timers::{Due, Timers};
use token::EventToken;

/// How many events of the kernel one iteration of the loop handles.
const MAX_EVENTS: usize = 64;

/// The size of the read buffer, which all terminals and connections share.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// How many descriptors are reserved for connections.
const RESERVED_DESCRIPTORS: usize = 4;

/// How long a host waits for its first server if it exits when unused.
const GREETING_TIMEOUT: Duration = Duration::from_secs(60);

/// How long written logs are collected before they are synced together.
const SYNC_DELAY: Duration = Duration::from_millis(500);

/// The settings of a host.
#[derive(Debug)]
pub(crate) struct HostSettings {
    /// The directory of the socket.
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: String,
    pub(crate) label: String,
    pub(crate) max_terminals: usize,
    /// The soft limit of descriptors that children get.
    pub(crate) descriptors: Option<u64>,
    /// The host exits if its server disconnects before a terminal was opened.
    pub(crate) exits_if_unused: bool,
}

/// The state of a host.
#[derive(Debug)]
pub(crate) struct Host {
    settings: HostSettings,
    /// Held for the lifetime of the host: the lock allows one host per directory.
    lock: OwnedFd,
    epoll: OwnedFd,
    listener: OwnedFd,
    signals: OwnedFd,
    /// Reserved descriptors, so that a server can connect when terminals have used up all others.
    reserve: Vec<OwnedFd>,
    syncer: Arc<Syncer>,
    cgroup: Option<Cgroup>,
    connections: Slots<Connection>,
    terminals: Slots<HostTerminal>,
    names: HashMap<String, Key>,
    pids: HashMap<Pid, Key>,
    closing: Vec<Closing>,
    exec: Executions,
    /// Terminals that wait for the next sync.
    dirty: Vec<Key>,
    timers: Timers,
    counters: Counters,
    check: Option<ExecutableCheck>,
    phase: HostPhase,
    buffer: Box<[u8; READ_BUFFER_BYTES]>,
    scratch: Box<[u8; SCRATCH_BYTES]>,
}

/// Whether the host is shutting down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostPhase {
    Serving,
    /// All terminals are being closed; then the loop ends.
    ShuttingDown,
}

#[derive(Debug, Default)]
struct Counters {
    opened: u64,
    bytes_out: u64,
    bytes_in: u64,
    reaped: u64,
    refused_connections: u64,
}

impl Host {
    /// Creates a host without terminals on a listening socket.
    pub(crate) fn new(
        settings: HostSettings,
        lock: OwnedFd,
        listener: OwnedFd,
        cgroup: Option<Cgroup>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = sys::signals()?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        epoll::add(&epoll, &listener, EventToken::Listener.data(), EventFlags::IN)?;
        epoll::add(&epoll, &signals, EventToken::Signals.data(), EventFlags::IN)?;
        Ok(Self {
            settings,
            lock,
            epoll,
            listener,
            signals,
            reserve: reserve(),
            syncer: Syncer::start()?,
            cgroup,
            connections: Slots::default(),
            terminals: Slots::default(),
            names: HashMap::new(),
            pids: HashMap::new(),
            closing: Vec::new(),
            exec: Executions::default(),
            dirty: Vec::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            check: None,
            phase: HostPhase::Serving,
            buffer: boxed(),
            scratch: boxed(),
        })
    }

    /// Runs the loop until a shutdown is complete.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        if self.settings.exits_if_unused {
            self.timers.arm(Due::Greeting, GREETING_TIMEOUT);
        }
        while self.phase == HostPhase::Serving || !self.closing.is_empty() {
            self.wait(&mut events)?;
            // Requests and exits are handled before output, so that input does not queue behind a flood.
            let (first, last): (Vec<_>, Vec<_>) = events
                .drain(..)
                .map(|event| (EventToken::of(event.data), event.flags))
                .partition(|(token, _)| !matches!(token, EventToken::Terminal(_)));
            for (token, flags) in first.into_iter().chain(last) {
                match token {
                    EventToken::Listener => self.accept(),
                    EventToken::Signals => self.signalled(),
                    EventToken::Connection(key) => self.connection_ready(key, flags),
                    EventToken::Terminal(key) => self.terminal_ready(key, flags),
                    EventToken::Records => self.read_records(),
                    EventToken::Driver(key) => self.driver_ready(key),
                }
            }
            self.upgrade();
            self.tick_drivers();
            let now = Instant::now();
            while let Some(due) = self.timers.take(now) {
                match due {
                    Due::Sync => {
                        self.sync();
                        // Opening a shell or relaying a flood leaves free memory behind.
                        sys::give_back_memory();
                    }
                    Due::Closing => self.check_closing(),
                    Due::Records => self.poll_all_records(),
                    Due::Check => self.kill_slow_check(),
                    Due::Writers => self.wake_writers(),
                    Due::Listen => self.listen(EventFlags::IN),
                    Due::Greeting => self.exit_if_unused(),
                }
            }
        }
        self.end();
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let now = Instant::now();
        let timers = self.timers.wait(now).into_iter();
        let wait = timers.chain(self.exec.wait(now)).min().map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles SIGTERM and the exit of children.
    fn signalled(&mut self) {
        if sys::received_termination(self.signals.as_fd()) {
            self.shut_down();
        }
        self.reap();
        self.check_closing();
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.counters.reaped += 1;
            let exit = exit(status);
            if let Some(key) = self.pids.remove(&pid) {
                self.program_ended(key, exit);
            } else {
                // Any other child is an orphan of which we are the subreaper.
                let _ = self.check_ended(pid, exit);
            }
        }
    }

    /// Passes written logs to the syncer.
    fn sync(&mut self) {
        let mut again = Vec::new();
        for key in std::mem::take(&mut self.dirty) {
            let Some(terminal) = self.terminals.get_mut(key) else { continue };
            if let Some(job) = terminal.log.sync() {
                self.syncer.submit(job);
            }
            terminal.awaits_sync = terminal.log.is_dirty();
            if terminal.awaits_sync {
                again.push(key);
            }
        }
        if !again.is_empty() {
            self.timers.arm(Due::Sync, SYNC_DELAY);
        }
        self.dirty = again;
    }

    /// Closes every terminal. The loop ends when all are closed.
    fn shut_down(&mut self) {
        self.phase = HostPhase::ShuttingDown;
        for key in self.terminals.keys() {
            self.close(key, None);
        }
    }

    /// Flushes connections and removes the host's files.
    fn end(&mut self) {
        for key in self.connections.keys() {
            self.flush(key);
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        for name in [SOCKET, PID_FILE] {
            let _ = std::fs::remove_file(self.settings.dir.join(name));
        }
    }
}

fn exit(status: WaitStatus) -> ProcessExit {
    match status.terminating_signal() {
        Some(signal) => ProcessExit { code: -1, signal },
        None => ProcessExit { code: status.exit_status().unwrap_or(-1), signal: 0 },
    }
}

/// Opens the reserved descriptors.
fn reserve() -> Vec<OwnedFd> {
    let null = || std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
    std::iter::from_fn(null).take(RESERVED_DESCRIPTORS).collect()
}

/// Returns an array on the heap that was never on the stack.
fn boxed<const N: usize>() -> Box<[u8; N]> {
    vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; N]))
}
