//! Searches the commands and the output of all threads, newest first, within limits.
//!
//! There is no index: commands are read in batches from a reader of the store, and their output where it already
//! is. A batch runs on a thread that may block; between batches other requests get their turn, and a caller that
//! leaves ends the search.

mod lines;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base::outbound::bounded;
use wire::Stream;

use super::error::TerminalError;
use super::terminals::Terminals;
use model::{Command, CommandId, ThreadId};
use store::{Outputs, RecentCommand, RecentCommands};

pub use lines::FoundLine;
use lines::Needle;
pub use sources::LineSource;

/// Commands that are read at once, each with at most 64 KiB of output.
const BATCH_COMMANDS: u32 = 64;
/// The matching lines of a command that are returned.
const MAX_LINES: usize = 5;
/// How long a host may take to return the output of a command that runs.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);
/// The output of a running command that is read from its host.
const MAX_HOST_BYTES: usize = 1 << 20;

/// What to search for, and where.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    /// The text; upper and lower case are the same.
    pub text: String,
    /// Only commands of this thread.
    pub thread: Option<ThreadId>,
    /// The `next` of the previous page.
    pub before: Option<CommandId>,
    pub limits: SearchBudget,
}

/// The limits of one search. At least one command is searched whatever they are.
#[derive(Debug, Clone, Copy)]
pub struct SearchBudget {
    /// Commands that match.
    pub hits: usize,
    /// Bytes of output that are read.
    pub bytes: u64,
    pub time: Duration,
}

/// The limit that ended a search early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchLimit {
    Hits,
    Bytes,
    Time,
}

/// A command that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    pub thread_id: ThreadId,
    pub command: Command,
    /// Whether the command text contains the searched text.
    pub in_command: bool,
    /// The first matching lines of its output.
    pub lines: Vec<(LineSource, FoundLine)>,
    /// Whether more lines match.
    pub more_lines: bool,
}

/// A part of the result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SearchPage {
    /// The matching commands, newest first.
    pub hits: Vec<SearchHit>,
    /// Where to continue; `None` if everything was searched.
    pub next: Option<CommandId>,
    /// Commands that were searched.
    pub commands: u64,
    /// Bytes of output that were read.
    pub bytes: u64,
    /// Why the search ended early.
    pub stopped: Option<SearchLimit>,
}

impl Terminals {
    /// Searches commands and their output. Starts nothing, and does not count as activity. Only a few searches run
    /// at the same time; others wait for them, at most as long as one search may take.
    pub async fn search(&self, request: SearchRequest) -> Result<SearchPage, TerminalError> {
        let turn = tokio::time::timeout(request.limits.time, self.0.searches.acquire()).await;
        let turn = turn.map_err(|_| TerminalError::TooManySearches)?;
        let _permit = turn.map_err(|_| TerminalError::Gone)?;
        let deadline = Instant::now() + request.limits.time;
        let needle = Needle::new(&request.text);
        let mut page = SearchPage { next: request.before, ..SearchPage::default() };
        loop {
            let wanted = RecentCommands {
                thread: request.thread.clone(),
                before: page.next.clone(),
                limit: BATCH_COMMANDS,
            };
            let mut batch = self.0.store.recent_commands(wanted).await?;
            let is_last = batch.len() < BATCH_COMMANDS as usize;
            let running = self.running_output(&mut batch, deadline).await;
            let scan = Scan {
                home: self.0.settings.home.clone(),
                needle: needle.clone(),
                limits: request.limits,
                deadline,
                running,
                page,
            };
            let scanned = base::task::blocking(move || scan.run(batch)).await;
            page = scanned.map_err(|_| TerminalError::Gone)?;
            match page.stopped {
                Some(_) => return Ok(page),
                None if is_last => return Ok(SearchPage { next: None, ..page }),
                None => {}
            }
        }
    }

    /// Returns the output so far of the commands that run, as far as their hosts return it before the deadline. The
    /// rows of these commands are brought up to date.
    async fn running_output(
        &self,
        batch: &mut [RecentCommand],
        deadline: Instant,
    ) -> HashMap<CommandId, Outputs> {
        let mut outputs = HashMap::new();
        for one in batch {
            let Some(command) = self.running(&one.command.command_id) else { continue };
            one.command = command;
            let left = deadline.saturating_duration_since(Instant::now());
            let read = bounded("host.search", left.min(HOST_TIMEOUT), async {
                let stdout = self.head(&one.command, Stream::Stdout).await?;
                let stderr = self.head(&one.command, Stream::Stderr).await?;
                Some(Outputs { stdout, stderr })
            });
            if let Ok(Some(output)) = read.await {
                outputs.insert(one.command.command_id.clone(), output);
            }
        }
        outputs
    }

    /// Returns the start of the output of a command that runs.
    async fn head(&self, command: &Command, stream: Stream) -> Option<Vec<u8>> {
        let terminal = self.0.store.terminal(&command.terminal_id).await.ok()??;
        let mut head = Vec::new();
        while head.len() < MAX_HOST_BYTES {
            let (from, limit) = (head.len() as u64, wire::MAX_DATA as u32);
            let chunk = self.output(&terminal, command, stream, from, limit).await.ok()?;
            if chunk.bytes.is_empty() || chunk.offset != from {
                break;
            }
            head.extend_from_slice(&chunk.bytes);
        }
        Some(head)
    }
}

/// The search of one batch.
struct Scan {
    home: std::path::PathBuf,
    needle: Needle,
    limits: SearchBudget,
    deadline: Instant,
    running: HashMap<CommandId, Outputs>,
    page: SearchPage,
}

impl Scan {
    /// Searches commands up to the first limit. Blocks.
    fn run(mut self, batch: Vec<RecentCommand>) -> SearchPage {
        for one in batch {
            self.page.next = Some(one.command.command_id.clone());
            self.page.commands += 1;
            self.search(one);
            let limit = match () {
                () if self.page.hits.len() >= self.limits.hits => SearchLimit::Hits,
                () if self.page.bytes >= self.limits.bytes => SearchLimit::Bytes,
                () if Instant::now() >= self.deadline => SearchLimit::Time,
                () => continue,
            };
            self.page.stopped = Some(limit);
            break;
        }
        self.page
    }

    fn search(&mut self, one: RecentCommand) {
        let RecentCommand { thread_id, command, output } = one;
        let output = self.running.remove(&command.command_id).or(output);
        let in_command = self.needle.is_in(&command.text);
        let directory = super::directory(&self.home, &command.terminal_id);
        let found =
            sources::search(&directory, &command, output.as_ref(), &self.needle, MAX_LINES + 1);
        self.page.bytes += found.bytes;
        let mut lines = found.lines;
        let more_lines = lines.len() > MAX_LINES;
        lines.truncate(MAX_LINES);
        if in_command || !lines.is_empty() {
            self.page.hits.push(SearchHit { thread_id, command, in_command, lines, more_lines });
        }
    }
}
