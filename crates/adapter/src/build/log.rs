//! What a build says, line by line, in a file that outlives it and the server.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use model::Timestamp;

/// Lines that are kept of a build.
const MAX_LINES: u64 = 10_000;
/// Bytes that are kept of a line.
const MAX_LINE_BYTES: usize = 4096;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Details.
    Debug,
    Info,
    /// What is not as asked for.
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub timestamp: Timestamp,
    /// How much it matters.
    pub level: Level,
    /// The step it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub message: String,
}

/// The log of a build that runs.
#[derive(Debug)]
pub struct BuildLog {
    file: File,
    step: Option<String>,
    lines: watch::Sender<u64>,
}

impl BuildLog {
    /// Begins a log. `lines` receives the number of lines.
    pub fn begin(path: &Path, lines: watch::Sender<u64>) -> io::Result<BuildLog> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(BuildLog { file, step: None, lines })
    }

    /// Says which step the lines from here on are of.
    pub fn step(&mut self, step: impl Into<String>) {
        self.step = Some(step.into());
    }

    /// The step it is at.
    pub fn at(&self) -> Option<String> {
        self.step.clone()
    }

    /// Adds lines. Beyond the limit they are dropped, and the last one says so.
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
            // A line that cannot be kept is lost; the build does not depend on it.
            if let Err(error) = self.file.write_all(text.as_bytes()) {
                tracing::warn!(%error, "cannot keep a line of a build");
            }
            self.lines.send_replace(written + 1);
        }
    }
}

/// Output that comes in pieces, as whole lines.
#[derive(Debug, Default)]
pub struct Pieces(Vec<u8>);

impl Pieces {
    /// The lines that are whole with this piece. One that grows too long is cut.
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

    /// What is left of them.
    pub fn rest(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Lines of a log, from this one on. One that is half written is not there yet.
pub fn read(path: &Path, from: u64, most: usize, least: Level) -> io::Result<Vec<LogLine>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        file => file?,
    };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let lines = lines.filter_map(|line| serde_json::from_str::<LogLine>(&line).ok());
    let wanted = lines.filter(|line| line.level >= least);
    Ok(wanted.skip(usize::try_from(from).unwrap_or(usize::MAX)).take(most).collect())
}

/// Where the log of a build is.
pub fn path(home: &Path, build: &str) -> PathBuf {
    home.join("builds").join(format!("{build}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_from_any_line_on_and_has_an_end() {
        let home = std::env::temp_dir().join(format!("stead-log-{}", uuid::Uuid::now_v7()));
        let path = path(&home, "b");
        assert_eq!(read(&path, 0, 10, Level::Debug).unwrap(), []);
        let mut log = BuildLog::begin(&path, watch::channel(0).0).unwrap();
        log.add(Level::Info, "one\n\ntwo\n");
        log.step("1");
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
    fn output_is_told_in_whole_lines() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(b"on"), None);
        assert_eq!(pieces.take(b"e\ntw").as_deref(), Some("one\n"));
        assert_eq!(pieces.take(b"o\r50%\rx").as_deref(), Some("two\n50%\n"));
        assert!(pieces.take(&vec![b'z'; MAX_LINE_BYTES + 1]).is_some());
        let _ = pieces.take(b"end");
        assert_eq!(pieces.rest(), "end");
    }
}
