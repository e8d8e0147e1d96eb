//! The connection of one server: incoming frames, and outgoing frames through a bounded buffer.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::slots::Key;
use wire::{Decoder, Event, Request};

/// Output is queued while fewer bytes than this wait to be written. Beyond it, watchers read the log as soon
/// as there is room again.
pub(super) const SOFT_LIMIT_BYTES: usize = 1 << 20;

/// A connection is closed if more bytes than this wait to be written.
const HARD_LIMIT_BYTES: usize = 48 << 20;

/// An empty buffer larger than this is freed.
const MAX_IDLE_BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
    /// Terminals whose output this connection has yet to catch up with, served round-robin.
    pub(super) terminals_behind: VecDeque<Key>,
    /// Commands whose output this connection has yet to catch up with.
    pub(super) commands_behind: VecDeque<String>,
    /// The events that the loop waits for on the socket.
    pub(super) interest: Interest,
    pub(super) broken: bool,
    /// The server has sent its `Hello`.
    pub(super) greeted: bool,
}

/// The events to wait for on a socket.
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
            terminals_behind: VecDeque::new(),
            commands_behind: VecDeque::new(),
            interest: Interest { read: true, write: false },
            broken: false,
            greeted: false,
        }
    }

    /// Returns whether output can be queued.
    pub(super) fn has_room(&self) -> bool {
        self.unsent_bytes() < SOFT_LIMIT_BYTES
    }

    fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns the events that the loop should wait for.
    pub(super) fn wants(&self) -> Interest {
        Interest {
            // Requests of a server that does not read its answers are not read either.
            read: self.has_room(),
            write: self.unsent_bytes() > 0
                || !self.terminals_behind.is_empty()
                || !self.commands_behind.is_empty(),
        }
    }

    /// Queues a message. If it is too large for a frame, the failure of its request is queued instead.
    pub(super) fn push(&mut self, event: &Event) {
        if event.encode(&mut self.out).is_err() {
            let Some(seq) = event.answers() else { return };
            let message = "the answer does not fit a frame".into();
            let _ =
                Event::Reply { seq, code: wire::ReplyCode::Failed, message }.encode(&mut self.out);
        }
        self.broken |= self.unsent_bytes() > HARD_LIMIT_BYTES;
    }

    /// Returns the buffer, to write frames straight into it.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes as much as the socket accepts.
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
            if self.out.capacity() > MAX_IDLE_BUFFER_BYTES {
                self.out = Vec::new();
            }
        } else if self.sent > SOFT_LIMIT_BYTES / 4 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Returns whether the first request, which was not handled, is a greeting.
    pub(super) fn has_greeting(&mut self, buffer: &mut [u8]) -> bool {
        let _ = self.fill(buffer);
        let frame = self.decoder.next_frame().ok().flatten();
        let request = frame.and_then(|frame| Request::decode(&frame).ok().flatten());
        matches!(request, Some(Request::Hello { .. }))
    }

    /// Reads at most one buffer into the decoder. Returns the number of bytes. After an error the
    /// connection must be closed.
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
