//! Starting a run, serving it, and completing it.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Executor, LiveRun};
use crate::effect::{DriverEvent, Effect};
use crate::machine::{Completion, Job, Machine, Run, SnapshotAge, StateSource};
use crate::output::Output;
use crate::procs::ForkMoment;
use crate::prompt;
use crate::run_files::{Mode, RunFiles};
use crate::snapshot::shows_in_prompt;
use crate::spec::{At, Spec};
use crate::state::Changes;
use crate::stdin::StdinPipe;
use crate::streams::FinishedCommand;
use wire::{Phase, StdinMode};

impl Executor {
    /// Writes the files of a run and types the key. Returns whether the run is harmless.
    pub(super) fn start(
        &mut self,
        run: &Run,
        snapshot: SnapshotAge,
        key: usize,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> io::Result<bool> {
        self.dump.discard();
        let mut live = LiveRun::new(run.job.command().map(str::to_owned), ForkMoment::now());
        let mut harmless = false;
        match &run.job {
            Job::Command { spec, .. } => {
                let pid = self.shell.pid;
                harmless = snapshot == SnapshotAge::Current
                    && key == 0
                    && self.snapshot.is_harmless(spec, pid);
                self.open_streams(spec, at)?;
                self.began.write_all_at(spec.command.as_bytes(), 0)?;
            }
            Job::Script { script, .. } => {
                live.discarded = Some(self.streams.pair(&self.paths)?);
                self.paths.write("command", script)?;
            }
            Job::Capture | Job::Reread { .. } => {}
        }
        self.live = Some(live);
        self.paths.remove("begun");
        let mode = if harmless { Mode::Harmless } else { Mode::Full };
        let typed = self.write_drive(run, key, mode)?;
        self.modes.begin_run(at.master);
        effects.push(Effect::Type(typed));
        if let Job::Command { spec, attempt: 1 } = &run.job {
            let command = spec.command.clone();
            effects.push(Effect::Emit(DriverEvent::Started { command }));
        }
        Ok(harmless)
    }

    fn open_streams(&mut self, spec: &Spec, at: At) -> io::Result<()> {
        let pipes = self.streams.pair(&self.paths)?;
        let stdin = match spec.stdin {
            StdinMode::Null | StdinMode::Other(_) => None,
            StdinMode::Given => {
                self.paths.write("stdin", &spec.stdin_data)?;
                None
            }
            StdinMode::Open => {
                let path = self.paths.run.join(format!("i.{}", spec.command));
                Some(StdinPipe::create(path, &spec.stdin_data)?)
            }
        };
        if let Some(command) = self.streams.commands.get_mut(&spec.command) {
            command.pipes = pipes.map(Some);
            command.stdin = stdin;
            command.phase = Phase::Running;
            command.started = Some(at.now);
            command.started_ms = now_ms();
        }
        self.streams.watch(&spec.command)
    }

    /// Writes the drive file. Returns the bytes to type for it.
    pub(super) fn write_drive(&self, run: &Run, key: usize, mode: Mode) -> io::Result<Vec<u8>> {
        let live = self.live.as_ref();
        let files = RunFiles {
            kind: self.setup.kind,
            paths: &self.paths,
            snapshot: &self.snapshot,
            command: run.job.command().and_then(|id| self.streams.commands.get(id)),
            discarded: live.and_then(|live| live.discarded.as_ref()),
        };
        files.write(run, key, mode)
    }

    /// Serves a long-running command: sets the terminal's modes, moves its output to disk, reports whether
    /// it waits for input, and feeds its standard input.
    pub(super) fn attend(&mut self, machine: &Machine, at: At, effects: &mut Vec<Effect>) {
        let Some(id) = self.live.as_ref().and_then(|live| live.command.clone()) else { return };
        self.modes.cook_once(self.shell.pid, at.master);
        let waiting = prompt::foreground_reads(at.master);
        if let Some(command) = self.streams.commands.get_mut(&id) {
            // The output of a long command survives if this process is killed.
            command.outputs.iter_mut().for_each(Output::persist);
            if command.waiting != waiting {
                command.waiting = waiting;
                effects.push(Effect::Emit(DriverEvent::Waiting { command: id.clone(), waiting }));
            }
        }
        self.feed(&id, machine, at);
    }

    pub(super) fn take_dump(&mut self) -> Changes {
        let dump = self.dump.take(&self.streams.epoll);
        self.snapshot.take(dump, self.shell.pid, &self.paths)
    }

    /// Reads the state after a run, and reports its end. Returns whether the prompt may show a change.
    pub(super) fn complete(&mut self, completion: Completion, effects: &mut Vec<Effect>) -> bool {
        let live = self.live.take();
        let Completion { job, end, status, started, ended, source } = completion;
        if let Some(status) = status {
            self.snapshot.status = status;
        }
        let changes = match source {
            StateSource::Dump => self.take_dump(),
            StateSource::Harmless => self.snapshot.take_limits(self.shell.pid),
            StateSource::ShellGone => self.snapshot.take_status(),
        };
        let shell_restarted = source == StateSource::ShellGone;
        let prompt_changed = shows_in_prompt(&changes);
        match job {
            Job::Command { spec, .. } => {
                if let Some(live) = live {
                    effects.push(Effect::Show(live.copy.end()));
                }
                let duration = ended.saturating_duration_since(started);
                let finished = FinishedCommand { end, duration, shell_restarted, changes };
                self.streams.finish(&spec.command, finished, effects);
            }
            Job::Reread { command, started: command_started, end } => {
                // The end of the command itself, even if its state could not be read.
                let duration = started.saturating_duration_since(command_started);
                let finished = FinishedCommand { end, duration, shell_restarted, changes };
                self.streams.finish(&command, finished, effects);
            }
            Job::Script { token, .. } => {
                // The change comes first: who reads the reply has received what the script changed.
                effects.push(Effect::Emit(DriverEvent::StateChanged { changes }));
                let exit_code = end.exit_code;
                effects.push(Effect::Emit(DriverEvent::Applied { token, exit_code }));
            }
            Job::Capture => {}
        }
        prompt_changed
    }
}

/// The wall clock in milliseconds since 1970, as the wire protocol has it.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
