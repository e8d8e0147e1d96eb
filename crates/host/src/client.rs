//! A small blocking client of a host, for tools and tests. The server uses its own sockets.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::socket::{SOCKET, short_path};
use wire::{Decoder, Event, Request};

/// A connection to a host.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: Decoder,
    /// Events that arrived before an answer.
    early: VecDeque<Event>,
    seq: u32,
}

/// Connects to the socket in a host's directory, even if its path is too long for a socket address.
///
/// # Errors
/// If no host listens there.
pub fn connect(run_dir: &Path) -> io::Result<UnixStream> {
    let (_fd, short) = short_path(run_dir)?;
    UnixStream::connect(short.join(SOCKET))
}

impl Client {
    /// Connects to the host of a directory.
    ///
    /// # Errors
    /// If no host listens there.
    pub fn connect(run_dir: &Path) -> io::Result<Self> {
        Ok(Self {
            stream: connect(run_dir)?,
            decoder: Decoder::default(),
            early: VecDeque::new(),
            seq: 0,
        })
    }

    /// Returns the sequence number for the next request.
    pub fn seq(&mut self) -> u32 {
        self.seq += 1;
        self.seq
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the host has exited, or the request does not fit a frame.
    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// Sends a request and waits for its answer. Other events that arrive meanwhile are kept for
    /// [`Client::receive`].
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::receive`].
    pub fn ask(&mut self, request: &Request, timeout: Duration) -> io::Result<Event> {
        self.send(request)?;
        let until = Instant::now() + timeout;
        loop {
            let event = self.read(until)?;
            if event.answers().is_some() && event.answers() == request.seq() {
                return Ok(event);
            }
            self.early.push_back(event);
        }
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// `TimedOut` if no event arrives in time, `UnexpectedEof` if the host has exited, `InvalidData` if the
    /// bytes are not an event.
    pub fn receive(&mut self, timeout: Duration) -> io::Result<Event> {
        match self.early.pop_front() {
            Some(event) => Ok(event),
            None => self.read(Instant::now() + timeout),
        }
    }

    fn read(&mut self, until: Instant) -> io::Result<Event> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut buffer = [0; 16 << 10];
        loop {
            while let Some(frame) = self.decoder.next_frame().map_err(invalid)? {
                if let Some(event) = Event::decode(&frame).map_err(invalid)? {
                    return Ok(event);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.decoder.feed(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
