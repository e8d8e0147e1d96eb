//! The programs of a sandbox, each in a terminal of its thread, by process id.
//!
//! A program that asks for a PTY is the program of a terminal of its own. Any other program runs as a command
//! of a worker: a terminal with a shell that runs one such program at a time and is then free for the next.
//! Both keep running without the server; after a restart `load` finds them by their rows.

mod load;
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

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use wire::Stream;

pub use load::{PTY_NAME, SESSION_NAME};
pub use program::{ProcessEnd, ProcessOutput, ProcessResult, SandboxProcess, Start};
pub use table::{ProcessTables, SandboxProcesses};

use crate::{
    Adapter,
    origin::IMAGE_ORIGIN,
    wrap::{self, Config},
};
use api::error::Problem;
use engine::terminal::{
    BusyPolicy, ExecOptions, Execution, IfAbandoned, NewTerminal, OutputDelivery, Resume, Stdin,
    StdinAfterWrite, TerminalError, WatchEvent, WatchFrom, WatcherUpdate,
};
use model::{ShellKind, Terminal};
use program::ProcessKind;
use store::SandboxRecord;

/// A program that runs longer than this is recorded before its process id is returned.
const RECORD_AFTER: Duration = Duration::from_millis(25);
/// The limit of the output that is kept of each stream; later output is dropped.
const MAX_OUTPUT_BYTES: u64 = engine::terminal::MAX_OUTPUT;
/// The key Ctrl-D, which ends the input of a program on a PTY.
const END_OF_TRANSMISSION: u8 = 4;
/// The terminal size of a worker.
const WORKER_SIZE: (u16, u16) = (80, 24);

/// The shell of a worker. An image that is being built may have no other than `sh`.
fn worker_shell(sandbox: &SandboxRecord) -> ShellKind {
    if sandbox.row.origin == IMAGE_ORIGIN { ShellKind::Sh } else { ShellKind::Bash }
}

/// Appends as much as the output limit allows.
fn append(all: &mut Vec<u8>, bytes: &[u8]) {
    let room = usize::try_from(MAX_OUTPUT_BYTES).unwrap_or(usize::MAX).saturating_sub(all.len());
    all.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl Adapter {
    /// Starts a program; [`Adapter::stream_output`] returns its output. Boxed, so that it is compiled once and not in
    /// each vendor's module that awaits it.
    pub fn start_process<'a>(
        &'a self,
        sandbox: &'a SandboxRecord,
        start: Start,
    ) -> BoxFuture<'a, Result<Arc<SandboxProcess>, Problem>> {
        Box::pin(async move {
            let processes = self.processes(sandbox).await?;
            self.projects.touch(&sandbox.thread.project_id).await;
            match start.pty {
                Some(size) => self.start_pty(sandbox, &processes, start, size).await,
                None => self.start_command(sandbox, &processes, start).await,
            }
        })
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
                // Only the client's program, without a shell: the terminal ends with it.
                shell: Some(ShellKind::Plain),
                size,
                cwd: config.cwd.clone().unwrap_or_default(),
                env: config.envs.clone(),
            })
            .await?;
        // A program that ended at once has no process id.
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
            text: match worker_shell(sandbox) {
                ShellKind::Sh => wrap::posix_text(&config),
                _ => wrap::text(&config, tag.as_deref()),
            },
            timeout,
            stdin: if stdin { Stdin::Open } else { Stdin::Null },
            env: config.envs.clone(),
            cwd: config.cwd.clone(),
            max_output: MAX_OUTPUT_BYTES,
            delivery: OutputDelivery::Receipt,
            if_busy: BusyPolicy::Fail,
            resume: Resume::No,
            touch: None,
            keyed: false,
            if_abandoned: IfAbandoned::Keep,
        };
        let (terminal, mut execution) = self.exec_on_worker(sandbox, processes, options).await?;
        let (pid, stderr_start) = match started(&mut execution).await {
            Ok(started) => started,
            Err(error) => {
                processes.inner().idle.push(terminal);
                return Err(error.into());
            }
        };
        // A short program needs no row while it runs: its end is about to be recorded.
        if tokio::time::timeout(RECORD_AFTER, execution.ended()).await.is_err() {
            execution.put_on_record().await?;
        }
        let kind = ProcessKind::Command { id: execution.id().clone(), stderr_start };
        let signalled = AtomicI32::new(0);
        let process = Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
        processes.begin(process.clone());
        self.watch_end(processes.clone(), process.clone(), None);
        Ok(process)
    }

    /// Runs a command on an idle worker, or on a new one.
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
                            shell: Some(worker_shell(sandbox)),
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
                // A person uses this shell. It stops being a worker until the next server start.
                Err(TerminalError::Busy | TerminalError::QueueFull | TerminalError::Exited)
                    if !is_new => {}
                Err(error) => {
                    processes.inner().idle.push(terminal);
                    return Err(error.into());
                }
            }
        }
    }

    /// Waits for the end of a program in a task. A program with a PTY is ended at its timeout.
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
                is_known = &mut ended => {
                    if is_known { processes.end(&process) } else { return }
                }
                () = app.stopping.cancelled() => return,
                () = tokio::time::sleep(wait), if timeout.is_some() => {
                    processes.inner().running.remove(&process.pid);
                    vec![process.terminal.clone()]
                }
            };
            for terminal in surplus {
                if let Err(problem) = app.delete_terminal(&terminal).await {
                    let detail = problem.detail();
                    tracing::warn!(terminal = %terminal.terminal_id, detail, "cannot delete a terminal");
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

    /// Runs a program to its end. Output beyond the limit is dropped.
    pub async fn run_process(
        &self,
        sandbox: &SandboxRecord,
        start: Start,
    ) -> Result<ProcessResult, Problem> {
        let process = self.start_process(sandbox, start).await?;
        let (sender, mut output) = mpsc::channel(8);
        let stream = async {
            let streamed = self.stream_output(&process, &sender).await;
            drop(sender);
            streamed
        };
        let collect = async {
            let mut result =
                ProcessResult { end: ProcessEnd::Lost, stdout: Vec::new(), stderr: Vec::new() };
            while let Some(chunk) = output.recv().await {
                match chunk {
                    ProcessOutput::Stdout(bytes) => append(&mut result.stdout, &bytes),
                    ProcessOutput::Stderr(bytes) => append(&mut result.stderr, &bytes),
                    ProcessOutput::Pty(bytes) => append(&mut result.stdout, &bytes),
                    ProcessOutput::End(end) => result.end = end,
                }
            }
            result
        };
        let (streamed, result) = tokio::join!(stream, collect);
        streamed.map(|()| result)
    }

    /// Writes to the standard input of a program.
    pub async fn write_stdin(
        &self,
        process: &SandboxProcess,
        data: Vec<u8>,
    ) -> Result<(), Problem> {
        match &process.kind {
            ProcessKind::Pty => {
                self.terminals.input(&process.terminal, "", data.into()).await?;
            }
            ProcessKind::Command { id, .. } => {
                let after = StdinAfterWrite::KeepOpen;
                self.terminals.feed(&process.terminal, id, String::new(), data, after).await?;
            }
        }
        Ok(())
    }

    /// Closes the standard input of a program.
    pub async fn close_stdin(&self, process: &SandboxProcess) -> Result<(), Problem> {
        match &process.kind {
            ProcessKind::Pty => {
                let data = vec![END_OF_TRANSMISSION];
                self.terminals.input(&process.terminal, "", data.into()).await?;
            }
            ProcessKind::Command { id, .. } => {
                let after = StdinAfterWrite::Close;
                self.terminals.feed(&process.terminal, id, String::new(), vec![], after).await?;
            }
        }
        Ok(())
    }

    /// Resizes the PTY of a program; `false` if it has none.
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

    /// Sends a signal to a program.
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
                // The signal is for the program and its process group, not for the foreground process group of
                // the PTY, which may be another.
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

/// Waits until a command has reported its process id; returns it with the offset where the program's own
/// standard error starts.
async fn started(execution: &mut Execution) -> Result<(u32, u64), TerminalError> {
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
        if let Some(started) = wrap::pid(&head) {
            return Ok(started);
        }
        if over {
            let reason = String::from_utf8_lossy(&head).trim().to_owned();
            return Err(TerminalError::NotExecutable(reason));
        }
        execution.more().await?;
    }
}
