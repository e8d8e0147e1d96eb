//! The driver of one terminal's shells, as the host's loop uses it.
//!
//! A driver passes events to its [`Machine`], which decides, and has its [`Executor`] carry out the
//! decisions.

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
use super::machine::{Availability, CommandPosition, Machine, MachineEvent};
use super::options::Errexit;
use super::spec::{At, MAX_QUEUED_COMMANDS, Setup, Spec};
use super::state::State;
use super::stdin::StdinEnd;
use super::streams::{Portion, StreamSource};
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
    /// Creates a driver. The caller starts the first shell as the [`Launch`] specifies.
    pub fn new(setup: Setup, state: State) -> io::Result<(Self, Launch)> {
        let machine = Machine::new(setup.kind.capabilities());
        let mut executor = Executor::create(setup, state)?;
        let launch = executor.launch(0, Errexit::Restore)?;
        Ok((Self { machine, executor }, launch))
    }

    /// Makes the terminal end when its shell exits. A shell that the driver itself ends is still replaced.
    pub fn end_with_program(&mut self) {
        self.machine.end_with_shell();
    }

    /// Returns a descriptor that is readable when [`ready`](Self::ready) should be called.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.executor.streams.epoll.as_fd()
    }

    /// Returns the directory of the records. The name of each file that appears there is passed to
    /// [`ctl`](Self::ctl).
    pub fn ctl_dir(&self) -> PathBuf {
        self.executor.paths.ctl_dir()
    }

    /// Returns the records that were not yet passed to [`ctl`](Self::ctl).
    pub fn records(&self) -> Vec<String> {
        let entries = fs::read_dir(self.ctl_dir());
        entries.map_or(Vec::new(), |entries| {
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
    }

    /// Returns whether the shell is about to create a record.
    pub fn awaits_record(&self) -> bool {
        self.machine.awaits_record()
    }

    /// Returns the commands and their output.
    pub fn commands(&self) -> &Commands {
        &self.executor.streams.commands
    }

    /// Moves the output of a running command to disk, so that it survives if this process is killed.
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

    /// Returns whether a new command would have to wait.
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

    // Events of the shell and its terminal.

    /// Notes that the shell was started.
    pub fn launched(&mut self, pid: i32, now: Instant) {
        self.executor.launched(pid);
        self.machine.launched(now);
    }

    /// Notes that the shell requested by [`Effect::Respawn`] could not be started.
    pub fn launch_failed(&mut self, at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::LaunchFailed, at, effects);
    }

    /// Notes input of a person that is about to be written to the PTY.
    pub fn typed(&mut self, bytes: &[u8], at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::Typed(bytes), at, effects);
    }

    /// Notes that the host has read output of the terminal. No command is shown before the host has passed it to
    /// [`output`](Self::output).
    pub fn output_read(&mut self) {
        self.executor.has_unlogged = true;
    }

    /// Notes output of the terminal that is not yet in its log, and removes what would erase a command that was shown
    /// as if it had been typed.
    pub fn output(&mut self, bytes: &mut Vec<u8>, at: At, effects: &mut Vec<Effect>) {
        self.machine.keep_shown(bytes);
        self.step(MachineEvent::Printed(bytes), at, effects);
        self.machine.withhold(bytes);
        self.executor.has_unlogged = false;
    }

    /// Handles a file that appeared in [`ctl_dir`](Self::ctl_dir).
    pub fn ctl(&mut self, name: &str, at: At, effects: &mut Vec<Effect>) {
        let _ = fs::remove_file(self.ctl_dir().join(name));
        if let Some(generation) = name.strip_prefix('r') {
            if generation == self.executor.shell.generation.to_string() {
                self.step(MachineEvent::Ready, at, effects);
            }
        } else if name == STASHED {
            self.step(MachineEvent::Stashed, at, effects);
        } else if let Some((number, status)) = name.split_once('.')
            && let Ok(number) = number.parse()
        {
            self.step(MachineEvent::Record { number, status: status.parse().ok() }, at, effects);
        }
    }

    /// Handles the events of [`fd`](Self::fd).
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

    /// Returns when [`tick`](Self::tick) should be called.
    pub fn deadline(&self) -> Option<Instant> {
        let more = self.executor.streams.has_more.then(Instant::now);
        let held = self.executor.held_until();
        self.machine.deadline().into_iter().chain(more).chain(held).min()
    }

    /// Handles everything that is due.
    pub fn tick(&mut self, at: At, effects: &mut Vec<Effect>) {
        let has_held = self.executor.held_until().is_some_and(|until| until <= at.now);
        if std::mem::take(&mut self.executor.streams.has_more) || has_held {
            self.executor.drain(Portion::Bounded, effects);
        }
        self.check_begun(at, effects);
        self.step(MachineEvent::Tick, at, effects);
    }

    /// Handles the exit of the shell, with a code or by a signal.
    pub fn exited(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        at: At,
        effects: &mut Vec<Effect>,
    ) {
        // The shell may have created records before it exited.
        for name in self.records() {
            self.ctl(&name, at, effects);
        }
        self.check_begun(at, effects);
        self.executor.exited(effects);
        self.step(MachineEvent::Exited { code, signal }, at, effects);
    }

    // Requests of clients.

    /// Queues a command. It starts when the shell is free.
    pub fn exec(&mut self, spec: Spec, at: At, effects: &mut Vec<Effect>) -> Result<(), ReplyCode> {
        if self.machine.is_over() {
            return Err(ReplyCode::NotDrivable);
        }
        if spec.env.iter().any(|(name, value)| !quote::is_name(name) || value.contains(&0))
            || spec.text.contains(&0)
        {
            return Err(ReplyCode::BadRequest);
        }
        if self.machine.queue().len() >= MAX_QUEUED_COMMANDS {
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

    /// Queues a script, whose output is discarded. Its end is reported with `token`.
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
        if self.machine.queue().len() >= MAX_QUEUED_COMMANDS {
            return Err(ReplyCode::QueueFull);
        }
        self.step(MachineEvent::Apply { token, script }, at, effects);
        Ok(())
    }

    /// Replaces the shell with one that has this state.
    pub fn replace(&mut self, state: State, at: At, effects: &mut Vec<Effect>) {
        self.step(MachineEvent::Replace(state), at, effects);
    }

    /// Ends a command: a queued one is dropped, a running one ends as after a timeout.
    pub fn cancel(
        &mut self,
        command: &str,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        match self.machine.position_of(command) {
            CommandPosition::Queued | CommandPosition::Running => {
                self.step(MachineEvent::Cancel(command), at, effects);
                Ok(())
            }
            CommandPosition::Absent => Err(self.missing(command)),
        }
    }

    /// Drops a command that is still queued. A running command continues.
    pub fn withdraw(
        &mut self,
        command: &str,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplyCode> {
        match self.machine.position_of(command) {
            CommandPosition::Queued => {
                self.step(MachineEvent::Withdraw(command), at, effects);
                Ok(())
            }
            CommandPosition::Running => Err(ReplyCode::StillRunning),
            CommandPosition::Absent => Err(self.missing(command)),
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
        if self.machine.position_of(command) != CommandPosition::Running {
            return Err(self.missing(command));
        }
        self.check_begun(at, effects);
        self.step(MachineEvent::Signal(signal), at, effects);
        Ok(())
    }

    /// Writes to the standard input of a command, if it is open.
    pub fn stdin(
        &mut self,
        command: &str,
        write_id: &str,
        data: &[u8],
        end: StdinEnd,
        at: At,
    ) -> Result<(), ReplyCode> {
        let commands = &mut self.executor.streams.commands;
        let found = commands.get_mut(command).ok_or(ReplyCode::NoSuchCommand)?;
        found.stdin.as_mut().ok_or(ReplyCode::CommandEnded)?.write(write_id, data, end)?;
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

    // The handover to another executable. It does not disturb the shell and its commands, because their
    // FIFOs stay open.

    /// Returns whether the driver can be handed over. A driver in a transition cannot, for a short time.
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

    /// Returns the state that the next executable needs.
    pub fn image(&mut self, at: At) -> Image {
        self.executor.modes.restore(at.master);
        self.check_begun(at, &mut Vec::new());
        self.executor.release_held();
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

    fn check_begun(&mut self, at: At, effects: &mut Vec<Effect>) {
        if self.machine.awaits_begun() && self.executor.has_begun() {
            self.step(MachineEvent::Begun, at, effects);
        }
    }

    /// Applies an event to the machine, and has the executor carry out the actions. An answer is passed
    /// to the machine before the next action is carried out.
    fn step(&mut self, event: MachineEvent<'_>, at: At, effects: &mut Vec<Effect>) {
        for action in self.machine.step(at.now, event) {
            if let Some(answer) = self.executor.perform(action, &self.machine, at, effects) {
                self.step(answer, at, effects);
            }
        }
    }
}
