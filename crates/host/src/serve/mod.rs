//! The host's one loop: connections, PTYs, children and timers on one epoll, in one thread.
//!
//! It never waits for a server: a PTY is always drained, into the log first and then to the attached
//! connections that keep up. It never waits for `fsync` either, which has a thread of its own. Each
//! descriptor gets a bounded share of every turn, so that a flood delays a quiet terminal by no more
//! than that share.

mod close;
mod closing;
mod connection;
mod exec;
mod executions;
mod open;
mod processes;
mod program;
mod refusal;
mod requests;
mod slots;
mod stream;
mod terminal;
mod timers;
mod trial;
mod upgrade;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::cgroup::Cgroup;
use crate::log::{SCRATCH, Syncer};
use crate::socket::{PID_FILE, SOCKET};
use crate::sys;
use closing::Closing;
use connection::{Connection, Interest};
use executions::Executions;
use slots::{Key, Slots};
use terminal::{HostTerminal, ProcessExit};
use timers::{Due, Timers};
use trial::Trial;
use wire::Event;

/// The limit of connections: the server's, and room for one that is being replaced.
const MAX_CONNECTIONS: usize = 8;

/// How many events of the kernel one turn handles.
const MAX_EVENTS: usize = 64;

/// The size of the read buffer, which all terminals and connections share.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// How many descriptors are reserved for connections.
const RESERVED_DESCRIPTORS: usize = 4;

/// How long `accept` pauses after we run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a host waits for its first server.
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
    pub(crate) leaves_unused: bool,
}

/// The state of a host.
#[derive(Debug)]
pub(crate) struct Host {
    settings: HostSettings,
    /// Never used: the lock allows one host per directory.
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
    trial: Option<Trial>,
    life: Life,
    buffer: Box<[u8; READ_BUFFER_BYTES]>,
    scratch: Box<[u8; SCRATCH]>,
}

/// Whether the host is shutting down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Serving,
    /// All terminals are being closed; then the loop ends.
    Ending,
}

#[derive(Debug, Default)]
struct Counters {
    opened: u64,
    bytes_out: u64,
    bytes_in: u64,
    reaped: u64,
    refused_connections: u64,
}

/// The source of an event, as a number that the kernel stores for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Listener,
    Signals,
    Connection(Key),
    Terminal(Key),
    /// The records that shells leave for their drivers.
    Records,
    Driver(Key),
}

impl Token {
    fn data(self) -> EventData {
        let (kind, key) = match self {
            Self::Listener => (0u64, 0),
            Self::Signals => (1, 0),
            Self::Connection(key) => (2, key.to_bits()),
            Self::Terminal(key) => (3, key.to_bits()),
            Self::Records => (4, 0),
            Self::Driver(key) => (5, key.to_bits()),
        };
        EventData::new_u64(kind << 56 | key)
    }

    fn of(data: EventData) -> Self {
        let bits = data.u64();
        match bits >> 56 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Connection(Key::from_bits(bits)),
            4 => Self::Records,
            5 => Self::Driver(Key::from_bits(bits)),
            _ => Self::Terminal(Key::from_bits(bits)),
        }
    }
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
        epoll::add(&epoll, &listener, Token::Listener.data(), EventFlags::IN)?;
        epoll::add(&epoll, &signals, Token::Signals.data(), EventFlags::IN)?;
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
            trial: None,
            life: Life::Serving,
            buffer: boxed(),
            scratch: boxed(),
        })
    }

    /// Serves until a shutdown is complete.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        if self.settings.leaves_unused {
            self.timers.arm(Due::Greeting, GREETING_TIMEOUT);
        }
        while self.life == Life::Serving || !self.closing.is_empty() {
            self.wait(&mut events)?;
            // Requests and exits before output: typing must not queue behind a flood.
            let (first, last): (Vec<_>, Vec<_>) = events
                .drain(..)
                .map(|event| (Token::of(event.data), event.flags))
                .partition(|(token, _)| !matches!(token, Token::Terminal(_)));
            for (token, flags) in first.into_iter().chain(last) {
                match token {
                    Token::Listener => self.accept(),
                    Token::Signals => self.signalled(),
                    Token::Connection(key) => self.connection_ready(key, flags),
                    Token::Terminal(key) => self.terminal_ready(key, flags),
                    Token::Records => self.read_records(),
                    Token::Driver(key) => self.driver_ready(key),
                }
            }
            self.upgrade();
            self.tick_drivers();
            let now = Instant::now();
            while let Some(due) = self.timers.take(now) {
                match due {
                    Due::Sync => {
                        self.sync();
                        // Opening a shell or relaying a flood needs memory that is free afterwards.
                        sys::give_back_memory();
                    }
                    Due::Closing => self.check_closing(),
                    Due::Records => self.poll_all_records(),
                    Due::Check => self.trial_is_due(),
                    Due::Listen => self.listen(EventFlags::IN),
                    Due::Greeting => self.leave_if_unused(),
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

    /// Accepts a connection if the peer is our own user.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = loop {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => break socket,
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.pop().is_some() => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => {
                    // The connection stays pending and the listener readable: a pause saves the CPU.
                    self.listen(EventFlags::empty());
                    self.timers.arm(Due::Listen, ACCEPT_PAUSE);
                    return;
                }
            }
        };
        if !is_trusted(socket.as_fd()) || self.connections.len() >= MAX_CONNECTIONS {
            self.counters.refused_connections += 1;
            return;
        }
        self.answer_pending_requests();
        let mut connection = Connection::new(socket);
        connection.push(&Event::Hello {
            version: wire::VERSION,
            features: wire::FEATURES,
            boot_id: self.settings.boot_id.clone(),
            pid: std::process::id(),
            label: self.settings.label.clone(),
        });
        let key = self.connections.insert(connection);
        if let Some(connection) = self.connections.get(key) {
            let added = epoll::add(
                &self.epoll,
                &connection.socket,
                Token::Connection(key).data(),
                EventFlags::IN,
            );
            if added.is_err() {
                self.connections.remove(key);
                return;
            }
        }
        self.flush(key);
    }

    /// Handles all pending requests, so that a server which replaces another one sees their effects.
    fn answer_pending_requests(&mut self) {
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            while let Some(connection) = self.connections.get_mut(key) {
                match connection.fill(self.buffer.as_mut_slice()) {
                    Ok(0) => break,
                    Ok(_) => self.answer_requests(key),
                    // Requests not yet read are dropped, never executed.
                    Err(_) => self.disconnect(key),
                }
            }
        }
    }

    fn listen(&self, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.listener, Token::Listener.data(), flags);
    }

    fn connection_ready(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let Some(connection) = self.connections.get_mut(key) else { return };
            if connection.fill(self.buffer.as_mut_slice()).is_err() {
                self.disconnect(key);
                return;
            }
        }
        self.answer_requests(key);
        self.pump(key);
        self.catch_up_commands(key);
        self.flush(key);
    }

    /// Writes queued frames, and updates the events that the loop waits for. Closes a broken connection.
    fn flush(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.flush();
        if connection.broken {
            self.disconnect(key);
            return;
        }
        let wants = connection.wants();
        if wants != connection.interest {
            connection.interest = wants;
            let Interest { read, write } = wants;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, read);
            flags.set(EventFlags::OUT, write);
            let token = Token::Connection(key).data();
            let _ = epoll::modify(&self.epoll, &connection.socket, token, flags);
        }
    }

    fn disconnect(&mut self, key: Key) {
        let removed = self.connections.remove(key);
        let greeted = removed.is_some_and(|connection| connection.greeted);
        if greeted {
            self.leave_if_unused();
        }
        for terminal in self.terminals.values_mut() {
            terminal.watchers.retain(|watcher| watcher.connection != key);
        }
        self.exec.forget_connection(key);
        if self.reserve.len() < RESERVED_DESCRIPTORS {
            self.reserve = reserve();
        }
    }

    /// Shuts down if the server is gone and no terminal was ever opened.
    fn leave_if_unused(&mut self) {
        let unused = self.settings.leaves_unused && self.counters.opened == 0;
        if unused && !self.connections.iter().any(|(_, connection)| connection.greeted) {
            self.shut_down();
        }
    }

    /// Sends an event to every connection.
    fn broadcast(&mut self, event: &Event) {
        for key in self.connections.keys() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.push(event);
            }
            self.flush(key);
        }
    }

    /// Handles signals: a request to terminate, or the exit of children.
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
                // Neither: an orphan of which we are the subreaper.
                let _ = self.trial_ended(pid, exit);
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

    /// Closes every terminal. The loop ends when all are gone.
    fn shut_down(&mut self) {
        self.life = Life::Ending;
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

/// Returns whether a peer is our own user, or root, which is allowed everything anyway. The socket of a
/// sandbox's first process has no path inside the sandbox, so its peers are outside, where user ids have
/// no meaning here.
fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    shell::is_first_process()
        || rustix::net::sockopt::socket_peercred(socket)
            .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
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

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Returns an array on the heap that was never on the stack.
fn boxed<const N: usize>() -> Box<[u8; N]> {
    vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; N]))
}
