//! Accepting, serving and closing the connections of servers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::connection::{Connection, Interest};
use super::slots::Key;
use super::timers::Due;
use super::token::EventToken;
use super::{Host, RESERVED_DESCRIPTORS, reserve};
use wire::Event;

/// The maximum number of connections: the server's, and room for one that is being replaced.
const MAX_CONNECTIONS: usize = 8;

/// How long `accept` pauses after we run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Host {
    /// Accepts a connection if the peer is our own user.
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = loop {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => break socket,
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.pop().is_some() => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => {
                    // The connection stays pending and the listener readable, so the loop would spin
                    // without a pause.
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
                EventToken::Connection(key).data(),
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

    pub(super) fn listen(&self, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.listener, EventToken::Listener.data(), flags);
    }

    pub(super) fn connection_ready(&mut self, key: Key, flags: EventFlags) {
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
    pub(super) fn flush(&mut self, key: Key) {
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
            let token = EventToken::Connection(key).data();
            let _ = epoll::modify(&self.epoll, &connection.socket, token, flags);
        }
    }

    pub(super) fn disconnect(&mut self, key: Key) {
        let removed = self.connections.remove(key);
        // A server that was killed right after its greeting is gone before we read it.
        let greeted =
            removed.is_some_and(|mut it| it.greeted || it.has_greeting(self.buffer.as_mut_slice()));
        if greeted {
            self.exit_if_unused();
        }
        for terminal in self.terminals.values_mut() {
            terminal.watchers.retain(|watcher| watcher.connection != key);
        }
        self.exec.forget_connection(key);
        if self.reserve.len() < RESERVED_DESCRIPTORS {
            self.reserve = reserve();
        }
    }

    /// Shuts down if no server is connected and no terminal was ever opened.
    pub(super) fn exit_if_unused(&mut self) {
        let unused = self.settings.exits_if_unused && self.counters.opened == 0;
        if unused && !self.connections.iter().any(|(_, connection)| connection.greeted) {
            self.shut_down();
        }
    }

    /// Sends an event to every connection.
    pub(super) fn broadcast(&mut self, event: &Event) {
        for key in self.connections.keys() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.push(event);
            }
            self.flush(key);
        }
    }
}

/// Returns whether a peer runs as our own user or as root. The socket of a sandbox's first process has no
/// path inside the sandbox, so its peers are outside, and their user ids have no meaning inside.
fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    shell::is_first_process()
        || rustix::net::sockopt::socket_peercred(socket)
            .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}
