//! Follows one command inside an instance, from its start until none of its processes is left.

use std::sync::Arc;
use std::time::Duration;

use shell::Keep;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::instance::CommandRunner;
use super::spool::{
    self, CommandDir, CommandFiles, MAX_INLINE_BYTES, MAX_STATE_BYTES, SpoolStatus, StatusReport,
    StreamName, StreamOffsets, WaitFor,
};
use base::backoff::Backoff;
use provider::ProviderError;

/// The waits after failed calls.
pub(super) const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// How much longer than its time limit a command may take to start.
const START_GRACE: Duration = Duration::from_secs(120);

/// Calls an instance, and repeats a call until it gets through.
#[derive(Debug, Clone)]
pub(super) struct InstanceLink {
    pub(super) commands: Arc<dyn CommandRunner>,
    /// Whether the instance is paused or about to be: then nothing is called.
    pub(super) paused: watch::Receiver<bool>,
    pub(super) updates: mpsc::Sender<CommandUpdate>,
}

/// A report of a follower to its host.
#[derive(Debug)]
pub(super) struct CommandUpdate {
    pub(super) terminal: String,
    pub(super) command: String,
    pub(super) what: CommandReport,
}

#[derive(Debug)]
pub(super) enum CommandReport {
    /// The command is running, or has run.
    Started,
    /// Output of a stream (0 or 1), and its offset.
    Output(usize, u64, Vec<u8>),
    Ended(RemoteEnding),
    /// None of its processes is left.
    Sealed,
    /// The program is started on the last of these PTYs. The host saves the list before the start, and confirms.
    Ptys(Vec<String>, oneshot::Sender<()>),
    /// There are no PTYs. Once the host confirms, input goes to standard input instead.
    NoPty(oneshot::Sender<()>),
    Gone(InstanceGone),
}

#[derive(Debug)]
pub(super) enum RemoteEnding {
    /// The exit code, and the state that the shell saved.
    Code(i32, Option<Vec<u8>>),
    TimedOut,
    Cancelled,
    /// The outcome is unknown.
    Lost,
    NotStarted,
}

/// The instance no longer exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct InstanceGone {
    /// The last call was certainly not executed.
    pub(super) never_ran: bool,
}

impl InstanceLink {
    /// Runs a script until `read` can parse its output.
    pub(super) async fn ask<T>(
        &self,
        text: &str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, InstanceGone> {
        let (mut backoff, mut never_ran) = (RETRY, true);
        loop {
            self.ready().await?;
            match self.commands.run(text.to_owned()).await {
                Ok(output) => match read(&output) {
                    Some(read) => return Ok(read),
                    None => tracing::debug!(
                        output = %String::from_utf8_lossy(&output[..output.len().min(300)]),
                        "incomplete answer of an instance; retrying"
                    ),
                },
                Err(error) => self.failed(&error).map_err(|_| InstanceGone { never_ran })?,
            }
            never_ran = false;
            sleep(backoff.next_wait()).await;
        }
    }

    async fn put(&self, path: &str, bytes: &[u8]) -> Result<(), InstanceGone> {
        let mut backoff = RETRY;
        loop {
            self.ready().await?;
            match self.commands.put(path, bytes.to_vec()).await {
                Ok(()) => return Ok(()),
                Err(error) => self.failed(&error)?,
            }
            sleep(backoff.next_wait()).await;
        }
    }

    pub(super) async fn ready(&self) -> Result<(), InstanceGone> {
        self.paused
            .clone()
            .wait_for(|paused| !paused)
            .await
            .map(drop)
            .map_err(|_| InstanceGone { never_ran: true })
    }

    fn failed(&self, error: &ProviderError) -> Result<(), InstanceGone> {
        match error {
            ProviderError::Gone { .. } => Err(InstanceGone { never_ran: true }),
            ProviderError::Unknown { .. }
            | ProviderError::Unsupported { .. }
            | ProviderError::Busy { .. }
            | ProviderError::Refused { .. }
            | ProviderError::BadImage { .. }
            | ProviderError::TimedOut { .. }
            | ProviderError::Failed { .. } => {
                tracing::debug!(%error, "a call to an instance failed; retrying");
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Follower {
    pub(super) link: InstanceLink,
    pub(super) terminal: String,
    pub(super) command: String,
    pub(super) command_dir: CommandDir,
    pub(super) keep: Keep,
    /// The time limit, counted from the start of the command.
    limit: Option<Duration>,
    deadline: Option<Instant>,
    /// Set to `true` to end the command.
    pub(super) cancel: watch::Receiver<bool>,
    known: StreamOffsets,
    state: Vec<u8>,
    /// The instance has confirmed the command.
    begun: bool,
}

impl Follower {
    pub(super) fn new(
        link: InstanceLink,
        (terminal, command): (String, String),
        command_dir: CommandDir,
        keep: Keep,
        limit: Option<Duration>,
        cancel: watch::Receiver<bool>,
    ) -> Self {
        let (known, state) = (StreamOffsets::default(), Vec::new());
        // A time limit ends the command even if the instance cannot be reached.
        let deadline = limit.map(|limit| Instant::now() + limit + START_GRACE);
        let begun = false;
        Self {
            link,
            terminal,
            command,
            command_dir,
            keep,
            limit,
            deadline,
            cancel,
            known,
            state,
            begun,
        }
    }

    /// Starts the command and follows it; `done` are commands whose files can be removed.
    pub(super) async fn start(self, start: CommandFiles, done: Vec<u64>) {
        self.follow(Some((start, done))).await;
    }

    /// Follows a command that a previous server process started.
    pub(super) async fn find(self) {
        self.follow(None).await;
    }

    async fn follow(mut self, start: Option<(CommandFiles, Vec<u64>)>) {
        let (updates, mut cancel) = (self.link.updates.clone(), self.cancel.clone());
        let launched = start.is_some();
        let followed = tokio::select! {
            followed = self.until_its_end(start) => followed,
            // The command was forgotten, or its host has stopped.
            () = async { while cancel.changed().await.is_ok() {} } => return,
            () = updates.closed() => return,
        };
        if let Err(lost) = followed {
            let never_ran = lost.never_ran && launched && !self.begun;
            self.tell(CommandReport::Gone(InstanceGone { never_ran })).await;
        }
    }

    async fn until_its_end(
        &mut self,
        start: Option<(CommandFiles, Vec<u64>)>,
    ) -> Result<(), InstanceGone> {
        let mut report = match start {
            Some((start, done)) => {
                match self.in_time(async |it: &Self| it.launch(&start, &done).await).await? {
                    Ok(report) => report,
                    Err(why) => return self.end(why).await,
                }
            }
            None => {
                self.link
                    .ask(&self.command_dir.status(self.known, WaitFor::Now), spool::read)
                    .await?
            }
        };
        self.begun = true;
        self.deadline = self.limit.map(|limit| Instant::now() + limit);
        if report.status != SpoolStatus::None {
            self.tell(CommandReport::Started).await;
        }
        loop {
            self.take(&mut report).await;
            let behind = self.known.out < report.out || self.known.err < report.err;
            let state = report.state.filter(|length| *length <= MAX_STATE_BYTES);
            let ending = match report.status {
                SpoolStatus::Running => None,
                _ if behind => None,
                SpoolStatus::Ended(_) if state.is_some_and(|length| self.known.state < length) => {
                    None
                }
                SpoolStatus::Ended(code) => {
                    Some(RemoteEnding::Code(code, state.map(|_| std::mem::take(&mut self.state))))
                }
                SpoolStatus::Killed => Some(RemoteEnding::TimedOut),
                SpoolStatus::Gone => Some(RemoteEnding::Lost),
                SpoolStatus::None => return self.end(RemoteEnding::NotStarted).await,
            };
            if let Some(ending) = ending {
                self.tell(CommandReport::Ended(ending)).await;
                return self.until_silence(report.left).await;
            }
            let text = self.command_dir.status(self.known, WaitFor::End);
            let looked = self.in_time(async |it: &Self| it.link.ask(&text, spool::read).await);
            report = match looked.await? {
                Ok(report) => report,
                Err(why) => return self.end(why).await,
            };
        }
    }

    /// Forwards what background processes write after the command has ended.
    async fn until_silence(&mut self, mut left: u64) -> Result<(), InstanceGone> {
        self.known.state = u64::from(u32::MAX);
        while left > 0 {
            let text = self.command_dir.status(self.known, WaitFor::AllProcesses);
            let mut report = self.link.ask(&text, spool::read).await?;
            self.take(&mut report).await;
            left = report.left;
            if self.known.out < report.out || self.known.err < report.err {
                left = left.max(1);
            }
        }
        self.tell(CommandReport::Sealed).await;
        Ok(())
    }

    async fn launch(
        &self,
        start: &CommandFiles,
        done: &[u64],
    ) -> Result<StatusReport, InstanceGone> {
        for (path, bytes) in self.command_dir.files(start) {
            if bytes.len() > MAX_INLINE_BYTES {
                self.link.put(&path, &bytes).await?;
            }
        }
        self.link.ask(&self.command_dir.start(start, done), spool::read).await
    }

    /// Runs `act` until the deadline or a cancellation.
    async fn in_time<T>(
        &mut self,
        act: impl AsyncFnOnce(&Self) -> Result<T, InstanceGone>,
    ) -> Result<Result<T, RemoteEnding>, InstanceGone> {
        let (deadline, mut cancel) = (self.deadline, self.cancel.clone());
        let due = async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = act(self) => done.map(Ok),
            () = due => Ok(Err(RemoteEnding::TimedOut)),
            Ok(_) = cancel.wait_for(|cancel| *cancel) => Ok(Err(RemoteEnding::Cancelled)),
        }
    }

    /// Kills the command and reports `why`, unless it had already ended.
    async fn end(&mut self, why: RemoteEnding) -> Result<(), InstanceGone> {
        self.begun = true;
        loop {
            let mut report = self.link.ask(&self.command_dir.end(self.known), spool::read).await?;
            self.take(&mut report).await;
            if self.known.out < report.out || self.known.err < report.err {
                continue;
            }
            let state = report.state.filter(|length| *length <= MAX_STATE_BYTES);
            let ending = match report.status {
                SpoolStatus::Ended(_) if state.is_some_and(|length| self.known.state < length) => {
                    continue;
                }
                SpoolStatus::Ended(code) => {
                    RemoteEnding::Code(code, state.map(|_| std::mem::take(&mut self.state)))
                }
                SpoolStatus::None => RemoteEnding::NotStarted,
                SpoolStatus::Running | SpoolStatus::Killed | SpoolStatus::Gone => why,
            };
            self.tell(CommandReport::Ended(ending)).await;
            return self.until_silence(report.left).await;
        }
    }

    /// Forwards the output in a report, and decides which offsets to ask for next.
    async fn take(&mut self, report: &mut StatusReport) {
        for (source, offset, bytes) in std::mem::take(&mut report.data) {
            let end = offset + bytes.len() as u64;
            match source {
                StreamName::Out => {
                    self.known.out = end;
                    self.tell(CommandReport::Output(0, offset, bytes)).await;
                }
                StreamName::Err => {
                    self.known.err = end;
                    self.tell(CommandReport::Output(1, offset, bytes)).await;
                }
                StreamName::State if offset == self.known.state => {
                    self.known.state = end;
                    self.state.extend(bytes);
                }
                StreamName::State => {}
            }
        }
        // The middle of a long stream is not saved, so it need not be fetched.
        let Keep { head, tail } = self.keep;
        for (known, total) in [(&mut self.known.out, report.out), (&mut self.known.err, report.err)]
        {
            if *known >= head && total.saturating_sub(*known) > tail {
                *known = total - tail;
            }
        }
    }

    pub(super) async fn tell(&self, what: CommandReport) {
        let (terminal, command) = (self.terminal.clone(), self.command.clone());
        let _ = self.link.updates.send(CommandUpdate { terminal, command, what }).await;
    }
}
