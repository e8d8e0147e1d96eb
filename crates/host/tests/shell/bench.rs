//! A terminal with a real shell in a real host, and the requests that many tests send.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use wire::{Event, IfBusy, Outcome, ReplyCode, Request, Sections, Shell, StdinMode, Stream};

use crate::support::{Host, Session, TIMEOUT};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A terminal under test.
pub struct Bench {
    pub session: Session,
    pub terminal: String,
    /// The directory in which its shell started.
    pub work: PathBuf,
}

/// A command to run.
#[derive(Clone)]
pub struct Spec {
    pub command: String,
    pub text: Vec<u8>,
    pub timeout: Duration,
    pub stdin: StdinMode,
    pub stdin_data: Vec<u8>,
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub cwd: Vec<u8>,
    pub if_busy: IfBusy,
    pub keep: (u64, u64),
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
    pub outcome: Outcome,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub shell_restarted: bool,
    #[allow(dead_code)]
    pub changed: Sections,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// The time from the request to the report of the end.
    pub took: Duration,
}

impl CommandResult {
    pub fn text(&self) -> (i32, &str, &str) {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        (self.exit_code.unwrap_or(-1), text(&self.stdout), text(&self.stderr))
    }
}

impl Bench {
    pub fn new(host: &Host, shell: Shell) -> Self {
        Self::with(host, shell, Vec::new())
    }

    /// Opens a terminal whose shell starts with a state.
    pub fn with(host: &Host, shell: Shell, state: Sections) -> Self {
        let program = match shell {
            Shell::Zsh => "/bin/zsh",
            Shell::Sh => "/bin/sh",
            _ => "/bin/bash",
        };
        Self::running(host, &[program], shell, state)
    }

    /// Opens a terminal that runs a program which is driven as a kind of shell.
    pub fn running(host: &Host, program: &[&str], shell: Shell, state: Sections) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let terminal = format!("term_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let work = host.dir.0.join("work").join(&terminal);
        let home = host.dir.0.join("home");
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&home).unwrap();
        // The default prompt of the system contains the names of the user and the machine.
        if !home.join(".bashrc").exists() {
            fs::write(home.join(".bashrc"), "PS1='$ '\n").unwrap();
        }
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", home.to_str().unwrap()),
            ("LANG", "C.UTF-8"),
        ];
        let mut session = host.connect();
        let mut opening = host.opening(&terminal, &["bash"]);
        if let Request::Open { argv, cwd, env: set, shell: kind, state: start, .. } = &mut opening {
            *argv = program.iter().map(|word| word.as_bytes().to_vec()).collect();
            *cwd = work.as_os_str().as_bytes().to_vec();
            *set = env.map(|(key, value)| (key.into(), value.into())).to_vec();
            *kind = shell;
            *start = state;
        }
        session.open(opening);
        session.attach(&terminal, 0);
        Self { session, terminal, work }
    }

    pub fn spec(&mut self, text: &[u8]) -> Spec {
        Spec {
            command: format!("cmd_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            text: text.to_vec(),
            timeout: Duration::from_secs(30),
            stdin: StdinMode::Null,
            stdin_data: Vec::new(),
            env: Vec::new(),
            cwd: Vec::new(),
            if_busy: IfBusy::Wait,
            keep: (8 << 20, 8 << 20),
        }
    }

    /// Submits a command. Returns the code of the reply.
    pub fn submit(&mut self, spec: &Spec) -> ReplyCode {
        let (terminal, spec) = (self.terminal.clone(), spec.clone());
        let code = self.session.code(|seq| Request::Exec {
            seq,
            terminal,
            command: spec.command,
            text: spec.text,
            timeout_ms: spec.timeout.as_millis() as u64,
            stdin: spec.stdin,
            stdin_data: spec.stdin_data,
            env: spec.env,
            cwd: spec.cwd,
            if_busy: spec.if_busy,
            keep_head: spec.keep.0,
            keep_tail: spec.keep.1,
        });
        code.0
    }

    /// Receives events until `wanted` returns a value for one of them.
    pub fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            let event = self.session.step();
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    }

    /// Waits for the end of a command.
    pub fn done(&mut self, id: &str) -> CommandResult {
        let mut ran = self.until(|event| match event {
            Event::Done {
                command, outcome, exit_code, signal, shell_restarted, changed, ..
            } if command == id => Some(CommandResult {
                outcome: *outcome,
                exit_code: *exit_code,
                signal: *signal,
                shell_restarted: *shell_restarted,
                changed: changed.clone(),
                stdout: Vec::new(),
                stderr: Vec::new(),
                took: Duration::ZERO,
            }),
            _ => None,
        });
        ran.stdout = self.output(id, Stream::Stdout);
        ran.stderr = self.output(id, Stream::Stderr);
        ran
    }

    pub fn run_spec(&mut self, spec: &Spec) -> CommandResult {
        let begun = Instant::now();
        assert_eq!(self.submit(spec), ReplyCode::Ok);
        let mut took = None;
        let mut ran = {
            let id = spec.command.clone();
            self.session.events.clear();
            let ran = self.done(&id);
            took.get_or_insert(begun.elapsed());
            ran
        };
        ran.took = took.unwrap_or_default();
        ran
    }

    pub fn run(&mut self, text: &str) -> CommandResult {
        let spec = self.spec(text.as_bytes());
        self.run_spec(&spec)
    }

    /// Returns all kept bytes of a stream.
    pub fn output(&mut self, id: &str, stream: Stream) -> Vec<u8> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let command = id.to_owned();
            let limit = 1 << 20;
            match self.session.ask(|seq| Request::ExecRead { seq, command, stream, from, limit }) {
                Event::ExecChunk { next, bytes, .. } => {
                    if bytes.is_empty() {
                        return all;
                    }
                    from = next;
                    all.extend_from_slice(&bytes);
                }
                other => panic!("expected a chunk, got {other:?}"),
            }
        }
    }

    /// Types text as a person would.
    pub fn types(&mut self, text: &str) {
        let terminal = self.terminal.clone();
        self.session.input(&terminal, text.as_bytes());
    }

    /// Types a secret as soon as the program hides it.
    pub fn type_secret(&mut self, id: &str, secret: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (terminal, write_id) = (self.terminal.clone(), id.to_owned());
            let data = secret.as_bytes().to_vec();
            let (code, _) =
                self.session.code(|seq| Request::TypeSecret { seq, terminal, write_id, data });
            match code {
                ReplyCode::Ok => return,
                code => assert!(Instant::now() < deadline, "{code:?}: {}", self.screen()),
            }
        }
    }

    /// Returns the bytes that were sent to the screen so far.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.session.output).into_owned()
    }

    /// Reconnects to a host that closed the connection.
    pub fn reconnect(&mut self, host: &Host) {
        self.session = host.connect();
    }

    /// Closes the terminal.
    pub fn close(mut self) {
        let terminal = self.terminal.clone();
        let seq = self.session.client.seq();
        self.session.client.ask(&Request::Close { seq, terminal }, TIMEOUT).unwrap();
    }
}
