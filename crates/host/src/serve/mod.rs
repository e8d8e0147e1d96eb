//! The host's one loop: connections, PTYs, children and timers on one epoll, in one thread.
//!
//! It never waits for a server: a PTY is always drained, into the log first and then to whoever is
//! attached and keeps up. It never waits for a disk's sync either: that is the syncer's thread. Each
//! descriptor gets a bounded piece of every turn, so that a flood delays a quiet terminal by no more
//! than its piece.

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
use crate::wire::{self, Event};
use closing::Closing;
use connection::{Connection, Interest};
use executions::Executions;
use slots::{Key, Slots};
use terminal::{Exit, Terminal};
use timers::{Due, Timers};
use trial::Trial;

/// How many connections there may be: the server's, and room for one that is being replaced.
const MAX_CONNECTIONS: usize = 8;

/// How many events one turn takes from the kernel.
const TURN: usize = 64;

/// The shared read buffer; no terminal and no connection has one of its own.
const BUFFER: usize = 64 << 10;

/// How many descriptors are kept back for connections.
const RESERVE: usize = 4;

/// How long nobody is let in when there is no descriptor for him.
const LOOK_AWAY: Duration = Duration::from_millis(100);

/// How long a host that waits for its server does so.
const GREETING: Duration = Duration::from_secs(60);

/// How long written logs wait for company before they are synced.
const SYNC_DELAY: Duration = Duration::from_millis(500);

/// What a host is started with.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where the socket is.
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: String,
    pub(crate) label: String,
    pub(crate) max_terminals: usize,
    /// The soft limit of descriptors that children get.
    pub(crate) descriptors: Option<u64>,
    /// Whether it ends when the server that greeted it goes before there was a terminal.
    pub(crate) leaves_unused: bool,
}

/// Everything a host holds.
#[derive(Debug)]
pub(crate) struct Host {
    settings: Settings,
    /// Held, not used: one host a directory.
    lock: OwnedFd,
    epoll: OwnedFd,
    listener: OwnedFd,
    signals: OwnedFd,
    /// Descriptors kept back, so that a server can connect when terminals have used up all others.
    reserve: Vec<OwnedFd>,
    syncer: Arc<Syncer>,
    cgroup: Option<Cgroup>,
    connections: Slots<Connection>,
    terminals: Slots<Terminal>,
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
    buffer: Box<[u8; BUFFER]>,
    scratch: Box<[u8; SCRATCH]>,
}

/// Whether the host is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Serving,
    /// Everything is being ended; the loop ends when it is.
    Ending,
}

/// What is counted.
#[derive(Debug, Default)]
struct Counters {
    opened: u64,
    bytes_out: u64,
    bytes_in: u64,
    reaped: u64,
    refused_connections: u64,
}

/// What an event is about, as the kernel carries it for us.
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
    /// A host that holds nothing yet, on a listening socket.
    pub(crate) fn new(
        settings: Settings,
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

    /// Serves until told to end.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(TURN);
        if self.settings.leaves_unused {
            self.timers.arm(Due::Greeting, GREETING);
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
                        // Opening a shell or carrying a flood takes more than holding them.
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

    /// Takes in whoever knocks, when he is us.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = loop {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => break socket,
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.pop().is_some() => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => {
                    // Whoever knocks goes on knocking: looking away for a moment saves the CPU.
                    self.listen(EventFlags::empty());
                    self.timers.arm(Due::Listen, LOOK_AWAY);
                    return;
                }
            }
        };
        if !is_trusted(socket.as_fd()) || self.connections.len() >= MAX_CONNECTIONS {
            self.counters.refused_connections += 1;
            return;
        }
        self.hear_out();
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

    /// Does what has been asked so far: whoever comes after a server that is gone finds all of it.
    fn hear_out(&mut self) {
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            while let Some(connection) = self.connections.get_mut(key) {
                match connection.fill(self.buffer.as_mut_slice()) {
                    Ok(0) => break,
                    Ok(_) => self.answer_requests(key),
                    // What it asked and was not heard of is never done.
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

    /// Writes what waits on a connection, and waits for what it then needs. Closes a broken one.
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
        if self.reserve.len() < RESERVE {
            self.reserve = reserve();
        }
    }

    /// Ends if it waits for a server that is not there any more.
    fn leave_if_unused(&mut self) {
        let unused = self.settings.leaves_unused && self.counters.opened == 0;
        if unused && !self.connections.iter().any(|(_, connection)| connection.greeted) {
            self.shut_down();
        }
    }

    /// Sends to every connection.
    fn broadcast(&mut self, event: &Event) {
        for key in self.connections.keys() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.push(event);
            }
            self.flush(key);
        }
    }

    /// Collects every child that ended.
    fn signalled(&mut self) {
        if sys::told_to_end(self.signals.as_fd()) {
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
                // Neither: an orphan that came to us.
                let _ = self.trial_ended(pid, exit);
            }
        }
    }

    /// Hands what was written to the syncer.
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

    /// Ends every terminal; the loop ends when all are gone.
    fn shut_down(&mut self) {
        self.life = Life::Ending;
        for key in self.terminals.keys() {
            self.close(key, None);
        }
    }

    /// The last things.
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

/// Whether a peer is of our user, or root, who can do everything anyway. The first process of a
/// sandbox has a socket that has no name inside, so whoever reaches it came from outside, where users
/// have numbers that mean nothing here.
fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    sys::is_first_process()
        || rustix::net::sockopt::socket_peercred(socket)
            .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn exit(status: WaitStatus) -> Exit {
    match status.terminating_signal() {
        Some(signal) => Exit { code: -1, signal },
        None => Exit { code: status.exit_status().unwrap_or(-1), signal: 0 },
    }
}

/// Descriptors to give up later.
fn reserve() -> Vec<OwnedFd> {
    let null = || std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
    std::iter::from_fn(null).take(RESERVE).collect()
}

/// The wall clock.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// An array on the heap that never was on the stack.
fn boxed<const N: usize>() -> Box<[u8; N]> {
    vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; N]))
}
