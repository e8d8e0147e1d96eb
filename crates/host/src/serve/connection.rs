//! One server's connection: frames in, frames out through a bounded buffer.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::slots::Key;
use crate::wire::{Decoder, Event};

/// Output is pushed while less than this waits to be written; beyond it, watchers read the log when
/// there is room again.
pub(super) const SOFT: usize = 1 << 20;

/// A connection that lets this much of what cannot be read from a log pile up is closed.
const HARD: usize = 48 << 20;

/// An empty buffer larger than this is given back.
const KEEP: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
    /// Terminals whose output this connection has yet to catch up with, served in turn.
    pub(super) behind: VecDeque<Key>,
    /// Commands whose output it has yet to catch up with.
    pub(super) lagging: VecDeque<String>,
    /// What the loop waits for on the socket.
    pub(super) interest: Interest,
    pub(super) broken: bool,
    /// Whether a server has said who it is.
    pub(super) greeted: bool,
}

/// What to wait for on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
            behind: VecDeque::new(),
            lagging: VecDeque::new(),
            interest: Interest { read: true, write: false },
            broken: false,
            greeted: false,
        }
    }

    /// Whether output can be pushed.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < SOFT
    }

    fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// What the loop should wait for.
    pub(super) fn wants(&self) -> Interest {
        Interest {
            // Someone who does not read his answers may not ask for more.
            read: self.has_room(),
            write: self.waiting() > 0 || !self.behind.is_empty() || !self.lagging.is_empty(),
        }
    }

    /// Queues a message. One that is too large for a frame is told as a failure of its request.
    pub(super) fn push(&mut self, event: &Event) {
        if event.encode(&mut self.out).is_err() {
            let Some(seq) = event.answers() else { return };
            let message = "the answer does not fit a frame".into();
            let _ = Event::Reply { seq, code: crate::wire::Code::Failed, message }
                .encode(&mut self.out);
        }
        self.broken |= self.waiting() > HARD;
    }

    /// The buffer, to write frames straight into.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) {
        while self.sent < self.out.len() && !self.broken {
            match rustix::net::send(
                &self.socket,
                &self.out[self.sent..],
                rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
            ) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.broken = true,
            }
        }
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            if self.out.capacity() > KEEP {
                self.out = Vec::new();
            }
        } else if self.sent > SOFT / 4 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Reads what has come, at most one buffer, into the decoder, and tells how much that was. An error
    /// means it is over.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut *buffer)) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.decoder.feed(&buffer[..count]);
                Ok(count)
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
