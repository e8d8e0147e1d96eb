//! Stores the receipts of commands.

use std::time::Duration;

use jiff::Timestamp;
use tracing::Instrument;
use wire::{Event, Outcome, Sections, Stream};

use super::{RETRY_INTERVAL, StateRecorder};
use crate::terminal::error::TerminalError;
use crate::terminal::flight::{CommandStage, EndedCommand};
use crate::terminal::output_source;
use base::event::EventKind;
use model::{Cause, Command, CommandEnd, CommandId, CommandStatus, Source};
use store::{FinishCommand, Outputs, StateChange, StoreError};

/// Output up to this size is stored with the receipt.
const MAX_STORED_OUTPUT_BYTES: u64 = 64 << 10;

impl StateRecorder {
    pub(super) async fn finish(&mut self, done: Event) {
        let Event::Done {
            command: id,
            outcome,
            exit_code,
            signal,
            duration_us,
            stdout_bytes,
            stderr_bytes,
            shell_restarted,
            offset,
            changed,
            removed,
            ..
        } = done
        else {
            return;
        };
        let Ok(id) = id.parse::<CommandId>() else { return };
        let Some(mut command) = self.requested(&id).await else { return };
        let now = Timestamp::now();
        // A command that was cancelled in the queue has no duration.
        let never_ran = match outcome {
            Outcome::NotStarted | Outcome::Lost => true,
            Outcome::Cancelled => duration_us == 0,
            Outcome::Finished | Outcome::TimedOut | Outcome::Other(_) => false,
        };
        // A command counts as started when it is handed to the shell, which may end before it reads it.
        if command.status == CommandStatus::Running && outcome == Outcome::NotStarted {
            (command.status, command.started_at) = (CommandStatus::Queued, None);
        }
        if command.status == CommandStatus::Queued && !never_ran {
            command.status = CommandStatus::Running;
            command.started_at.get_or_insert(now - Duration::from_micros(duration_us));
        }
        let end = match outcome {
            Outcome::Finished => CommandEnd::Finished { exit_code, signal },
            Outcome::TimedOut => CommandEnd::TimedOut,
            Outcome::Cancelled => CommandEnd::Cancelled,
            Outcome::NotStarted => CommandEnd::NotStarted,
            Outcome::Lost | Outcome::Other(_) => CommandEnd::Lost,
        };
        command = match command.end(end, now) {
            Ok(command) => command,
            // It has an end already: the event was repeated.
            Err(_) => return,
        };
        command.duration_us = Some(duration_us);
        command.stdout_bytes = stdout_bytes;
        command.stderr_bytes = stderr_bytes;
        command.shell_restarted = shell_restarted;
        command.offset_end = Some(offset);
        let output = match self.small_output(&command).await {
            Ok(output) => output,
            // The host has the output and repeats the end on the next connection.
            Err(_) if self.link.is_remote() && self.link.closed().is_cancelled() => {
                self.flights.note_unread_end(&id, command);
                return;
            }
            Err(_) => None,
        };
        let reached = self.limits.note(&mut command, output.as_ref());
        self.show(reached);
        let cause = Cause::Exec { command_id: id };
        self.store_receipt(command, output, cause, changed, removed).await;
    }

    /// Returns the whole output of a command, if it is small enough to be stored with the receipt.
    async fn small_output(&self, command: &Command) -> Result<Option<Outputs>, TerminalError> {
        if command.stdout_bytes + command.stderr_bytes > MAX_STORED_OUTPUT_BYTES {
            return Ok(None);
        }
        let read = async |stream, bytes| match bytes {
            0 => Ok(Vec::new()),
            length => loop {
                let id = &command.command_id;
                match output_source::head(&self.link, id, stream, length).await {
                    Err(TerminalError::Unreachable { .. }) if self.link.is_remote() => {
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                    read => break read,
                }
            },
        };
        let stdout = read(Stream::Stdout, command.stdout_bytes).await?;
        let stderr = read(Stream::Stderr, command.stderr_bytes).await?;
        Ok(Some(Outputs { stdout, stderr }))
    }

    /// Returns the command as it was requested: from memory or, after a restart, from the store.
    async fn requested(&self, id: &CommandId) -> Option<Command> {
        if let Some(command) = self.flights.command(id) {
            return Some(command);
        }
        loop {
            match self.store.command(id).await {
                Ok(Some(command)) if command.status.is_end() => {
                    self.forget(id.to_string()).await;
                    return None;
                }
                Ok(Some(command)) => return Some(command),
                Ok(None) => {
                    return Some(Command::queued(
                        id.clone(),
                        self.id.clone(),
                        String::new(),
                        Source::Agent,
                        self.version,
                        Timestamp::now(),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read a command; retrying");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Stores the receipt of a command, and the state after it if it finished.
    pub(super) async fn store_receipt(
        &mut self,
        mut command: Command,
        output: Option<Outputs>,
        cause: Cause,
        changed: Sections,
        removed: Vec<String>,
    ) {
        let finished = command.status == CommandStatus::Finished;
        let (change, env, cwd) = self.change(cause, changed, removed);
        command.version_before = self.version;
        if finished {
            command.changes = self.changes(&env, &cwd);
        }
        command.cwd = Some(if finished { cwd.clone() } else { self.cwd.clone() });
        let id = command.command_id.clone();
        let ended = EndedCommand { command: command.clone(), output: output.clone() };
        self.flights.stage(&id, CommandStage::Ended(ended.into()));
        loop {
            let finish = FinishCommand {
                command: command.clone(),
                state: finished.then(|| StateChange { expected: self.version, ..change.clone() }),
                output: output.clone(),
                touch: self.flights.touch(&id),
            };
            let span = self.flights.store_span(&id);
            match self.store.finish_command(finish).instrument(span).await {
                Ok(done) => {
                    if finished {
                        (self.env, self.cwd) = (env, cwd);
                        self.moved_to(done.version);
                    }
                    self.metrics.commands.inc();
                    if let Some(duration_us) = done.command.duration_us {
                        self.metrics.command_seconds.observe(duration_us as f64 / 1e6);
                    }
                    let recorded = EndedCommand { command: done.command, output };
                    self.flights.stage(&id, CommandStage::Recorded(recorded.into()));
                    let (thread_id, terminal_id) = self.names();
                    let command_id = id;
                    let ended = EventKind::CommandEnded { thread_id, terminal_id, command_id };
                    self.events.publish(ended);
                    return;
                }
                Err(error) => {
                    if !self.wait_to_retry_receipt(&id, error).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits before the next attempt to store a receipt. Returns `false` to give up.
    async fn wait_to_retry_receipt(&mut self, id: &CommandId, error: StoreError) -> bool {
        self.flights.stage(id, CommandStage::Failed(error.to_string()));
        self.wait_to_retry(error).await
    }

    pub(super) async fn note_late_output(&self, id: &CommandId, stdout: u64, stderr: u64) {
        let known = self.flights.lengths(id);
        self.flights.forget(id);
        if known != Some((stdout, stderr))
            && let Err(error) = self.store.note_late_output(id, stdout, stderr).await
        {
            tracing::warn!(%error, command = %id, "cannot store the length of late output");
        }
    }
}
