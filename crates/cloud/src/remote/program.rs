//! Runs a terminal's program on a PTY of the instance, if the vendor has PTYs.
//!
//! ```text
//!   a PTY ── its shell ── `exec sh …/screen` ── the program
//! ```
//! The vendor decides what a new PTY runs, so the program is started by typing a line into it. The script
//! there creates the same link as every command does, so it runs once however often it is typed. It first
//! prints a random mark; output before the mark is not shown. The exit code is also written to a file, for
//! a server that reconnects after the PTY was closed. Output written while no server is connected is lost,
//! which a notice reports.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::follow::{CommandReport, Follower, InstanceGone, InstanceLink, RETRY, RemoteEnding};
use super::instance::{PtyEvent, PtyInput, PtyRequest, RemotePty};
use super::spool::{self, CommandFiles, SpoolStatus, TERMINAL_MARK, WaitFor};
use provider::ProviderError;

/// How long the program may take to start on a PTY.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How many PTYs are tried before the program runs without one.
const MAX_PTYS: usize = 4;
/// How often we check whether the program started on a lost PTY; each check takes some seconds.
const MAX_START_CHECKS: u32 = 4;
/// How much output before the mark is saved while searching for the mark.
const MAX_PREAMBLE_BYTES: usize = 64 << 10;
/// Shown where output may be missing.
const RECONNECTED_NOTICE: &[u8] =
    b"\x1b[0m\r\n\x1b[2m[reconnected; output written in between is missing]\x1b[0m\r\n";

/// Follows a program like any command, and forwards the bytes of its PTY.
#[derive(Debug)]
pub(super) struct ProgramRunner {
    pub(super) follower: Follower,
    pub(super) input: mpsc::Receiver<PtyInput>,
    pub(super) size: (u16, u16),
    /// The ids of the PTYs tried so far.
    pub(super) ptys: Vec<String>,
    /// Bytes of output so far.
    pub(super) written: u64,
    /// The mark that precedes the output.
    pub(super) mark: String,
}

enum ProgramOutcome {
    Ended(RemoteEnding),
    NoPty,
}

impl ProgramRunner {
    /// Runs the program, or continues with one that a previous server process started.
    pub(super) async fn run(mut self, start: CommandFiles, done: Vec<u64>) {
        let (updates, mut cancel) =
            (self.follower.link.updates.clone(), self.follower.cancel.clone());
        let played = tokio::select! {
            played = self.until_its_end(&start, &done) => played,
            // The terminal was closed, or its host has stopped.
            () = async { while cancel.changed().await.is_ok() {} } => return,
            () = updates.closed() => return,
        };
        match played {
            Ok(ProgramOutcome::Ended(ending)) => self.tell(CommandReport::Ended(ending)).await,
            Ok(ProgramOutcome::NoPty) => {
                let (plain, is_plain) = oneshot::channel();
                self.tell(CommandReport::NoPty(plain)).await;
                let _ = is_plain.await;
                tokio::spawn(feed(self.follower.link.clone(), self.early()));
                self.follower.start(start, done).await;
            }
            Err(gone) => self.tell(CommandReport::Gone(gone)).await,
        }
    }

    async fn until_its_end(
        &mut self,
        start: &CommandFiles,
        done: &[u64],
    ) -> Result<ProgramOutcome, InstanceGone> {
        loop {
            let begun = !self.ptys.is_empty() && self.has_started().await?;
            let exit = if begun {
                let Some(mut pty) = self.reconnect().await? else {
                    return self.wait_for_exit_code().await;
                };
                self.tell(CommandReport::Started).await;
                self.show(RECONNECTED_NOTICE.to_vec()).await;
                self.forward(&mut pty).await
            } else if self.ptys.len() < MAX_PTYS {
                let Some(mut pty) = self.open().await? else { return Ok(ProgramOutcome::NoPty) };
                self.ptys.push(pty.id.clone());
                let (saved, is_kept) = oneshot::channel();
                self.tell(CommandReport::Ptys(self.ptys.clone(), saved)).await;
                let _ = is_kept.await;
                let stage = self.follower.command_dir.stage(start, done, &self.mark);
                self.follower.link.ask(&stage, spool::word).await?;
                self.begin(&mut pty).await
            } else {
                return Ok(ProgramOutcome::Ended(RemoteEnding::NotStarted));
            };
            if let Some(code) = exit {
                return Ok(ProgramOutcome::Ended(RemoteEnding::Code(code, None)));
            }
        }
    }

    /// Whether the program has started on one of its PTYs. The line that starts it may still be in transit; it
    /// is never typed again where the program itself might read it.
    async fn has_started(&self) -> Result<bool, InstanceGone> {
        let text = self.follower.command_dir.begins();
        for _ in 0..MAX_START_CHECKS {
            if self.follower.link.ask(&text, spool::word).await? == "running" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Connects to the PTY that the program is on: the newest that still exists.
    async fn reconnect(&self) -> Result<Option<RemotePty>, InstanceGone> {
        for id in self.ptys.iter().rev() {
            if let Some(pty) = self.connect(id).await? {
                return Ok(Some(pty));
            }
        }
        Ok(None)
    }

    /// Converts input that arrived before we knew that there is no PTY to writes to standard input.
    fn early(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Ok(tell) = self.input.try_recv() {
            if let PtyInput::Data(bytes) = tell {
                let write = format!("early{}", texts.len());
                texts.push(self.follower.command_dir.feed(&write, &lines(&bytes), false));
            }
        }
        texts
    }

    /// Opens a new PTY; `None` if there is none.
    async fn open(&self) -> Result<Option<RemotePty>, InstanceGone> {
        // Marked as a process of the terminal, so that closing the terminal ends the PTY as well.
        let env = vec![(TERMINAL_MARK.to_owned(), self.follower.terminal.clone())];
        let (mut backoff, request) = (RETRY, PtyRequest::New { size: self.size, env });
        for _ in 0..MAX_PTYS {
            self.follower.link.ready().await?;
            match self.follower.link.commands.open_pty(&request).await {
                Ok(pty) => return Ok(pty),
                Err(ProviderError::Gone { .. }) => return Err(InstanceGone { never_ran: true }),
                Err(error) => tracing::info!(%error, "cannot open a PTY; retrying"),
            }
            sleep(backoff.next_wait()).await;
        }
        Ok(None)
    }

    /// Connects to the PTY with this id; `None` if it no longer exists.
    async fn connect(&self, id: &str) -> Result<Option<RemotePty>, InstanceGone> {
        let (mut backoff, request) = (RETRY, PtyRequest::Existing(id.to_owned()));
        loop {
            self.follower.link.ready().await?;
            match self.follower.link.commands.open_pty(&request).await {
                Ok(Some(pty)) => {
                    let (cols, rows) = self.size;
                    let _ = pty.input.send(PtyInput::Resize(cols, rows)).await;
                    return Ok(Some(pty));
                }
                Ok(None) => return Ok(None),
                Err(ProviderError::Gone { .. }) => return Err(InstanceGone { never_ran: false }),
                Err(error) => tracing::debug!(%error, "cannot connect to a PTY; retrying"),
            }
            sleep(backoff.next_wait()).await;
        }
    }

    /// Types the line that starts the program and forwards its output. Returns the exit code, or `None` if the
    /// connection ends first.
    async fn begin(&mut self, pty: &mut RemotePty) -> Option<i32> {
        let line = format!(" exec sh {}\r", self.follower.command_dir.staged());
        pty.input.send(PtyInput::Data(line.into_bytes())).await.ok()?;
        let (deadline, mark) = (Instant::now() + START_TIMEOUT, self.mark.clone().into_bytes());
        let mut before = Vec::new();
        loop {
            let event = tokio::select! {
                event = pty.events.recv() => event?,
                // The PTY does not run a shell, or the shell does not answer.
                () = sleep_until(deadline) => return None,
            };
            let PtyEvent::Output(bytes) = event else { return None };
            before.extend(bytes);
            if let Some(at) = before.windows(mark.len()).position(|window| window == mark) {
                self.tell(CommandReport::Started).await;
                self.show(before.split_off(at + mark.len())).await;
                return self.forward(pty).await;
            }
            let surplus = before.len().saturating_sub(MAX_PREAMBLE_BYTES);
            before.drain(..surplus);
        }
    }

    /// Forwards bytes both ways. Returns the exit code, or `None` if the connection ends first.
    async fn forward(&mut self, pty: &mut RemotePty) -> Option<i32> {
        loop {
            tokio::select! {
                event = pty.events.recv() => match event? {
                    PtyEvent::Output(bytes) => self.show(bytes).await,
                    PtyEvent::Exit(code) => return Some(code),
                },
                Some(tell) = self.input.recv() => {
                    if let PtyInput::Resize(cols, rows) = tell {
                        self.size = (cols, rows);
                    }
                    // Input that cannot be sent is lost, never typed twice.
                    let _ = pty.input.send(tell).await;
                }
            }
        }
    }

    /// Waits for the exit code of a program whose PTY was closed.
    async fn wait_for_exit_code(&mut self) -> Result<ProgramOutcome, InstanceGone> {
        let text = self.follower.command_dir.status(Default::default(), WaitFor::End);
        loop {
            let ending = match self.follower.link.ask(&text, spool::read).await?.status {
                SpoolStatus::Running => continue,
                SpoolStatus::Ended(code) => RemoteEnding::Code(code, None),
                SpoolStatus::Killed | SpoolStatus::Gone => RemoteEnding::Lost,
                SpoolStatus::None => RemoteEnding::NotStarted,
            };
            return Ok(ProgramOutcome::Ended(ending));
        }
    }

    async fn show(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let offset = self.written;
            self.written += bytes.len() as u64;
            self.tell(CommandReport::Output(0, offset, bytes)).await;
        }
    }

    async fn tell(&self, what: CommandReport) {
        self.follower.tell(what).await;
    }
}

/// Converts carriage returns to newlines, as a terminal would.
pub(super) fn lines(typed: &[u8]) -> Vec<u8> {
    typed.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect()
}

async fn feed(link: InstanceLink, texts: Vec<String>) {
    for text in texts {
        let parse = |answer: &[u8]| spool::word(answer).filter(|word| word != "later");
        if link.ask(&text, parse).await.is_err() {
            return;
        }
    }
}
