//! The programs of a sandbox, each in a terminal of its thread, by their process numbers.
//!
//! A program with a terminal of its own (PTY) is that terminal's program. Any other runs as a command of
//! a worker: a terminal with a shell that runs one such program at a time and is then free for the
//! next. Both keep running without the server; after a restart they are found again by their records.

mod program;
mod stream;
mod table;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use tokio::sync::mpsc;
use wire::Stream;

pub use program::{ProcessEnd, ProcessOutput, ProcessResult, SandboxProcess, Start};
pub use table::{ProcessTables, SandboxProcesses};

use crate::{
    Adapter,
    wrap::{self, Config},
};
use api::error::Problem;
use engine::terminal::{
    BusyPolicy, ExecOptions, Execution, IfAbandoned, NewTerminal, Resume, Stdin, StdinAfterWrite,
    TerminalError, WatchEvent, WatchFrom, WatcherUpdate,
};
use model::{ShellKind, Terminal, TerminalStatus, Timestamp};
use program::ProcessKind;
use store::{CommandQuery, PageRequest, SandboxRecord};

/// A program that runs longer than this is recorded before its number is returned.
const RECORD_AFTER: Duration = Duration::from_millis(25);
/// How long ago one may have ended to be found again after a restart.
const MAX_ENDED_AGE: Duration = Duration::from_secs(600);
/// The most output that is kept of each stream from the start.
const MAX_OUTPUT_BYTES: u64 = engine::terminal::MAX_OUTPUT;
/// The variable that holds the client's name for a terminal, by which it is found again.
pub const PTY_NAME: &str = "DAYTONA_PTY_ID";
/// The variable of a terminal that is a session of a client and no worker.
pub const SESSION_NAME: &str = "DAYTONA_SESSION_ID";
/// The terminal size of a worker.
const WORKER_SIZE: (u16, u16) = (80, 24);

fn add(all: &mut Vec<u8>, bytes: &[u8]) {
    let room = usize::try_from(MAX_OUTPUT_BYTES).unwrap_or(usize::MAX).saturating_sub(all.len());
    all.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl Adapter {
    /// The programs of a sandbox; those that an earlier server started are found again first.
    pub async fn processes(
        &self,
        sandbox: &SandboxRecord,
    ) -> Result<Arc<SandboxProcesses>, Problem> {
        let processes = self.state.processes.of(sandbox.id());
        processes.loaded.get_or_try_init(|| self.load_processes(sandbox, &processes)).await?;
        Ok(processes)
    }

    async fn load_processes(
        &self,
        sandbox: &SandboxRecord,
        processes: &Arc<SandboxProcesses>,
    ) -> Result<(), Problem> {
        let since = self.now().at.checked_sub(MAX_ENDED_AGE).unwrap_or(Timestamp::MIN);
        for terminal in self.store.thread_terminals(sandbox.id()).await? {
            if !terminal.argv.is_empty() {
                self.load_pty(processes, terminal).await?;
                continue;
            }
            if terminal.env.contains_key(SESSION_NAME) {
                continue;
            }
            let mut busy = false;
            let page = PageRequest::first(16);
            let query = CommandQuery::default();
            let recent = self.store.commands(&terminal.terminal_id, query, page).await?;
            for command in recent.items.into_iter().rev() {
                let ended = command.status.is_end();
                busy |= !ended;
                if ended && command.finished_at.is_none_or(|at| at < since) {
                    continue;
                }
                let Some((config, tag)) = wrap::parse(&command.text) else { continue };
                let head = self.terminals.output(&terminal, &command, Stream::Stderr, 0, 32).await;
                let Some((pid, begins)) = head.ok().and_then(|head| wrap::pid(&head.bytes)) else {
                    continue;
                };
                let kind = ProcessKind::Command { id: command.command_id.clone(), begins };
                let terminal = terminal.clone();
                let signalled = AtomicI32::new(0);
                let process =
                    Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
                if ended {
                    processes.inner().ended.push(process);
                } else {
                    processes.begin(process.clone());
                    self.watch_end(processes.clone(), process, None);
                }
            }
            if !busy {
                processes.inner().idle.push(terminal);
            }
        }
        Ok(())
    }

    async fn load_pty(
        &self,
        processes: &Arc<SandboxProcesses>,
        terminal: Terminal,
    ) -> Result<(), Problem> {
        if terminal.status != TerminalStatus::Live {
            return Ok(());
        }
        let Some(pid) = self.terminals.pid(&terminal).await else { return Ok(()) };
        let mut words = terminal.argv.iter().cloned();
        let config = Config {
            cmd: words.next().unwrap_or_default(),
            args: words.collect(),
            envs: terminal.env.clone(),
            cwd: Some(terminal.cwd.clone()).filter(|cwd| !cwd.is_empty()),
        };
        let signalled = AtomicI32::new(0);
        let kind = ProcessKind::Pty;
        let tag = terminal.env.get(PTY_NAME).cloned();
        let process = Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
        processes.begin(process.clone());
        self.watch_end(processes.clone(), process, None);
        Ok(())
    }

    /// Starts a program; what it says is heard by [`Adapter::stream_output`].
    pub async fn start_process(
        &self,
        sandbox: &SandboxRecord,
        start: Start,
    ) -> Result<Arc<SandboxProcess>, Problem> {
        let processes = self.processes(sandbox).await?;
        self.projects.touch(&sandbox.thread.project_id).await;
        match start.pty {
            Some(size) => self.start_pty(sandbox, &processes, start, size).await,
            None => self.start_command(sandbox, &processes, start).await,
        }
    }

    async fn start_pty(
        &self,
        sandbox: &SandboxRecord,
        processes: &Arc<SandboxProcesses>,
        start: Start,
        size: (u16, u16),
    ) -> Result<Arc<SandboxProcess>, Problem> {
        let Start { config, tag, timeout, .. } = start;
        let mut argv = vec![config.cmd.clone()];
        argv.extend(config.args.iter().cloned());
        let terminal = self
            .terminals
            .open(NewTerminal {
                thread_id: sandbox.id().clone(),
                lease_id: sandbox.thread.lease_id.clone(),
                argv,
                // What the client asked for and nothing else: it ends when its program does.
                shell: Some(ShellKind::Plain),
                size,
                cwd: config.cwd.clone().unwrap_or_default(),
                env: config.envs.clone(),
            })
            .await?;
        // A program that is over at once has none any more.
        let pid = self.terminals.pid(&terminal).await.unwrap_or(0);
        let (kind, signalled) = (ProcessKind::Pty, AtomicI32::new(0));
        let process = Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
        processes.begin(process.clone());
        self.watch_end(processes.clone(), process.clone(), timeout);
        Ok(process)
    }

    async fn start_command(
        &self,
        sandbox: &SandboxRecord,
        processes: &Arc<SandboxProcesses>,
        start: Start,
    ) -> Result<Arc<SandboxProcess>, Problem> {
        let Start { config, tag, stdin, timeout, .. } = start;
        let options = ExecOptions {
            text: wrap::text(&config, tag.as_deref()),
            timeout,
            stdin: if stdin { Stdin::Open } else { Stdin::Null },
            env: config.envs.clone(),
            cwd: config.cwd.clone(),
            max_output: MAX_OUTPUT_BYTES,
            if_busy: BusyPolicy::Fail,
            resume: Resume::No,
            touch: None,
            keyed: false,
            if_abandoned: IfAbandoned::Keep,
        };
        let (terminal, mut execution) = self.exec_on_worker(sandbox, processes, options).await?;
        let begun = begun(&mut execution).await;
        let (pid, begins) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                processes.inner().idle.push(terminal);
                return Err(error.into());
            }
        };
        // What is short needs no record while it runs: its end is about to be one.
        if tokio::time::timeout(RECORD_AFTER, execution.ended()).await.is_err() {
            execution.put_on_record().await?;
        }
        let kind = ProcessKind::Command { id: execution.id().clone(), begins };
        let signalled = AtomicI32::new(0);
        let process = Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
        processes.begin(process.clone());
        self.watch_end(processes.clone(), process.clone(), None);
        Ok(process)
    }

    /// Hands a command to a worker that has nothing to do, or to a new one.
    async fn exec_on_worker(
        &self,
        sandbox: &SandboxRecord,
        processes: &Arc<SandboxProcesses>,
        mut options: ExecOptions,
    ) -> Result<(Terminal, Execution), Problem> {
        loop {
            let idle = processes.inner().idle.pop();
            let is_new = idle.is_none();
            let terminal = match idle {
                Some(terminal) => terminal,
                None => {
                    self.terminals
                        .open(NewTerminal {
                            thread_id: sandbox.id().clone(),
                            lease_id: sandbox.thread.lease_id.clone(),
                            argv: vec![],
                            shell: Some(ShellKind::Bash),
                            size: WORKER_SIZE,
                            cwd: String::new(),
                            env: Default::default(),
                        })
                        .await?
                }
            };
            // A shell that is only starting is not busy.
            let starting = is_new || !self.terminals.facts(&terminal).await.live;
            options.if_busy = if starting { BusyPolicy::Wait } else { BusyPolicy::Fail };
            match self.terminals.exec(&terminal, options.clone(), None).await {
                Ok(execution) => return Ok((terminal, execution)),
                // A person is using it. It is theirs until the next start.
                Err(TerminalError::Busy | TerminalError::QueueFull | TerminalError::Exited)
                    if !is_new => {}
                Err(error) => {
                    processes.inner().idle.push(terminal);
                    return Err(error.into());
                }
            }
        }
    }

    /// Waits for the end of a program, and ends one that wants a terminal when its time is over.
    fn watch_end(
        &self,
        processes: Arc<SandboxProcesses>,
        process: Arc<SandboxProcess>,
        timeout: Option<Duration>,
    ) {
        let app = self.clone();
        self.tasks.spawn(async move {
            let ended = app.ended(&process);
            tokio::pin!(ended);
            let wait = timeout.unwrap_or(Duration::MAX);
            let surplus = tokio::select! {
                told = &mut ended => if told { processes.end(&process) } else { return },
                () = app.stopping.cancelled() => return,
                () = tokio::time::sleep(wait), if timeout.is_some() => {
                    processes.inner().running.remove(&process.pid);
                    vec![process.terminal.clone()]
                }
            };
            for terminal in surplus {
                if let Err(problem) = app.delete_terminal(&terminal).await {
                    let detail = problem.detail();
                    tracing::warn!(terminal = %terminal.terminal_id, detail, "cannot delete it");
                }
            }
        });
    }

    /// Waits until a program has ended; `false` if its end is unknown.
    async fn ended(&self, process: &SandboxProcess) -> bool {
        match &process.kind {
            ProcessKind::Command { id, .. } => {
                match self.terminals.follow(&process.terminal, id).await {
                    Some(mut execution) => execution.ended().await.is_ok(),
                    None => true,
                }
            }
            ProcessKind::Pty => {
                let Ok(mut watcher) = self
                    .terminals
                    .watch_as_guest(&process.terminal, String::new(), WatchFrom::Picture)
                    .await
                else {
                    return true;
                };
                if self.terminals.facts(&process.terminal).await.exit.is_some() {
                    return true;
                }
                loop {
                    match watcher.next().await {
                        Ok(WatcherUpdate::Event(WatchEvent::Exit { .. })) | Err(_) => return true,
                        Ok(_) => {}
                    }
                }
            }
        }
    }

    /// Runs a program to its end; what it writes beyond the limit is not kept.
    pub async fn run_process(
        &self,
        sandbox: &SandboxRecord,
        start: Start,
    ) -> Result<ProcessResult, Problem> {
        let process = self.start_process(sandbox, start).await?;
        let (sender, mut said) = mpsc::channel(8);
        let hear = async {
            let heard = self.stream_output(&process, &sender).await;
            drop(sender);
            heard
        };
        let gather = async {
            let mut ran =
                ProcessResult { end: ProcessEnd::Lost, stdout: Vec::new(), stderr: Vec::new() };
            while let Some(said) = said.recv().await {
                match said {
                    ProcessOutput::Stdout(bytes) => add(&mut ran.stdout, &bytes),
                    ProcessOutput::Stderr(bytes) => add(&mut ran.stderr, &bytes),
                    ProcessOutput::Pty(bytes) => add(&mut ran.stdout, &bytes),
                    ProcessOutput::End(end) => ran.end = end,
                }
            }
            ran
        };
        let (heard, ran) = tokio::join!(hear, gather);
        heard.map(|()| ran)
    }

    /// Gives a program something to read.
    pub async fn feed_process(
        &self,
        process: &SandboxProcess,
        data: Vec<u8>,
        eof: bool,
    ) -> Result<(), Problem> {
        match &process.kind {
            ProcessKind::Pty => {
                // The end of what is typed is typed, too.
                let data = if eof { vec![4] } else { data };
                self.terminals.input(&process.terminal, "", data.into()).await?;
            }
            ProcessKind::Command { id, .. } => {
                let after = if eof { StdinAfterWrite::Close } else { StdinAfterWrite::KeepOpen };
                self.terminals.feed(&process.terminal, id, String::new(), data, after).await?;
            }
        }
        Ok(())
    }

    /// Gives the terminal of a program another size; `false` if it has none.
    pub async fn resize_process(
        &self,
        process: &SandboxProcess,
        (cols, rows): (u16, u16),
    ) -> Result<bool, Problem> {
        match process.kind {
            ProcessKind::Pty => {
                self.terminals.resize(&process.terminal, cols, rows).await?;
                Ok(true)
            }
            ProcessKind::Command { .. } => Ok(false),
        }
    }

    /// Sends a program a signal.
    pub async fn signal_process(
        &self,
        sandbox: &SandboxRecord,
        process: &SandboxProcess,
        signal: i32,
    ) -> Result<(), Problem> {
        process.signalled.store(signal, Ordering::Relaxed);
        match &process.kind {
            ProcessKind::Command { id, .. } => {
                self.terminals.signal_command(&process.terminal, id, signal).await?;
            }
            ProcessKind::Pty => {
                // To the program itself and not to what it has in its foreground; then to its group,
                // so that nothing of it stays behind.
                let pid = process.pid;
                let text = format!("kill -s {signal} -- -{pid} || kill -s {signal} {pid}");
                let start = Start {
                    config: Config {
                        cmd: "/bin/sh".into(),
                        args: vec!["-c".into(), text],
                        ..Config::default()
                    },
                    tag: None,
                    stdin: false,
                    timeout: Some(Duration::from_secs(10)),
                    pty: None,
                };
                self.start_process(sandbox, start).await?;
            }
        }
        Ok(())
    }
}

/// Waits until a command has reported the number of its process.
async fn begun(execution: &mut Execution) -> Result<(u32, u64), TerminalError> {
    execution.listen().await?;
    loop {
        let over = execution.is_over();
        execution.progress().mark_unchanged();
        let head = match execution.read(Stream::Stderr, 0, 32).await {
            Ok(head) => head.bytes,
            Err(TerminalError::NotKept) if over => {
                execution.finished().await.map(|receipt| receipt.stderr)?
            }
            Err(error) => return Err(error),
        };
        if let Some(begun) = wrap::pid(&head) {
            return Ok(begun);
        }
        if over {
            let said = String::from_utf8_lossy(&head).trim().to_owned();
            return Err(TerminalError::NotExecutable(said));
        }
        execution.more().await?;
    }
}
