//! A program on a PTY of the instance's, where there are PTYs: typed into, and shown as it writes.
//!
//! ```text
//!   a PTY ── its shell ── `exec sh …/screen` ── the program
//! ```
//! What a PTY begins with is the vendor's choice, so the program is started by a line that is typed into it.
//! The script there makes the same link as any command's, so it runs once however often that is typed; first it
//! says a word that nobody else knows, and nothing before that is shown. How the program ended is also a file, for
//! whoever comes back when the PTY is gone. What it writes while nobody is connected is lost, and that is said.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::follow::{Ending, Follower, Gone, LONGEST_WAIT, Reach, WAIT, What};
use super::spool::{self, Seen, Start, TERMINAL, Until};
use super::{Hear, ProviderError, Screen, Tell, Wish};

/// How long a PTY may take until the program begins.
const BEGINNING: Duration = Duration::from_secs(60);
/// How often a PTY is asked for before the program runs without one, and how many there are at most.
const TRIES: usize = 4;
/// How often it is looked whether the program begins on a PTY that was lost; each takes some seconds.
const LOOKS: u32 = 4;
/// Bytes that a PTY may say before the program begins; of more, the oldest are dropped.
const BEFORE: usize = 64 << 10;
/// What is shown where output may be missing.
const AGAIN: &[u8] =
    b"\x1b[0m\r\n\x1b[2m[connected again; what was written meanwhile is not shown]\x1b[0m\r\n";

/// What plays a program: it follows as any command is followed, and has what goes to its PTY.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) follower: Follower,
    /// What the host tells it.
    pub(super) told: mpsc::Receiver<Tell>,
    /// Columns and rows.
    pub(super) size: (u16, u16),
    /// The PTYs that it was to be started on, the last one last.
    pub(super) ptys: Vec<String>,
    /// How much it has written.
    pub(super) written: u64,
    /// The word that its output begins behind.
    pub(super) mark: String,
}

/// What came of it.
enum Played {
    ToItsEnd(Ending),
    /// There is none to be had.
    NoPty,
}

impl Player {
    /// Plays a program from its start, or on from where a server before us was.
    pub(super) async fn play(mut self, start: Start, done: Vec<u64>) {
        let (heard, mut cancel) = (self.follower.reach.heard.clone(), self.follower.cancel.clone());
        let played = tokio::select! {
            played = self.until_its_end(&start, &done) => played,
            // Nobody wants to know: its terminal was closed, or its host is over.
            () = async { while cancel.changed().await.is_ok() {} } => return,
            () = heard.closed() => return,
        };
        match played {
            Ok(Played::ToItsEnd(ending)) => self.tell(What::Over(ending)).await,
            Ok(Played::NoPty) => {
                let (plain, is_plain) = oneshot::channel();
                self.tell(What::Plain(plain)).await;
                let _ = is_plain.await;
                tokio::spawn(feed(self.follower.reach.clone(), self.early()));
                self.follower.start(start, done).await;
            }
            Err(gone) => self.tell(What::Gone(gone)).await,
        }
    }

    async fn until_its_end(&mut self, start: &Start, done: &[u64]) -> Result<Played, Gone> {
        loop {
            let begun = !self.ptys.is_empty() && self.begins().await?;
            let exit = if begun {
                let Some(mut screen) = self.again().await? else { return self.without().await };
                self.tell(What::Began).await;
                self.show(AGAIN.to_vec()).await;
                self.pass(&mut screen).await
            } else if self.ptys.len() < TRIES {
                let Some(mut screen) = self.open().await? else { return Ok(Played::NoPty) };
                self.ptys.push(screen.id.clone());
                let (kept, is_kept) = oneshot::channel();
                self.tell(What::Screens(self.ptys.clone(), kept)).await;
                let _ = is_kept.await;
                let stage = self.follower.place.stage(start, done, &self.mark);
                self.follower.reach.ask(&stage, spool::word).await?;
                self.begin(&mut screen).await
            } else {
                return Ok(Played::ToItsEnd(Ending::NotStarted));
            };
            if let Some(code) = exit {
                return Ok(Played::ToItsEnd(Ending::Code(code, None)));
            }
        }
    }

    /// Whether the program has begun on one of its PTYs. The line that starts it may still be on its way; it is
    /// never typed where the program may be what reads it.
    async fn begins(&self) -> Result<bool, Gone> {
        let text = self.follower.place.begins();
        for _ in 0..LOOKS {
            if self.follower.reach.ask(&text, spool::word).await? == "running" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The PTY that the program is on: the last that is there. One whose line came too late has ended.
    async fn again(&self) -> Result<Option<Screen>, Gone> {
        for id in self.ptys.iter().rev() {
            if let Some(screen) = self.connect(id).await? {
                return Ok(Some(screen));
            }
        }
        Ok(None)
    }

    /// What was typed before it was known that there is no PTY, as it is given to a program without one.
    fn early(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Ok(tell) = self.told.try_recv() {
            if let Tell::Input(bytes) = tell {
                let write = format!("early{}", texts.len());
                texts.push(self.follower.place.feed(&write, &lines(&bytes), false));
            }
        }
        texts
    }

    /// A PTY of our own; `None` where there is none to be had.
    async fn open(&self) -> Result<Option<Screen>, Gone> {
        // Known as the terminal's, it goes with it, whatever was typed there.
        let env = vec![(TERMINAL.to_owned(), self.follower.terminal.clone())];
        let (mut wait, wish) = (WAIT, Wish::New { size: self.size, env });
        for _ in 0..TRIES {
            self.follower.reach.ready().await?;
            match self.follower.reach.commands.screen(&wish).await {
                Ok(screen) => return Ok(screen),
                Err(ProviderError::Gone { .. }) => return Err(Gone { unheard: true }),
                Err(error) => tracing::info!(%error, "no PTY yet"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(None)
    }

    /// The PTY of this id, once it can be reached; `None` if it is not any more.
    async fn connect(&self, id: &str) -> Result<Option<Screen>, Gone> {
        let (mut wait, wish) = (WAIT, Wish::Known(id.to_owned()));
        loop {
            self.follower.reach.ready().await?;
            match self.follower.reach.commands.screen(&wish).await {
                Ok(Some(screen)) => {
                    let (cols, rows) = self.size;
                    let _ = screen.tell.send(Tell::Size(cols, rows)).await;
                    return Ok(Some(screen));
                }
                Ok(None) => return Ok(None),
                Err(ProviderError::Gone { .. }) => return Err(Gone { unheard: false }),
                Err(error) => tracing::debug!(%error, "a PTY cannot be reached; asking again"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Types the line that starts the program, and plays on from its word; how it ended, unless the PTY was lost
    /// or left before that.
    async fn begin(&mut self, screen: &mut Screen) -> Option<i32> {
        let line = format!(" exec sh {}\r", self.follower.place.staged());
        screen.tell.send(Tell::Input(line.into_bytes())).await.ok()?;
        let (deadline, mark) = (Instant::now() + BEGINNING, self.mark.clone().into_bytes());
        let mut before = Vec::new();
        loop {
            let heard = tokio::select! {
                heard = screen.hear.recv() => heard?,
                // What reads the line is no shell, or does not.
                () = sleep_until(deadline) => return None,
            };
            let Hear::Output(bytes) = heard else { return None };
            before.extend(bytes);
            if let Some(at) = before.windows(mark.len()).position(|window| window == mark) {
                self.tell(What::Began).await;
                self.show(before.split_off(at + mark.len())).await;
                return self.pass(screen).await;
            }
            let surplus = before.len().saturating_sub(BEFORE);
            before.drain(..surplus);
        }
    }

    /// Carries bytes both ways until the program ends, or the connection does.
    async fn pass(&mut self, screen: &mut Screen) -> Option<i32> {
        loop {
            tokio::select! {
                heard = screen.hear.recv() => match heard? {
                    Hear::Output(bytes) => self.show(bytes).await,
                    Hear::Exit(code) => return Some(code),
                },
                Some(tell) = self.told.recv() => {
                    if let Tell::Size(cols, rows) = tell {
                        self.size = (cols, rows);
                    }
                    // What cannot be sent is lost, as it is on any line that breaks: never typed twice.
                    let _ = screen.tell.send(tell).await;
                }
            }
        }
    }

    /// The PTY is gone: what is left to know is how the program ended.
    async fn without(&mut self) -> Result<Played, Gone> {
        let text = self.follower.place.look(Default::default(), Until::End);
        loop {
            let ending = match self.follower.reach.ask(&text, spool::read).await?.seen {
                Seen::Running => continue,
                Seen::Ended(code) => Ending::Code(code, None),
                Seen::Killed | Seen::Gone => Ending::Lost,
                Seen::None => Ending::NotStarted,
            };
            return Ok(Played::ToItsEnd(ending));
        }
    }

    async fn show(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let offset = self.written;
            self.written += bytes.len() as u64;
            self.tell(What::Wrote(0, offset, bytes)).await;
        }
    }

    async fn tell(&self, what: What) {
        self.follower.tell(what).await;
    }
}

/// Line ends as a program expects them that has no terminal to make them.
pub(super) fn lines(typed: &[u8]) -> Vec<u8> {
    typed.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect()
}

async fn feed(reach: Reach, texts: Vec<String>) {
    for text in texts {
        let said = |answer: &[u8]| spool::word(answer).filter(|word| word != "later");
        if reach.ask(&text, said).await.is_err() {
            return;
        }
    }
}
