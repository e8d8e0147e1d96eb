//! The output of one command: the copy beside its receipt, the files of its host or, for a typed command, the log of
//! its terminal. Blocks.

use std::path::Path;

use host::log::{Entry, Reader};
use wire::{RecordKind, Stream};

use super::lines::{FoundLine, LineFinder, Needle};
use crate::terminal::output_source::{from_files, total, whole};
use model::{Command, Source};
use store::Outputs;

/// Bytes that are read from a file at once.
const CHUNK_BYTES: u32 = 1 << 20;
/// The end of the log before the end of a typed command that is searched.
const MAX_TYPED_BYTES: u64 = 1 << 20;

/// Where a matching line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSource {
    Stdout,
    Stderr,
    /// The output of the terminal, for a typed command.
    Terminal,
}

/// Matching lines and the number of bytes that were searched for them.
#[derive(Default)]
pub struct FoundLines {
    pub lines: Vec<(LineSource, FoundLine)>,
    pub bytes: u64,
}

/// Searches the output of a command for at most `max` lines. Output that cannot be read is skipped.
pub fn search(
    directory: &Path,
    command: &Command,
    output: Option<&Outputs>,
    needle: &Needle,
    max: usize,
) -> FoundLines {
    let mut found = FoundLines::default();
    match command.source {
        Source::Agent => {
            for (stream, source) in
                [(Stream::Stdout, LineSource::Stdout), (Stream::Stderr, LineSource::Stderr)]
            {
                let mut finder = LineFinder::new(needle, max - found.lines.len());
                found.bytes += feed_stream(directory, command, stream, output, &mut finder);
                found.lines.extend(finder.finish().into_iter().map(|line| (source, line)));
            }
        }
        Source::Person => {
            let mut finder = LineFinder::new(needle, max);
            found.bytes += feed_log(directory, command, &mut finder);
            let lines = finder.finish().into_iter();
            found.lines.extend(lines.map(|line| (LineSource::Terminal, line)));
        }
    }
    found
}

/// Searches one stream. Returns the number of bytes.
fn feed_stream(
    directory: &Path,
    command: &Command,
    stream: Stream,
    output: Option<&Outputs>,
    finder: &mut LineFinder<'_>,
) -> u64 {
    let copy = output.map_or(&[][..], |output| whole(output, stream));
    // A background process may have written to the files after the copy was made.
    if total(command, stream) > copy.len() as u64 {
        let mut bytes = 0;
        let mut next = 0;
        while !finder.is_full()
            && let Ok(chunk) = from_files(directory, &command.command_id, stream, next, CHUNK_BYTES)
            && !chunk.bytes.is_empty()
        {
            finder.feed(chunk.offset, &chunk.bytes);
            bytes += chunk.bytes.len() as u64;
            next = chunk.next;
        }
        if bytes > 0 {
            return bytes;
        }
    }
    finder.feed(0, copy);
    copy.len() as u64
}

/// Searches the log of the terminal while a typed command ran. Returns the number of bytes.
fn feed_log(directory: &Path, command: &Command, finder: &mut LineFinder<'_>) -> u64 {
    let Some(end) = command.offset_end else { return 0 };
    let began = command.started_at.unwrap_or(command.created_at).as_millisecond();
    let mut reader = Reader::open(directory.join("log"), end.saturating_sub(MAX_TYPED_BYTES));
    let mut bytes = 0;
    while !finder.is_full() && reader.offset() < end {
        let entries = match reader.read(CHUNK_BYTES as usize) {
            Ok(entries) if !entries.is_empty() => entries,
            Ok(_) | Err(_) => break,
        };
        for entry in entries {
            let Entry::Record(record) = entry else { continue };
            let is_before = i64::try_from(record.time_ms).is_ok_and(|time| time < began);
            if record.kind == RecordKind::Resize || is_before || record.offset >= end {
                continue;
            }
            let keep = usize::try_from(end - record.offset).unwrap_or(usize::MAX);
            let data = &record.data[..record.data.len().min(keep)];
            finder.feed(record.offset, data);
            bytes += data.len() as u64;
        }
    }
    bytes
}
