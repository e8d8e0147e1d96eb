//! The streams of all commands: their FIFOs, their output, and when they end.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::commands::Commands;
use super::effect::{DriverEvent, Effect};
use super::exit_sequence::ExitSequence;
use super::output::Output;
use super::paths::Paths;
use super::pipes::{Pipe, Read};
use super::screen::ScreenCopy;
use super::state::Changes;
use super::status::{End, Status};
use wire::Phase;

/// How many bytes of one stream are read before the other streams are served.
const MAX_DRAINED_BYTES: usize = 2 << 20;
/// How long one stream is read before the host answers requests: on a busy disk, each write of its output may take
/// seconds.
const MAX_DRAIN_TIME: Duration = Duration::from_millis(20);
const READ_BUFFER_BYTES: usize = 256 << 10;
/// The number of tokens per command in the epoll set. The first one is `4 * index`.
const TOKENS_PER_COMMAND: u64 = 4;
/// The offset of the token for standard input from a command's first token.
const STDIN_TOKEN: u64 = 2;

thread_local! {
    /// The buffer of all drivers, so that an idle driver needs none.
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
    /// A stream may have more to read.
    pub has_more: bool,
}

/// How much of a stream is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// As much as one iteration of the host's loop allows.
    Bounded,
    /// All that a command wrote before it ended.
    All,
}

/// The source of an event of the epoll set.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamSource {
    /// The standard input of a command.
    Stdin(String),
    /// The standard output or standard error of a command.
    Output(String),
}

/// The end of a command, as it is reported.
#[derive(Debug)]
pub struct FinishedCommand {
    pub end: End,
    pub duration: Duration,
    pub shell_restarted: bool,
    pub changes: Changes,
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
        let out = Pipe::open_or_create(paths.run.join(format!("o{number}")))?;
        let err = Pipe::open_or_create(paths.run.join(format!("e{number}")))?;
        Ok([out, err])
    }

    /// Drops the spare pair, whose directory is gone.
    pub fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Adds the FIFOs of a command to the epoll set.
    pub fn watch(&self, id: &str) -> io::Result<()> {
        let Some(command) = self.commands.get(id) else { return Ok(()) };
        for (stream, pipe) in command.pipes.iter().enumerate() {
            if let Some(pipe) = pipe {
                pipe.watch(&self.epoll, command.index * TOKENS_PER_COMMAND + stream as u64)?;
            }
        }
        if let Some(stdin) = &command.stdin {
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let token = epoll::EventData::new_u64(command.index * TOKENS_PER_COMMAND + STDIN_TOKEN);
            epoll::add(&self.epoll, &stdin.fd, token, flags)?;
        }
        Ok(())
    }

    /// Returns the source of an event by its token.
    pub fn source(&self, token: u64) -> Option<StreamSource> {
        let id = self.commands.id(token / TOKENS_PER_COMMAND)?.clone();
        Some(if token % TOKENS_PER_COMMAND == STDIN_TOKEN {
            StreamSource::Stdin(id)
        } else {
            StreamSource::Output(id)
        })
    }

    /// Reads the output of a command. If there is a `copy`, the output is shown on the screen, too.
    pub fn read(
        &mut self,
        id: &str,
        portion: Portion,
        mut copy: Option<&mut ScreenCopy>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let mut grew = false;
        for stream in 0..2 {
            let Some(pipe) = &mut command.pipes[stream] else { continue };
            let before = command.outputs[stream].written();
            let screen = copy.as_deref_mut().map(|copy| (copy, stream, &mut *effects));
            let output = &mut command.outputs[stream];
            let end = if stream == 1 && command.phase == Phase::Running {
                drain(pipe, portion, Sink::Held(output, &mut command.exit_sequence), screen)
            } else {
                drain(pipe, portion, Sink::Output(output), screen)
            };
            self.has_more |= matches!(end, Read::Some(_));
            grew |= command.outputs[stream].written() != before;
        }
        grew |= command.release_due();
        if grew {
            effects.push(Effect::Emit(DriverEvent::Grew { command: id.to_owned() }));
        }
    }

    /// Writes the pending input of a command.
    pub fn feed(&mut self, id: &str) {
        if let Some(stdin) = self.commands.get_mut(id).and_then(|command| command.stdin.as_mut()) {
            stdin.flush();
        }
    }

    /// Closes the standard input of a command if all input is written. The command must have opened its
    /// side: closing the FIFO before would discard the data in it.
    pub fn close_stdin_if_done(&mut self, id: &str) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let is_done = command.stdin.as_ref().is_some_and(|stdin| stdin.is_done());
        if is_done && command.phase == Phase::Running {
            command.stdin = None;
        }
    }

    /// Reports the end of a command.
    pub fn finish(&mut self, id: &str, report: FinishedCommand, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let FinishedCommand { end, duration, shell_restarted, changes } = report;
        command.stdin = None;
        command.phase = Phase::Done;
        command.release_held();
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
            effects.push(Effect::Emit(DriverEvent::Waiting {
                command: id.to_owned(),
                waiting: false,
            }));
        }
        command.status = Some(Status { changes: Changes::default(), ..status.clone() });
        effects.push(Effect::Emit(DriverEvent::Done { command: id.to_owned(), status }));
        self.seal(id, effects);
    }

    /// Closes the streams of a command that has ended, if no process has them open any more.
    pub fn seal(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        if command.phase != Phase::Done {
            return;
        }
        let mut open = false;
        for (stream, slot) in command.pipes.iter_mut().enumerate() {
            let Some(pipe) = slot else { continue };
            let sink = Sink::Output(&mut command.outputs[stream]);
            open |= drain(pipe, Portion::Bounded, sink, None) != Read::Closed;
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

    /// Closes the streams of a command that has ended, even if other processes have them open.
    fn close(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.phase = Phase::Sealed;
        let (stdout_bytes, stderr_bytes) =
            (command.outputs[0].written(), command.outputs[1].written());
        if let [Some(out), Some(err)] = std::mem::take(&mut command.pipes) {
            for pipe in [&out, &err] {
                let _ = epoll::delete(&self.epoll, &pipe.fd);
            }
            if out.is_reusable() && err.is_reusable() {
                self.spare = Some([out, err]);
            }
        }
        let forgotten = command.forgotten;
        effects.push(Effect::Emit(DriverEvent::Sealed {
            command: id.to_owned(),
            stdout_bytes,
            stderr_bytes,
        }));
        if forgotten {
            self.commands.forget(id);
        }
    }
}

/// The destination of a copy on the screen: the copy, the number of the stream, and the effects to add to.
type ScreenTarget<'a> = (&'a mut ScreenCopy, usize, &'a mut Vec<Effect>);

/// The destination of the bytes of a pipe.
enum Sink<'a> {
    Output(&'a mut Output),
    Held(&'a mut Output, &'a mut ExitSequence),
}

impl Sink<'_> {
    fn append(&mut self, bytes: &[u8]) {
        match self {
            Self::Output(output) => output.append(bytes),
            Self::Held(output, sequence) => output.append(sequence.take(bytes, Instant::now())),
        }
    }
}

/// Reads a pipe until it is empty, or until the other streams should be served.
fn drain(
    pipe: &mut Pipe,
    portion: Portion,
    sink: Sink<'_>,
    screen: Option<ScreenTarget<'_>>,
) -> Read {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(READ_BUFFER_BYTES, 0);
        drain_through(pipe, portion, sink, screen, buffer)
    })
}

fn drain_through(
    pipe: &mut Pipe,
    portion: Portion,
    mut sink: Sink<'_>,
    mut screen: Option<ScreenTarget<'_>>,
    buffer: &mut [u8],
) -> Read {
    let mut taken = 0;
    let began = Instant::now();
    loop {
        match pipe.read(buffer) {
            Read::Some(length) => {
                sink.append(&buffer[..length]);
                if let Some((copy, stream, effects)) = &mut screen {
                    let bytes = copy.take(*stream, &buffer[..length]);
                    if !bytes.is_empty() {
                        effects.push(Effect::Show(bytes));
                    }
                }
                taken += length;
                let is_late = portion == Portion::Bounded && began.elapsed() >= MAX_DRAIN_TIME;
                if taken >= MAX_DRAINED_BYTES || is_late {
                    return Read::Some(taken);
                }
            }
            end @ (Read::Empty | Read::Closed) => return end,
        }
    }
}
