//! The streams of all commands: their FIFOs, what came through them, and when they end.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::commands::Commands;
use super::effect::{Effect, Happened};
use super::output::Output;
use super::paths::Paths;
use super::pipes::{Pipe, Read};
use super::screen::ScreenCopy;
use super::state::Changes;
use super::status::{End, Status};
use wire::Phase;

/// How much of one stream is read before others get their turn.
const MAX_TURN_BYTES: usize = 2 << 20;
const READ_BUFFER_BYTES: usize = 256 << 10;
/// Tokens per command in the epoll set: a command's are `4 * index` and following.
const TOKENS: u64 = 4;
/// Added to a command's first token: its standard input.
const STDIN: u64 = 2;

thread_local! {
    /// Shared by all drivers, so that an idle one has no buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The streams of one driver's commands.
#[derive(Debug)]
pub struct Streams {
    pub epoll: OwnedFd,
    pub commands: Commands,
    /// A pair of FIFOs for the next command.
    spare: Option<[Pipe; 2]>,
    /// The number of the last pair of FIFOs.
    pub pair_number: u64,
    /// A stream has more than its turn allowed.
    pub has_more: bool,
}

/// What an event of the epoll set is about.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamSource {
    /// The input of this command.
    Stdin(String),
    /// The output of this command.
    Output(String),
}

impl Streams {
    pub fn new(dir: PathBuf) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let commands = Commands::new(dir);
        Ok(Self { epoll, commands, spare: None, pair_number: 0, has_more: false })
    }

    /// Returns a pair of FIFOs for standard output and error.
    pub fn pair(&mut self, paths: &Paths) -> io::Result<[Pipe; 2]> {
        if let Some(pipes) = self.spare.take() {
            return Ok(pipes);
        }
        self.pair_number += 1;
        let number = self.pair_number;
        let out = Pipe::make(paths.run.join(format!("o{number}")))?;
        let err = Pipe::make(paths.run.join(format!("e{number}")))?;
        Ok([out, err])
    }

    /// Forgets the spare pair: its directory is gone.
    pub fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Adds the FIFOs of a command to the epoll set.
    pub fn watch(&self, id: &str) -> io::Result<()> {
        let Some(command) = self.commands.get(id) else { return Ok(()) };
        for (stream, pipe) in command.pipes.iter().enumerate() {
            if let Some(pipe) = pipe {
                pipe.watch(&self.epoll, command.index * TOKENS + stream as u64)?;
            }
        }
        if let Some(stdin) = &command.stdin {
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let token = epoll::EventData::new_u64(command.index * TOKENS + STDIN);
            epoll::add(&self.epoll, &stdin.fd, token, flags)?;
        }
        Ok(())
    }

    /// Returns what a token of the epoll set is about.
    pub fn source(&self, token: u64) -> Option<StreamSource> {
        let id = self.commands.id(token / TOKENS)?.clone();
        Some(if token % TOKENS == STDIN {
            StreamSource::Stdin(id)
        } else {
            StreamSource::Output(id)
        })
    }

    /// Reads what a command wrote. With a `copy` it is shown on the screen, too.
    pub fn read(&mut self, id: &str, mut copy: Option<&mut ScreenCopy>, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let mut grew = false;
        for stream in 0..2 {
            let Some(pipe) = &mut command.pipes[stream] else { continue };
            let before = command.outputs[stream].written();
            let shown = copy.as_deref_mut().map(|copy| (copy, stream, &mut *effects));
            let end = drain(pipe, &mut command.outputs[stream], shown);
            self.has_more |= matches!(end, Read::Some(_));
            grew |= command.outputs[stream].written() != before;
        }
        if grew {
            effects.push(Effect::Emit(Happened::Grew { command: id.to_owned() }));
        }
    }

    /// Writes the pending input of a command, and closes its input if that was all. The end is
    /// delayed until the command has certainly `opened` its side: closing before would discard data.
    pub fn feed(&mut self, id: &str, opened: bool) {
        let Some(command) = self.commands.get_mut(id) else { return };
        if let Some(stdin) = &mut command.stdin {
            stdin.flush();
            if opened && command.phase == Phase::Running && stdin.is_done() {
                command.stdin = None;
            }
        }
    }

    /// Reports the end of a command.
    pub fn finish(
        &mut self,
        id: &str,
        end: End,
        duration: Duration,
        shell_restarted: bool,
        changes: Changes,
        effects: &mut Vec<Effect>,
    ) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.stdin = None;
        command.phase = Phase::Done;
        let status = Status {
            outcome: end.outcome,
            exit_code: end.exit_code,
            signal: end.signal,
            duration,
            stdout_bytes: command.outputs[0].written(),
            stderr_bytes: command.outputs[1].written(),
            shell_restarted,
            changes,
        };
        if std::mem::take(&mut command.waiting) {
            effects
                .push(Effect::Emit(Happened::Waiting { command: id.to_owned(), waiting: false }));
        }
        command.status = Some(Status { changes: Changes::default(), ..status.clone() });
        effects.push(Effect::Emit(Happened::Done { command: id.to_owned(), status }));
        self.seal(id, effects);
    }

    /// Closes the streams of a command that has ended, if no process holds them any more.
    pub fn seal(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        if command.phase != Phase::Done {
            return;
        }
        let mut open = false;
        for (stream, slot) in command.pipes.iter_mut().enumerate() {
            let Some(pipe) = slot else { continue };
            open |= drain(pipe, &mut command.outputs[stream], None) != Read::Closed;
        }
        if !open {
            self.close(id, effects);
        }
    }

    /// Closes the streams of all commands that have ended.
    pub fn close_all(&mut self, effects: &mut Vec<Effect>) {
        for id in self.commands.done() {
            self.close(&id, effects);
        }
    }

    /// Closes the streams of a command that has ended, even if other processes hold them.
    fn close(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.phase = Phase::Sealed;
        let (stdout_bytes, stderr_bytes) =
            (command.outputs[0].written(), command.outputs[1].written());
        if let [Some(out), Some(err)] = std::mem::take(&mut command.pipes) {
            for pipe in [&out, &err] {
                let _ = epoll::delete(&self.epoll, &pipe.fd);
            }
            if out.reusable() && err.reusable() {
                self.spare = Some([out, err]);
            }
        }
        let forgotten = command.forgotten;
        effects.push(Effect::Emit(Happened::Sealed {
            command: id.to_owned(),
            stdout_bytes,
            stderr_bytes,
        }));
        if forgotten {
            self.commands.forget(id);
        }
    }
}

/// Where read bytes are shown: the copy, the number of the stream, and the effects to add to.
type Shown<'a> = (&'a mut ScreenCopy, usize, &'a mut Vec<Effect>);

/// Reads a pipe until it is empty, or until others should get their turn.
fn drain(pipe: &mut Pipe, output: &mut Output, shown: Option<Shown<'_>>) -> Read {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(READ_BUFFER_BYTES, 0);
        drain_through(pipe, output, shown, buffer)
    })
}

fn drain_through(
    pipe: &mut Pipe,
    output: &mut Output,
    mut shown: Option<Shown<'_>>,
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
                if taken >= MAX_TURN_BYTES {
                    return Read::Some(taken);
                }
            }
            end @ (Read::Empty | Read::Closed) => return end,
        }
    }
}
