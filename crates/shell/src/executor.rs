//! Carries out a machine's actions on the shell, its terminal, its files and its processes.
//!
//! The executor decides nothing: the machine makes every choice that depends on more than one fact.

mod runs;
mod shells;

pub use runs::now_ms;

use std::fs;
use std::io;
use std::time::Instant;

use rustix::process::Signal;

use super::dump::{DumpReader, Wakes};
use super::effect::{DriverEvent, Effect};
use super::files::private_dir;
use super::limits;
use super::machine::{
    Action, Answer, Machine, MachineEvent, ProbeScope, PromptProbe, Replacement, RunProbe,
};
use super::modes::TtyModes;
use super::paths::Paths;
use super::pipes::Pipe;
use super::procs::{self, ForkMoment, ProcessFilter};
use super::run_files::Mode;
use super::screen::ScreenCopy;
use super::snapshot::ShellSnapshot;
use super::spec::{At, Setup};
use super::state::{Changes, State};
use super::streams::{FinishedCommand, Portion, Streams};
use super::sweep::{self, Sweep};
use super::{bash, prompt};
use wire::Phase;

/// The file in a terminal's directory with the id of the last command that a host began. If the host is
/// gone and the file does not contain the id of a command, that command never ran.
pub const BEGAN: &str = "began";

/// The resources of one terminal's shells.
#[derive(Debug)]
pub struct Executor {
    pub(super) setup: Setup,
    pub(super) paths: Paths,
    pub(super) streams: Streams,
    pub(super) dump: DumpReader,
    pub(super) snapshot: ShellSnapshot,
    pub(super) modes: TtyModes,
    pub(super) shell: ShellProcess,
    /// The run that the machine is in, or ending.
    pub(super) live: Option<LiveRun>,
    /// The host has read output of the terminal that is not in its log yet.
    pub(super) has_unlogged: bool,
    /// The open [`BEGAN`] file, which a server reads after this host is gone.
    began: fs::File,
}

/// The process of the shell; its id is 0 while there is none.
#[derive(Debug, Default, Clone, Copy)]
pub struct ShellProcess {
    pub pid: i32,
    pub session: i32,
    /// How many shells the terminal has had.
    pub generation: u32,
}

/// The resources of one run.
#[derive(Debug)]
pub struct LiveRun {
    command: Option<String>,
    /// When the run began: its processes were started later.
    pub moment: ForkMoment,
    copy: ScreenCopy,
    /// Output is copied to the screen.
    copies: bool,
    sweep: Sweep,
    /// The FIFOs for the output of a script, which is discarded.
    discarded: Option<[Pipe; 2]>,
}

impl LiveRun {
    pub fn new(command: Option<String>, moment: ForkMoment) -> Self {
        let (copy, sweep) = (ScreenCopy::default(), Sweep::default());
        Self { command, moment, copy, copies: true, sweep, discarded: None }
    }
}

impl Executor {
    /// Prepares everything for a first shell.
    pub fn create(setup: Setup, state: State) -> io::Result<Self> {
        let paths = create_paths(&setup)?;
        private_dir(&setup.dir.join("commands"))?;
        let streams = Streams::new(setup.dir.join("commands"))?;
        let dump = DumpReader::create(&paths, &streams.epoll)?;
        Self::assemble(setup, paths, state, streams, dump)
    }

    /// Creates an executor from its parts. It has no shell process yet.
    pub fn assemble(
        setup: Setup,
        paths: Paths,
        state: State,
        streams: Streams,
        dump: DumpReader,
    ) -> io::Result<Self> {
        let began = setup.dir.join(BEGAN);
        let began = fs::OpenOptions::new().write(true).create(true).truncate(false).open(began)?;
        Ok(Self {
            snapshot: ShellSnapshot::new(setup.kind, state),
            modes: TtyModes::new(setup.kind),
            shell: ShellProcess::default(),
            live: None,
            has_unlogged: false,
            setup,
            paths,
            streams,
            dump,
            began,
        })
    }

    /// Notes the shell that was started.
    pub fn launched(&mut self, pid: i32) {
        self.shell.pid = pid;
        self.shell.session = procs::Process::read(pid).map_or(pid, |shell| shell.session);
        limits::apply(pid, self.snapshot.state.get("limits"));
    }

    /// Notes that the shell has exited.
    pub fn exited(&mut self, effects: &mut Vec<Effect>) {
        self.shell.pid = 0;
        // A key that this shell did not read must not run the file in the next one.
        self.paths.remove("drive");
        self.drain(Portion::All, effects);
    }

    /// Returns whether the shell waits for its next command, and no half-typed line would be mixed with
    /// the typed key.
    pub fn prompt_shown(&self, machine: &Machine, at: At) -> bool {
        if self.setup.kind.edits_lines() {
            prompt::at_prompt(self.shell.pid, at.master)
        } else {
            !machine.has_half_typed() && prompt::at_plain_prompt(self.shell.pid, at.master)
        }
    }

    /// Returns whether the drive file may have begun. If the run directory is gone, the command deleted it,
    /// so it must have started.
    pub fn has_begun(&self) -> bool {
        self.paths.run.join("begun").exists() || !self.paths.exist()
    }

    /// Reads the output of the running command, so that it precedes all later output.
    pub fn drain(&mut self, portion: Portion, effects: &mut Vec<Effect>) {
        if let Some(live) = &mut self.live
            && let Some(command) = &live.command
        {
            let copy = live.copies.then_some(&mut live.copy);
            self.streams.read(command, portion, copy, effects);
        }
    }

    /// Returns until when output of the running command is held back.
    pub fn held_until(&self) -> Option<Instant> {
        let command = self.live.as_ref()?.command.as_ref()?;
        self.streams.commands.get(command)?.exit_sequence.due()
    }

    /// Releases output of the running command that is held back.
    pub fn release_held(&mut self) {
        if let Some(command) = self.live.as_ref().and_then(|live| live.command.as_ref())
            && let Some(command) = self.streams.commands.get_mut(command)
        {
            command.release_held();
        }
    }

    /// Reads the output of a command that may have ended.
    pub fn read_output(&mut self, command: &str, effects: &mut Vec<Effect>) {
        if self.live.as_ref().is_some_and(|live| live.command.as_deref() == Some(command)) {
            self.drain(Portion::Bounded, effects);
        } else {
            self.streams.read(command, Portion::Bounded, None, effects);
        }
        self.streams.seal(command, effects);
    }

    /// Writes the pending input of a command.
    pub fn feed(&mut self, command: &str, machine: &Machine, at: At) {
        self.streams.feed(command);
        if machine.run().is_some_and(|run| run.has_opened_streams(at.now)) {
            self.streams.close_stdin_if_done(command);
        }
    }

    /// Carries out an action. Returns the event that follows from it, if it is answered.
    pub fn perform(
        &mut self,
        action: Action,
        machine: &Machine,
        at: At,
        effects: &mut Vec<Effect>,
    ) -> Option<MachineEvent<'static>> {
        match action {
            Action::ProbePrompt(scope) => {
                return Some(MachineEvent::Answer(Answer::Prompt(
                    self.probe_prompt(scope, machine, at),
                )));
            }
            Action::ProbeRedraw { stale } => {
                let state = &self.snapshot.state;
                let wanted =
                    (stale || bash::shows_program_output(state)) && bash::can_redraw(state);
                let shown = wanted && self.prompt_shown(machine, at);
                return Some(MachineEvent::Answer(Answer::Redraw { wanted, shown }));
            }
            Action::ProbeRun => {
                // In this order: if the shell has left the drive file, its record already exists.
                let left = prompt::left_drive(self.shell.pid, self.setup.kind, at.master);
                let files = self.paths.exist();
                let no_records = left && self.has_no_records();
                let probe = RunProbe { files, left, no_records };
                return Some(MachineEvent::Answer(Answer::Run(probe)));
            }
            Action::ProbeDump => {
                // In this order: if the shell has left the drive file, its dump can already be read.
                let left = prompt::left_drive(self.shell.pid, self.setup.kind, at.master);
                let complete = self.dump.read();
                self.dump.wake(Wakes::OnEveryWrite, &self.streams.epoll);
                return Some(MachineEvent::Answer(Answer::Dump { complete, left }));
            }
            Action::WithdrawKey => {
                self.paths.remove("drive");
                let begun = self.has_begun();
                let at_prompt = self.prompt_shown(machine, at) && self.has_no_records();
                return Some(MachineEvent::Answer(Answer::KeyWithdrawn { begun, at_prompt }));
            }
            Action::Start { snapshot } => {
                let run = machine.run()?;
                let answer = match self.start(run, snapshot, machine.key(), at, effects) {
                    Ok(harmless) => Answer::Started { harmless },
                    Err(_) => Answer::NotStarted,
                };
                return Some(MachineEvent::Answer(answer));
            }
            Action::Retype => match self.write_drive(machine.run()?, machine.key(), Mode::Once) {
                Ok(key) => effects.push(Effect::Type(key)),
                Err(_) => return Some(MachineEvent::Answer(Answer::NotRetyped)),
            },
            Action::Sweep(signal) => {
                let live = self.live.as_mut()?;
                let filter = process_filter(&self.setup, self.shell, live.moment);
                return Some(MachineEvent::Answer(Answer::Swept(live.sweep.run(&filter, signal))));
            }
            Action::Signal(signal) => {
                let live = self.live.as_ref()?;
                let filter = process_filter(&self.setup, self.shell, live.moment);
                if !sweep::signal(&filter, &self.paths.run, signal, at.master) {
                    return Some(MachineEvent::Answer(Answer::NotSignalled(signal)));
                }
            }
            Action::ReadDump => {
                return Some(MachineEvent::DumpRead { complete: self.dump.read() });
            }
            Action::Complete(completion) => {
                let prompt_changed = self.complete(*completion, effects);
                return Some(MachineEvent::Answer(Answer::Completed { prompt_changed }));
            }
            Action::KillSwept => {
                if let Some(live) = &self.live {
                    live.sweep.kill_last();
                }
            }
            Action::StopShell => {
                procs::signal(self.shell.pid, Signal::STOP);
                if let Some(live) = &mut self.live {
                    live.copies = false;
                }
            }
            Action::KillShell => procs::signal(self.shell.pid, Signal::KILL),
            Action::SaveModes => self.modes.save(at.master),
            Action::RestoreModes => self.modes.restore(at.master),
            Action::RestoreEcho => self.modes.restore_echo(at.master),
            Action::Drain => self.drain(Portion::All, effects),
            Action::Attend => self.attend(machine, at, effects),
            Action::EndCopy => {
                if let Some(live) = &self.live {
                    effects.push(Effect::Show(live.copy.end()));
                }
            }
            Action::TrimExitSequence => {
                let command = self.live.as_ref().and_then(|live| live.command.as_ref());
                if let Some(command) = command.and_then(|id| self.streams.commands.get_mut(id)) {
                    let held = command.exit_sequence.remove();
                    command.outputs[1].append(&held);
                }
            }
            Action::Finish { command, end, duration } => {
                if self.live.as_ref().is_some_and(|live| live.command.as_ref() == Some(&command)) {
                    self.live = None;
                }
                let changes = Changes::default();
                let finished = FinishedCommand { end, duration, shell_restarted: false, changes };
                self.streams.finish(&command, finished, effects);
            }
            Action::ReportTyped { status, duration, history } => {
                self.live = None;
                self.snapshot.status = status;
                let dump = self.dump.take(&self.streams.epoll);
                let pid = self.shell.pid;
                let report = self.snapshot.take_typed(dump, pid, &self.paths, duration, history);
                effects.extend(report.map(Effect::Emit));
            }
            Action::TakeFirstDump => {
                let first = self.snapshot.state.is_empty();
                let changes = self.take_dump();
                if first || !changes.0.is_empty() {
                    effects.push(Effect::Emit(DriverEvent::StateChanged { changes }));
                }
            }
            Action::Requeue { command } => {
                self.live = None;
                if let Some(command) = self.streams.commands.get_mut(&command) {
                    command.pipes = [None, None];
                    command.stdin = None;
                    command.phase = Phase::Queued;
                }
            }
            Action::ForgetAutoExit => self.setup.kind.forget_auto_exit(&mut self.snapshot.state),
            Action::Reset(replacement) => {
                self.live = None;
                self.snapshot.reset();
                match replacement {
                    Some(Replacement::Same) => self.snapshot.replace(None),
                    Some(Replacement::With(state)) => self.snapshot.replace(Some(state)),
                    None => {}
                }
            }
            Action::Launch { failures, errexit } => match self.launch(failures, errexit) {
                Ok(launch) => self.announce(launch, failures, effects),
                Err(_) => return Some(MachineEvent::LaunchFailed),
            },
            Action::CloseStreams => self.streams.close_all(effects),
            Action::TypeRedraw => effects.push(Effect::Type(bash::REDRAW.to_vec())),
            Action::EndRedraw { withheld, drawn } => {
                self.end_redraw(withheld, &drawn, at, effects);
            }
            Action::Show(bytes) => effects.push(Effect::Show(bytes)),
            Action::Emit(event) => effects.push(Effect::Emit(event)),
        }
        None
    }

    fn probe_prompt(&self, scope: ProbeScope, machine: &Machine, at: At) -> PromptProbe {
        let mut probe = PromptProbe { files: true, shown: false, unread: false };
        match scope {
            ProbeScope::FilesOnly => {
                probe.files = self.paths.exist();
                probe.shown = true;
                return probe;
            }
            ProbeScope::Unsettled | ProbeScope::Full => {
                probe.files = self.paths.exist();
                if probe.files && !machine.has_entered() {
                    self.modes.repair(self.shell.pid, at.master);
                }
            }
            ProbeScope::ReadOnly => {}
        }
        if probe.files && scope != ProbeScope::Unsettled {
            probe.shown = self.prompt_shown(machine, at);
            probe.unread = probe.shown && (self.has_unlogged || prompt::has_unread(at.master));
        }
        probe
    }

    /// Returns whether there is no unread record.
    fn has_no_records(&self) -> bool {
        fs::read_dir(self.paths.ctl_dir()).is_ok_and(|mut entries| entries.next().is_none())
    }
}

/// Creates the run directory of a new shell.
fn create_paths(setup: &Setup) -> io::Result<Paths> {
    let paths = Paths::fresh(setup)?;
    private_dir(&paths.ctl_dir())?;
    Ok(paths)
}

/// Returns the criteria for the processes of a run.
fn process_filter(setup: &Setup, shell: ShellProcess, since: ForkMoment) -> ProcessFilter<'_> {
    ProcessFilter {
        shell: shell.pid,
        session: shell.session,
        terminal: &setup.terminal,
        cgroup: setup.cgroup.as_deref(),
        since,
    }
}
