//! A client's view of a terminal: a picture, then what comes after it.
//!
//! A watcher is a place in the window, nothing more. However slow it is, the terminal and the
//! other watchers do not notice; when its place has been dropped it gets a new picture.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::drive::ClientId;
use super::history;
use super::owner::{Ask, Format, Picture, Shared};
use super::window::{Event, Next};

/// A client further back than this is better served with a picture.
const RESUME_LIMIT: u64 = 16 << 20;
/// Bytes handed out at once.
const AT_ONCE: usize = 64 << 10;

/// What a watcher is told next.
#[derive(Debug)]
pub enum Told {
    /// Forget what you have; this is how it looks.
    Picture(Picture),
    /// This happened since.
    Event(Event),
}

/// Where a watcher wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With a picture of now.
    Picture,
    /// After the byte before this offset, if that can be had; else with a picture.
    Offset(u64),
}

/// One client's place in a terminal.
pub struct Watcher {
    shared: Arc<Shared>,
    asks: mpsc::Sender<Box<Ask>>,
    head: watch::Receiver<u64>,
    client: ClientId,
    place: u64,
    ready: VecDeque<Told>,
    /// The offset after the last byte handed out.
    offset: u64,
    /// It is further back than the window reaches and reads the log until it has caught up.
    behind: Option<Behind>,
}

/// Where in the log a watcher reads.
struct Behind {
    directory: PathBuf,
    position: u64,
}

/// The terminal's owner has ended.
#[derive(Debug, thiserror::Error)]
#[error("the terminal is gone")]
pub struct Gone;

impl Watcher {
    /// Comes in and takes its place.
    pub(super) async fn enter(
        shared: Arc<Shared>,
        asks: mpsc::Sender<Box<Ask>>,
        client: ClientId,
        from: From,
        directory: PathBuf,
    ) -> Result<Watcher, Gone> {
        let head = shared.head.subscribe();
        let ready = VecDeque::new();
        let (place, offset, behind) = (0, 0, None);
        let mut watcher = Watcher { shared, asks, head, client, place, ready, offset, behind };
        if let From::Offset(from) = from {
            let (_, end) = watcher.bounds();
            if from <= end && end - from <= RESUME_LIMIT {
                watcher.offset = from;
                watcher.behind = Some(Behind { directory, position: from });
                // Whether it can be had shows at the first step.
                watcher.catch_up().await?;
                return Ok(watcher);
            }
        }
        watcher.look().await?;
        Ok(watcher)
    }

    /// Which client this is.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The offset after the last byte handed out, or at which it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether it begins with what was missed rather than with a picture.
    pub fn resumed(&self) -> bool {
        !matches!(self.ready.front(), Some(Told::Picture(_)))
    }

    /// What comes next; waits for it. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Told, Gone> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                match &told {
                    Told::Picture(picture) => self.offset = picture.offset,
                    Told::Event(Event::Output { offset, bytes }) => {
                        self.offset = offset + bytes.len() as u64;
                    }
                    Told::Event(Event::Gap { to, .. }) => self.offset = *to,
                    Told::Event(_) => {}
                }
                return Ok(told);
            }
            if self.behind.is_some() {
                self.catch_up().await?;
                continue;
            }
            let read = {
                let window = self.shared.window.lock();
                window.read(self.place, AT_ONCE)
            };
            match read {
                Next::Events(events, place) => {
                    self.ready.extend(events.into_iter().map(Told::Event));
                    self.place = place;
                }
                Next::Lost => self.look().await?,
                Next::Wait => {
                    let place = self.place;
                    self.head.wait_for(|head| *head > place).await.map_err(|_| Gone)?;
                }
            }
        }
    }

    /// Where to say something about this client.
    pub fn asks(&self) -> mpsc::Sender<Box<Ask>> {
        self.asks.clone()
    }

    async fn look(&mut self) -> Result<(), Gone> {
        let (answer, picture) = oneshot::channel();
        let ask = Ask::Picture { format: Format::Ansi, scrollback: None, answer };
        self.asks.send(ask.into()).await.map_err(|_| Gone)?;
        let picture = picture.await.map_err(|_| Gone)?;
        self.place = picture.place;
        self.offset = picture.offset;
        self.ready.push_back(Told::Picture(picture));
        Ok(())
    }

    fn bounds(&self) -> (u64, u64) {
        self.shared.window.lock().bounds()
    }

    /// One step from the log towards the window, or a picture if the log has a gap.
    async fn catch_up(&mut self) -> Result<(), Gone> {
        let Some(Behind { directory, position }) = &mut self.behind else { return Ok(()) };
        let (held, end) = {
            let window = self.shared.window.lock();
            (window.since(*position), window.bounds().1)
        };
        if let Some((events, place)) = held {
            self.place = place;
            self.ready.extend(events.into_iter().map(Told::Event));
            self.behind = None;
            return Ok(());
        }
        match history::events(directory, *position, end).await {
            Ok(Some(events)) => {
                for event in &events {
                    if let Event::Output { offset, bytes } = event {
                        *position = offset + bytes.len() as u64;
                    }
                }
                self.ready.extend(events.into_iter().map(Told::Event));
                Ok(())
            }
            Ok(None) | Err(_) => {
                self.behind = None;
                self.look().await
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let (asks, client) = (self.asks.clone(), self.client);
        if let Err(mpsc::error::TrySendError::Full(ask)) = asks.try_send(Ask::Leave(client).into())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = asks.send(ask).await;
            });
        }
    }
}
