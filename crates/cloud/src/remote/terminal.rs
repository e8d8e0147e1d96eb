//! One terminal of an in-process host: its screen's log, its state, its commands. No waits: what is to be
//! done inside the instance is left to followers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use host::log::Log;
use host::shell::{Copy, Keep, Output, State, remote};
use host::wire::{
    CommandInfo, Event, Phase, RecordKind, Request, Sections, Shell, StdinMode, TerminalInfo,
};
use tokio::sync::{mpsc, watch};

use super::Tell;
use super::follow::Follower;
use super::kept::{Kept, KeptCommand, Kind, Message};
use super::line::Line;
use super::program::Player;
use super::spool::{BORN, Place, Start, TERMINAL};

/// What waits for a PTY; more is refused.
const TOLD: usize = 64;
/// Bytes of a command's text that are shown.
const SHOWN: usize = 8 << 10;
/// What is kept of either end of a stream where nobody said.
const KEEP: Keep = Keep { head: 8 << 20, tail: 8 << 20 };
/// What a terminal without a PTY says first.
const NOTICE: &str = "\x1b[2m[commands only: there is no PTY here, and each command has a shell of its own]\x1b[0m\r\n";

/// How a terminal was opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) cwd: Vec<u8>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) dir: PathBuf,
    pub(super) log_limit: u64,
    pub(super) shell: Shell,
}

/// A terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) id: String,
    pub(super) opened: Opened,
    pub(super) size: (u16, u16),
    pub(super) log: Log,
    pub(super) state: State,
    pub(super) line: Line,
    /// Lines that were typed while something ran.
    pub(super) typed: VecDeque<String>,
    pub(super) queue: VecDeque<String>,
    pub(super) running: Option<String>,
    pub(super) commands: BTreeMap<String, Command>,
    /// Commands whose files inside can go.
    pub(super) done: Vec<u64>,
    pub(super) ready: bool,
    pub(super) exit: Option<i32>,
    /// Writes that were taken, the last of them.
    pub(super) writes: VecDeque<String>,
    opened_ms: u64,
    output_ms: u64,
    last: u64,
    /// Where the cursor is at the start of a line.
    fresh: bool,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) kind: Kind,
    /// How it was asked for, without what it was given to read once that was sent.
    pub(super) spec: Spec,
    pub(super) number: u64,
    pub(super) mark: String,
    pub(super) phase: Phase,
    /// It is known inside.
    pub(super) begun: bool,
    pub(super) started_ms: u64,
    pub(super) outputs: [Output; 2],
    pub(super) done: Option<Event>,
    /// Raised to end it.
    pub(super) cancel: watch::Sender<bool>,
    /// The PTYs it was started on.
    pub(super) ptys: Vec<String>,
    /// The way to the one it is on.
    pub(super) screen: Option<mpsc::Sender<Tell>>,
    copy: Copy,
    shown: [u64; 2],
}

/// What is run.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) id: String,
    pub(super) text: Vec<u8>,
    pub(super) timeout_ms: u64,
    pub(super) stdin: StdinMode,
    pub(super) given: Vec<u8>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) cwd: Vec<u8>,
    pub(super) keep: Keep,
}

impl Spec {
    /// One of our own.
    pub(super) fn own(id: String, text: Vec<u8>) -> Self {
        let (env, cwd, given) = (Vec::new(), Vec::new(), Vec::new());
        Self { id, text, timeout_ms: 0, stdin: StdinMode::Null, given, env, cwd, keep: KEEP }
    }
}

impl Terminal {
    /// Opens a terminal whose log goes on at `base`.
    pub(super) fn open(
        id: String,
        opened: Opened,
        size: (u16, u16),
        base: u64,
        state: Sections,
    ) -> io::Result<Self> {
        let log = Log::open(opened.dir.join("log"), opened.log_limit, base, size)?;
        let mut it = Self {
            id,
            opened,
            size,
            log,
            state: State::from_sections(state),
            line: Line::default(),
            typed: VecDeque::new(),
            queue: VecDeque::new(),
            running: None,
            commands: BTreeMap::new(),
            done: Vec::new(),
            ready: false,
            exit: None,
            writes: VecDeque::new(),
            opened_ms: now_ms(),
            output_ms: now_ms(),
            last: 0,
            fresh: true,
        };
        let (id, shell) = (model::CommandId::fresh().to_string(), it.opened.shell);
        let (kind, text) = match shell {
            Shell::Plain | Shell::Other(_) => (Kind::Program, program(&it.opened.argv)),
            Shell::Bash | Shell::Zsh | Shell::Sh => (Kind::First, b":".to_vec()),
        };
        let mut spec = Spec::own(id, text);
        if kind == Kind::Program {
            spec.stdin = StdinMode::Open;
            it.ready = true;
        }
        it.ask(kind, spec);
        Ok(it)
    }

    /// Takes up what a server before us kept; which of its commands are to be looked for.
    pub(super) fn restore(kept: Kept) -> Option<(Self, Vec<String>)> {
        let Request::Open {
            terminal,
            argv,
            cwd,
            env,
            cols,
            rows,
            dir,
            log_limit,
            base_offset,
            shell,
            state,
            ..
        } = kept.open.as_request()?
        else {
            return None;
        };
        let dir = PathBuf::from(String::from_utf8(dir).ok()?);
        if !dir.is_dir() {
            // It is being deleted.
            return None;
        }
        let opened = Opened { argv, cwd, env, dir, log_limit, shell };
        let mut it = Self::open(terminal, opened, (cols, rows), base_offset, state)
            .inspect_err(|error| tracing::error!(%error, "a terminal cannot be taken up"))
            .ok()?;
        if kept.ready || !kept.commands.is_empty() {
            it.queue.clear();
            it.commands.clear();
        }
        (it.opened_ms, it.ready, it.last) = (kept.opened_ms, kept.ready, kept.last);
        (it.done, it.exit, it.fresh) = (kept.done, kept.exit, false);
        let mut open = Vec::new();
        for kept in kept.commands {
            let Some(command) = it.take_up(kept) else { continue };
            let id = command.spec.id.clone();
            if command.phase == Phase::Running {
                it.running = Some(id.clone());
            }
            open.push(id.clone());
            it.commands.insert(id, command);
        }
        Some((it, open))
    }

    fn take_up(&self, kept: KeptCommand) -> Option<Command> {
        let Request::Exec { command, text, timeout_ms, stdin, keep_head, keep_tail, .. } =
            kept.exec.as_request()?
        else {
            return None;
        };
        let keep = Keep { head: keep_head, tail: keep_tail };
        let spec = Spec { timeout_ms, stdin, keep, ..Spec::own(command, text) };
        let mut command = self.command(kept.kind, spec);
        command.phase = if kept.done.is_some() { Phase::Done } else { Phase::Running };
        (command.number, command.mark) = (kept.number, kept.mark);
        (command.started_ms, command.shown) = (kept.started_ms, kept.shown);
        command.ptys = kept.ptys;
        command.done = kept.done.and_then(|done| done.as_event());
        Some(command)
    }

    /// What is to be kept of it.
    pub(super) fn kept(&self) -> Kept {
        let Opened { argv, cwd, env, dir, log_limit, shell } = self.opened.clone();
        let open = Message::request(&Request::Open {
            seq: 0,
            terminal: self.id.clone(),
            argv,
            cwd,
            env,
            cols: self.size.0,
            rows: self.size.1,
            dir: dir.into_os_string().into_encoded_bytes(),
            log_limit,
            base_offset: self.log.end(),
            shell,
            state: self.state.sections(),
            notice: Vec::new(),
        });
        let began = self.commands.values().filter(|command| command.number > 0);
        let commands = began.map(|command| KeptCommand {
            exec: Message::request(&Request::Exec {
                seq: 0,
                terminal: self.id.clone(),
                command: command.spec.id.clone(),
                text: command.spec.text.clone(),
                timeout_ms: command.spec.timeout_ms,
                stdin: command.spec.stdin,
                stdin_data: Vec::new(),
                env: Vec::new(),
                cwd: Vec::new(),
                if_busy: host::wire::IfBusy::Wait,
                keep_head: command.spec.keep.head,
                keep_tail: command.spec.keep.tail,
            }),
            kind: command.kind,
            number: command.number,
            mark: command.mark.clone(),
            started_ms: command.started_ms,
            shown: command.shown,
            ptys: command.ptys.clone(),
            done: command.done.as_ref().map(Message::event),
        });
        Kept {
            open,
            opened_ms: self.opened_ms,
            ready: self.ready,
            last: self.last,
            done: self.done.clone(),
            exit: self.exit,
            commands: commands.collect(),
        }
    }

    /// A command waits from now on; one of our own before those of others.
    pub(super) fn ask(&mut self, kind: Kind, spec: Spec) {
        let id = spec.id.clone();
        let command = self.command(kind, spec);
        self.commands.insert(id.clone(), command);
        match kind {
            Kind::Exec => self.queue.push_back(id),
            Kind::First | Kind::Typed | Kind::Quiet | Kind::Program => self.queue.push_front(id),
        }
    }

    fn command(&self, kind: Kind, spec: Spec) -> Command {
        let dir = self.opened.dir.join("commands");
        let output = |suffix| Output::new(dir.join(format!("{}.{suffix}", spec.id)), spec.keep);
        Command {
            kind,
            outputs: [output("out"), output("err")],
            spec,
            number: 0,
            mark: String::new(),
            phase: Phase::Queued,
            begun: false,
            started_ms: 0,
            done: None,
            cancel: watch::channel(false).0,
            ptys: Vec::new(),
            screen: None,
            copy: Copy::default(),
            shown: [0; 2],
        }
    }

    /// Whether something of others' runs or waits.
    pub(super) fn is_busy(&self) -> bool {
        let mut open =
            self.running.iter().chain(&self.queue).filter_map(|id| self.commands.get(id));
        open.any(|command| !matches!(command.kind, Kind::First | Kind::Quiet))
    }

    /// Takes the next command from the queue; it has a number and a mark then.
    pub(super) fn next(&mut self, mark: String) -> Option<String> {
        if self.running.is_some() {
            return None;
        }
        let id = self.queue.pop_front()?;
        self.last = now_ms().max(self.last + 1);
        let command = self.commands.get_mut(&id)?;
        (command.number, command.mark) = (self.last, mark);
        (command.phase, command.started_ms) = (Phase::Running, now_ms());
        self.running = Some(id.clone());
        Some(id)
    }

    /// Who plays a command; `None` for one that is no program.
    pub(super) fn player(&mut self, id: &str, follower: Follower) -> Option<Player> {
        let command = self.commands.get_mut(id).filter(|it| it.kind == Kind::Program)?;
        let (tell, told) = mpsc::channel(TOLD);
        command.screen = Some(tell);
        let (ptys, written) = (command.ptys.clone(), command.shown[0]);
        let (mark, size) = (command.mark.clone(), self.size);
        Some(Player { follower, told, size, ptys, written, mark })
    }

    /// The way to the PTY of what runs, if there is one.
    pub(super) fn on_screen(&self) -> Option<&mpsc::Sender<Tell>> {
        self.commands.get(self.running.as_ref()?)?.screen.as_ref()
    }

    /// Where a command is inside an instance.
    pub(super) fn place(&self, root: &str, id: &str) -> Option<Place> {
        let number = self.commands.get(id)?.number;
        Some(Place { terminal: self.inside(root), number, id: id.to_owned() })
    }

    /// The directory of its commands inside an instance.
    pub(super) fn inside(&self, root: &str) -> String {
        format!("{root}/t/{}", self.id)
    }

    /// What it takes to start a command.
    pub(super) fn start(&mut self, root: &str, id: &str) -> Option<Start> {
        let place = self.place(root, id)?;
        let command = self.commands.get_mut(id)?;
        let marks = [("STEAD", "1"), (TERMINAL, &self.id), (BORN, id)];
        let marks =
            marks.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let first = matches!(command.kind, Kind::First | Kind::Program);
        // A shell that is told its state is told its environment with it.
        let base =
            self.opened.env.iter().filter(|(name, _)| first || name == b"PATH" || name == b"HOME");
        let base = base.filter(|(name, _)| !marks.iter().any(|(mark, _)| mark == name)).cloned();
        let env: Vec<_> = base.chain(marks.clone()).collect();
        let own = command.spec.env.iter().cloned().chain(marks).collect::<Vec<_>>();
        let state = place.state();
        let wrapped = remote::Command {
            text: &command.spec.text,
            state: &self.state,
            env: &own,
            cwd: Some(command.spec.cwd.as_slice()).filter(|cwd| !cwd.is_empty()),
            mark: &command.mark,
            told: Some(state.as_bytes()),
        };
        let (bash, sh) = match command.kind {
            Kind::Program => (command.spec.text.clone(), command.spec.text.clone()),
            Kind::First | Kind::Exec | Kind::Typed | Kind::Quiet => {
                (remote::in_bash(&wrapped), remote::in_sh(&wrapped))
            }
        };
        let given = std::mem::take(&mut command.spec.given);
        let (cwd, stdin) = (self.opened.cwd.clone(), command.spec.stdin);
        Some(Start { bash, sh, env, cwd, stdin, given })
    }

    /// Takes in what a command wrote; what of it is to be shown.
    pub(super) fn wrote(&mut self, id: &str, stream: usize, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let Some(command) = self.commands.get_mut(id) else { return Vec::new() };
        let output = &mut command.outputs[stream];
        if offset + bytes.len() as u64 > output.written() {
            let _ = std::fs::create_dir_all(self.opened.dir.join("commands"));
            output.skip_to(offset);
            let known = usize::try_from(output.written() - offset).unwrap_or(usize::MAX);
            output.append(bytes.get(known..).unwrap_or_default());
        }
        let known = command.shown[stream].saturating_sub(offset);
        let fresh = usize::try_from(known).ok().and_then(|known| bytes.get(known..)).unwrap_or(&[]);
        command.shown[stream] = command.shown[stream].max(offset + bytes.len() as u64);
        match command.kind {
            Kind::Exec | Kind::Typed => command.copy.take(stream, fresh),
            Kind::Program if !command.ptys.is_empty() => fresh.to_vec(),
            Kind::Program => with_returns(fresh),
            Kind::First | Kind::Quiet => Vec::new(),
        }
    }

    /// What stands before what is typed.
    pub(super) fn prompt(&self) -> Vec<u8> {
        let cwd = match self.state.get("cwd") {
            [] => &self.opened.cwd,
            cwd => cwd,
        };
        let first: &[u8] = if self.fresh { b"" } else { b"\x1b[0m\r\n" };
        let cwd = String::from_utf8_lossy(cwd);
        let cwd: String = cwd.chars().filter(|c| !c.is_control()).take(200).collect();
        [first, cwd.as_bytes(), b" $ ", self.line.text().as_bytes()].concat()
    }

    /// What is shown when a terminal begins.
    pub(super) fn greeting(&self) -> Vec<u8> {
        NOTICE.as_bytes().to_vec()
    }

    /// What is shown when a command begins, as if it had been typed.
    pub(super) fn begun(&self, id: &str) -> Vec<u8> {
        let Some(command) = self.commands.get(id) else { return Vec::new() };
        let text = command.spec.text.trim_ascii_end();
        let shown = Copy::default().take(0, &text[..text.len().min(SHOWN)]);
        match command.kind {
            Kind::Exec if self.line.text().is_empty() => [&shown[..], b"\r\n"].concat(),
            Kind::Exec => [b"\r\x1b[K$ ", &shown[..], b"\r\n"].concat(),
            Kind::Typed => b"\r\n".to_vec(),
            Kind::First | Kind::Quiet | Kind::Program => Vec::new(),
        }
    }

    /// What is shown when a command has ended, before the prompt.
    pub(super) fn ended(&self, id: &str) -> Vec<u8> {
        self.commands.get(id).map_or(Vec::new(), |command| command.copy.end())
    }

    /// Puts bytes on the screen: the offset of the first.
    pub(super) fn show(&mut self, bytes: &[u8]) -> (u64, u64) {
        self.output_ms = now_ms();
        self.fresh = bytes.ends_with(b"\n");
        let offset = self.log.append(RecordKind::Output, self.output_ms, bytes);
        (offset, self.output_ms)
    }

    /// As `List` tells it.
    pub(super) fn info(&self) -> TerminalInfo {
        let told = self.commands.values().filter(|command| command.kind == Kind::Exec);
        TerminalInfo {
            terminal: self.id.clone(),
            pid: 0,
            cols: self.size.0,
            rows: self.size.1,
            first_offset: self.log.first(),
            end_offset: self.log.end(),
            durable_offset: self.log.durable(),
            exited: self.exit.is_some(),
            code: self.exit.unwrap_or(0),
            signal: 0,
            shell: self.opened.shell,
            busy: self.is_busy(),
            opened_ms: self.opened_ms,
            output_ms: self.output_ms,
            cgroup: Vec::new(),
            commands: told
                .map(|command| CommandInfo {
                    command: command.spec.id.clone(),
                    phase: command.phase,
                    stdout_bytes: command.outputs[0].written(),
                    stderr_bytes: command.outputs[1].written(),
                })
                .collect(),
        }
    }
}

/// A script that is a program and its arguments.
fn program(argv: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<Vec<u8>> = argv.iter().map(|word| host::shell::quote::single(word)).collect();
    [b"exec ", &words.join(&b' ')[..], b"\n"].concat()
}

/// Line ends as a screen needs them.
fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for &byte in bytes {
        if byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(byte);
    }
    shown
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
