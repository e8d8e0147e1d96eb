//! A command that was handed to a shell, followed to its end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wire::{Request, Stream};

use super::error::TerminalError;
use super::flight::CommandStage;
use super::link::Progress;
use super::options::IfAbandoned;
use super::output_source::{self, Chunk};
use super::terminals::Terminals;
use model::{Command, CommandId, CommandStatus, Terminal};
use store::{Outputs, StoreError};

/// A command that runs longer than this is stored while it runs, so that its text survives a kill of the
/// server.
const RECORD_AFTER: Duration = Duration::from_millis(100);
/// How long to wait for a command whose host does not answer. Heavy output can block a host on the disk for
/// seconds.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a host may take to report that a command reached its own timeout.
const TIMEOUT_REPORT: Duration = Duration::from_millis(500);
/// How often to check whether a command was handed to another host.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A command that was handed to the shell.
pub struct Execution {
    pub(super) terminals: Terminals,
    pub(super) terminal: Terminal,
    pub(super) id: CommandId,
    pub(super) stage: watch::Receiver<CommandStage>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) max_output: u64,
    pub(super) recorded: bool,
    pub(super) if_abandoned: IfAbandoned,
    /// When the command reaches its own timeout, if it started at once.
    pub(super) times_out: Option<Instant>,
}

impl Drop for Execution {
    fn drop(&mut self) {
        let queued = matches!(&*self.stage.borrow(),
            CommandStage::Open(command) if command.status == CommandStatus::Queued);
        if self.if_abandoned == IfAbandoned::Withdraw && queued {
            let (terminals, terminal) = (self.terminals.clone(), self.terminal.clone());
            let id = self.id.clone();
            self.terminals.0.tasks.spawn(async move { terminals.withdraw(&terminal, &id).await });
        }
    }
}

/// A command with its output.
#[derive(Debug, Clone)]
pub struct Receipt {
    pub command: Command,
    /// The start of the standard output.
    pub stdout: Vec<u8>,
    /// The start of the standard error.
    pub stderr: Vec<u8>,
    /// Whether either stream is longer than the part in this receipt.
    pub truncated: bool,
    /// Whether the command waits for input.
    pub waiting_for_input: bool,
}

impl Execution {
    pub fn id(&self) -> &CommandId {
        &self.id
    }

    /// Waits until the command has ended and its receipt is on stable storage, and reads its output.
    /// Cancel-safe: the command is not affected.
    pub async fn finished(&mut self) -> Result<Receipt, TerminalError> {
        self.ended().await?;
        let kept = match &*self.stage.borrow() {
            CommandStage::Ended(ended) | CommandStage::Recorded(ended) => ended.output.clone(),
            CommandStage::Open(_) | CommandStage::Failed(_) | CommandStage::Lost => None,
        };
        let Outputs { mut stdout, mut stderr } = match kept {
            Some(outputs) => outputs,
            None => self.heads().await?,
        };
        let max_bytes = usize::try_from(self.max_output).unwrap_or(usize::MAX);
        stdout.truncate(max_bytes);
        stderr.truncate(max_bytes);
        let command = self.recorded().await?;
        Ok(Receipt::new(command, stdout, stderr))
    }

    /// Returns the current status and the output so far. Stores the command first.
    pub async fn so_far(&mut self) -> Result<Receipt, TerminalError> {
        self.put_on_record().await?;
        let Outputs { stdout, stderr } = self.heads().await?;
        let mut command = self.command_or_lost().await?;
        if command.status.is_end() {
            // It ended while its output was read, so that the output may not be complete.
            return self.finished().await;
        }
        let progress = *self.progress.borrow();
        command.stdout_bytes = progress.stdout.max(stdout.len() as u64);
        command.stderr_bytes = progress.stderr.max(stderr.len() as u64);
        let receipt = Receipt::new(command, stdout, stderr);
        Ok(Receipt { waiting_for_input: progress.waiting, ..receipt })
    }

    /// Stores the command, so that its id can be returned to clients.
    pub async fn put_on_record(&mut self) -> Result<(), TerminalError> {
        self.note().await?;
        // The receipt of an ended command may not be stored yet.
        if self.is_over() { self.recorded().await.map(drop) } else { Ok(()) }
    }

    /// Stores a command that is still running.
    async fn note(&mut self) -> Result<(), TerminalError> {
        if !self.recorded && !self.is_over() {
            let command = self.command_or_lost().await?;
            if !command.status.is_end() {
                match self.terminals.0.store.save_command(&command).await {
                    // It ended meanwhile; its receipt is stored or about to be.
                    Ok(()) | Err(StoreError::Refused(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.recorded = true;
        }
        Ok(())
    }

    /// Asks the host to report output as it is written.
    pub async fn listen(&self) -> Result<(), TerminalError> {
        let command = self.id.to_string();
        let watch = |seq| Request::ExecWatch { seq, command, from_out: 0, from_err: 0 };
        let listened = self.terminals.link_of(&self.terminal).await?.call(watch).await;
        match listened.map_err(TerminalError::from) {
            // Its host has forgotten an ended command; its output is stored.
            Ok(_) | Err(TerminalError::NotKept) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub fn progress(&mut self) -> &mut watch::Receiver<Progress> {
        &mut self.progress
    }

    pub fn is_over(&self) -> bool {
        is_end(&self.stage.borrow())
    }

    /// Waits until the command has written more or has ended.
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

    /// Waits until another host has the command after its host was lost, or until it has ended.
    async fn rejoin(&mut self) -> Result<(), TerminalError> {
        while !self.is_over() {
            let link = self.terminals.link_of(&self.terminal).await;
            if let Some(progress) = link.ok().and_then(|link| link.progress(self.id.as_str())) {
                self.progress = progress;
                return self.listen().await.or(Ok(()));
            }
            let over = self.stage.wait_for(is_end);
            if let Ok(Err(_)) = tokio::time::timeout(POLL_INTERVAL, over).await {
                return Err(TerminalError::Gone);
            }
        }
        Ok(())
    }

    /// Waits until the command has ended, whether or not its receipt is stored.
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

    /// Waits until the host of the command has been unreachable for too long, or until the command should have reached
    /// its own timeout. The command may keep running; its receipt can be read by id when the host is back.
    async fn unanswered(&self) {
        let lease = &self.terminal.lease_id;
        loop {
            self.terminals.is_unreachable(lease).await;
            let given_up = Instant::now() + UNREACHABLE_TIMEOUT;
            let until = self.times_out.map_or(given_up, |at| given_up.min(at + TIMEOUT_REPORT));
            tokio::time::sleep_until(until).await;
            if self.terminals.unreachable_since(lease).is_some() {
                return;
            }
        }
    }

    /// Reads bytes of a stream of the command.
    pub async fn read(
        &self,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Chunk, TerminalError> {
        let link = self.terminals.link_of(&self.terminal).await?;
        match output_source::from_host(&link, &self.id, stream, from, limit).await {
            Err(TerminalError::NotKept) => {
                let command = self.command_or_lost().await?;
                self.terminals.output(&self.terminal, &command, stream, from, limit).await
            }
            read => read,
        }
    }

    pub fn command(&self) -> Result<Command, TerminalError> {
        match &*self.stage.borrow() {
            CommandStage::Open(command) => Ok((**command).clone()),
            CommandStage::Ended(ended) | CommandStage::Recorded(ended) => Ok(ended.command.clone()),
            CommandStage::Failed(reason) => Err(unrecorded(reason)),
            CommandStage::Lost => Err(TerminalError::Gone),
        }
    }

    async fn recorded(&mut self) -> Result<Command, TerminalError> {
        let stage = self
            .stage
            .wait_for(|stage| {
                matches!(
                    stage,
                    CommandStage::Recorded(_) | CommandStage::Failed(_) | CommandStage::Lost
                )
            })
            .await
            .map_err(|_| TerminalError::Gone)?
            .clone();
        match stage {
            CommandStage::Recorded(ended) => Ok(ended.command.clone()),
            CommandStage::Failed(reason) => Err(unrecorded(&reason)),
            CommandStage::Lost => {
                let command = self.terminals.0.store.command(&self.id).await?;
                command.ok_or(TerminalError::Gone)
            }
            CommandStage::Open(_) | CommandStage::Ended(_) => Err(TerminalError::Gone),
        }
    }

    /// Returns the start of each stream, up to `max_output`.
    async fn heads(&self) -> Result<Outputs, TerminalError> {
        let head = async |stream| -> Result<Vec<u8>, TerminalError> {
            let mut all = Vec::new();
            let command = self.command_or_lost().await?;
            loop {
                let from = all.len() as u64;
                let limit = (self.max_output - from).min(wire::MAX_DATA as u64) as u32;
                let read = self.terminals.output(&self.terminal, &command, stream, from, limit);
                let chunk = match read.await {
                    Ok(chunk) if limit > 0 => chunk,
                    // It wrote nothing, or its output was lost with its host.
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

fn is_end(stage: &CommandStage) -> bool {
    !matches!(stage, CommandStage::Open(_))
}

impl Receipt {
    fn new(command: Command, stdout: Vec<u8>, stderr: Vec<u8>) -> Receipt {
        let truncated = command.truncated
            || command.stdout_bytes > stdout.len() as u64
            || command.stderr_bytes > stderr.len() as u64;
        Receipt { command, stdout, stderr, truncated, waiting_for_input: false }
    }
}

fn unrecorded(reason: &str) -> TerminalError {
    TerminalError::Store(StoreError::Unavailable { reason: reason.to_owned() })
}
