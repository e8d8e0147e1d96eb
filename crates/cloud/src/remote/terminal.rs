//! One terminal of an in-process host: its log, its shell state and its commands. It never blocks; followers
//! call the instance.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;

use host::log::Log;
use shell::{Keep, Output, ScreenCopy, State, now_ms, remote};
use tokio::sync::{mpsc, watch};
use wire::{
    CommandInfo, Event, Phase, RecordKind, Request, Sections, Shell, StdinMode, TerminalInfo,
};

use super::follow::Follower;
use super::instance::PtyInput;
use super::line::InputLine;
use super::program::ProgramRunner;
use super::saved::{CommandKind, SavedCommand, SavedTerminal, WireMessage};
use super::spool::{COMMAND_MARK, CommandDir, CommandFiles, TERMINAL_MARK};

const MAX_QUEUED_INPUT: usize = 64;
/// How much of a command's text is echoed.
const MAX_ECHO_BYTES: usize = 8 << 10;
const DEFAULT_KEEP: Keep = Keep { head: 8 << 20, tail: 8 << 20 };
/// The first line of a terminal without a PTY.
const NO_PTY_NOTICE: &str =
    "\x1b[2m[no PTY here: each command runs in a shell of its own]\x1b[0m\r\n";

#[derive(Debug, Clone)]
pub(super) struct TerminalConfig {
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) cwd: Vec<u8>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) dir: PathBuf,
    pub(super) log_limit: u64,
    pub(super) shell: Shell,
}

#[derive(Debug)]
pub(super) struct RemoteTerminal {
    pub(super) id: String,
    pub(super) opened: TerminalConfig,
    pub(super) size: (u16, u16),
    pub(super) log: Log,
    pub(super) state: State,
    pub(super) line: InputLine,
    /// Lines typed while a command ran.
    pub(super) typed: VecDeque<String>,
    pub(super) queue: VecDeque<String>,
    pub(super) running: Option<String>,
    pub(super) commands: BTreeMap<String, RemoteCommand>,
    /// Numbers of commands whose files inside can be removed.
    pub(super) done: Vec<u64>,
    pub(super) ready: bool,
    pub(super) exit: Option<i32>,
    /// The most recent write ids.
    pub(super) writes: VecDeque<String>,
    opened_ms: u64,
    output_ms: u64,
    last: u64,
    /// Whether the cursor is at the start of a line.
    fresh: bool,
}

#[derive(Debug)]
pub(super) struct RemoteCommand {
    pub(super) kind: CommandKind,
    /// The request, without the standard input once that was sent.
    pub(super) spec: CommandSpec,
    pub(super) number: u64,
    pub(super) mark: String,
    pub(super) phase: Phase,
    /// The instance has confirmed its start.
    pub(super) begun: bool,
    pub(super) started_ms: u64,
    pub(super) outputs: [Output; 2],
    pub(super) done: Option<Event>,
    /// Set to `true` to end the command.
    pub(super) cancel: watch::Sender<bool>,
    /// The ids of the PTYs it was started on.
    pub(super) ptys: Vec<String>,
    /// The input of the PTY it is on.
    pub(super) pty: Option<mpsc::Sender<PtyInput>>,
    copy: ScreenCopy,
    shown: [u64; 2],
}

#[derive(Debug, Clone)]
pub(super) struct CommandSpec {
    pub(super) id: String,
    pub(super) text: Vec<u8>,
    pub(super) timeout_ms: u64,
    pub(super) stdin: StdinMode,
    pub(super) given: Vec<u8>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) cwd: Vec<u8>,
    pub(super) keep: Keep,
}

impl CommandSpec {
    /// An internal command, without a time limit.
    pub(super) fn own(id: String, text: Vec<u8>) -> Self {
        let (env, cwd, given) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            id,
            text,
            timeout_ms: 0,
            stdin: StdinMode::Null,
            given,
            env,
            cwd,
            keep: DEFAULT_KEEP,
        }
    }
}

impl RemoteTerminal {
    /// Opens a terminal whose log continues at `base`.
    pub(super) fn open(
        id: String,
        opened: TerminalConfig,
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
            line: InputLine::default(),
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
            Shell::Plain | Shell::Other(_) => (CommandKind::Program, program(&it.opened.argv)),
            Shell::Bash | Shell::Zsh | Shell::Sh => (CommandKind::First, b":".to_vec()),
        };
        let mut spec = CommandSpec::own(id, text);
        if kind == CommandKind::Program {
            spec.stdin = StdinMode::Open;
            it.ready = true;
        }
        it.ask(kind, spec);
        Ok(it)
    }

    /// Restores a saved terminal. Also returns the ids of the commands to follow.
    pub(super) fn restore(saved: SavedTerminal) -> Option<(Self, Vec<String>)> {
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
        } = saved.open.as_request()?
        else {
            return None;
        };
        let dir = PathBuf::from(String::from_utf8(dir).ok()?);
        if !dir.is_dir() {
            // The terminal is being deleted.
            return None;
        }
        let opened = TerminalConfig { argv, cwd, env, dir, log_limit, shell };
        let mut it = Self::open(terminal, opened, (cols, rows), base_offset, state)
            .inspect_err(|error| tracing::error!(%error, "cannot restore a terminal"))
            .ok()?;
        if saved.ready || !saved.commands.is_empty() {
            it.queue.clear();
            it.commands.clear();
        }
        (it.opened_ms, it.ready, it.last) = (saved.opened_ms, saved.ready, saved.last);
        (it.done, it.exit, it.fresh) = (saved.done, saved.exit, false);
        let mut open = Vec::new();
        for saved in saved.commands {
            let Some(command) = it.restore_command(saved) else { continue };
            let id = command.spec.id.clone();
            if command.phase == Phase::Running {
                it.running = Some(id.clone());
            }
            open.push(id.clone());
            it.commands.insert(id, command);
        }
        Some((it, open))
    }

    fn restore_command(&self, saved: SavedCommand) -> Option<RemoteCommand> {
        let Request::Exec { command, text, timeout_ms, stdin, keep_head, keep_tail, .. } =
            saved.exec.as_request()?
        else {
            return None;
        };
        let keep = Keep { head: keep_head, tail: keep_tail };
        let spec = CommandSpec { timeout_ms, stdin, keep, ..CommandSpec::own(command, text) };
        let mut command = self.command(saved.kind, spec);
        command.phase = if saved.done.is_some() { Phase::Done } else { Phase::Running };
        (command.number, command.mark) = (saved.number, saved.mark);
        (command.started_ms, command.shown) = (saved.started_ms, saved.shown);
        command.ptys = saved.ptys;
        command.done = saved.done.and_then(|done| done.as_event());
        Some(command)
    }

    pub(super) fn saved(&self) -> SavedTerminal {
        let TerminalConfig { argv, cwd, env, dir, log_limit, shell } = self.opened.clone();
        let open = WireMessage::request(&Request::Open {
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
        let commands = began.map(|command| SavedCommand {
            exec: WireMessage::request(&Request::Exec {
                seq: 0,
                terminal: self.id.clone(),
                command: command.spec.id.clone(),
                text: command.spec.text.clone(),
                timeout_ms: command.spec.timeout_ms,
                stdin: command.spec.stdin,
                stdin_data: Vec::new(),
                env: Vec::new(),
                cwd: Vec::new(),
                if_busy: wire::IfBusy::Wait,
                keep_head: command.spec.keep.head,
                keep_tail: command.spec.keep.tail,
            }),
            kind: command.kind,
            number: command.number,
            mark: command.mark.clone(),
            started_ms: command.started_ms,
            shown: command.shown,
            ptys: command.ptys.clone(),
            done: command.done.as_ref().map(WireMessage::event),
        });
        SavedTerminal {
            open,
            opened_ms: self.opened_ms,
            ready: self.ready,
            last: self.last,
            done: self.done.clone(),
            exit: self.exit,
            commands: commands.collect(),
        }
    }

    /// Queues a command; internal ones go before those of clients.
    pub(super) fn ask(&mut self, kind: CommandKind, spec: CommandSpec) {
        let id = spec.id.clone();
        let command = self.command(kind, spec);
        self.commands.insert(id.clone(), command);
        match kind {
            CommandKind::Exec => self.queue.push_back(id),
            CommandKind::First | CommandKind::Typed | CommandKind::Quiet | CommandKind::Program => {
                self.queue.push_front(id)
            }
        }
    }

    fn command(&self, kind: CommandKind, spec: CommandSpec) -> RemoteCommand {
        let dir = self.opened.dir.join("commands");
        let output = |suffix| Output::new(dir.join(format!("{}.{suffix}", spec.id)), spec.keep);
        RemoteCommand {
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
            pty: None,
            copy: ScreenCopy::default(),
            shown: [0; 2],
        }
    }

    /// Whether a command of a client runs or is queued.
    pub(super) fn is_busy(&self) -> bool {
        let mut open =
            self.running.iter().chain(&self.queue).filter_map(|id| self.commands.get(id));
        open.any(|command| !matches!(command.kind, CommandKind::First | CommandKind::Quiet))
    }

    /// Takes the next command from the queue and gives it a number and a mark.
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

    /// Returns the runner of a program; `None` for any other command.
    pub(super) fn runner(&mut self, id: &str, follower: Follower) -> Option<ProgramRunner> {
        let command = self.commands.get_mut(id).filter(|it| it.kind == CommandKind::Program)?;
        let (pty_input, input) = mpsc::channel(MAX_QUEUED_INPUT);
        command.pty = Some(pty_input);
        let (ptys, written) = (command.ptys.clone(), command.shown[0]);
        let (mark, size) = (command.mark.clone(), self.size);
        Some(ProgramRunner { follower, input, size, ptys, written, mark })
    }

    /// The input of the PTY of the running command, if it is on one.
    pub(super) fn pty_input(&self) -> Option<&mpsc::Sender<PtyInput>> {
        self.commands.get(self.running.as_ref()?)?.pty.as_ref()
    }

    pub(super) fn command_dir(&self, root: &str, id: &str) -> Option<CommandDir> {
        let number = self.commands.get(id)?.number;
        Some(CommandDir { terminal: self.inside(root), number, id: id.to_owned() })
    }

    /// The directory of its commands inside the instance.
    pub(super) fn inside(&self, root: &str) -> String {
        format!("{root}/t/{}", self.id)
    }

    pub(super) fn start(&mut self, root: &str, id: &str) -> Option<CommandFiles> {
        let command_dir = self.command_dir(root, id)?;
        let command = self.commands.get_mut(id)?;
        let marks = [("STEAD", "1"), (TERMINAL_MARK, &self.id), (COMMAND_MARK, id)];
        let marks =
            marks.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let first = matches!(command.kind, CommandKind::First | CommandKind::Program);
        // The saved state contains the environment.
        let base =
            self.opened.env.iter().filter(|(name, _)| first || name == b"PATH" || name == b"HOME");
        let base = base.filter(|(name, _)| !marks.iter().any(|(mark, _)| mark == name)).cloned();
        let env: Vec<_> = base.chain(marks.clone()).collect();
        let own = command.spec.env.iter().cloned().chain(marks).collect::<Vec<_>>();
        let state = command_dir.state();
        let wrapped = remote::RemoteExec {
            text: &command.spec.text,
            state: &self.state,
            env: &own,
            cwd: Some(command.spec.cwd.as_slice()).filter(|cwd| !cwd.is_empty()),
            mark: &command.mark,
            state_file: Some(state.as_bytes()),
        };
        let (bash, sh) = match command.kind {
            CommandKind::Program => (command.spec.text.clone(), command.spec.text.clone()),
            CommandKind::First | CommandKind::Exec | CommandKind::Typed | CommandKind::Quiet => {
                (remote::in_bash(&wrapped), remote::in_sh(&wrapped))
            }
        };
        let given = std::mem::take(&mut command.spec.given);
        let (cwd, stdin) = (self.opened.cwd.clone(), command.spec.stdin);
        Some(CommandFiles { bash, sh, env, cwd, stdin, given })
    }

    /// Stores output of a command. Returns the bytes to show on the pty.
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
            CommandKind::Exec | CommandKind::Typed => command.copy.take(stream, fresh),
            CommandKind::Program if !command.ptys.is_empty() => fresh.to_vec(),
            CommandKind::Program => with_returns(fresh),
            CommandKind::First | CommandKind::Quiet => Vec::new(),
        }
    }

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

    pub(super) fn greeting(&self) -> Vec<u8> {
        NO_PTY_NOTICE.as_bytes().to_vec()
    }

    /// The echo of a command that starts, as if it had been typed.
    pub(super) fn begun(&self, id: &str) -> Vec<u8> {
        let Some(command) = self.commands.get(id) else { return Vec::new() };
        let text = command.spec.text.trim_ascii_end();
        let shown = ScreenCopy::default().take(0, &text[..text.len().min(MAX_ECHO_BYTES)]);
        match command.kind {
            CommandKind::Exec if self.line.text().is_empty() => [&shown[..], b"\r\n"].concat(),
            CommandKind::Exec => [b"\r\x1b[K$ ", &shown[..], b"\r\n"].concat(),
            CommandKind::Typed => b"\r\n".to_vec(),
            CommandKind::First | CommandKind::Quiet | CommandKind::Program => Vec::new(),
        }
    }

    /// The bytes to show when a command has ended, before the prompt.
    pub(super) fn ended(&self, id: &str) -> Vec<u8> {
        self.commands.get(id).map_or(Vec::new(), |command| command.copy.end())
    }

    /// Appends bytes to the log. Returns their offset and time.
    pub(super) fn show(&mut self, bytes: &[u8]) -> (u64, u64) {
        self.output_ms = now_ms();
        self.fresh = bytes.ends_with(b"\n");
        let offset = self.log.append(RecordKind::Output, self.output_ms, bytes);
        (offset, self.output_ms)
    }

    pub(super) fn info(&self) -> TerminalInfo {
        let execs = self.commands.values().filter(|command| command.kind == CommandKind::Exec);
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
            commands: execs
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

/// A script that replaces itself with a program.
fn program(argv: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<Vec<u8>> = argv.iter().map(|word| shell::quote::single(word)).collect();
    [b"exec ", &words.join(&b' ')[..], b"\n"].concat()
}

/// Inserts a carriage return before every newline.
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
