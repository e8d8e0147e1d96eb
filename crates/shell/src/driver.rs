//! One terminal's shells, as the host's loop sees them.
//!
//! A driver passes what happens to its [`Machine`], which decides, and has its [`Executor`] carry out
//! what was decided.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Signal;

use super::bash::STASHED;
use super::commands::Commands;
use super::effect::{Effect, Launch};
use super::executor::Executor;
use super::machine::{Availability, Machine, MachineEvent, Whereabouts};
use super::spec::{At, QUEUE, Setup, Spec};
use super::state::State;
use super::streams::StreamSource;
use super::{dump, handover, prompt, quote};
use crate::image::Image;
use wire::{IfBusy, ReplyCode};

/// Drives the shells of one terminal, one at a time.
#[derive(Debug)]
pub struct Driver {
    machine: Machine,
    executor: Executor,
}

impl Driver {
    /// Creates a driver for a shell that is to be started as the [`Launch`] says.
    pub fn new(setup: Setup, state: State) -> io::Result<(Self, Launch)> {
        let machine = Machine::new(setup.kind.capabilities());
        let mut executor = Executor::create(setup, state)?;
        let launch = executor.launch(0, false)?;
        Ok((Self { machine, executor }, launch))
    }

    /// Makes the terminal end when its shell exits. A shell that the driver ends itself is replaced
    /// all the same.
    pub fn end_with_program(&mut self) {
        self.machine.end_with_shell();
    }

    /// Becomes readable when [`ready`](Self::ready) has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.executor.streams.epoll.as_fd()
    }

    /// Returns the directory in which files appear whose names are to be given to [`ctl`](Self::ctl).
    pub fn ctl_dir(&self) -> PathBuf {
        self.executor.paths.ctl_dir()
    }

    /// Returns the records that exist and were not given to [`ctl`](Self::ctl).
    pub fn records(&self) -> Vec<String> {
        let entries = fs::read_dir(self.ctl_dir());
        entries.map_or(Vec::new(), |entries| {
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
    }

    /// Returns whether the shell is about to leave a record.
    pub fn awaits_record(&self) -> bool {
        self.machine.awaits_record()
    }

    /// Returns the commands and their output.
    pub fn commands(&self) -> &Commands {
        &self.executor.streams.commands
    }

    /// Keeps the output of a running command if this process is killed.
    pub fn persist(&mut self, command: &str) {
        self.executor.streams.commands.persist(command);
    }

    /// Drops a command from memory. Its output stays on disk for a while.
    pub fn forget(&mut self, command: &str) -> bool {
        self.executor.streams.commands.forget(command)
    }

    /// Returns the state as it was last dumped.
    pub fn state(&self) -> &State {
        &self.executor.snapshot.state
    }

    /// Returns whether a command would have to wait.
    pub fn busy(&self, at: At) -> bool {
        match self.machine.availability() {
            Availability::Free => false,
            Availability::Busy => true,
            Availability::DependsOnTerminal { entered } => {
                entered && !self.executor.prompt_shown(&self.machine, at)
                    || !prompt::in_foreground(self.executor.shell.pid, at.master)
            }
        }
    }

    // What happens to the shell.

    /// The shell was started.
    pub fn launched(&mut self, pid: i32, now: Instant) {
        self.executor.launched(pid);
        self.machine.launched(now);
    }

    /// No shell could be started where [`Effect::Respawn`] asked for one.
    pub fn abandon(&mut self, at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::LaunchFailed, at, effects);
    }

    /// A person's bytes are about to be typed.
    pub fn typed(&mut self, bytes: &[u8], at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::Typed(bytes), at, effects);
    }

    /// The terminal printed something, which is not yet in its log.
    pub fn output(&mut self, bytes: &[u8], at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::Printed(bytes), at, effects);
    }

    /// A file appeared in [`ctl_dir`](Self::ctl_dir).
    pub fn ctl(&mut self, name: &str, at: At, effects: &mut Vec<Effect>) {
        let _ = fs::remove_file(self.ctl_dir().join(name));
        if let Some(generation) = name.strip_prefix('r') {
            if generation == self.executor.shell.generation.to_string() {
                self.step(MachineEvent::Ready, at, effects);
            }
        } else if name == STASHED {
            self.step(MachineEvent::Stashed, at, effects);
        } else if let Some((number, what)) = name.split_once('.')
            && let Ok(number) = number.parse()
        {
            self.step(MachineEvent::Record { number, status: what.parse().ok() }, at, effects);
        }
    }

    /// Something happened on [`fd`](Self::fd).
    pub fn ready(&mut self, at: At, effects: &mut Vec<Effect>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let epoll = &self.executor.streams.epoll;
        let count = epoll::wait(epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        for event in &events[..count] {
            let token = event.data.u64();
            if token == dump::TOKEN {
                self.executor.dump.read();
                continue;
            }
            match self.executor.streams.source(token) {
                Some(StreamSource::Stdin(command)) => {
                    self.executor.feed(&command, &self.machine, at)
                }
                Some(StreamSource::Output(command)) => self.executor.read_output(&command, effects),
                None => {}
            }
        }
        if self.executor.dump.is_complete() {
            self.step(MachineEvent::DumpRead { complete: true }, at, effects);
        }
    }

    /// Returns when [`tick`](Self::tick) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let more = self.executor.streams.has_more.then(Instant::now);
        self.machine.deadline().into_iter().chain(more).min()
    }

    /// Does what is due.
    pub fn tick(&mut self, at: At, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.executor.streams.has_more) {
            self.executor.drain(effects);
        }
        self.look_begun(at, effects);
        self.step(MachineEvent::Tick, at, effects);
    }

    /// The shell exited with a code, or by a signal.
    pub fn exited(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        at: At,
        effects: &mut Vec<Effect>,
    ) {
        // The records it left before.
        for name in self.records() {
            self.ctl(&name, at, effects);
        }
        self.look_begun(at, effects);
        self.executor.exited(effects);
        self.step(MachineEvent::Exited { code, signal }, at, effects);
    }

    // What clients ask for.

    /// Accepts a command. It starts when the shell is free.
    pub fn exec(&mut self, spec: Spec, at: At, effects: &mut Vec<Effect>) -> Result<(), ReplyCode> {
        if self.machine.is_over() {
            return Err(ReplyCode::NotDrivable);
        }
        if spec.env.iter().any(|(name, value)| !quote::is_name(name) || value.contains(&0))
            || spec.text.contains(&0)
        {
            return Err(ReplyCode::BadRequest);
        }
        if self.machine.queue().len() >= QUEUE {
            return Err(ReplyCode::QueueFull);
        }
        if spec.if_busy == IfBusy::Fail && self.busy(at) {
            return Err(ReplyCode::Busy);
        }
        if !self.executor.streams.commands.add(&spec.command, spec.keep) {
            return Err(ReplyCode::CommandExists);
        }
        self.step(MachineEvent::Exec(Box::new(spec)), at, effects);
        Ok(())
    }

    /// Runs a script without output when the shell is free. Its end is reported with `token`.
    pub fn apply(
        &mut self,
        token: u64,
        script: Vec<u8>,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        if self.machine.is_over() {
            return Err(ReplyCode::NotDrivable);
        }
        if self.machine.queue().len() >= QUEUE {
            return Err(ReplyCode::QueueFull);
        }
        self.step(MachineEvent::Apply { token, script }, at, effects);
        Ok(())
    }

    /// Replaces the shell by one with this state.
    pub fn replace(&mut self, state: State, at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::Replace(state), at, effects);
    }

    /// Ends a command: a queued one is dropped, a running one ends as by a time-out.
    pub fn cancel(
        &mut self,
        command: &str,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        match self.machine.whereabouts(command) {
            Whereabouts::Queued | Whereabouts::Running => {
                self.step(MachineEvent::Cancel(command), at, effects);
                Ok(())
            }
            Whereabouts::Neither => Err(self.missing(command)),
        }
    }

    /// Drops a command that is still queued. One that has begun runs on.
    pub fn withdraw(
        &mut self,
        command: &str,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        match self.machine.whereabouts(command) {
            Whereabouts::Queued => {
                self.step(MachineEvent::Withdraw(command), at, effects);
                Ok(())
            }
            Whereabouts::Running => Err(ReplyCode::StillRunning),
            Whereabouts::Neither => Err(self.missing(command)),
        }
    }

    /// Signals a running command, as soon as it has begun.
    pub fn signal(
        &mut self,
        command: &str,
        signal: Signal,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        if self.machine.whereabouts(command) != Whereabouts::Running {
            return Err(self.missing(command));
        }
        self.look_begun(at, effects);
        self.step(MachineEvent::Signal(signal), at, effects);
        Ok(())
    }

    /// Feeds a command whose standard input is open.
    pub fn stdin(
        &mut self,
        command: &str,
        write_id: &str,
        data: &[u8],
        eof: bool,
        at: At,
    ) -> Result<(), ReplyCode> {
        let commands = &mut self.executor.streams.commands;
        let found = commands.get_mut(command).ok_or(ReplyCode::NoSuchCommand)?;
        found.stdin.as_mut().ok_or(ReplyCode::CommandEnded)?.write(write_id, data, eof)?;
        self.executor.feed(command, &self.machine, at);
        Ok(())
    }

    /// Returns why a command can be neither signalled nor ended.
    fn missing(&self, command: &str) -> ReplyCode {
        match self.commands().get(command) {
            Some(_) => ReplyCode::CommandEnded,
            None => ReplyCode::NoSuchCommand,
        }
    }

    // The handover to another executable. The shell and its commands notice nothing: their FIFOs
    // stay open.

    /// Returns whether the driver can be handed over now. If it cannot, it soon can.
    pub fn settled(&self) -> bool {
        self.machine.can_hand_over()
    }

    /// Returns the descriptors that the next executable needs.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut kept = vec![self.executor.dump.pipe.fd.as_fd()];
        for command in self.commands().all() {
            kept.extend(command.pipes.iter().flatten().map(|pipe| pipe.fd.as_fd()));
            kept.extend(command.stdin.iter().map(|stdin| stdin.fd.as_fd()));
        }
        kept
    }

    /// Returns everything that the next executable must know.
    pub fn image(&mut self, at: At) -> Image {
        self.executor.modes.restore(at.master);
        self.look_begun(at, &mut Vec::new());
        handover::image(&self.executor, &self.machine)
    }

    /// Continues where another executable stopped. `inherit` returns an open descriptor by its number.
    pub fn resume(
        image: &Image,
        inherit: &dyn Fn(RawFd) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let (executor, machine) = handover::resume(image, inherit, Instant::now())?;
        Ok(Self { machine, executor })
    }

    fn look_begun(&mut self, at: At, effects: &mut Vec<Effect>) {
        if self.machine.awaits_begun() && self.executor.has_begun() {
            self.step(MachineEvent::Begun, at, effects);
        }
    }

    /// Has the machine decide about an event, and the executor carry that out. An answer is passed on
    /// before the next action is carried out.
    fn step(&mut self, event: MachineEvent<'_>, at: At, effects: &mut Vec<Effect>) {
        for action in self.machine.step(at.now, event) {
            if let Some(answer) = self.executor.perform(action, &self.machine, at, effects) {
                self.step(answer, at, effects);
            }
        }
    }
}
