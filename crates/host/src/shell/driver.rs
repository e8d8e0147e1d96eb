//! The state machine between one shell and the host's loop.
//!
//! ```text
//!            launched          rc record + dump          prompt seen
//!  (no shell) ─────▶ Starting ────────────────▶ Idle ────────────────▶ Running
//!      ▲                                          ▲  status record + dump │
//!      │ exited                                   └───────────────────────┤
//!      └──────────────────────────── Ending ◀── time-out, cancel, no dump ┘
//! ```
//! `Refreshing` is a short way from `Idle` back to it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::Signal;
use rustix::termios::Termios;

use super::bash::STASHED;
use super::commands::Commands;
use super::dialect::{Launch, Paths};
use super::ending::Ending;
use super::harmless::Calm;
use super::pipes::Pipe;
use super::procs::{self};
use super::queue::{Person, Poll, SETTLE, Waiting};
use super::reading::{STATE, STDIN, watch};
use super::refresh::{Due, Refresh};
use super::run::Run;
use super::screen::Prompt;
use super::start::{START, private_dir};
use super::state::State;
use super::{At, Effect, Setup, screen};
use crate::wire::Outcome;

/// The file in a terminal's directory that names the last command a host began. A command that is not
/// named there when its host is gone has never run.
pub const BEGAN: &str = "began";

/// Drives one shell.
#[derive(Debug)]
pub struct Driver {
    pub(super) setup: Setup,
    pub(super) paths: Paths,
    pub(super) epoll: OwnedFd,
    pub(super) state_pipe: Pipe,
    pub(super) dump: Vec<u8>,
    pub(super) dumped: bool,
    pub(super) heeds_pieces: bool,
    pub(super) phase: Phase,
    pub(super) pid: i32,
    pub(super) session: i32,
    pub(super) generation: u32,
    pub(super) failures: u32,
    pub(super) number: u64,
    pub(super) state: State,
    pub(super) seen: Option<u64>,
    pub(super) hasher: std::hash::RandomState,
    pub(super) status: i32,
    pub(super) key: usize,
    pub(super) queue: VecDeque<Waiting>,
    pub(super) commands: Commands,
    /// Names the last command that was begun, for whoever finds this host gone.
    pub(super) began: fs::File,
    pub(super) spare: Option<[Pipe; 2]>,
    pub(super) pipe_number: u64,
    /// The shell is known to be at its prompt, and nobody typed since.
    pub(super) at_prompt: bool,
    pub(super) person: Person,
    pub(super) poll: Poll,
    pub(super) prompt: Prompt,
    pub(super) due: Due,
    /// A stream had more than its turn.
    pub(super) more: bool,
    pub(super) history: Option<Vec<u8>>,
    /// How many commands were typed into this shell, where it counts them.
    pub(super) typed: Option<u64>,
    pub(super) replacement: Option<State>,
    /// The terminal ends when its shell exits.
    pub(super) ends_with_program: bool,
    pub(super) trust: Trust,
    /// The terminal's modes while the line editor reads.
    pub(super) raw: Option<Termios>,
}

/// Whether the shell is still what it told last.
#[derive(Debug)]
pub(super) enum Trust {
    /// Something may have changed it since.
    None,
    /// It is.
    Told,
    /// It is, and this may run in it without changing that.
    Calm(Option<Calm>),
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
    /// The prompt is being drawn again.
    Refreshing(Box<Refresh>),
    Ending(Box<Ending>),
    /// No shell can be started any more.
    Over,
}

impl Driver {
    /// A driver for a shell that is to be started as the [`Launch`] says.
    pub fn new(setup: Setup, state: State) -> io::Result<(Self, Launch)> {
        let (paths, state_pipe) = Self::place(&setup)?;
        private_dir(&setup.dir.join("commands"))?;
        let mut driver = Self::make(setup, paths, state, state_pipe)?;
        driver.status = driver.restored_status();
        let launch = driver.launch(false)?;
        Ok((driver, launch))
    }

    /// Files to drive a shell by, all new.
    fn place(setup: &Setup) -> io::Result<(Paths, Pipe)> {
        let paths = Paths::fresh(setup)?;
        private_dir(&paths.ctl_dir())?;
        let state_pipe = Pipe::make(PathBuf::from(std::ffi::OsStr::from_bytes(&paths.state())))?;
        Ok((paths, state_pipe))
    }

    /// Makes new files when somebody removed those that were there.
    pub(super) fn keep_place(&mut self) -> io::Result<()> {
        if !self.paths.are_there() {
            let (paths, state_pipe) = Self::place(&self.setup)?;
            watch(&self.epoll, &state_pipe, STATE)?;
            (self.paths, self.state_pipe, self.spare) = (paths, state_pipe, None);
            self.heeds_pieces = true;
        }
        Ok(())
    }

    /// A driver for a shell that another executable of this host started.
    pub(super) fn adopted(
        setup: Setup,
        paths: Paths,
        state: State,
        state_pipe: OwnedFd,
    ) -> io::Result<Self> {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&paths.state()));
        Self::make(setup, paths, state, Pipe::adopt(path, state_pipe))
    }

    fn make(setup: Setup, paths: Paths, state: State, state_pipe: Pipe) -> io::Result<Self> {
        let commands = Commands::new(setup.dir.join("commands"));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &state_pipe, STATE)?;
        let began = setup.dir.join(BEGAN);
        let began = fs::OpenOptions::new().write(true).create(true).truncate(false).open(began)?;
        Ok(Self {
            began,
            setup,
            paths,
            epoll,
            state_pipe,
            dump: Vec::new(),
            dumped: false,
            heeds_pieces: true,
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
            due: Due::default(),
            more: false,
            history: None,
            typed: None,
            replacement: None,
            ends_with_program: false,
            trust: Trust::None,
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

    /// Whether the shell is about to leave a record.
    pub fn awaits_record(&self) -> bool {
        match self.phase {
            Phase::Starting { .. } | Phase::Running(_) | Phase::Refreshing(_) => true,
            Phase::Absent | Phase::Idle | Phase::Ending(_) | Phase::Over => false,
        }
    }

    /// Where files appear whose names are to be given to [`ctl`](Self::ctl).
    pub fn ctl_dir(&self) -> PathBuf {
        self.paths.ctl_dir()
    }

    /// The shell was started.
    pub fn launched(&mut self, pid: i32, now: Instant) {
        self.pid = pid;
        self.trust = Trust::None;
        self.session = procs::Process::read(pid).map_or(pid, |shell| shell.session);
        self.phase = Phase::Starting { since: now, ready: false };
        super::ending::apply_limits(pid, self.state.get("limits"));
    }

    /// A person's bytes are about to be typed.
    pub fn typed(&mut self, bytes: &[u8], at: At) {
        let Some(last) = bytes.last() else { return };
        self.at_prompt = false;
        self.trust = Trust::None;
        self.person.typed = Some(at.now);
        if self.person.entered.is_none() && !self.person.half_typed && !is_answer(bytes) {
            self.person.hides = bytes.starts_with(b" ");
        }
        if bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 3 | 4 | 15)) {
            self.person.entered.get_or_insert(at.now);
        }
        if !is_answer(bytes) {
            self.person.half_typed = !matches!(last, b'\r' | b'\n' | 3 | 21);
        }
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
            Phase::Refreshing(refresh) => refresh.see(bytes, at.now),
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
        if let (STASHED, Phase::Refreshing(refresh)) = (name, &mut self.phase) {
            refresh.stashed(at.now);
            return;
        }
        let Some((number, what)) = name.split_once('.') else { return };
        let Phase::Running(run) = &mut self.phase else { return };
        if number != run.number.to_string() {
            return;
        }
        run.begun = true;
        if run.plain {
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
            Phase::Absent | Phase::Idle | Phase::Refreshing(_) | Phase::Ending(_) | Phase::Over => {
            }
        }
    }

    /// When [`tick`](Self::tick) wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            Phase::Starting { since, .. } => Some(*since + START),
            Phase::Running(run) => Some(run.next()),
            Phase::Ending(ending) => Some(ending.next()),
            Phase::Refreshing(refresh) => Some(refresh.next()),
            Phase::Idle => self.due.at,
            Phase::Absent | Phase::Over => None,
        };
        let starting = matches!(self.phase, Phase::Starting { .. });
        let queued = self.queue.iter().filter_map(|waiting| match waiting {
            Waiting::Command { until, .. } if !starting => *until,
            Waiting::Command { .. } | Waiting::Quiet { .. } => None,
        });
        let poll = match self.phase {
            Phase::Starting { ready: true, .. } | Phase::Idle => self.poll.at,
            Phase::Starting { .. }
            | Phase::Absent
            | Phase::Running(_)
            | Phase::Refreshing(_)
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
                if matches!(self.phase, Phase::Idle) {
                    self.refresh(at, effects);
                }
            }
            Phase::Refreshing(_) => self.tick_refresh(at, effects),
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
        // What it recorded before it ended.
        for name in self.records() {
            self.ctl(&name, at, effects);
        }
        self.look_begun();
        self.pid = 0;
        self.at_prompt = false;
        // A key that this shell did not take must not run it in the next one.
        self.paths.remove("drive");
        self.drain(effects);
        let status = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let mut died = false;
        // Whether the shell exited by itself rather than being ended by this driver.
        let mut left = self.replacement.is_none();
        match std::mem::replace(&mut self.phase, Phase::Absent) {
            Phase::Running(run) if !run.begun => {
                // It was on its way out when the key was typed, and never took it.
                self.setup.kind.left(&mut self.state);
                self.ended_early(*run, (Outcome::NotStarted, None, None), effects);
            }
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
                self.status = status;
                self.end_job(*run, (Outcome::Finished, Some(status), signal), effects);
            }
            Phase::Ending(ending) => {
                left = false;
                let (run, end) = ending.into_parts();
                self.ended_early(run, end, effects);
            }
            Phase::Starting { .. } => {
                left = false;
                self.failures += 1;
            }
            Phase::Idle | Phase::Refreshing(_) => self.setup.kind.left(&mut self.state),
            Phase::Absent | Phase::Over => left = false,
        }
        if left && self.ends_with_program {
            self.end(code, signal, effects);
            return;
        }
        if left {
            effects.push(Effect::Show(screen::restarted(code, signal)));
        }
        self.person = Person::default();
        self.typed = None;
        self.due.clear();
        if let Some(state) = self.replacement.take() {
            self.state = state;
            self.status = self.restored_status();
        }
        self.seen = None;
        match self.failures {
            0..=3 => match self.launch(died) {
                Ok(launch) => {
                    if self.is_bare() {
                        effects.push(Effect::Show(screen::BARE.to_vec()));
                    }
                    let wanted = self.state.get("cwd");
                    if !wanted.is_empty() && launch.cwd.as_os_str().as_bytes() != wanted {
                        let notice = screen::moved(wanted, launch.cwd.as_os_str().as_bytes());
                        effects.push(Effect::Show(notice));
                    }
                    effects.push(Effect::Respawn(launch));
                }
                Err(_) => self.give_up(effects),
            },
            _ => self.give_up(effects),
        }
    }
}

/// Whether this is what a terminal answers to queries, and nobody's typing.
fn is_answer(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(length) = answer(rest) {
        rest = &rest[length..];
    }
    rest.is_empty()
}

/// How long the answer is that `bytes` begin with.
fn answer(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let of_numbers = |byte: &u8| matches!(byte, b'0'..=b'9' | b';' | b'?' | b'>' | b'$');
            let end = rest.iter().position(|byte| !of_numbers(byte))?;
            matches!(rest[end], b'R' | b'c' | b'n' | b'y' | b't').then_some(end + 3)
        }
        [0x1b, b']' | b'P', rest @ ..] => {
            let st = rest.windows(2).position(|two| two == b"\x1b\\").map(|at| at + 4);
            let bell = rest.iter().position(|byte| *byte == 7).map(|at| at + 3);
            Some(st.into_iter().chain(bell).min().unwrap_or(bytes.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_answer;

    #[test]
    fn an_answer_is_told_from_typing() {
        let check =
            |text: &str, expected| assert_eq!(is_answer(text.as_bytes()), expected, "{text:?}");
        check("\x1b[12;40R", true);
        check("\x1b[?62;22c", true);
        check("\x1b]11;rgb:0000/0000/0000\x1b\\", true);
        // Under load several come at once.
        check("\x1b[12;40R\x1b[12;40R", true);
        check("\x1b]11;rgb:0/0/0\x07\x1b[1;1R\x1bP1$r0m\x1b\\\x1b[0n", true);
        check("\x1b[12;40Rls", false);
        check("\x1b[12;40R\x1b[A", false);
        check("\x1b[A", false);
        check("ls -R", false);
        check("\x1b[200~R", false);
    }
}
