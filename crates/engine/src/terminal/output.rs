//! Reads the output of a command, whether or not its host still runs.

use wire::Stream;

use super::error::TerminalError;
use super::link::LinkError;
use super::output_source::{
    Chunk, from_files, from_host, from_memory, past_missing, total, whole, written,
};
use super::terminals::Terminals;
use model::{Command, Terminal};

impl Terminals {
    /// Reads bytes of one stream of a command, whether or not it is still running.
    pub async fn output(
        &self,
        terminal: &Terminal,
        command: &Command,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Chunk, TerminalError> {
        let link = self.live(terminal).await.link().await?;
        // While its host tracks a command, more output may follow. Afterwards the copy beside the receipt is
        // preferred if it is complete: the files of a host are not synced.
        let followed =
            link.as_ref().is_some_and(|link| link.progress(command.command_id.as_str()).is_some());
        let mut copy = None;
        if command.status.is_end() {
            // A receipt that is being stored has it already.
            copy = self.0.flights.output(&command.command_id);
            if copy.is_none() {
                copy = self.0.store.command_output(&command.command_id).await?;
            }
        }
        if let (false, Some(copy)) = (followed, &copy) {
            let recorded = self.0.store.command(&command.command_id).await?;
            let written = recorded.map_or(0, |command| total(&command, stream));
            if written <= whole(copy, stream).len() as u64 {
                return Ok(from_memory(copy, stream, from, limit));
            }
        }
        let mut unreachable = None;
        if let Some(link) = link {
            match from_host(&link, &command.command_id, stream, from, limit).await {
                // The output of an ended command may be complete here.
                Err(error @ TerminalError::Unreachable { .. }) if command.status.is_end() => {
                    unreachable = Some(error);
                }
                // The files of a host elsewhere are read when it is connected again.
                Err(error @ TerminalError::Host(LinkError::Closed)) if link.is_remote() => {
                    unreachable = Some(error);
                }
                Err(TerminalError::NotKept | TerminalError::Host(LinkError::Closed)) => {}
                other => return other,
            }
        } else if self.is_remote(&terminal.lease_id).await
            && self.has_instance(&terminal.lease_id).await
        {
            unreachable = Some(TerminalError::Unreachable { lease: terminal.lease_id.clone() });
        }
        let directory = self.directory(&terminal.terminal_id);
        let id = command.command_id.clone();
        let copied = copy.as_ref().map(|copy| whole(copy, stream).len() as u64);
        // Output of background processes is written after the copy was made.
        let read = base::task::blocking(move || match copied {
            Some(copied) if written(&directory, &id, stream) <= copied => {
                Err(TerminalError::NotKept)
            }
            Some(_) | None => from_files(&directory, &id, stream, from, limit),
        });
        let total_bytes = total(command, stream);
        match read.await.map_err(|_| TerminalError::Gone)? {
            Err(TerminalError::NotKept) => match (copy, unreachable) {
                (Some(copy), None) => {
                    Ok(past_missing(from_memory(&copy, stream, from, limit), total_bytes))
                }
                (Some(copy), Some(_)) => Ok(from_memory(&copy, stream, from, limit)),
                // It wrote nothing, or little that was lost with its host.
                (None, _) if total_bytes == 0 => {
                    let end = command.status.is_end();
                    let at = if end { 0 } else { from };
                    Ok(Chunk { offset: at, next: at, end, bytes: Vec::new() })
                }
                (None, Some(unreachable)) => Err(unreachable),
                (None, None) => Err(TerminalError::NotKept),
            },
            // The copy of what a host elsewhere wrote may end before its output does.
            Ok(chunk) if unreachable.is_some() => {
                let complete = command.status.is_end() && chunk.next >= total_bytes;
                Ok(Chunk { end: chunk.end && complete, ..chunk })
            }
            Ok(chunk) if command.status.is_end() => Ok(past_missing(chunk, total_bytes)),
            other => other,
        }
    }

    /// Returns the command with the lengths of the output that its lost host left in files.
    pub(super) async fn with_lengths(&self, command: &Command) -> Command {
        let directory = self.directory(&command.terminal_id);
        let id = command.command_id.clone();
        let lengths = base::task::blocking(move || {
            [Stream::Stdout, Stream::Stderr].map(|stream| written(&directory, &id, stream))
        });
        let [stdout, stderr] = lengths.await.unwrap_or_default();
        let mut command = command.clone();
        command.stdout_bytes = command.stdout_bytes.max(stdout);
        command.stderr_bytes = command.stderr_bytes.max(stderr);
        command
    }
}
