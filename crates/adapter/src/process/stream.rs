//! Streams the output of a program up to its end.

use tokio::sync::mpsc;
use wire::Stream;

use super::program::{ProcessEnd, ProcessKind, ProcessOutput, SandboxProcess};
use crate::Adapter;
use api::error::Problem;
use engine::terminal::{Execution, TerminalError, WatchEvent, WatchFrom, WatcherUpdate};
use model::{Command, CommandId};

/// How often output is polled that stays open after the end of its command.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(60);

/// The escape sequence that readline writes to standard error when a program cannot be executed.
const EDITOR_RESET: &[u8] = b"\x1b[?2004l\r";
/// The exit codes of a program that cannot be executed.
const NOT_EXECUTED: [i32; 2] = [126, 127];

/// When a stream of output ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// When the program has ended.
    Ended,
    /// When no process has the output open.
    Closed,
}

impl Adapter {
    /// Sends all output of a program, past and future, and then its end.
    pub async fn stream_output(
        &self,
        process: &SandboxProcess,
        output: &mpsc::Sender<ProcessOutput>,
    ) -> Result<(), Problem> {
        self.stream_until(process, Until::Ended, output).await
    }

    /// Sends all output of a program and of the processes that inherited its output.
    pub async fn stream_until_closed(
        &self,
        process: &SandboxProcess,
        output: &mpsc::Sender<ProcessOutput>,
    ) -> Result<(), Problem> {
        self.stream_until(process, Until::Closed, output).await
    }

    async fn stream_until(
        &self,
        process: &SandboxProcess,
        until: Until,
        output: &mpsc::Sender<ProcessOutput>,
    ) -> Result<(), Problem> {
        match &process.kind {
            ProcessKind::Pty => self.stream_pty(process, output).await,
            ProcessKind::Command { id, stderr_start } => {
                let cursors = [(Stream::Stdout, 0), (Stream::Stderr, *stderr_start)];
                self.stream_command(process, id, cursors, until, output).await
            }
        }
    }

    async fn stream_command(
        &self,
        process: &SandboxProcess,
        id: &CommandId,
        mut cursors: [(Stream, u64); 2],
        until: Until,
        output: &mpsc::Sender<ProcessOutput>,
    ) -> Result<(), Problem> {
        let mut execution = self.terminals.follow(&process.terminal, id).await;
        if let Some(execution) = &execution {
            // An error means that the command has ended since, so that its output is complete.
            let _ = execution.listen().await;
        }
        let mut last = until == Until::Ended;
        // The escape sequence is withheld until we know whether the program could not be executed.
        let mut withheld = false;
        loop {
            let over = execution.as_ref().is_none_or(Execution::is_over);
            if let Some(execution) = &mut execution {
                execution.progress().mark_unchanged();
            }
            let command = self.command_of(id, execution.as_ref()).await?;
            let mut closed = true;
            for (stream, from) in &mut cursors {
                loop {
                    let limit = wire::MAX_DATA as u32;
                    let read =
                        self.terminals.output(&process.terminal, &command, *stream, *from, limit);
                    let chunk = match read.await {
                        Ok(chunk) => chunk,
                        // The command wrote nothing to this stream.
                        Err(TerminalError::NotKept) => break,
                        Err(error) => return Err(error.into()),
                    };
                    if chunk.bytes.is_empty() {
                        closed &= chunk.end;
                        break;
                    }
                    *from = chunk.next;
                    let piece = match stream {
                        Stream::Stderr => {
                            let mut bytes =
                                if withheld { EDITOR_RESET.to_vec() } else { Vec::new() };
                            bytes.extend(chunk.bytes);
                            withheld = bytes.ends_with(EDITOR_RESET);
                            let kept = if withheld { EDITOR_RESET.len() } else { 0 };
                            bytes.truncate(bytes.len() - kept);
                            ProcessOutput::Stderr(bytes)
                        }
                        Stream::Stdout | Stream::Other(_) => ProcessOutput::Stdout(chunk.bytes),
                    };
                    if output.send(piece).await.is_err() {
                        return Ok(());
                    }
                }
            }
            if over {
                if !closed && !last {
                    // One more read returns what was written just before the last process closed the output.
                    last = tokio::select! {
                        more = self.more_of(process, &command, &cursors) => !more,
                        () = output.closed() => return Ok(()),
                    };
                    continue;
                }
                let end = process.end_of(&command);
                if withheld
                    && !matches!(end, ProcessEnd::Exit(code) if NOT_EXECUTED.contains(&code))
                {
                    let _ = output.send(ProcessOutput::Stderr(EDITOR_RESET.to_vec())).await;
                }
                let _ = output.send(ProcessOutput::End(end)).await;
                return Ok(());
            }
            if let Some(execution) = &mut execution {
                tokio::select! {
                    more = execution.more() => more?,
                    () = output.closed() => return Ok(()),
                }
            }
        }
    }

    /// Waits until a command that has ended has more output, or its output is closed. Returns `false` if no more
    /// output can follow.
    async fn more_of(
        &self,
        process: &SandboxProcess,
        command: &Command,
        cursors: &[(Stream, u64); 2],
    ) -> bool {
        let later = tokio::time::Instant::now() + POLL_INTERVAL;
        let more = cursors.map(|(stream, from)| {
            self.terminals.more_output(&process.terminal, command, stream, from, later)
        });
        let [stdout, stderr] = more.map(Box::pin);
        let first = futures_util::future::select(stdout, stderr).await;
        // At the deadline the caller polls the output again.
        first.factor_first().0 || tokio::time::Instant::now() >= later
    }

    /// The current state of a command.
    async fn command_of(
        &self,
        id: &CommandId,
        execution: Option<&Execution>,
    ) -> Result<Command, Problem> {
        if let Some(Ok(command)) = execution.map(Execution::command) {
            return Ok(command);
        }
        let command = self.store.command(id).await?;
        command.ok_or_else(|| Problem::missing("command", id))
    }

    async fn stream_pty(
        &self,
        process: &SandboxProcess,
        output: &mpsc::Sender<ProcessOutput>,
    ) -> Result<(), Problem> {
        let terminal = &process.terminal;
        let from = WatchFrom::Offset(0);
        let mut watcher = self.terminals.watch_as_guest(terminal, "sdk".to_owned(), from).await?;
        let end = |(code, signal): (Option<i32>, Option<i32>)| match (code, signal) {
            (_, Some(signal)) if signal != 0 => ProcessEnd::Signal(signal),
            (Some(code), _) => ProcessEnd::Exit(code),
            (None, _) => ProcessEnd::Lost,
        };
        // A program that had ended before sends no exit event.
        let exit = self.terminals.facts(terminal).await.exit;
        let until = self.terminals.facts(terminal).await.offset;
        loop {
            if let Some(exit) = exit
                && watcher.offset() >= until
            {
                let _ = output.send(ProcessOutput::End(end(exit))).await;
                return Ok(());
            }
            let update = tokio::select! {
                update = watcher.next() => update,
                () = output.closed() => return Ok(()),
            };
            let piece = match update {
                Ok(WatcherUpdate::Picture(picture)) => ProcessOutput::Pty(picture.data),
                Ok(WatcherUpdate::Event(WatchEvent::Output { bytes, .. })) => {
                    ProcessOutput::Pty(bytes)
                }
                Ok(WatcherUpdate::Event(WatchEvent::Exit { code, signal })) => {
                    ProcessOutput::End(end((code, signal)))
                }
                Ok(WatcherUpdate::Event(_)) => continue,
                Err(_) => ProcessOutput::End(ProcessEnd::Lost),
            };
            let over = matches!(piece, ProcessOutput::End(_));
            if output.send(piece).await.is_err() || over {
                return Ok(());
            }
        }
    }
}
