//! Search in the contents of files, in linear time and within limits.

use std::{
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use regex::bytes::{Regex, RegexBuilder};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use crate::{FileError, FileKind, Relative};
use crate::{
    directory::{Directory, open_regular, stat_at},
    list::open_child,
};
use base::durable::PART;

/// The rest of a longer line is neither searched nor returned.
const MAX_LINE_BYTES: u64 = 4096;
/// The size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The nesting of searched directories.
const MAX_DEPTH: u32 = 64;

/// Limits of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchLimits {
    /// Matching lines.
    pub matches: usize,
    /// Searched files.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Elapsed time.
    pub time: Duration,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { matches: 1000, files: 100_000, bytes: 1 << 30, time: Duration::from_secs(10) }
    }
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: String,
    /// The line number, starting at 1.
    pub line: u64,
    /// The start of the match within the line in bytes, starting at 1.
    pub column: u64,
    /// The line, truncated if it is long. Invalid UTF-8 is replaced.
    pub text: String,
}

/// The result of a search.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The matching lines, sorted by path.
    pub matches: Vec<Match>,
    /// Searched files.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Why the search ended early, if it did.
    pub stopped: Option<&'static str>,
}

/// A search in progress.
pub(super) struct Search<'a> {
    pattern: Regex,
    limits: SearchLimits,
    deadline: Instant,
    cancelled: &'a AtomicBool,
    found: SearchResult,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        pattern: &str,
        limits: SearchLimits,
        cancelled: &'a AtomicBool,
    ) -> Result<Self, FileError> {
        let pattern = RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(4 * MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| FileError::BadPattern { reason: error.to_string() })?;
        let deadline = Instant::now() + limits.time;
        Ok(Self { pattern, limits, deadline, cancelled, found: SearchResult::default() })
    }

    pub(super) fn finish(self) -> SearchResult {
        self.found
    }

    /// Searches one file. Returns whether to continue.
    pub(super) fn content(&mut self, path: &str, content: impl Read) -> bool {
        if self.found.files >= self.limits.files {
            return self.stop("the limit of files is reached");
        }
        self.found.files += 1;
        let mut content = BufReader::with_capacity(64 << 10, content);
        match content.fill_buf() {
            // A NUL byte: a binary file.
            Ok(begin) if begin.iter().take(8192).any(|&byte| byte == 0) => return true,
            Ok(_) => {}
            // An unreadable file is skipped.
            Err(_) => return true,
        }
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let Ok(read) = (&mut content).take(MAX_LINE_BYTES).read_until(b'\n', &mut line) else {
                return true;
            };
            if read == 0 {
                return true;
            }
            self.found.bytes += read as u64;
            if line.last() == Some(&b'\n') {
                line.pop();
            } else if !skip_line(&mut content, &mut self.found.bytes, self.limits.bytes) {
                return true;
            }
            if let Some(found) = self.pattern.find(&line) {
                let column = found.start() as u64 + 1;
                let text = String::from_utf8_lossy(&line).into_owned();
                let found = Match { path: path.to_owned(), line: number, column, text };
                self.found.matches.push(found);
                if self.found.matches.len() >= self.limits.matches {
                    return self.stop("the limit of matches is reached");
                }
            }
            if self.found.bytes > self.limits.bytes {
                return self.stop("the limit of bytes is reached");
            }
            if number % 256 == 0 && !self.has_time() {
                return false;
            }
        }
        true
    }

    fn directory(&mut self, directory: &OwnedFd, path: &str, depth: u32) -> Result<bool, Errno> {
        let mut names: Vec<String> = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." && !name.starts_with(PART) {
                names.push(name);
            }
            if names.len() as u64 > self.limits.files {
                self.stop("the limit of files is reached");
                break;
            }
        }
        names.sort_unstable();
        for name in names {
            if !self.has_time() {
                return Ok(false);
            }
            let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let Ok(stat) = stat_at(directory, &name, &below) else { continue };
            let proceed = match stat.kind {
                FileKind::File => match open_file(directory, &name, &below) {
                    Some(file) => self.content(&below, file),
                    None => true,
                },
                FileKind::Directory if depth == 0 => self.stop("the limit of depth is reached"),
                FileKind::Directory => match open_child(directory, &name) {
                    Ok(child) => self.directory(&child, &below, depth - 1)?,
                    Err(_) => true,
                },
                FileKind::Link | FileKind::Other => true,
            };
            if !proceed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_time(&mut self) -> bool {
        if self.cancelled.load(Ordering::Relaxed) {
            return self.stop("the search was cancelled");
        }
        Instant::now() < self.deadline || self.stop("the limit of time is reached")
    }

    fn stop(&mut self, why: &'static str) -> bool {
        self.found.stopped = Some(why);
        false
    }
}

impl Directory {
    /// Searches the files at or below a path. Links are not followed. `cancelled` ends the search early.
    pub fn search(
        &self,
        path: &Relative,
        pattern: &str,
        limits: SearchLimits,
        cancelled: &AtomicBool,
    ) -> Result<SearchResult, FileError> {
        let mut search = Search::new(pattern, limits, cancelled)?;
        match self.open_below(path) {
            Ok(directory) => {
                search
                    .directory(&directory, path.as_str(), MAX_DEPTH)
                    .map_err(|errno| FileError::from_io("search", path.as_str(), errno.into()))?;
            }
            Err(FileError::NotDirectory { .. }) => {
                let (file, _) = self.read(path)?;
                search.content(path.as_str(), file);
            }
            Err(error) => return Err(error),
        }
        Ok(search.finish())
    }
}

/// Skips the rest of a line, up to the limit. Returns `false` on a read error.
fn skip_line(content: &mut impl BufRead, bytes: &mut u64, max: u64) -> bool {
    loop {
        let Ok(buffer) = content.fill_buf() else { return false };
        if buffer.is_empty() {
            return true;
        }
        let (length, ends) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        content.consume(length);
        *bytes += length as u64;
        if ends || *bytes > max {
            return true;
        }
    }
}

fn open_file(directory: &OwnedFd, name: &str, path: &str) -> Option<std::fs::File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).ok()?;
    open_regular(&file, path).ok().map(|(file, _)| file)
}
