//! What is asked of a driver: commands to run, scripts to apply, output and outcomes to tell.

use std::io;

use rustix::process::Signal;

use super::commands::Status;
use super::driver::{Driver, Phase};
use super::output::Piece;
use super::procs::{self};
use super::queue::Waiting;
use super::state::State;
use super::{At, Effect, QUEUE, Spec, prompt};
use crate::wire::{Code, CommandInfo, Event, IfBusy, Outcome, Phase as Progress};

/// What happened to a command, in the events that told of it.
#[derive(Debug, Default)]
pub struct SoFar {
    /// Its start.
    pub started: Option<Event>,
    /// What comes behind its output.
    pub ended: Vec<Event>,
}

impl Driver {
    /// The state as it was last told.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether a command would have to wait.
    pub fn busy(&self, at: At) -> bool {
        match &self.phase {
            Phase::Idle => {
                !self.queue.is_empty()
                    || self.person.entered.is_some() && !self.prompt_shown(at)
                    || !prompt::in_foreground(self.pid, at.master)
            }
            Phase::Starting { .. } | Phase::Refreshing(_) => !self.queue.is_empty(),
            Phase::Absent | Phase::Running(_) | Phase::Ending(_) => true,
            Phase::Over => false,
        }
    }

    /// Takes a command in; it starts when the shell is free.
    pub fn exec(&mut self, spec: Spec, at: At, effects: &mut Vec<Effect>) -> Result<(), Code> {
        if matches!(self.phase, Phase::Over) {
            return Err(Code::NotDrivable);
        }
        if spec.env.iter().any(|(name, value)| !super::quote::is_name(name) || value.contains(&0))
            || spec.text.contains(&0)
        {
            return Err(Code::BadRequest);
        }
        if self.queue.len() >= QUEUE {
            return Err(Code::QueueFull);
        }
        if spec.if_busy == IfBusy::Fail && self.busy(at) {
            return Err(Code::Busy);
        }
        if !self.commands.add(&spec.command, spec.keep) {
            return Err(Code::CommandExists);
        }
        let until = spec.timeout.map(|timeout| at.now + timeout);
        self.queue.push_back(Waiting::Command { spec: Box::new(spec), until });
        self.advance(at, effects);
        Ok(())
    }

    /// Runs a script quietly when the shell is free; `token` comes back with its end.
    pub fn apply(
        &mut self,
        token: u64,
        script: Vec<u8>,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Code> {
        if matches!(self.phase, Phase::Over) {
            return Err(Code::NotDrivable);
        }
        if self.queue.len() >= QUEUE {
            return Err(Code::QueueFull);
        }
        self.queue.push_back(Waiting::Quiet { token, script });
        self.advance(at, effects);
        Ok(())
    }

    /// Replaces the shell by one with this state.
    pub fn replace(&mut self, state: State) {
        self.replacement = Some(state);
        match &self.phase {
            Phase::Running(_) => self.end_running((Outcome::Cancelled, None, None)),
            Phase::Starting { .. } | Phase::Idle | Phase::Refreshing(_) => {
                procs::signal(self.pid, Signal::KILL);
            }
            Phase::Absent | Phase::Ending(_) | Phase::Over => {}
        }
    }

    /// A stretch of a command's output; `None` when there is no such command. The flag tells that
    /// nothing will ever come behind it.
    pub fn read(
        &self,
        command: &str,
        stream: usize,
        from: u64,
        limit: usize,
    ) -> Option<io::Result<(Piece, bool)>> {
        let output = self.commands.output(command, stream)?;
        let sealed = self.commands.get(command).is_none_or(|found| found.phase == Progress::Sealed);
        Some(output.read(from, limit).map(|piece| {
            let end = sealed && piece.next == output.written();
            (piece, end)
        }))
    }

    /// How far a command is, and what it wrote.
    pub fn progress(&self, command: &str) -> Option<(Progress, u64, u64)> {
        let found = self.commands.get(command)?;
        Some((found.phase, found.outputs[0].written(), found.outputs[1].written()))
    }

    /// The ids of the commands that were not forgotten.
    pub fn remembered(&self) -> impl Iterator<Item = &String> {
        self.commands.ids()
    }

    /// The commands that were not forgotten.
    pub fn list(&self) -> Vec<CommandInfo> {
        let mut ids: Vec<&String> = self.commands.ids().collect();
        ids.sort();
        ids.into_iter()
            .filter_map(|id| {
                let (phase, stdout_bytes, stderr_bytes) = self.progress(id)?;
                Some(CommandInfo { command: id.clone(), phase, stdout_bytes, stderr_bytes })
            })
            .collect()
    }

    /// What has happened to a command, as it was told.
    pub fn so_far(&self, command: &str, terminal: String, offset: u64) -> SoFar {
        let mut told = SoFar::default();
        let Some(found) = self.commands.get(command) else { return told };
        if found.started.is_some() {
            let (command, terminal) = (command.to_owned(), terminal.clone());
            told.started =
                Some(Event::Started { command, terminal, offset, time_ms: found.started_ms });
        }
        if found.waiting {
            told.ended.push(Event::Waiting { command: command.to_owned(), waiting: true });
        }
        if let Some(status) = &found.status {
            told.ended.push(status.clone().event(command.to_owned(), terminal, offset));
        }
        if found.phase == Progress::Sealed {
            told.ended.push(Event::Sealed {
                command: command.to_owned(),
                stdout_bytes: found.outputs[0].written(),
                stderr_bytes: found.outputs[1].written(),
            });
        }
        told
    }

    /// How a command ended, when it has; and whether it waits for input.
    pub fn outcome(&self, command: &str) -> Option<(Option<&Status>, bool)> {
        let found = self.commands.get(command)?;
        Some((found.status.as_ref(), found.waiting))
    }

    /// Whether anything is known of a command.
    pub fn knows(&self, command: &str) -> bool {
        self.commands.get(command).is_some() || self.commands.is_settled(command)
    }

    /// Drops a command from memory; what it wrote stays on disk for a while.
    pub fn forget(&mut self, command: &str) -> bool {
        self.commands.forget(command)
    }
}
