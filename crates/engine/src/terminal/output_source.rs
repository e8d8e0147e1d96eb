//! Where the output of a command is read from: its host, the copy beside its receipt, or its files.

use std::path::{Path, PathBuf};

use shell::{Output, Piece};
use wire::{Event, MAX_DATA, Request, Stream};

use super::error::TerminalError;
use super::link::{HostLink, unexpected};
use model::{Command, CommandId};
use store::Outputs;

/// Consecutive bytes of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The offset of the first byte; greater than requested if bytes were not kept.
    pub offset: u64,
    /// The offset at which to continue.
    pub next: u64,
    /// No bytes will follow `next`.
    pub end: bool,
    pub bytes: Vec<u8>,
}

/// Reads bytes of a stream from its host.
pub async fn from_host(
    link: &HostLink,
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

/// Reads the first `max_bytes` of a stream, or as many as were kept without a gap.
pub async fn head(
    link: &HostLink,
    command: &CommandId,
    stream: Stream,
    max_bytes: u64,
) -> Result<Vec<u8>, TerminalError> {
    let mut all = Vec::new();
    loop {
        let from = all.len() as u64;
        let limit = (max_bytes - from).min(MAX_DATA as u64) as u32;
        if limit == 0 {
            return Ok(all);
        }
        let chunk = match from_host(link, command, stream, from, limit).await {
            Ok(chunk) => chunk,
            // The command wrote nothing.
            Err(TerminalError::NotKept) => return Ok(all),
            Err(error) => return Err(error),
        };
        if chunk.bytes.is_empty() || chunk.offset != from {
            return Ok(all);
        }
        all.extend_from_slice(&chunk.bytes);
    }
}

pub fn whole(outputs: &Outputs, stream: Stream) -> &[u8] {
    match stream {
        Stream::Stderr => &outputs.stderr,
        Stream::Stdout | Stream::Other(_) => &outputs.stdout,
    }
}

pub fn from_memory(kept: &Outputs, stream: Stream, from: u64, limit: u32) -> Chunk {
    let all = whole(kept, stream);
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(all.len());
    let end = start.saturating_add(limit as usize).min(all.len());
    let bytes = all[start..end].to_vec();
    Chunk { offset: start as u64, next: end as u64, end: end == all.len(), bytes }
}

/// Skips what was written and not kept, as on a full disk: a reader sees that bytes are missing.
pub fn past_missing(chunk: Chunk, total: u64) -> Chunk {
    match chunk {
        Chunk { end: false, .. } => chunk,
        Chunk { next, .. } if next >= total => chunk,
        Chunk { bytes, .. } if bytes.is_empty() => {
            Chunk { offset: total, next: total, end: true, bytes }
        }
        // The next read skips them.
        Chunk { .. } => Chunk { end: false, ..chunk },
    }
}

pub fn total(command: &Command, stream: Stream) -> u64 {
    match stream {
        Stream::Stderr => command.stderr_bytes,
        Stream::Stdout | Stream::Other(_) => command.stdout_bytes,
    }
}

/// Reads bytes of a stream from the files of a host.
pub fn from_files(
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

/// Removes the output files of a command.
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

/// Returns the length of a stream in the files of a host.
pub fn written(directory: &Path, command: &CommandId, stream: Stream) -> u64 {
    Output::left(file(directory, command, stream)).map_or(0, |output| output.written())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_not_kept_are_skipped() {
        let outputs = Outputs { stdout: b"kept".to_vec(), stderr: Vec::new() };
        let read = |from, total| {
            let chunk = past_missing(from_memory(&outputs, Stream::Stdout, from, 100), total);
            (chunk.offset, chunk.next, chunk.end, chunk.bytes)
        };
        assert_eq!(read(0, 4), (0, 4, true, b"kept".to_vec()));
        assert_eq!(read(4, 4), (4, 4, true, vec![]));
        assert_eq!(read(0, 9), (0, 4, false, b"kept".to_vec()));
        assert_eq!(read(4, 9), (9, 9, true, vec![]));
        // More than was known when the command ended.
        assert_eq!(read(0, 2), (0, 4, true, b"kept".to_vec()));
    }
}
