//! Follows one command inside an instance, from its start until nothing is left of it.

use std::sync::Arc;
use std::time::Duration;

use host::shell::Keep;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::spool::{self, Known, LONGEST_STATE, Place, Report, SMALL, Seen, Source, Start, Until};
use super::{Commands, ProviderError};

/// The wait after a call that failed; it doubles.
pub(super) const WAIT: Duration = Duration::from_millis(100);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How much longer than its limit a command may take to begin.
const UNHEARD: Duration = Duration::from_secs(120);

/// The way into an instance, as long as there is one.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    pub(super) commands: Arc<dyn Commands>,
    /// The instance is paused, or about to be: nothing is asked of it.
    pub(super) held: watch::Receiver<bool>,
    pub(super) heard: mpsc::Sender<Heard>,
}

/// What a follower hears.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) terminal: String,
    pub(super) command: String,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// It is known there.
    Began,
    /// Bytes of a stream (0 or 1), which is so long by now.
    Wrote(usize, u64, Vec<u8>),
    /// It ended.
    Over(Ending),
    /// Nothing of it is left.
    Sealed,
    /// It is started on the last of these PTYs; they are to be kept before anything is done there.
    Screens(Vec<String>, oneshot::Sender<()>),
    /// There are no PTYs here; from when that is taken in, what is typed goes another way.
    Plain(oneshot::Sender<()>),
    /// There is no such instance any more.
    Gone(Gone),
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself, with this code; and what its shell said of its state.
    Code(i32, Option<Vec<u8>>),
    /// Its time was over.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Nobody knows.
    Lost,
    /// It never began.
    NotStarted,
}

/// The instance is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone {
    /// What was asked of it last was never done there.
    pub(super) unheard: bool,
}

impl Reach {
    /// What a text says; asked again until there is an answer that `read` can make something of.
    pub(super) async fn ask<T>(
        &self,
        text: &str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, Gone> {
        let (mut wait, mut unheard) = (WAIT, true);
        loop {
            self.ready().await?;
            match self.commands.run(text.to_owned()).await {
                Ok(said) => match read(&said) {
                    Some(read) => return Ok(read),
                    None => tracing::debug!(
                        said = %String::from_utf8_lossy(&said[..said.len().min(300)]),
                        "an instance did not answer whole"
                    ),
                },
                Err(error) => self.failed(&error).map_err(|_| Gone { unheard })?,
            }
            unheard = false;
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Makes a file be there.
    async fn put(&self, path: &str, bytes: &[u8]) -> Result<(), Gone> {
        let mut wait = WAIT;
        loop {
            self.ready().await?;
            match self.commands.put(path, bytes.to_vec()).await {
                Ok(()) => return Ok(()),
                Err(error) => self.failed(&error)?,
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    pub(super) async fn ready(&self) -> Result<(), Gone> {
        self.held.clone().wait_for(|held| !held).await.map(drop).map_err(|_| Gone { unheard: true })
    }

    fn failed(&self, error: &ProviderError) -> Result<(), Gone> {
        match error {
            ProviderError::Gone { .. } => Err(Gone { unheard: true }),
            ProviderError::Unknown { .. }
            | ProviderError::Unsupported { .. }
            | ProviderError::Busy { .. }
            | ProviderError::Refused { .. }
            | ProviderError::TimedOut { .. }
            | ProviderError::Failed { .. } => {
                tracing::debug!(%error, "a command of ours did not get through; asking again");
                Ok(())
            }
        }
    }
}

/// One that follows.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) reach: Reach,
    pub(super) terminal: String,
    pub(super) command: String,
    pub(super) place: Place,
    pub(super) keep: Keep,
    /// How long it may run from when it is known to have begun.
    limit: Option<Duration>,
    deadline: Option<Instant>,
    /// Raised when it is to be ended at once.
    pub(super) cancel: watch::Receiver<bool>,
    known: Known,
    state: Vec<u8>,
    /// It was heard of.
    begun: bool,
}

impl Follower {
    pub(super) fn new(
        reach: Reach,
        (terminal, command): (String, String),
        place: Place,
        keep: Keep,
        limit: Option<Duration>,
        cancel: watch::Receiver<bool>,
    ) -> Self {
        let (known, state) = (Known::default(), Vec::new());
        // An instance that cannot be reached does not hold up for ever whoever has set a limit.
        let deadline = limit.map(|limit| Instant::now() + limit + UNHEARD);
        let begun = false;
        Self { reach, terminal, command, place, keep, limit, deadline, cancel, known, state, begun }
    }

    /// Starts it and follows it; `done` are commands whose files can go.
    pub(super) async fn start(self, start: Start, done: Vec<u64>) {
        self.follow(Some((start, done))).await;
    }

    /// Follows one that a server before us started.
    pub(super) async fn find(self) {
        self.follow(None).await;
    }

    async fn follow(mut self, start: Option<(Start, Vec<u64>)>) {
        let (heard, mut cancel) = (self.reach.heard.clone(), self.cancel.clone());
        let launched = start.is_some();
        let followed = tokio::select! {
            followed = self.until_its_end(start) => followed,
            // Nobody wants to know: the command was forgotten, or its host is over.
            () = async { while cancel.changed().await.is_ok() {} } => return,
            () = heard.closed() => return,
        };
        if let Err(gone) = followed {
            let unheard = gone.unheard && launched && !self.begun;
            self.tell(What::Gone(Gone { unheard })).await;
        }
    }

    async fn until_its_end(&mut self, start: Option<(Start, Vec<u64>)>) -> Result<(), Gone> {
        let mut report = match start {
            Some((start, done)) => {
                match self.in_time(async |it: &Self| it.launch(&start, &done).await).await? {
                    Ok(report) => report,
                    Err(why) => return self.end(why).await,
                }
            }
            None => self.reach.ask(&self.place.look(self.known, Until::Now), spool::read).await?,
        };
        self.begun = true;
        self.deadline = self.limit.map(|limit| Instant::now() + limit);
        if report.seen != Seen::None {
            self.tell(What::Began).await;
        }
        loop {
            self.take(&mut report).await;
            let behind = self.known.out < report.out || self.known.err < report.err;
            let state = report.state.filter(|length| *length <= LONGEST_STATE);
            let ending = match report.seen {
                Seen::Running => None,
                _ if behind => None,
                Seen::Ended(_) if state.is_some_and(|length| self.known.state < length) => None,
                Seen::Ended(code) => {
                    Some(Ending::Code(code, state.map(|_| std::mem::take(&mut self.state))))
                }
                Seen::Killed => Some(Ending::TimedOut),
                Seen::Gone => Some(Ending::Lost),
                Seen::None => return self.end(Ending::NotStarted).await,
            };
            if let Some(ending) = ending {
                self.tell(What::Over(ending)).await;
                return self.until_silence(report.left).await;
            }
            let text = self.place.look(self.known, Until::End);
            let looked = self.in_time(async |it: &Self| it.reach.ask(&text, spool::read).await);
            report = match looked.await? {
                Ok(report) => report,
                Err(why) => return self.end(why).await,
            };
        }
    }

    /// What is written after its end.
    async fn until_silence(&mut self, mut left: u64) -> Result<(), Gone> {
        self.known.state = u64::from(u32::MAX);
        while left > 0 {
            let text = self.place.look(self.known, Until::Silence);
            let mut report = self.reach.ask(&text, spool::read).await?;
            self.take(&mut report).await;
            left = report.left;
            if self.known.out < report.out || self.known.err < report.err {
                left = left.max(1);
            }
        }
        self.tell(What::Sealed).await;
        Ok(())
    }

    async fn launch(&self, start: &Start, done: &[u64]) -> Result<Report, Gone> {
        for (path, bytes) in self.place.files(start) {
            if bytes.len() > SMALL {
                self.reach.put(&path, &bytes).await?;
            }
        }
        self.reach.ask(&self.place.start(start, done), spool::read).await
    }

    /// Does something unless its time is over first.
    async fn in_time<T>(
        &mut self,
        act: impl AsyncFnOnce(&Self) -> Result<T, Gone>,
    ) -> Result<Result<T, Ending>, Gone> {
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
            () = due => Ok(Err(Ending::TimedOut)),
            Ok(_) = cancel.wait_for(|cancel| *cancel) => Ok(Err(Ending::Cancelled)),
        }
    }

    /// Ends it, and tells how it came to that; one that ended by itself before counts as that.
    async fn end(&mut self, why: Ending) -> Result<(), Gone> {
        self.begun = true;
        loop {
            let mut report = self.reach.ask(&self.place.end(self.known), spool::read).await?;
            self.take(&mut report).await;
            if self.known.out < report.out || self.known.err < report.err {
                continue;
            }
            let state = report.state.filter(|length| *length <= LONGEST_STATE);
            let ending = match report.seen {
                Seen::Ended(_) if state.is_some_and(|length| self.known.state < length) => continue,
                Seen::Ended(code) => {
                    Ending::Code(code, state.map(|_| std::mem::take(&mut self.state)))
                }
                Seen::None => Ending::NotStarted,
                Seen::Running | Seen::Killed | Seen::Gone => why,
            };
            self.tell(What::Over(ending)).await;
            return self.until_silence(report.left).await;
        }
    }

    /// Passes on what a report has of streams, and decides where to go on.
    async fn take(&mut self, report: &mut Report) {
        for (source, offset, bytes) in std::mem::take(&mut report.data) {
            let end = offset + bytes.len() as u64;
            match source {
                Source::Out => {
                    self.known.out = end;
                    self.tell(What::Wrote(0, offset, bytes)).await;
                }
                Source::Err => {
                    self.known.err = end;
                    self.tell(What::Wrote(1, offset, bytes)).await;
                }
                Source::State if offset == self.known.state => {
                    self.known.state = end;
                    self.state.extend(bytes);
                }
                Source::State => {}
            }
        }
        // The middle is not kept: it need not come either.
        let Keep { head, tail } = self.keep;
        for (known, total) in [(&mut self.known.out, report.out), (&mut self.known.err, report.err)]
        {
            if *known >= head && total.saturating_sub(*known) > tail {
                *known = total - tail;
            }
        }
    }

    pub(super) async fn tell(&self, what: What) {
        let (terminal, command) = (self.terminal.clone(), self.command.clone());
        let _ = self.reach.heard.send(Heard { terminal, command, what }).await;
    }
}
