//! The log of a build: JSON lines in a file that outlives the build and the server.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use model::Timestamp;

/// The limit of lines in a log; later lines are dropped.
const MAX_LINES: u64 = 10_000;
/// The limit of a line's size; longer lines are truncated.
const MAX_LINE_BYTES: usize = 4096;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub timestamp: Timestamp,
    pub level: Level,
    /// The build step that wrote the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub message: String,
}

/// The log of a running build.
#[derive(Debug)]
pub struct BuildLog {
    file: File,
    step: Option<String>,
    lines: watch::Sender<u64>,
}

impl BuildLog {
    /// Opens a log. `lines` receives the number of lines.
    pub fn open(path: &Path, lines: watch::Sender<u64>) -> io::Result<BuildLog> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(BuildLog { file, step: None, lines })
    }

    /// Sets the step of the following lines.
    pub fn set_step(&mut self, step: impl Into<String>) {
        self.step = Some(step.into());
    }

    pub fn step(&self) -> Option<String> {
        self.step.clone()
    }

    /// Adds lines. Lines beyond the limit are dropped, and the last line says so.
    pub fn add(&mut self, level: Level, text: &str) {
        for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            let written = *self.lines.borrow();
            if written >= MAX_LINES {
                return;
            }
            let mut message = line.to_owned();
            if message.len() > MAX_LINE_BYTES {
                message.truncate(message.floor_char_boundary(MAX_LINE_BYTES));
                message.push('…');
            }
            if written + 1 == MAX_LINES {
                message = format!("more than {MAX_LINES} lines are not kept");
            }
            let line =
                LogLine { timestamp: Timestamp::now(), level, step: self.step.clone(), message };
            let mut text = serde_json::to_string(&line).expect("a line is plain text");
            text.push('\n');
            // A line that cannot be written is lost; the build does not depend on it.
            if let Err(error) = self.file.write_all(text.as_bytes()) {
                tracing::warn!(%error, "cannot write to the log of a build");
            }
            self.lines.send_replace(written + 1);
        }
    }
}

/// Splits output that arrives in pieces into whole lines.
#[derive(Debug, Default)]
pub struct LineBuffer(Vec<u8>);

impl LineBuffer {
    /// Returns the lines that this piece completes. A line beyond the limit is split.
    pub fn take(&mut self, piece: &[u8]) -> Option<String> {
        self.0.extend_from_slice(piece);
        let end = match self.0.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(at) => at + 1,
            None if self.0.len() > MAX_LINE_BYTES => self.0.len(),
            None => return None,
        };
        let lines: Vec<u8> = self.0.drain(..end).collect();
        Some(String::from_utf8_lossy(&lines).replace('\r', "\n"))
    }

    /// Returns the incomplete last line.
    pub fn rest(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Reads lines of a log from a line on. A partially written line is skipped.
pub fn read(path: &Path, from: u64, limit: usize, min_level: Level) -> io::Result<Vec<LogLine>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        file => file?,
    };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let lines = lines.filter_map(|line| serde_json::from_str::<LogLine>(&line).ok());
    let wanted = lines.filter(|line| line.level >= min_level);
    Ok(wanted.skip(usize::try_from(from).unwrap_or(usize::MAX)).take(limit).collect())
}

/// The path of a build's log.
pub fn path(home: &Path, build: &str) -> PathBuf {
    home.join("builds").join(format!("{build}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_from_any_line_and_has_a_limit() {
        let home = std::env::temp_dir().join(format!("stead-log-{}", uuid::Uuid::now_v7()));
        let path = path(&home, "b");
        assert_eq!(read(&path, 0, 10, Level::Debug).unwrap(), []);
        let mut log = BuildLog::open(&path, watch::channel(0).0).unwrap();
        log.add(Level::Info, "one\n\ntwo\n");
        log.set_step("1");
        log.add(Level::Warn, &"x".repeat(2 * MAX_LINE_BYTES));
        let all = read(&path, 0, 10, Level::Debug).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!((all[1].message.as_str(), &all[1].step), ("two", &None));
        assert_eq!(all[2].step.as_deref(), Some("1"));
        assert!(all[2].message.len() < MAX_LINE_BYTES + 8);
        assert_eq!(read(&path, 1, 1, Level::Debug).unwrap(), all[1..2]);
        assert_eq!(read(&path, 0, 10, Level::Warn).unwrap(), all[2..]);
        log.add(Level::Info, &"y\n".repeat(2 * MAX_LINES as usize));
        let all = read(&path, 0, usize::MAX, Level::Debug).unwrap();
        assert_eq!(all.len() as u64, MAX_LINES);
        assert!(all.last().unwrap().message.contains("not kept"));
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn output_is_split_into_whole_lines() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.take(b"on"), None);
        assert_eq!(buffer.take(b"e\ntw").as_deref(), Some("one\n"));
        assert_eq!(buffer.take(b"o\r50%\rx").as_deref(), Some("two\n50%\n"));
        assert!(buffer.take(&vec![b'z'; MAX_LINE_BYTES + 1]).is_some());
        let _ = buffer.take(b"end");
        assert_eq!(buffer.rest(), "end");
    }
}
