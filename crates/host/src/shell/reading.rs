//! Reading what the shell and its commands write.

use std::cell::RefCell;
use std::fs;
use std::hash::BuildHasher;
use std::io;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::driver::{Driver, Phase};
use super::output::Output;
use super::pipes::{Pipe, Read};
use super::state::{Changes, State};
use super::{Effect, Happened, screen};

/// How much of one stream is read before others get their turn.
const TURN: usize = 2 << 20;
/// The token of the state FIFO in the driver's own epoll; a command's are `4 * index` and on.
pub(super) const STATE: u64 = 0;
/// Added to a command's first token: its standard input.
pub(super) const STDIN: u64 = 2;

/// How much is read at once.
const PIECE: usize = 256 << 10;

/// A state of this size fits a pipe, also when it has grown a little since.
const FITS: usize = 48 << 10;

/// A FIFO whose writers are gone would be ready for ever.
const EDGES: epoll::EventFlags = epoll::EventFlags::ET;

thread_local! {
    /// One for all drivers: an idle one has no buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Driver {
    pub(super) fn read_state(&mut self) {
        // No larger: the stack of an idle host stays as deep as it ever was.
        let mut piece = [0; 8 << 10];
        loop {
            match self.state_pipe.read(&mut piece) {
                Read::Some(length) => self.dump.extend_from_slice(&piece[..length]),
                Read::Empty => break,
                Read::Closed => {
                    self.dumped |= !self.dump.is_empty();
                    break;
                }
            }
        }
    }

    /// Makes room for the next dump: what an interrupted one left is no part of it.
    pub(super) fn forget_dump(&mut self) {
        self.read_state();
        self.dump.clear();
        self.dumped = false;
    }

    /// Whether every piece of a dump wakes us, or its end alone. bash writes it line by line, and a
    /// wake-up for each costs more than the lines; what fits the pipe can wait there.
    pub(super) fn heed_pieces(&mut self, heed: bool) {
        let mut flags = EDGES;
        flags.set(epoll::EventFlags::IN, heed);
        if self.heeds_pieces != heed
            && epoll::modify(
                &self.epoll,
                &self.state_pipe.fd,
                epoll::EventData::new_u64(STATE),
                flags,
            )
            .is_ok()
        {
            self.heeds_pieces = heed;
        }
    }

    /// Takes the state of the last dump over; a dump that is like the one before is not even read.
    pub(super) fn take_dump(&mut self) -> Changes {
        let mut hashed = std::mem::take(&mut self.dump);
        self.heed_pieces(hashed.len() > FITS);
        let limits = super::ending::limits(self.pid);
        hashed.extend_from_slice(&limits);
        let hash = self.hasher.hash_one(&hashed);
        hashed.truncate(hashed.len() - limits.len());
        let mut newer = State::default();
        if self.seen != Some(hash) {
            self.seen = Some(hash);
            let dump = self.setup.kind.parse(&hashed, &self.paths);
            newer = dump.state;
            if dump.history.is_some() {
                self.history = dump.history;
            }
            self.typed = dump.typed.or(self.typed);
            if !newer.has("cwd")
                && let Ok(cwd) = fs::read_link(format!("/proc/{}/cwd", self.pid))
            {
                newer.set("cwd", cwd.into_os_string().into_encoded_bytes());
            }
            newer.set("limits", limits);
        }
        newer.set("status", self.status.to_string().into_bytes());
        self.state.absorb(newer)
    }

    /// What is known without a dump: the exit code.
    pub(super) fn keep_status(&mut self) -> Changes {
        let mut newer = State::default();
        newer.set("status", self.status.to_string().into_bytes());
        self.state.absorb(newer)
    }

    /// What may have changed though the shell was left alone: the exit code, and the limits, which a
    /// program can set from outside.
    pub(super) fn keep_limits(&mut self) -> Changes {
        let mut changes = self.keep_status();
        let limits = super::ending::limits(self.pid);
        if self.state.get("limits") != limits {
            // The next dump is of other limits than the last, whatever it tells.
            self.seen = None;
            let mut newer = State::default();
            newer.set("limits", limits);
            changes.0.extend(self.state.absorb(newer).0);
        }
        changes
    }

    pub(super) fn read_stream(&mut self, token: u64, effects: &mut Vec<Effect>) {
        let Some(id) = self.commands.id(token / 4).cloned() else { return };
        self.read_command(&id, effects);
        self.seal(&id, effects);
    }

    /// Reads what the running command wrote, so that it comes before what follows.
    pub(super) fn drain(&mut self, effects: &mut Vec<Effect>) {
        let id = match &self.phase {
            Phase::Running(run) => run.job.command().cloned(),
            Phase::Ending(ending) => ending.run().job.command().cloned(),
            Phase::Absent
            | Phase::Starting { .. }
            | Phase::Idle
            | Phase::Refreshing(_)
            | Phase::Over => None,
        };
        if let Some(id) = id {
            self.read_command(&id, effects);
        }
    }

    pub(super) fn read_command(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let mut copy = match &mut self.phase {
            Phase::Running(run) if run.job.command().is_some_and(|running| running == id) => {
                Some(&mut run.copy)
            }
            Phase::Running(_)
            | Phase::Ending(_)
            | Phase::Absent
            | Phase::Starting { .. }
            | Phase::Idle
            | Phase::Refreshing(_)
            | Phase::Over => None,
        };
        let Some(command) = self.commands.get_mut(id) else { return };
        let mut grew = false;
        for stream in 0..2 {
            let Some(pipe) = &mut command.pipes[stream] else { continue };
            let before = command.outputs[stream].written();
            let shown = copy.as_deref_mut().map(|copy| (copy, stream, &mut *effects));
            let end = drain_pipe(pipe, &mut command.outputs[stream], shown);
            self.more |= matches!(end, Read::Some(_));
            grew |= command.outputs[stream].written() != before;
        }
        if grew {
            effects.push(Effect::Emit(Happened::Grew { command: id.to_owned() }));
        }
    }
}

/// Reads a pipe empty, or until others should get their turn.
pub(super) fn drain_pipe(
    pipe: &mut Pipe,
    output: &mut Output,
    shown: Option<(&mut screen::Copy, usize, &mut Vec<Effect>)>,
) -> Read {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(PIECE, 0);
        drain_through(pipe, output, shown, buffer)
    })
}

fn drain_through(
    pipe: &mut Pipe,
    output: &mut Output,
    mut shown: Option<(&mut screen::Copy, usize, &mut Vec<Effect>)>,
    buffer: &mut [u8],
) -> Read {
    let mut taken = 0;
    loop {
        match pipe.read(buffer) {
            Read::Some(length) => {
                output.append(&buffer[..length]);
                if let Some((copy, stream, effects)) = &mut shown {
                    let bytes = copy.take(*stream, &buffer[..length]);
                    if !bytes.is_empty() {
                        effects.push(Effect::Show(bytes));
                    }
                }
                taken += length;
                if taken >= TURN {
                    return Read::Some(taken);
                }
            }
            end @ (Read::Empty | Read::Closed) => return end,
        }
    }
}

/// Waits for what a FIFO brings.
pub(super) fn watch(epoll: &OwnedFd, pipe: &Pipe, token: u64) -> io::Result<()> {
    let flags = EDGES | epoll::EventFlags::IN;
    Ok(epoll::add(epoll, &pipe.fd, epoll::EventData::new_u64(token), flags)?)
}
