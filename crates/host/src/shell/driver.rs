//! The state machine between one shell and the host's loop.
//!
//! ```text
//!            launched          rc record + dump          prompt seen
//!  (no shell) ─────▶ Starting ────────────────▶ Idle ────────────────▶ Running
//!      ▲                                          ▲  status record + dump │
//!      │ exited                                   └───────────────────────┤
//!      └──────────────────────────── Ending ◀── time-out, cancel, no dump ┘
//! ```

use std::collections::VecDeque;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::Signal;
use rustix::termios::{Termios, tcgetattr};

use super::commands::{Commands, Status};
use super::dialect::{Drive, Launch, Paths};
use super::ending::Ending;
use super::output::Piece;
use super::pipes::{Pipe, Read, write_fresh};
use super::procs::{self, Moment};
use super::screen::Prompt;
use super::state::{Changes, State};
use super::{At, Effect, End, Happened, QUEUE, Setup, Spec, prompt, screen};
use crate::wire::{Code, CommandInfo, Event, IfBusy, Outcome, Phase as Progress, StdinMode};

/// After typed input the line discipline may still hold bytes the shell has not seen.
const SETTLE: Duration = Duration::from_millis(20);
/// A key that was typed starts the drive file within this, or it was lost.
const CONFIRM: Duration = Duration::from_millis(300);
/// A state that is not told within this never will be.
const DUMP: Duration = Duration::from_secs(10);
/// A shell that is not at its prompt after this will never be ours to drive.
const START: Duration = Duration::from_secs(30);
/// How long a command runs before its terminal is made ready for a person's input.
const SLOW: Duration = Duration::from_millis(30);
/// How much of one stream is read before others get their turn.
const TURN: usize = 2 << 20;
/// The token of the state FIFO in the driver's own epoll; a command's are `4 * index` and on.
const STATE: u64 = 0;
/// Added to a command's first token: its standard input.
const STDIN: u64 = 2;

/// Drives one shell.
#[derive(Debug)]
pub struct Driver {
    pub(super) setup: Setup,
    pub(super) paths: Paths,
    epoll: OwnedFd,
    pub(super) state_pipe: Pipe,
    pub(super) dump: Vec<u8>,
    dumped: bool,
    pub(super) phase: Phase,
    pub(super) pid: i32,
    pub(super) session: i32,
    pub(super) generation: u32,
    failures: u32,
    pub(super) number: u64,
    pub(super) state: State,
    seen: Option<u64>,
    hasher: std::hash::RandomState,
    pub(super) status: i32,
    pub(super) key: usize,
    pub(super) queue: VecDeque<Waiting>,
    pub(super) commands: Commands,
    spare: Option<[Pipe; 2]>,
    pub(super) pipe_number: u64,
    /// The shell is known to be at its prompt, and nobody typed since.
    at_prompt: bool,
    person: Person,
    poll: Poll,
    prompt: Prompt,
    /// A stream had more than its turn.
    more: bool,
    buffer: Vec<u8>,
    pub(super) history: Option<Vec<u8>>,
    replacement: Option<State>,
    /// The terminal's modes while the line editor reads.
    raw: Option<Termios>,
}

/// What happened to a command, in the events that told of it.
#[derive(Debug, Default)]
pub struct SoFar {
    /// Its start.
    pub started: Option<Event>,
    /// What comes behind its output.
    pub ended: Vec<Event>,
}

/// What a person did at the keyboard.
#[derive(Debug, Default)]
struct Person {
    typed: Option<Instant>,
    /// A command of theirs may have run since the state was last read.
    entered: Option<Instant>,
    half_typed: bool,
}

/// When to look again whether the shell is at its prompt.
#[derive(Debug, Default)]
struct Poll {
    at: Option<Instant>,
    step: Duration,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// No shell.
    Absent,
    Starting {
        since: Instant,
        ready: bool,
    },
    Idle,
    Running(Box<Run>),
    Ending(Box<Ending>),
    /// No shell can be started any more.
    Over,
}

#[derive(Debug)]
pub(super) enum Waiting {
    Command { spec: Box<Spec>, until: Option<Instant> },
    Quiet { token: u64, script: Vec<u8> },
}

#[derive(Debug)]
pub(super) enum Job {
    Command {
        id: String,
        spec: Box<Spec>,
    },
    /// Reads the state after a person's command.
    Capture,
    /// Reads the state after a command that was interrupted.
    Reread {
        id: String,
        started: Instant,
        end: End,
    },
    Quiet {
        token: u64,
        pipes: [Pipe; 2],
    },
}

#[derive(Debug)]
pub(super) struct Run {
    pub number: u64,
    pub job: Job,
    pub started: Instant,
    pub moment: Moment,
    typed: Instant,
    pub begun: bool,
    retyped: usize,
    pub status: Option<i32>,
    pub ended: Option<Instant>,
    deadline: Option<Instant>,
    pub check: Instant,
    step: Duration,
    pub cooked: bool,
    copy: screen::Copy,
    touched: bool,
    /// To be sent when it has begun.
    pub signal: Option<Signal>,
}

impl Driver {
    /// A driver for a shell that is to be started as the [`Launch`] says.
    pub fn new(setup: Setup, state: State) -> io::Result<(Self, Launch)> {
        let paths = Paths::of(&setup);
        if paths.run.exists() {
            fs::remove_dir_all(&paths.run)?;
        }
        private_dir(&paths.run)?;
        private_dir(&paths.ctl_dir())?;
        private_dir(&setup.dir.join("commands"))?;
        let state_pipe = Pipe::make(PathBuf::from(std::ffi::OsStr::from_bytes(&paths.state())))?;
        let mut driver = Self::make(setup, state, state_pipe)?;
        driver.status = driver.restored_status();
        let launch = driver.launch(false)?;
        Ok((driver, launch))
    }

    /// A driver for a shell that another executable of this host started.
    pub(super) fn adopted(setup: Setup, state: State, state_pipe: OwnedFd) -> io::Result<Self> {
        let paths = Paths::of(&setup);
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&paths.state()));
        Self::make(setup, state, Pipe::adopt(path, state_pipe))
    }

    fn make(setup: Setup, state: State, state_pipe: Pipe) -> io::Result<Self> {
        let paths = Paths::of(&setup);
        let commands = Commands::new(setup.dir.join("commands"));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &state_pipe, STATE)?;
        Ok(Self {
            setup,
            paths,
            epoll,
            state_pipe,
            dump: Vec::new(),
            dumped: false,
            phase: Phase::Absent,
            pid: 0,
            session: 0,
            generation: 0,
            failures: 0,
            number: 0,
            state,
            seen: None,
            hasher: std::hash::RandomState::new(),
            status: 0,
            key: 0,
            queue: VecDeque::new(),
            commands,
            spare: None,
            pipe_number: 0,
            at_prompt: false,
            person: Person::default(),
            poll: Poll::default(),
            prompt: Prompt::default(),
            more: false,
            buffer: Vec::new(),
            history: None,
            replacement: None,
            raw: None,
        })
    }

    /// Becomes readable when [`ready`](Self::ready) has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The records that are there and were not given to [`ctl`](Self::ctl).
    pub fn records(&self) -> Vec<String> {
        let entries = fs::read_dir(self.paths.ctl_dir());
        entries.map_or(Vec::new(), |entries| {
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
    }

    /// Where files appear whose names are to be given to [`ctl`](Self::ctl).
    pub fn ctl_dir(&self) -> PathBuf {
        self.paths.ctl_dir()
    }

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
            Phase::Starting { .. } => !self.queue.is_empty(),
            Phase::Absent | Phase::Running(_) | Phase::Ending(_) => true,
            Phase::Over => false,
        }
    }

    /// The shell was started.
    pub fn launched(&mut self, pid: i32, now: Instant) {
        self.pid = pid;
        self.session = procs::Process::read(pid).map_or(pid, |shell| shell.session);
        self.phase = Phase::Starting { since: now, ready: false };
        super::ending::apply_limits(pid, self.state.get("limits"));
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

    /// No shell could be started where [`Effect::Respawn`] asked for one.
    pub fn abandon(&mut self, effects: &mut Vec<Effect>) {
        self.give_up(effects);
    }

    /// A person's bytes are about to be typed.
    pub fn typed(&mut self, bytes: &[u8], at: At) {
        let Some(last) = bytes.last() else { return };
        self.at_prompt = false;
        self.person.typed = Some(at.now);
        if bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 3 | 4 | 15)) {
            self.person.entered.get_or_insert(at.now);
        }
        self.person.half_typed = !matches!(last, b'\r' | b'\n' | 3 | 21);
        if let Phase::Running(run) = &mut self.phase {
            run.touched = true;
        }
        self.poll_soon(at.now + SETTLE);
    }

    /// The terminal printed something, which is not yet in its log.
    pub fn output(&mut self, bytes: &[u8], at: At, effects: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Running(run) => {
                run.check = run.check.min(at.now + Duration::from_millis(2));
                // What the command wrote before its shell printed this comes before it.
                self.drain(effects);
            }
            Phase::Idle if self.at_prompt || self.person.typed.is_none() => self.prompt.see(bytes),
            Phase::Idle if self.person.entered.is_some() => {
                let soon = self.person.typed.map_or(at.now, |typed| typed + SETTLE).max(at.now);
                self.poll_soon(soon + Duration::from_millis(2));
            }
            Phase::Idle
            | Phase::Absent
            | Phase::Starting { .. }
            | Phase::Ending(_)
            | Phase::Over => {}
        }
    }

    /// A file appeared in [`ctl_dir`](Self::ctl_dir).
    pub fn ctl(&mut self, name: &str, at: At, effects: &mut Vec<Effect>) {
        let _ = fs::remove_file(self.paths.ctl_dir().join(name));
        if let Some(generation) = name.strip_prefix('r') {
            if generation == self.generation.to_string()
                && let Phase::Starting { ready, .. } = &mut self.phase
            {
                *ready = true;
                self.read_state();
                self.started(at, effects);
            }
            return;
        }
        let Some((number, what)) = name.split_once('.') else { return };
        let Phase::Running(run) = &mut self.phase else { return };
        if number != run.number.to_string() {
            return;
        }
        run.begun = true;
        if !self.setup.kind.edits_lines() {
            super::ending::cook_modes(at.master);
        }
        if run.signal.is_some() {
            run.check = at.now;
        }
        if let Ok(status) = what.parse::<i32>() {
            run.status = Some(status);
            run.ended = Some(at.now);
            run.step = Duration::from_millis(5);
            run.check = at.now + run.step;
            self.uncook(at);
            self.read_state();
            self.try_finish(at, effects);
        }
    }

    /// Something happened on [`fd`](Self::fd).
    pub fn ready(&mut self, at: At, effects: &mut Vec<Effect>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        for event in &events[..count] {
            let token = event.data.u64();
            if token == STATE {
                self.read_state();
            } else if token % 4 == STDIN {
                if let Some(id) = self.commands.id(token / 4).cloned() {
                    self.feed(&id, at.now);
                }
            } else {
                self.read_stream(token, effects);
            }
        }
        match self.phase {
            Phase::Starting { .. } => self.started(at, effects),
            Phase::Running(_) => self.try_finish(at, effects),
            Phase::Absent | Phase::Idle | Phase::Ending(_) | Phase::Over => {}
        }
    }

    /// When [`tick`](Self::tick) wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            Phase::Starting { since, .. } => Some(*since + START),
            Phase::Running(run) => Some(run.next()),
            Phase::Ending(ending) => Some(ending.next()),
            Phase::Absent | Phase::Idle | Phase::Over => None,
        };
        let queued = self.queue.iter().filter_map(|waiting| match waiting {
            Waiting::Command { until, .. } => *until,
            Waiting::Quiet { .. } => None,
        });
        let poll = match self.phase {
            Phase::Starting { ready: true, .. } | Phase::Idle => self.poll.at,
            Phase::Starting { .. }
            | Phase::Absent
            | Phase::Running(_)
            | Phase::Ending(_)
            | Phase::Over => None,
        };
        let more = self.more.then(Instant::now);
        own.into_iter().chain(queued).chain(poll).chain(more).min()
    }

    /// Does what is due.
    pub fn tick(&mut self, at: At, effects: &mut Vec<Effect>) {
        if self.more {
            self.more = false;
            self.drain(effects);
        }
        self.expire_queued(at, effects);
        match &mut self.phase {
            Phase::Starting { since, .. } if at.now >= *since + START => {
                // The rc file hangs, or became another program.
                procs::signal(self.pid, Signal::KILL);
                *since = at.now;
            }
            Phase::Starting { .. } | Phase::Idle => {
                if self.poll.at.is_some_and(|due| due <= at.now) {
                    self.poll.at = None;
                    self.advance(at, effects);
                }
            }
            Phase::Running(_) => self.tick_run(at, effects),
            Phase::Ending(_) => self.tick_ending(at),
            Phase::Absent | Phase::Over => {}
        }
    }

    /// The shell ended: its exit code, or the signal that ended it.
    pub fn exited(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        at: At,
        effects: &mut Vec<Effect>,
    ) {
        self.pid = 0;
        self.at_prompt = false;
        // A key that this shell did not take must not run it in the next one.
        let _ = fs::remove_file(Path::new(std::ffi::OsStr::from_bytes(&self.paths.drive())));
        self.drain(effects);
        let status = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let mut died = false;
        match std::mem::replace(&mut self.phase, Phase::Absent) {
            Phase::Running(mut run) => {
                died = true;
                // The line editor of a shell that ends says goodbye to the terminal on standard
                // error, wherever that goes.
                if let Some(command) = run.job.command().and_then(|id| self.commands.get_mut(id)) {
                    command.outputs[1].remove_last(b"\x1b[?2004l\r");
                }
                let status = run.status.unwrap_or(status);
                let signal = if run.status.is_some() { None } else { signal };
                run.ended.get_or_insert(at.now);
                self.end_job(*run, (Outcome::Finished, Some(status), signal), effects);
                self.status = status;
            }
            Phase::Ending(ending) => {
                let (run, end) = ending.into_parts();
                self.ended_early(run, end, effects);
            }
            Phase::Starting { .. } => self.failures += 1,
            Phase::Idle => effects.push(Effect::Show(b"\r\n".to_vec())),
            Phase::Absent | Phase::Over => {}
        }
        self.person = Person::default();
        if let Some(state) = self.replacement.take() {
            self.state = state;
            self.status = self.restored_status();
        }
        self.seen = None;
        match self.failures {
            0..=3 => match self.launch(died) {
                Ok(launch) => effects.push(Effect::Respawn(launch)),
                Err(_) => self.give_up(effects),
            },
            _ => self.give_up(effects),
        }
    }

    /// A run was ended and its shell with it. A command that never began because its shell could not
    /// be driven is given another, which gets less of the state.
    fn ended_early(&mut self, run: Run, end: End, effects: &mut Vec<Effect>) {
        let again = end.0 == Outcome::NotStarted
            && run
                .job
                .command()
                .and_then(|id| self.commands.get(id))
                .is_some_and(|command| command.attempts < 2);
        match run.job {
            Job::Command { id, spec } if again => {
                self.failures = 1;
                if let Some(command) = self.commands.get_mut(&id) {
                    command.pipes = [None, None];
                    command.stdin = None;
                    command.phase = Progress::Queued;
                }
                self.queue.push_front(Waiting::Command { spec, until: run.deadline });
            }
            _ => self.end_job(run, end, effects),
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

    /// How a command ended, when it has; and whether it waits for input.
    pub fn outcome(&self, command: &str) -> Option<(Option<&Status>, bool)> {
        let found = self.commands.get(command)?;
        Some((found.status.as_ref(), found.waiting))
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

    /// Whether anything is known of a command.
    pub fn knows(&self, command: &str) -> bool {
        self.commands.get(command).is_some() || self.commands.is_settled(command)
    }

    /// Drops a command from memory; what it wrote stays on disk for a while.
    pub fn forget(&mut self, command: &str) -> bool {
        self.commands.forget(command)
    }

    // ---- starting a shell ----

    fn restored_status(&self) -> i32 {
        std::str::from_utf8(self.state.get("status"))
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// Writes the rc file of the next shell. After failures less and less is restored, so that a
    /// state that breaks the shell cannot break it for ever.
    fn launch(&mut self, after_death: bool) -> io::Result<Launch> {
        self.generation += 1;
        self.dump.clear();
        self.dumped = false;
        let ready = format!("r{}", self.generation);
        let restoring = !self.state.is_empty() && self.failures < 3;
        let cwd =
            if restoring { nearest(&self.state, &self.setup.cwd) } else { self.setup.cwd.clone() };
        let restore = restoring.then(|| {
            let mut state = self.state.clone();
            if self.failures > 0 {
                for section in ["traps", "set", "complete", "enable"] {
                    state.set(section, Vec::new());
                }
            }
            if self.failures > 1 {
                for section in ["functions", "shopt", "aliases"] {
                    state.set(section, Vec::new());
                }
            }
            self.setup.kind.restore(&state, &cwd, after_death)
        });
        write_fresh(
            &self.paths.rc(),
            &self.setup.kind.rc(&self.paths, restore.as_deref(), &ready),
        )?;
        for (name, bytes) in self.setup.kind.dot_files(&self.paths) {
            let dir = self.paths.run.join("zdot");
            private_dir(&dir)?;
            write_fresh(&dir.join(name), &bytes)?;
        }
        let mut env = if restoring && self.state.has("env") {
            self.restored_env()
        } else {
            self.setup.env.clone()
        };
        if let Some((name, value)) = self.setup.kind.env(&self.paths) {
            env.retain(|(known, _)| *known != name);
            env.push((name, value));
        }
        Ok(Launch { argv: self.setup.kind.argv(&self.setup.program, &self.paths), env, cwd })
    }

    /// What was exported, and what no shell can have in a variable but passes on.
    fn restored_env(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let kept = self
            .setup
            .env
            .iter()
            .filter(|(name, _)| !super::quote::is_name(name) || name == b"SHLVL")
            .cloned();
        let exported = self.state.env().map(|(name, value)| (name.to_vec(), value.to_vec()));
        kept.chain(exported).collect()
    }

    fn give_up(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Over;
        for waiting in std::mem::take(&mut self.queue) {
            self.never_started(waiting, effects);
        }
        effects.push(Effect::Emit(Happened::Ended));
    }

    /// The rc file is through and its dump is read: the shell is on its way to the prompt.
    fn started(&mut self, at: At, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Starting { ready: true, .. }) || !self.dumped {
            return;
        }
        let first = self.state.is_empty();
        let changes = self.take_dump();
        if first || !changes.0.is_empty() {
            effects.push(Effect::Emit(Happened::StateChanged { changes }));
        }
        self.failures = 0;
        self.phase = Phase::Idle;
        self.at_prompt = false;
        self.poll.step = Duration::from_micros(100);
        self.poll.at = Some(at.now + self.poll.step);
        self.advance(at, effects);
    }

    /// Whether the shell waits for its next command, and nothing was typed towards it where a key of
    /// ours would mix with that.
    fn prompt_shown(&self, at: At) -> bool {
        if self.setup.kind.edits_lines() {
            prompt::at_prompt(self.pid, at.master)
        } else {
            !self.person.half_typed && prompt::at_plain_prompt(self.pid, at.master)
        }
    }

    // ---- the queue ----

    pub(super) fn poll_soon(&mut self, due: Instant) {
        self.poll.step = Duration::from_micros(500);
        self.poll.at = Some(self.poll.at.map_or(due, |at| at.min(due)));
    }

    /// Starts what waits, when the shell is at its prompt.
    fn advance(&mut self, at: At, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let capture = self.person.entered.is_some();
        if self.queue.is_empty() && !capture {
            return;
        }
        if !self.at_prompt {
            let settled = self.person.typed.is_none_or(|typed| at.now >= typed + SETTLE);
            if !settled || !self.prompt_shown(at) {
                let most = if self.queue.is_empty() {
                    Duration::from_secs(1)
                } else {
                    Duration::from_millis(20)
                };
                self.poll.step = (self.poll.step * 2).clamp(Duration::from_micros(100), most);
                self.poll.at = Some(at.now + self.poll.step);
                return;
            }
            self.at_prompt = true;
            self.raw = tcgetattr(at.master).ok();
        }
        if capture {
            let _ = self.begin(Job::Capture, at, effects);
            return;
        }
        match self.queue.pop_front() {
            Some(Waiting::Command { spec, .. }) => {
                let id = spec.command.clone();
                if self.begin(Job::Command { id: id.clone(), spec }, at, effects).is_err() {
                    self.finish_command(
                        &id,
                        (Outcome::NotStarted, None, None),
                        Duration::ZERO,
                        false,
                        None,
                        effects,
                    );
                }
            }
            Some(Waiting::Quiet { token, script }) => {
                let begun = self.pair().and_then(|pipes| {
                    write_fresh(
                        Path::new(std::ffi::OsStr::from_bytes(&self.paths.command())),
                        &script,
                    )?;
                    self.begin(Job::Quiet { token, pipes }, at, effects)
                });
                if begun.is_err() {
                    effects.push(Effect::Emit(Happened::Applied { token, exit_code: None }));
                }
            }
            None => {}
        }
    }

    fn expire_queued(&mut self, at: At, effects: &mut Vec<Effect>) {
        let expired = |waiting: &Waiting| match waiting {
            Waiting::Command { until, .. } => until.is_some_and(|until| until <= at.now),
            Waiting::Quiet { .. } => false,
        };
        while let Some(nth) = self.queue.iter().position(expired) {
            if let Some(waiting) = self.queue.remove(nth) {
                self.never_started(waiting, effects);
            }
        }
    }

    fn never_started(&mut self, waiting: Waiting, effects: &mut Vec<Effect>) {
        match waiting {
            Waiting::Command { spec, .. } => {
                let end = (Outcome::NotStarted, None, None);
                self.finish_command(&spec.command, end, Duration::ZERO, false, None, effects);
            }
            Waiting::Quiet { token, .. } => {
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: None }));
            }
        }
    }

    /// Takes a queued command out; false when it is not queued.
    pub(super) fn unqueue(&mut self, command: &str, effects: &mut Vec<Effect>) -> bool {
        let found = self.queue.iter().position(
            |waiting| matches!(waiting, Waiting::Command { spec, .. } if spec.command == command),
        );
        let Some(nth) = found else { return false };
        self.queue.remove(nth);
        self.finish_command(
            command,
            (Outcome::Cancelled, None, None),
            Duration::ZERO,
            false,
            None,
            effects,
        );
        true
    }

    // ---- a run ----

    fn pair(&mut self) -> io::Result<[Pipe; 2]> {
        if let Some(pipes) = self.spare.take() {
            return Ok(pipes);
        }
        self.pipe_number += 1;
        let number = self.pipe_number;
        let out = Pipe::make(self.paths.run.join(format!("o{number}")))?;
        let err = Pipe::make(self.paths.run.join(format!("e{number}")))?;
        Ok([out, err])
    }

    /// Writes the files of a run and types the key.
    fn begin(&mut self, job: Job, at: At, effects: &mut Vec<Effect>) -> io::Result<()> {
        self.number += 1;
        self.dump.clear();
        self.dumped = false;
        let run = Run::new(self.number, job, at.now, Moment::now());
        if let Job::Command { id, spec } = &run.job {
            let (id, half) = (id.clone(), self.person.half_typed);
            let pipes = self.pair()?;
            write_fresh(Path::new(std::ffi::OsStr::from_bytes(&self.paths.command())), &spec.text)?;
            effects.push(Effect::Show(self.prompt.typed(&spec.text, half)));
            let stdin = self.make_stdin(spec)?;
            if let Some(command) = self.commands.get_mut(&id) {
                command.pipes = pipes.map(Some);
                command.stdin = stdin;
                command.phase = Progress::Running;
                command.started = Some(at.now);
                command.started_ms = now_ms();
                command.attempts += 1;
            }
            self.watch_command(&id)?;
        }
        let key = self.write_drive(&run, false)?;
        if !self.setup.kind.edits_lines() {
            super::ending::hide_echo(at.master);
        }
        effects.push(Effect::Type(key));
        if let Job::Command { id, .. } = &run.job
            && self.commands.get(id).is_some_and(|command| command.attempts == 1)
        {
            effects.push(Effect::Emit(Happened::Started { command: id.clone() }));
        }
        self.at_prompt = false;
        self.phase = Phase::Running(Box::new(run));
        Ok(())
    }

    /// Waits for what the FIFOs of a command bring.
    pub(super) fn watch_command(&self, id: &str) -> io::Result<()> {
        let Some(command) = self.commands.get(id) else { return Ok(()) };
        for (stream, pipe) in command.pipes.iter().enumerate() {
            if let Some(pipe) = pipe {
                watch(&self.epoll, pipe, command.index * 4 + stream as u64)?;
            }
        }
        if let Some(stdin) = &command.stdin {
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let token = epoll::EventData::new_u64(command.index * 4 + STDIN);
            epoll::add(&self.epoll, &stdin.fd, token, flags)?;
        }
        Ok(())
    }

    /// Gives the line editor its modes back: it does not look for itself after a key of ours, and a
    /// command may have left others.
    pub(super) fn uncook(&mut self, at: At) {
        if let (true, Some(raw)) = (self.setup.kind.edits_lines(), &self.raw) {
            super::ending::restore_modes(at.master, raw);
        }
        if let Phase::Running(run) = &mut self.phase {
            run.cooked = false;
        }
    }

    /// Writes the drive file; the key that runs it.
    fn write_drive(&mut self, run: &Run, once: bool) -> io::Result<Vec<u8>> {
        let null = b"/dev/null".to_vec();
        let path = |pipe: &Pipe| pipe.path.as_os_str().as_bytes().to_vec();
        let mut drive = Drive {
            paths: &self.paths,
            number: run.number,
            key: self.key,
            once,
            interrupted: matches!(run.job, Job::Reread { .. }),
            state: &self.state,
            text: &[],
            status: self.status,
            env: &[],
            cwd: None,
            stdin: null.clone(),
            stdout: null.clone(),
            stderr: null,
        };
        let mut key = self.setup.kind.key(self.key, &self.paths);
        let text = match &run.job {
            Job::Command { id, spec } => {
                drive.env = &spec.env;
                drive.text = &spec.text;
                drive.cwd = spec.cwd.as_deref();
                if let Some(command) = self.commands.get(id) {
                    if let [Some(out), Some(err)] = &command.pipes {
                        drive.stdout = path(out);
                        drive.stderr = path(err);
                    }
                    if let Some(stdin) = &command.stdin {
                        drive.stdin = stdin.path.as_os_str().as_bytes().to_vec();
                    } else if spec.stdin == StdinMode::Given {
                        drive.stdin =
                            self.paths.run.join("stdin").into_os_string().into_encoded_bytes();
                    }
                }
                key = self.setup.kind.key_for(&drive);
                self.setup.kind.drive(&drive)
            }
            Job::Quiet { pipes: [out, err], .. } => {
                drive.stdout = path(out);
                drive.stderr = path(err);
                self.setup.kind.drive(&drive)
            }
            Job::Capture | Job::Reread { .. } => self.setup.kind.capture(&drive),
        };
        if self.status > 1 {
            let status = format!("return {}\n", self.status);
            write_fresh(
                Path::new(std::ffi::OsStr::from_bytes(&self.paths.status())),
                status.as_bytes(),
            )?;
        }
        write_fresh(Path::new(std::ffi::OsStr::from_bytes(&self.paths.drive())), &text)?;
        Ok(key)
    }

    /// Ends the run when its status and its state are there.
    fn try_finish(&mut self, at: At, effects: &mut Vec<Effect>) {
        let Phase::Running(run) = &self.phase else { return };
        if run.status.is_none() || !self.dumped {
            return;
        }
        self.drain(effects);
        let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        self.at_prompt = !run.touched;
        self.prompt.expect();
        let status = run.status.unwrap_or(0);
        match &run.job {
            Job::Capture => self.captured(&run, status, at, effects),
            Job::Command { .. } | Job::Quiet { .. } => {
                self.status = status;
                self.end_job(*run, (Outcome::Finished, Some(status), None), effects);
            }
            Job::Reread { end, .. } => {
                let mut end = *end;
                if !self.setup.kind.edits_lines() {
                    // Any error takes such a shell to its prompt, and its status says which.
                    end = (Outcome::Finished, Some(status), None);
                }
                self.status = end.1.unwrap_or(0);
                self.end_job(*run, end, effects);
            }
        }
        if !self.at_prompt {
            self.poll_soon(at.now + Duration::from_millis(1));
        }
        self.advance(at, effects);
    }

    fn captured(&mut self, run: &Run, status: i32, at: At, effects: &mut Vec<Effect>) {
        let entered = self.person.entered.take();
        if run.touched {
            self.person.entered = Some(at.now);
        }
        let before = self.history.take();
        self.status = status;
        let changes = self.take_dump();
        if self.history.is_some() && self.history != before {
            let text = self.history.as_deref().map(history_text).unwrap_or_default();
            let duration = entered.map_or(Duration::ZERO, |entered| run.started - entered);
            let exit_code = Some(status);
            effects.push(Effect::Emit(Happened::Typed { text, exit_code, duration, changes }));
        } else if !changes.0.is_empty() {
            effects.push(Effect::Emit(Happened::StateChanged { changes }));
        }
    }

    /// Ends what a run was for. The state is taken from the dump where there is one.
    fn end_job(&mut self, run: Run, end: End, effects: &mut Vec<Effect>) {
        let restarted = self.pid == 0;
        let ended = run.ended.unwrap_or(run.started);
        let changes = if restarted { Changes::default() } else { self.take_dump() };
        match run.job {
            Job::Command { id, .. } => {
                effects.push(Effect::Show(run.copy.end()));
                let duration = ended.saturating_duration_since(run.started);
                self.finish_command(&id, end, duration, restarted, Some(changes), effects);
            }
            Job::Reread { id, started, end } => {
                let duration = run.started.saturating_duration_since(started);
                self.finish_command(&id, end, duration, restarted, Some(changes), effects);
            }
            Job::Quiet { token, .. } => {
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: end.1 }));
                effects.push(Effect::Emit(Happened::StateChanged { changes }));
            }
            Job::Capture => {}
        }
    }

    fn finish_command(
        &mut self,
        id: &str,
        end: End,
        duration: Duration,
        restarted: bool,
        changes: Option<Changes>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let (outcome, exit_code, signal) = end;
        command.stdin = None;
        command.phase = Progress::Done;
        let status = Status {
            outcome,
            exit_code,
            signal,
            duration,
            stdout_bytes: command.outputs[0].written(),
            stderr_bytes: command.outputs[1].written(),
            shell_restarted: restarted,
            changes: changes.unwrap_or_default(),
        };
        if std::mem::take(&mut command.waiting) {
            effects
                .push(Effect::Emit(Happened::Waiting { command: id.to_owned(), waiting: false }));
        }
        command.status = Some(Status { changes: Changes::default(), ..status.clone() });
        effects.push(Effect::Emit(Happened::Done { command: id.to_owned(), status }));
        self.seal(id, effects);
    }

    /// Gives the streams of a command back that nobody holds any more.
    fn seal(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        if command.phase != Progress::Done {
            return;
        }
        let mut open = false;
        for (stream, slot) in command.pipes.iter_mut().enumerate() {
            let Some(pipe) = slot else { continue };
            open |= drain_pipe(pipe, &mut command.outputs[stream], None, &mut self.buffer)
                != Read::Closed;
        }
        if open {
            return;
        }
        command.phase = Progress::Sealed;
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

    // ---- reading ----

    fn read_state(&mut self) {
        let mut piece = [0; 32 << 10];
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

    /// Takes the state of the last dump over; a dump that is like the one before is not even read.
    fn take_dump(&mut self) -> Changes {
        let mut hashed = std::mem::take(&mut self.dump);
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
            if !newer.has("cwd")
                && let Ok(cwd) = fs::read_link(format!("/proc/{}/cwd", self.pid))
            {
                newer.set("cwd", cwd.into_os_string().into_encoded_bytes());
            }
            newer.set("limits", limits);
        }
        newer.set("status", self.status.to_string().into_bytes());
        hashed.clear();
        hashed.shrink_to(16 << 10);
        self.dump = hashed;
        self.state.absorb(newer)
    }

    fn read_stream(&mut self, token: u64, effects: &mut Vec<Effect>) {
        let Some(id) = self.commands.id(token / 4).cloned() else { return };
        self.read_command(&id, effects);
        self.seal(&id, effects);
    }

    /// Reads what the running command wrote, so that it comes before what follows.
    pub(super) fn drain(&mut self, effects: &mut Vec<Effect>) {
        let id = match &self.phase {
            Phase::Running(run) => run.job.command().cloned(),
            Phase::Ending(ending) => ending.run().job.command().cloned(),
            Phase::Absent | Phase::Starting { .. } | Phase::Idle | Phase::Over => None,
        };
        if let Some(id) = id {
            self.read_command(&id, effects);
        }
    }

    fn read_command(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let mut copy = match &mut self.phase {
            Phase::Running(run) if run.job.command().is_some_and(|running| running == id) => {
                Some(&mut run.copy)
            }
            Phase::Running(_)
            | Phase::Ending(_)
            | Phase::Absent
            | Phase::Starting { .. }
            | Phase::Idle
            | Phase::Over => None,
        };
        let Some(command) = self.commands.get_mut(id) else { return };
        let mut grew = false;
        for stream in 0..2 {
            let Some(pipe) = &mut command.pipes[stream] else { continue };
            let before = command.outputs[stream].written();
            let shown = copy.as_deref_mut().map(|copy| (copy, stream, &mut *effects));
            let end = drain_pipe(pipe, &mut command.outputs[stream], shown, &mut self.buffer);
            self.more |= matches!(end, Read::Some(_));
            grew |= command.outputs[stream].written() != before;
        }
        if grew {
            effects.push(Effect::Emit(Happened::Grew { command: id.to_owned() }));
        }
    }

    // ---- time ----

    fn tick_run(&mut self, at: At, effects: &mut Vec<Effect>) {
        let Phase::Running(run) = &mut self.phase else { return };
        if run.status.is_none() && run.deadline.is_some_and(|deadline| deadline <= at.now) {
            self.end_running((Outcome::TimedOut, None, None));
            return;
        }
        if let Some(ended) = run.ended {
            if at.now >= ended + DUMP {
                let end = (Outcome::Finished, run.status, None);
                self.end_running(end);
            } else if at.now >= run.check {
                run.step = (run.step * 2).min(Duration::from_secs(1));
                run.check = at.now + run.step;
                let end = (Outcome::Finished, run.status, None);
                self.read_state();
                if !self.dumped && prompt::left_drive(self.pid, at.master) {
                    self.reread(end, at, effects);
                }
            }
            return;
        }
        if !run.begun && at.now >= run.typed + CONFIRM {
            self.retype(at, effects);
            return;
        }
        if run.begun && at.now >= run.check {
            if let (Some(signal), Some(id)) = (run.signal.take(), run.job.command().cloned()) {
                let _ = self.signal(&id, signal, at);
                return;
            }
            run.step = (run.step * 2).min(Duration::from_secs(1));
            run.check = at.now + run.step;
            self.check_run(at, effects);
        }
    }

    /// A command that takes its time: does it still run, and does it wait for a person?
    fn check_run(&mut self, at: At, effects: &mut Vec<Effect>) {
        let Phase::Running(run) = &mut self.phase else { return };
        let gone = prompt::left_drive(self.pid, at.master) && ctl_empty(&self.paths);
        if gone {
            self.reread((Outcome::Finished, Some(130), Some(2)), at, effects);
            return;
        }
        let Job::Command { id, .. } = &run.job else { return };
        let id = id.clone();
        if !run.cooked {
            run.cooked = true;
            super::ending::cook_modes(at.master);
        }
        let waiting = super::ending::foreground_reads(at.master);
        if let Some(command) = self.commands.get_mut(&id)
            && command.waiting != waiting
        {
            command.waiting = waiting;
            effects.push(Effect::Emit(Happened::Waiting { command: id.clone(), waiting }));
        }
        self.feed(&id, at.now);
    }

    /// The shell dropped the drive file, as it does on SIGINT, and is back at its prompt: the state
    /// is read by another one.
    fn reread(&mut self, end: End, at: At, effects: &mut Vec<Effect>) {
        self.drain(effects);
        self.uncook(at);
        let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let run = *run;
        match run.job {
            Job::Command { id, .. } => {
                effects.push(Effect::Show(run.copy.end()));
                let job = Job::Reread { id: id.clone(), started: run.started, end };
                if self.begin(job, at, effects).is_err() {
                    self.finish_command(&id, end, at.now - run.started, false, None, effects);
                }
            }
            Job::Reread { id, started, end } => {
                self.finish_command(&id, end, at.now - started, false, None, effects);
            }
            Job::Quiet { token, .. } => {
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: end.1 }));
            }
            Job::Capture => {}
        }
        self.poll_soon(at.now + SETTLE);
    }

    /// The key did not do it: the line editor was in the middle of something, or a command redefined
    /// what the key runs. The other keys are tried, each once, as long as the shell is at its prompt.
    fn retype(&mut self, at: At, effects: &mut Vec<Effect>) {
        let shown = self.prompt_shown(at);
        let Phase::Running(run) = &mut self.phase else { return };
        run.typed = at.now;
        if !shown {
            // A busy machine, or a program that the key went to: neither is helped by typing.
            if at.now >= run.started + START {
                self.end_running((Outcome::NotStarted, None, None));
            }
            return;
        }
        if run.retyped > self.setup.kind.keys() {
            self.end_running((Outcome::NotStarted, None, None));
            return;
        }
        // With the file gone the old key can do nothing any more; only if the shell is still at its
        // prompt then did it do nothing before.
        let _ = fs::remove_file(Path::new(std::ffi::OsStr::from_bytes(&self.paths.drive())));
        if !self.prompt_shown(at) || !ctl_empty(&self.paths) {
            return;
        }
        let Phase::Running(run) = &mut self.phase else { return };
        run.retyped += 1;
        if run.retyped > 1 {
            self.key = (self.key + 1) % self.setup.kind.keys();
        }
        let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let written = self.write_drive(&run, true);
        self.phase = Phase::Running(run);
        match written {
            Ok(key) => effects.push(Effect::Type(key)),
            Err(_) => self.end_running((Outcome::NotStarted, None, None)),
        }
    }

    /// Replaces the shell by one with this state.
    pub fn replace(&mut self, state: State) {
        self.replacement = Some(state);
        match &self.phase {
            Phase::Running(_) => self.end_running((Outcome::Cancelled, None, None)),
            Phase::Starting { .. } | Phase::Idle => procs::signal(self.pid, Signal::KILL),
            Phase::Absent | Phase::Ending(_) | Phase::Over => {}
        }
    }
}

impl Run {
    pub(super) fn new(number: u64, job: Job, started: Instant, moment: Moment) -> Self {
        let deadline = match &job {
            Job::Command { spec, .. } => spec.timeout.map(|timeout| started + timeout),
            Job::Capture | Job::Reread { .. } | Job::Quiet { .. } => None,
        };
        Self {
            number,
            job,
            started,
            moment,
            typed: started,
            begun: false,
            retyped: 0,
            status: None,
            ended: None,
            deadline,
            check: started + SLOW,
            step: SLOW,
            cooked: false,
            copy: screen::Copy::default(),
            touched: false,
            signal: None,
        }
    }

    pub(super) fn finish_at(&mut self, now: Instant) {
        self.ended.get_or_insert(now);
    }

    /// Whether the command has opened its streams: it has begun, and that was a while ago.
    pub(super) fn surely_open(&self, now: Instant) -> bool {
        self.begun && now >= self.started + SLOW
    }

    fn next(&self) -> Instant {
        let mut due = match self.ended {
            Some(ended) => (ended + DUMP).min(self.check),
            None if !self.begun => self.typed + CONFIRM,
            None => self.check,
        };
        if let (None, Some(deadline)) = (self.ended, self.deadline) {
            due = due.min(deadline);
        }
        due
    }
}

impl Job {
    pub(super) fn command(&self) -> Option<&String> {
        match self {
            Self::Command { id, .. } | Self::Reread { id, .. } => Some(id),
            Self::Capture | Self::Quiet { .. } => None,
        }
    }
}

/// Reads a pipe empty, or until others should get their turn.
fn drain_pipe(
    pipe: &mut Pipe,
    output: &mut super::output::Output,
    mut shown: Option<(&mut screen::Copy, usize, &mut Vec<Effect>)>,
    buffer: &mut Vec<u8>,
) -> Read {
    let mut taken = 0;
    buffer.resize(256 << 10, 0);
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

fn watch(epoll: &OwnedFd, pipe: &Pipe, token: u64) -> io::Result<()> {
    // Edges: a FIFO whose writers are gone would be ready for ever.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(epoll, &pipe.fd, epoll::EventData::new_u64(token), flags)?)
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn ctl_empty(paths: &Paths) -> bool {
    fs::read_dir(paths.ctl_dir()).is_ok_and(|mut entries| entries.next().is_none())
}

fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The directory to go back to: the one the state names, or the nearest above it that still exists.
fn nearest(state: &State, otherwise: &Path) -> PathBuf {
    let cwd = state.get("cwd");
    if cwd.is_empty() {
        return otherwise.to_owned();
    }
    let cwd = PathBuf::from(std::ffi::OsStr::from_bytes(cwd));
    cwd.ancestors().find(|path| path.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// An entry of the history without its number.
fn history_text(entry: &[u8]) -> Vec<u8> {
    let entry = entry.trim_ascii_start();
    let digits = entry.iter().take_while(|byte| byte.is_ascii_digit()).count();
    entry[digits..].strip_prefix(b"*").unwrap_or(&entry[digits..]).trim_ascii_start().to_vec()
}
