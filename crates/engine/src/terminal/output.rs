//! What a command wrote, from the host that ran it or, when that is gone, from its files.

use std::path::{Path, PathBuf};

use host::shell::{Output, Piece};
use host::wire::{Event, MAX_DATA, Request, Stream};

use super::link::{Link, LinkError, unexpected};
use super::{TerminalError, Terminals};
use model::{Command, CommandId, Terminal};
use store::Outputs;

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Of the first byte; beyond the one asked for where bytes were not kept.
    pub offset: u64,
    /// Where to read on.
    pub next: u64,
    /// Nothing will ever come after `next`.
    pub end: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Terminals {
    /// Bytes of one stream of a command, whether or not it still runs.
    pub async fn output(
        &self,
        terminal: &Terminal,
        command: &Command,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Chunk, TerminalError> {
        let live = self.live(terminal).await;
        let link = live.runtime.lock().await.as_ref().map(|alive| alive.link.clone());
        // While its host follows a command, more may come. After that the copy beside the receipt is the
        // more durable one, where it is whole: the files of a host are not synced.
        let followed =
            link.as_ref().is_some_and(|link| link.progress(command.command_id.as_str()).is_some());
        let mut copy = None;
        if command.status.is_end() {
            copy = self.0.store.command_output(&command.command_id).await?;
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
                Err(TerminalError::NotKept | TerminalError::Host(LinkError::Closed)) => {}
                // What has ended may be here whole all the same.
                Err(error @ TerminalError::Unreachable { .. }) if command.status.is_end() => {
                    unreachable = Some(error);
                }
                other => return other,
            }
        }
        if let Some(copy) = copy {
            return Ok(from_memory(&copy, stream, from, limit));
        }
        let directory = self.directory(&terminal.terminal_id);
        let id = command.command_id.clone();
        let read =
            tokio::task::spawn_blocking(move || from_files(&directory, &id, stream, from, limit));
        match read.await.map_err(|_| TerminalError::Gone)? {
            Err(TerminalError::NotKept) if unreachable.is_some() => {
                Err(unreachable.unwrap_or(TerminalError::NotKept))
            }
            // Nothing was written, or little that went with its host.
            Err(TerminalError::NotKept) if total(command, stream) == 0 => {
                Ok(Chunk { offset: 0, next: 0, end: true, bytes: Vec::new() })
            }
            other => other,
        }
    }
}

impl Terminals {
    /// The command with the lengths of what its host, which is gone, left of its output.
    pub(super) async fn with_lengths(&self, command: &Command) -> Command {
        let directory = self.directory(&command.terminal_id);
        let id = command.command_id.clone();
        let lengths = tokio::task::spawn_blocking(move || {
            let length = |stream| {
                let left = Output::left(file(&directory, &id, stream));
                left.map_or(0, |output| output.written())
            };
            (length(Stream::Stdout), length(Stream::Stderr))
        });
        let (stdout, stderr) = lengths.await.unwrap_or_default();
        let mut command = command.clone();
        command.stdout_bytes = command.stdout_bytes.max(stdout);
        command.stderr_bytes = command.stderr_bytes.max(stderr);
        command
    }
}

/// Asks the host for bytes of a stream.
pub async fn from_host(
    link: &Link,
    command: &CommandId,
    stream: Stream,
    from: u64,
    limit: u32,
) -> Result<Chunk, TerminalError> {
    let command = command.to_string();
    let answer = link.call(|seq| Request::ExecRead { seq, command, stream, from, limit }).await?;
    match answer {
        Event::ExecChunk { offset, next, end, bytes, .. } => Ok(Chunk { offset, next, end, bytes }),
        other => Err(unexpected(&other).into()),
    }
}

/// The first `most` bytes of a stream, or as many of them as were kept without a gap.
pub async fn head(
    link: &Link,
    command: &CommandId,
    stream: Stream,
    most: u64,
) -> Result<Vec<u8>, TerminalError> {
    let mut all = Vec::new();
    loop {
        let from = all.len() as u64;
        let limit = (most - from).min(MAX_DATA as u64) as u32;
        if limit == 0 {
            return Ok(all);
        }
        let chunk = match from_host(link, command, stream, from, limit).await {
            Ok(chunk) => chunk,
            // Forgotten without having written anything.
            Err(TerminalError::NotKept) => return Ok(all),
            Err(error) => return Err(error),
        };
        if chunk.bytes.is_empty() || chunk.offset != from {
            return Ok(all);
        }
        all.extend_from_slice(&chunk.bytes);
    }
}

fn whole(outputs: &Outputs, stream: Stream) -> &[u8] {
    match stream {
        Stream::Stderr => &outputs.stderr,
        Stream::Stdout | Stream::Other(_) => &outputs.stdout,
    }
}

fn from_memory(kept: &Outputs, stream: Stream, from: u64, limit: u32) -> Chunk {
    let all = whole(kept, stream);
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(all.len());
    let end = start.saturating_add(limit as usize).min(all.len());
    let bytes = all[start..end].to_vec();
    Chunk { offset: start as u64, next: end as u64, end: end == all.len(), bytes }
}

fn total(command: &Command, stream: Stream) -> u64 {
    match stream {
        Stream::Stderr => command.stderr_bytes,
        Stream::Stdout | Stream::Other(_) => command.stdout_bytes,
    }
}

/// The host is gone: whatever reached its file is there.
fn from_files(
    directory: &Path,
    command: &CommandId,
    stream: Stream,
    from: u64,
    limit: u32,
) -> Result<Chunk, TerminalError> {
    let output =
        Output::left(file(directory, command, stream)).map_err(|_| TerminalError::NotKept)?;
    let Piece { offset, next, bytes } =
        output.read(from, limit as usize).map_err(|_| TerminalError::NotKept)?;
    Ok(Chunk { offset, next, end: next >= output.written(), bytes })
}

/// Removes what a command wrote.
pub fn remove(directory: &Path, command: &CommandId) {
    for stream in [Stream::Stdout, Stream::Stderr] {
        let _ = std::fs::remove_file(file(directory, command, stream));
    }
}

fn file(directory: &Path, command: &CommandId, stream: Stream) -> PathBuf {
    let suffix = match stream {
        Stream::Stderr => "err",
        Stream::Stdout | Stream::Other(_) => "out",
    };
    directory.join("commands").join(format!("{command}.{suffix}"))
}
