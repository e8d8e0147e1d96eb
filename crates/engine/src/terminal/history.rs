//! Reads a terminal's log: to rebuild a screen, to send a client what it missed, and as a recording. Runs
//! on blocking threads.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use host::log::{Entry, Reader};
use tokio::sync::mpsc;
use vt::{Screen, Size};
use wire::RecordKind;

use super::window::WatchEvent;
use base::utf8;

/// Bytes that are read from the log at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Feeds `screen` the log from `from` up to `to`. Terminal queries in it are not answered: they were
/// answered when they were printed.
pub async fn replay(directory: &Path, from: u64, to: u64, screen: &mut Screen) -> io::Result<()> {
    let mut next = Some(Reader::open(directory.join("log"), from));
    while let Some(mut reader) = next.take() {
        let (entries, reader) = blocking(move || {
            let entries = reader.read(CHUNK_BYTES)?;
            Ok((entries, reader))
        })
        .await?;
        if entries.is_empty() {
            break;
        }
        for event in entries.into_iter().filter_map(|entry| cut(entry, to)) {
            match event {
                WatchEvent::Output { bytes, .. } => drop(screen.feed(&bytes)),
                WatchEvent::Resize { cols, rows } => screen.resize(Size { cols, rows }),
                WatchEvent::Gap { .. }
                | WatchEvent::Title(_)
                | WatchEvent::Notice(_)
                | WatchEvent::Driver(_)
                | WatchEvent::Exit { .. } => {}
            }
        }
        if reader.offset() < to {
            next = Some(reader);
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns a chunk of the log from `from` on, at most up to `to`; `None` if its first byte is missing.
pub async fn events(directory: &Path, from: u64, to: u64) -> io::Result<Option<Vec<WatchEvent>>> {
    let mut reader = Reader::open(directory.join("log"), from);
    blocking(move || {
        let mut events = Vec::new();
        let mut end = from;
        for event in reader.read(CHUNK_BYTES)?.into_iter().filter_map(|entry| cut(entry, to)) {
            match &event {
                WatchEvent::Output { offset, bytes } if *offset == end => end += bytes.len() as u64,
                WatchEvent::Output { .. } | WatchEvent::Gap { .. } => break,
                WatchEvent::Resize { .. }
                | WatchEvent::Title(_)
                | WatchEvent::Notice(_)
                | WatchEvent::Driver(_)
                | WatchEvent::Exit { .. } => {}
            }
            events.push(event);
        }
        Ok((end > from).then_some(events))
    })
    .await
}

/// Whether the lines of a recording carry output offsets, which asciicast does not define.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offsets {
    Omit,
    /// The offset after the output is a fourth value of each line.
    Include,
}

/// Returns the log as asciicast v2, line by line. `size` is the size before the first resize.
pub fn recording(
    directory: PathBuf,
    size: (u16, u16),
    title: String,
    offsets: Offsets,
) -> mpsc::Receiver<Bytes> {
    let (lines, receiver) = mpsc::channel(4);
    base::task::blocking(move || {
        if let Err(error) = record(&directory, size, &title, offsets, &lines) {
            tracing::warn!(%error, "a recording ends early");
        }
    });
    receiver
}

fn record(
    directory: &Path,
    mut size: (u16, u16),
    title: &str,
    offsets: Offsets,
    lines: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut reader = Reader::open(directory.join("log"), 0);
    let mut start = None;
    let mut text = utf8::Cutter::default();
    loop {
        let entries = reader.read(CHUNK_BYTES)?;
        let mut out = String::new();
        for entry in &entries {
            let Entry::Record(record) = entry else { continue };
            let resized = record.size();
            if start.is_none() {
                size = resized.unwrap_or(size);
                start = Some(record.time_ms);
                out.push_str(&header(size, record.time_ms, title));
                if resized.is_some() {
                    continue;
                }
            }
            let seconds =
                record.time_ms.saturating_sub(start.unwrap_or(record.time_ms)) as f64 / 1000.0;
            let line = match resized {
                Some((cols, rows)) => serde_json::json!([seconds, "r", format!("{cols}x{rows}")]),
                None => {
                    let output = text.lossy(&record.data);
                    let end = record.offset + record.data.len() as u64 - text.held() as u64;
                    match offsets {
                        Offsets::Omit => serde_json::json!([seconds, "o", output]),
                        Offsets::Include => serde_json::json!([seconds, "o", output, end]),
                    }
                }
            };
            out.push_str(&line.to_string());
            out.push('\n');
        }
        if entries.is_empty() && start.is_none() {
            out = header(size, 0, title);
        }
        // The receiver is gone, or the log is at its end.
        if (!out.is_empty() && lines.blocking_send(out.into()).is_err()) || entries.is_empty() {
            return Ok(());
        }
    }
}

fn header((width, height): (u16, u16), time_ms: u64, title: &str) -> String {
    let header = serde_json::json!({
        "version": 2, "width": width, "height": height, "timestamp": time_ms / 1000,
        "title": title, "env": {"TERM": "xterm-256color"},
        // The timestamp of the format is in whole seconds; players ignore unknown keys.
        "stead": {"began_ms": time_ms},
    });
    format!("{header}\n")
}

/// Converts a log entry to an event and cuts it at `to`.
fn cut(entry: Entry, to: u64) -> Option<WatchEvent> {
    match entry {
        Entry::Gap { from, to: end } => {
            (from < to).then_some(WatchEvent::Gap { from, to: end.min(to) })
        }
        Entry::Record(record) if record.offset > to => None,
        Entry::Record(record) => match record.size() {
            Some((cols, rows)) => Some(WatchEvent::Resize { cols, rows }),
            None if record.kind == RecordKind::Resize => None,
            None => {
                let keep = (to - record.offset).min(record.data.len() as u64) as usize;
                let mut bytes = Bytes::from(record.data);
                bytes.truncate(keep);
                (keep > 0).then_some(WatchEvent::Output { offset: record.offset, bytes })
            }
        },
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    base::task::blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
