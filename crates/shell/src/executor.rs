//! Carries out a machine's actions on the shell, its terminal, its files and its processes.
//!
//! It decides nothing: every choice that depends on more than one fact is the machine's.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use rustix::termios::tcgetwinsize;

use super::dump::{DumpReader, Wakes};
use super::effect::{Effect, Happened, Launch};
use super::files::private_dir;
use super::launch::{self, Attempt};
use super::limits;
use super::machine::{
    Action, Answer, Completion, Job, Look, Machine, MachineEvent, PromptProbe, Replacement, Run,
    RunProbe, StateSource,
};
use super::modes::TtyModes;
use super::output::Output;
use super::paths::Paths;
use super::pipes::Pipe;
use super::procs::{self, Family, ForkMoment};
use super::run_files::{Mode, RunFiles};
use super::screen::{self, ScreenCopy};
use super::snapshot::{ShellSnapshot, shows_in_prompt};
use super::spec::{At, Setup, Spec};
use super::state::{Changes, State};
use super::stdin::StdinPipe;
use super::streams::Streams;
use super::sweep::{self, Sweep};
use super::{bash, prompt};
use wire::{Phase, StdinMode};

/// The file in a terminal's directory that names the last command a host began. A command that is
/// not named there when its host is gone has never run.
pub const BEGAN: &str = "began";

/// Everything outside of the machine that belongs to one terminal's shells.
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
    /// Names the last command that was begun, for a server that finds this host gone.
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

/// What belongs to one run.
#[derive(Debug)]
pub struct LiveRun {
    command: Option<String>,
    /// When the run began: its processes were born after it.
    pub moment: ForkMoment,
    copy: ScreenCopy,
    /// Output is copied to the screen.
    copies: bool,
    sweep: Sweep,
    /// The FIFOs for the output of a script, which is not read.
    unread: Option<[Pipe; 2]>,
}

impl LiveRun {
    pub fn new(command: Option<String>, moment: ForkMoment) -> Self {
        let (copy, sweep) = (ScreenCopy::default(), Sweep::default());
        Self { command, moment, copy, copies: true, sweep, unread: None }
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

    /// Combines the parts. The shell is unknown yet.
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
            modes: TtyModes::new(setup.kind.edits_lines()),
            shell: ShellProcess::default(),
            live: None,
            setup,
            paths,
            streams,
            dump,
            began,
        })
    }

    /// Takes note of the shell that was started.
    pub fn launched(&mut self, pid: i32) {
        self.shell.pid = pid;
        self.shell.session = procs::Process::read(pid).map_or(pid, |shell| shell.session);
        limits::apply(pid, self.snapshot.state.get("limits"));
    }

    /// Takes note that the shell is gone.
    pub fn exited(&mut self, effects: &mut Vec<Effect>) {
        self.shell.pid = 0;
        // A key that this shell did not read must not run the file in the next one.
        self.paths.remove("drive");
        self.drain(effects);
    }

    /// Returns whether the shell waits for its next command, and no half-typed line would mix with
    /// what we type.
    pub fn prompt_shown(&self, machine: &Machine, at: At) -> bool {
        if self.setup.kind.edits_lines() {
            prompt::at_prompt(self.shell.pid, at.master)
        } else {
            !machine.has_half_typed() && prompt::at_plain_prompt(self.shell.pid, at.master)
        }
    }

    /// Returns whether the drive file has begun. If its whole directory is gone then the command
    /// removed it: what may have begun is never taken for not begun.
    pub fn has_begun(&self) -> bool {
        self.paths.run.join("begun").exists() || !self.paths.are_there()
    }

    /// Reads what the running command wrote, so that it comes before what follows.
    pub fn drain(&mut self, effects: &mut Vec<Effect>) {
        if let Some(live) = &mut self.live
            && let Some(command) = &live.command
        {
            self.streams.read(command, live.copies.then_some(&mut live.copy), effects);
        }
    }

    /// Reads what a command wrote, running or not.
    pub fn read_output(&mut self, command: &str, effects: &mut Vec<Effect>) {
        if self.live.as_ref().is_some_and(|live| live.command.as_deref() == Some(command)) {
            self.drain(effects);
        } else {
            self.streams.read(command, None, effects);
        }
        self.streams.seal(command, effects);
    }

    /// Writes the pending input of a command.
    pub fn feed(&mut self, command: &str, machine: &Machine, at: At) {
        let opened = machine.run().is_some_and(|run| run.has_opened_streams(at.now));
        self.streams.feed(command, opened);
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
            Action::ProbePrompt(look) => {
                return Some(MachineEvent::Answer(Answer::Prompt(
                    self.probe_prompt(look, machine, at),
                )));
            }
            Action::ProbeRedraw { stale } => {
                let state = &self.snapshot.state;
                let wanted = (stale || bash::shows_program_output(state))
                    && bash::can_redraw(state)
                    && self.prompt_shown(machine, at);
                return Some(MachineEvent::Answer(Answer::Redraw(wanted)));
            }
            Action::ProbeRun => {
                // In this order: a record that the shell left before is there to be found.
                let left = prompt::left_drive(self.shell.pid, self.setup.kind, at.master);
                let files = self.paths.are_there();
                let no_records = left && self.has_no_records();
                let probe = RunProbe { files, left, no_records };
                return Some(MachineEvent::Answer(Answer::Run(probe)));
            }
            Action::ProbeDump => {
                // In this order: a dump that the shell wrote before is there to be read.
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
            Action::Start { unchanged } => {
                let run = machine.run()?;
                let answer = match self.start(run, unchanged, machine.key(), at, effects) {
                    Ok(harmless) => Answer::Started { harmless },
                    Err(_) => Answer::NotStarted,
                };
                return Some(MachineEvent::Answer(answer));
            }
            Action::Retype => match self.write_drive(machine.run()?, machine.key(), Mode::Once) {
                Ok(key) => effects.push(Effect::Type(key)),
                Err(_) => return Some(MachineEvent::Answer(Answer::NotRetyped)),
            },
            Action::Sweep { kill } => {
                let live = self.live.as_mut()?;
                let family = family(&self.setup, self.shell, live.moment);
                return Some(MachineEvent::Answer(Answer::Swept(live.sweep.run(&family, kill))));
            }
            Action::Signal(signal) => {
                let live = self.live.as_ref()?;
                let family = family(&self.setup, self.shell, live.moment);
                if !sweep::signal(&family, &self.paths.run, signal, at.master) {
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
            Action::Drain => self.drain(effects),
            Action::Attend => self.attend(machine, at, effects),
            Action::EndCopy => {
                if let Some(live) = &self.live {
                    effects.push(Effect::Show(live.copy.end()));
                }
            }
            Action::TrimGoodbye => {
                // The line editor of a shell that exits sends the terminal an escape sequence on
                // standard error, wherever that goes.
                let command = self.live.as_ref().and_then(|live| live.command.as_ref());
                if let Some(command) = command.and_then(|id| self.streams.commands.get_mut(id)) {
                    command.outputs[1].remove_last(b"\x1b[?2004l\r");
                }
            }
            Action::Finish { command, end, duration } => {
                if self.live.as_ref().is_some_and(|live| live.command.as_ref() == Some(&command)) {
                    self.live = None;
                }
                self.streams.finish(&command, end, duration, false, Changes::default(), effects);
            }
            Action::ReportTyped { status, duration, hidden } => {
                self.live = None;
                self.snapshot.status = status;
                let dump = self.dump.take(&self.streams.epoll);
                let pid = self.shell.pid;
                let report = self.snapshot.take_typed(dump, pid, &self.paths, duration, hidden);
                effects.extend(report.map(Effect::Emit));
            }
            Action::TakeFirstDump => {
                let first = self.snapshot.state.is_empty();
                let changes = self.take_dump();
                if first || !changes.0.is_empty() {
                    effects.push(Effect::Emit(Happened::StateChanged { changes }));
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
            Action::Launch { failures, after_death } => match self.launch(failures, after_death) {
                Ok(launch) => self.announce(launch, failures, effects),
                Err(_) => return Some(MachineEvent::LaunchFailed),
            },
            Action::CloseStreams => self.streams.close_all(effects),
            Action::TypeRedraw => effects.push(Effect::Type(bash::REDRAW.to_vec())),
            Action::EndRedraw { drawn } => self.end_redraw(&drawn, at, effects),
            Action::Show(bytes) => effects.push(Effect::Show(bytes)),
            Action::Emit(happened) => effects.push(Effect::Emit(happened)),
        }
        None
    }

    fn probe_prompt(&self, look: Look, machine: &Machine, at: At) -> PromptProbe {
        let mut probe = PromptProbe { files: true, shown: false, unread: false };
        match look {
            Look::FilesOnly => {
                probe.files = self.paths.are_there();
                probe.shown = true;
                return probe;
            }
            Look::Unsettled | Look::Everything => {
                probe.files = self.paths.are_there();
                if probe.files && !machine.has_entered() {
                    self.modes.repair(self.shell.pid, at.master);
                }
            }
            Look::Passively => {}
        }
        if probe.files && look != Look::Unsettled {
            probe.shown = self.prompt_shown(machine, at);
            probe.unread = probe.shown && prompt::has_unread(at.master);
        }
        probe
    }

    /// Returns whether there is no record that was not read.
    fn has_no_records(&self) -> bool {
        fs::read_dir(self.paths.ctl_dir()).is_ok_and(|mut entries| entries.next().is_none())
    }

    /// Writes the files of a run and types the key. Returns whether the run leaves the state alone.
    fn start(
        &mut self,
        run: &Run,
        unchanged: bool,
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
                harmless = unchanged && key == 0 && self.snapshot.is_harmless(spec, pid);
                self.open_streams(spec, at)?;
                self.began.write_all_at(spec.command.as_bytes(), 0)?;
            }
            Job::Script { script, .. } => {
                live.unread = Some(self.streams.pair(&self.paths)?);
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
            effects.push(Effect::Emit(Happened::Started { command }));
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
    fn write_drive(&self, run: &Run, key: usize, mode: Mode) -> io::Result<Vec<u8>> {
        let live = self.live.as_ref();
        let files = RunFiles {
            kind: self.setup.kind,
            paths: &self.paths,
            snapshot: &self.snapshot,
            command: run.job.command().and_then(|id| self.streams.commands.get(id)),
            unread: live.and_then(|live| live.unread.as_ref()),
        };
        files.write(run, key, mode)
    }

    /// Serves a command that takes its time.
    fn attend(&mut self, machine: &Machine, at: At, effects: &mut Vec<Effect>) {
        let Some(id) = self.live.as_ref().and_then(|live| live.command.clone()) else { return };
        self.modes.cook_once(at.master);
        let waiting = prompt::foreground_reads(at.master);
        if let Some(command) = self.streams.commands.get_mut(&id) {
            // If this process is killed, the output of a long command is not lost.
            command.outputs.iter_mut().for_each(Output::persist);
            if command.waiting != waiting {
                command.waiting = waiting;
                effects.push(Effect::Emit(Happened::Waiting { command: id.clone(), waiting }));
            }
        }
        self.feed(&id, machine, at);
    }

    fn take_dump(&mut self) -> Changes {
        let dump = self.dump.take(&self.streams.epoll);
        self.snapshot.take(dump, self.shell.pid, &self.paths)
    }

    /// Takes over the state after a run, and reports its end. Returns whether the prompt may show a
    /// change.
    fn complete(&mut self, completion: Completion, effects: &mut Vec<Effect>) -> bool {
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
        let restarted = source == StateSource::ShellGone;
        let prompt_changed = shows_in_prompt(&changes);
        match job {
            Job::Command { spec, .. } => {
                if let Some(live) = live {
                    effects.push(Effect::Show(live.copy.end()));
                }
                let duration = ended.saturating_duration_since(started);
                self.streams.finish(&spec.command, end, duration, restarted, changes, effects);
            }
            Job::Reread { command, started: command_started, end } => {
                // The command's own end, whatever became of reading the state after it.
                let duration = started.saturating_duration_since(command_started);
                self.streams.finish(&command, end, duration, restarted, changes, effects);
            }
            Job::Script { token, .. } => {
                let exit_code = end.exit_code;
                effects.push(Effect::Emit(Happened::Applied { token, exit_code }));
                effects.push(Effect::Emit(Happened::StateChanged { changes }));
            }
            Job::Capture => {}
        }
        prompt_changed
    }

    /// Writes the files of the next shell, into a new directory if the old one was removed.
    pub fn launch(&mut self, failures: u32, after_death: bool) -> io::Result<Launch> {
        self.shell.generation += 1;
        if !self.paths.are_there() {
            let paths = create_paths(&self.setup)?;
            self.dump = DumpReader::create(&paths, &self.streams.epoll)?;
            self.paths = paths;
            self.streams.drop_spare();
        }
        self.dump.discard();
        self.dump.wake(Wakes::OnEveryWrite, &self.streams.epoll);
        let attempt = Attempt { failures, after_death, generation: self.shell.generation };
        launch::prepare(&self.setup, &self.paths, &self.snapshot.state, attempt)
    }

    /// Has the next shell started, and says on the screen what it lacks.
    fn announce(&self, launch: Launch, failures: u32, effects: &mut Vec<Effect>) {
        let state = &self.snapshot.state;
        if launch::is_bare(state, failures) {
            effects.push(Effect::Show(screen::BARE.to_vec()));
        }
        let (wanted, cwd) = (state.get("cwd"), launch.cwd.as_os_str().as_bytes());
        if !wanted.is_empty() && cwd != wanted {
            effects.push(Effect::Show(screen::moved(wanted, cwd)));
        }
        effects.push(Effect::Respawn(launch));
    }

    /// Takes the old prompt off the screen, and gives the line editor back what was half typed,
    /// before what was typed since.
    fn end_redraw(&self, drawn: &[u8], at: At, effects: &mut Vec<Effect>) {
        let columns = tcgetwinsize(at.master).map_or(80, |size| usize::from(size.ws_col));
        effects.push(Effect::Show(screen::without_old_prompt(drawn, columns)));
        let text = fs::read(self.paths.run.join("stash")).unwrap_or_default();
        let Some(script) = bash::unstash(&text) else { return };
        if self.paths.write("unstash", &script).is_ok() {
            effects.push(Effect::Type(bash::UNSTASH.to_vec()));
        }
    }
}

/// Creates new files to drive a shell by.
fn create_paths(setup: &Setup) -> io::Result<Paths> {
    let paths = Paths::fresh(setup)?;
    private_dir(&paths.ctl_dir())?;
    Ok(paths)
}

/// Returns the criteria for the processes of a run.
fn family(setup: &Setup, shell: ShellProcess, since: ForkMoment) -> Family<'_> {
    Family {
        shell: shell.pid,
        session: shell.session,
        terminal: &setup.terminal,
        cgroup: setup.cgroup.as_deref(),
        since,
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
