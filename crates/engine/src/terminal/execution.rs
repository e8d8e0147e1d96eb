//! A command that was handed to a shell, followed to its end.

use std::time::Duration;

use host::wire::{Request, Stream};
use tokio::sync::watch;

use super::error::TerminalError;
use super::flight::Stage;
use super::link::Progress;
use super::options::IfAbandoned;
use super::output_source::{self, Chunk};
use super::terminals::Terminals;
use model::{Command, CommandId, CommandStatus, Terminal};
use store::{Outputs, StoreError};

/// A command that runs longer than this is put on record while it runs, so that even a kill of
/// the server leaves its text behind.
const RECORD_AFTER: Duration = Duration::from_millis(100);
/// How long a command is waited for whose host does not answer. A host that writes the output of a flood
/// may be held up by the disk for seconds.
const UNREACHABLE_WAIT: Duration = Duration::from_secs(20);
/// How often it is looked whether a command has come to another host.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A command that was handed to the shell.
pub struct Execution {
    pub(super) terminals: Terminals,
    pub(super) terminal: Terminal,
    pub(super) id: CommandId,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) max_output: u64,
    pub(super) recorded: bool,
    pub(super) if_abandoned: IfAbandoned,
}

impl Drop for Execution {
    fn drop(&mut self) {
        let queued = matches!(&*self.stage.borrow(),
            Stage::Open(command) if command.status == CommandStatus::Queued);
        if self.if_abandoned == IfAbandoned::Withdraw && queued {
            let (terminals, terminal) = (self.terminals.clone(), self.terminal.clone());
            let id = self.id.clone();
            self.terminals.0.tasks.spawn(async move { terminals.withdraw(&terminal, &id).await });
        }
    }
}

/// A command with what it wrote.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// The command.
    pub command: Command,
    /// The start of its standard output.
    pub stdout: Vec<u8>,
    /// The start of its standard error.
    pub stderr: Vec<u8>,
    /// Whether there is more of either than this.
    pub truncated: bool,
    /// Whether it waits for somebody to type.
    pub waiting_for_input: bool,
}

impl Execution {
    /// Its id.
    pub fn id(&self) -> &CommandId {
        &self.id
    }

    /// Waits until it has ended and its receipt is on stable storage, and reads what it wrote.
    /// Safe to drop while it waits; the command does not notice.
    pub async fn finished(&mut self) -> Result<Receipt, TerminalError> {
        self.ended().await?;
        let kept = match &*self.stage.borrow() {
            Stage::Ended(ended) | Stage::Recorded(ended) => ended.output.clone(),
            Stage::Open(_) | Stage::Failed(_) | Stage::Lost => None,
        };
        let Outputs { mut stdout, mut stderr } = match kept {
            Some(outputs) => outputs,
            None => self.heads().await?,
        };
        let most = usize::try_from(self.max_output).unwrap_or(usize::MAX);
        stdout.truncate(most);
        stderr.truncate(most);
        let command = self.recorded().await?;
        Ok(receipt(command, stdout, stderr, false))
    }

    /// Where it stands now, with what it wrote so far. It is on record after this.
    pub async fn so_far(&mut self) -> Result<Receipt, TerminalError> {
        self.put_on_record().await?;
        let Outputs { stdout, stderr } = self.heads().await?;
        let mut command = self.command_or_lost().await?;
        if command.status.is_end() {
            // What is told as ended is on stable storage, with the version of its state.
            command = self.recorded().await?;
        }
        let progress = *self.progress.borrow();
        if !command.status.is_end() {
            command.stdout_bytes = progress.stdout.max(stdout.len() as u64);
            command.stderr_bytes = progress.stderr.max(stderr.len() as u64);
        }
        Ok(receipt(command, stdout, stderr, progress.waiting))
    }

    /// Makes a command be on record, so that its id can be given out and found.
    pub async fn put_on_record(&mut self) -> Result<(), TerminalError> {
        self.note().await?;
        // The receipt of one that has ended may still be on its way.
        if self.is_over() { self.recorded().await.map(drop) } else { Ok(()) }
    }

    /// Puts a command that still runs on record.
    async fn note(&mut self) -> Result<(), TerminalError> {
        if !self.recorded && !self.is_over() {
            let command = self.command_or_lost().await?;
            if !command.status.is_end() {
                match self.terminals.0.store.save_command(&command).await {
                    // It ended in between; its receipt is on record or about to be.
                    Ok(()) | Err(StoreError::Refused(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.recorded = true;
        }
        Ok(())
    }

    /// Asks the host to tell of output as it comes.
    pub async fn listen(&self) -> Result<(), TerminalError> {
        let command = self.id.to_string();
        let watch = |seq| Request::ExecWatch { seq, command, from_out: 0, from_err: 0 };
        self.terminals.link_of(&self.terminal).await?.call(watch).await?;
        Ok(())
    }

    /// What is known of its output; changes as it goes on.
    pub fn progress(&mut self) -> &mut watch::Receiver<Progress> {
        &mut self.progress
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        is_end(&self.stage.borrow())
    }

    /// Waits until it has written more or has ended.
    pub async fn more(&mut self) -> Result<(), TerminalError> {
        let more = tokio::select! {
            more = self.progress.changed() => more,
            over = self.stage.wait_for(is_end) => over.map(drop),
        };
        match more {
            Err(_) if !self.is_over() => self.rejoin().await,
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The host it was handed to is gone: waits until another has it, or it has an end.
    async fn rejoin(&mut self) -> Result<(), TerminalError> {
        while !self.is_over() {
            let link = self.terminals.link_of(&self.terminal).await;
            if let Some(progress) = link.ok().and_then(|link| link.progress(self.id.as_str())) {
                self.progress = progress;
                return self.listen().await.or(Ok(()));
            }
            let over = self.stage.wait_for(is_end);
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_AGAIN, over).await {
                return Err(TerminalError::Gone);
            }
        }
        Ok(())
    }

    /// Waits until it has ended, on record or not.
    pub async fn ended(&mut self) -> Result<(), TerminalError> {
        if !self.recorded {
            let soon = tokio::time::timeout(RECORD_AFTER, self.stage.wait_for(is_end)).await;
            if let Ok(ended) = soon {
                return ended.map(drop).map_err(|_| TerminalError::Gone);
            }
            drop(soon);
            self.note().await?;
        }
        let mut stage = self.stage.clone();
        tokio::select! {
            ended = stage.wait_for(is_end) => ended.map(drop).map_err(|_| TerminalError::Gone),
            () = self.unanswered() => {
                Err(TerminalError::Unreachable { lease: self.terminal.lease_id.clone() })
            }
        }
    }

    /// Waits until its host has been unreachable for too long. The command itself may run on, and its
    /// receipt is found by its id when the host is back.
    async fn unanswered(&self) {
        let lease = &self.terminal.lease_id;
        loop {
            self.terminals.is_unreachable(lease).await;
            tokio::time::sleep(UNREACHABLE_WAIT).await;
            if self.terminals.unreachable_since(lease).is_some() {
                return;
            }
        }
    }

    /// Bytes of one of its streams.
    pub async fn read(
        &self,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Chunk, TerminalError> {
        let link = self.terminals.link_of(&self.terminal).await?;
        output_source::from_host(&link, &self.id, stream, from, limit).await
    }

    /// The command as it is known here.
    pub fn command(&self) -> Result<Command, TerminalError> {
        match &*self.stage.borrow() {
            Stage::Open(command) => Ok((**command).clone()),
            Stage::Ended(ended) | Stage::Recorded(ended) => Ok(ended.command.clone()),
            Stage::Failed(reason) => Err(unrecorded(reason)),
            Stage::Lost => Err(TerminalError::Gone),
        }
    }

    async fn recorded(&mut self) -> Result<Command, TerminalError> {
        let stage = self
            .stage
            .wait_for(|stage| matches!(stage, Stage::Recorded(_) | Stage::Failed(_) | Stage::Lost))
            .await
            .map_err(|_| TerminalError::Gone)?
            .clone();
        match stage {
            Stage::Recorded(ended) => Ok(ended.command.clone()),
            Stage::Failed(reason) => Err(unrecorded(&reason)),
            Stage::Lost => {
                let command = self.terminals.0.store.command(&self.id).await?;
                command.ok_or(TerminalError::Gone)
            }
            Stage::Open(_) | Stage::Ended(_) => Err(TerminalError::Gone),
        }
    }

    /// What either stream begins with, as far as the answer carries it.
    async fn heads(&self) -> Result<Outputs, TerminalError> {
        let head = async |stream| -> Result<Vec<u8>, TerminalError> {
            let mut all = Vec::new();
            let command = self.command_or_lost().await?;
            loop {
                let from = all.len() as u64;
                let limit = (self.max_output - from).min(host::wire::MAX_DATA as u64) as u32;
                let read = self.terminals.output(&self.terminal, &command, stream, from, limit);
                let chunk = match read.await {
                    Ok(chunk) if limit > 0 => chunk,
                    // Forgotten without having written anything, or gone with its host.
                    Ok(_) | Err(TerminalError::NotKept) => return Ok(all),
                    Err(error) => return Err(error),
                };
                if chunk.bytes.is_empty() || chunk.offset != from {
                    return Ok(all);
                }
                all.extend_from_slice(&chunk.bytes);
            }
        };
        let (stdout, stderr) = tokio::join!(head(Stream::Stdout), head(Stream::Stderr));
        Ok(Outputs { stdout: stdout?, stderr: stderr? })
    }

    async fn command_or_lost(&self) -> Result<Command, TerminalError> {
        match self.command() {
            Err(TerminalError::Gone) => {
                let command = self.terminals.0.store.command(&self.id).await?;
                command.ok_or(TerminalError::Gone)
            }
            other => other,
        }
    }
}

fn is_end(stage: &Stage) -> bool {
    !matches!(stage, Stage::Open(_))
}

fn receipt(command: Command, stdout: Vec<u8>, stderr: Vec<u8>, waiting: bool) -> Receipt {
    let truncated = command.truncated
        || command.stdout_bytes > stdout.len() as u64
        || command.stderr_bytes > stderr.len() as u64;
    Receipt { command, stdout, stderr, truncated, waiting_for_input: waiting }
}

fn unrecorded(reason: &str) -> TerminalError {
    TerminalError::Store(StoreError::Unavailable { reason: reason.to_owned() })
}
