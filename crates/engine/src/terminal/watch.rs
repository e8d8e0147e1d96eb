//! A client's view of a terminal: a picture, then the events after it.
//!
//! A watcher is only a position in the window. A slow watcher affects neither the terminal nor other
//! watchers; when its position was dropped from the window, it gets a new picture.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::drive::ClientId;
use super::history;
use super::owner::{Format, OwnerRequest, Picture, SharedTerminal};
use super::window::{Next, WatchEvent};

/// A client that is further behind than this gets a picture instead of the missed bytes.
const MAX_RESUME_BYTES: u64 = 16 << 20;
/// Bytes that are read from the window at once.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub enum WatcherUpdate {
    /// Replaces everything that the client has drawn.
    Picture(Picture),
    Event(WatchEvent),
}

/// Where a watcher starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// With a picture.
    Picture,
    /// At this offset if those bytes are still kept, else with a picture.
    Offset(u64),
}

/// What happens to a terminal when its program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtExit {
    Ends,
    /// It gets a new shell.
    Restarts,
}

/// One client of a terminal.
pub struct Watcher {
    shared: Arc<SharedTerminal>,
    requests: mpsc::Sender<Box<OwnerRequest>>,
    head: watch::Receiver<u64>,
    client: ClientId,
    position: u64,
    ready: VecDeque<WatcherUpdate>,
    /// The offset after the last byte that `next` returned.
    offset: u64,
    at_exit: AtExit,
    /// Whether `next` has returned the end of the program.
    exited: bool,
    /// Set while it reads the log, because it is further behind than the window reaches.
    behind: Option<Behind>,
}

struct Behind {
    directory: PathBuf,
    position: u64,
}

/// The terminal's owner has ended.
#[derive(Debug, thiserror::Error)]
#[error("the terminal is gone")]
pub struct WatcherGone;

impl Watcher {
    pub(super) async fn enter(
        shared: Arc<SharedTerminal>,
        requests: mpsc::Sender<Box<OwnerRequest>>,
        client: ClientId,
        from: WatchFrom,
        directory: PathBuf,
        at_exit: AtExit,
    ) -> Result<Watcher, WatcherGone> {
        let head = shared.head.subscribe();
        let ready = VecDeque::new();
        let (position, offset, exited, behind) = (0, 0, false, None);
        let mut watcher = Watcher {
            shared,
            requests,
            head,
            client,
            position,
            ready,
            offset,
            at_exit,
            exited,
            behind,
        };
        if let WatchFrom::Offset(from) = from {
            let (_, end) = watcher.bounds();
            if from <= end && end - from <= MAX_RESUME_BYTES {
                watcher.offset = from;
                watcher.behind = Some(Behind { directory, position: from });
                // The first step shows whether the bytes are kept.
                watcher.catch_up().await?;
                return Ok(watcher);
            }
        }
        watcher.take_picture().await?;
        Ok(watcher)
    }

    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Returns the offset after the last byte that `next` returned, or the start.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether it starts with missed bytes rather than with a picture.
    pub fn resumed(&self) -> bool {
        !matches!(self.ready.front(), Some(WatcherUpdate::Picture(_)))
    }

    /// Waits for the next update. Cancel-safe.
    pub async fn next(&mut self) -> Result<WatcherUpdate, WatcherGone> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                match &update {
                    WatcherUpdate::Picture(picture) => self.offset = picture.offset,
                    WatcherUpdate::Event(WatchEvent::Output { offset, bytes }) => {
                        self.offset = offset + bytes.len() as u64;
                    }
                    WatcherUpdate::Event(WatchEvent::Gap { to, .. }) => self.offset = *to,
                    WatcherUpdate::Event(WatchEvent::Exit { .. })
                        if self.at_exit == AtExit::Ends && self.exited =>
                    {
                        continue;
                    }
                    WatcherUpdate::Event(WatchEvent::Exit { .. }) => self.exited = true,
                    WatcherUpdate::Event(_) => {}
                }
                return Ok(update);
            }
            if self.behind.is_some() {
                self.catch_up().await?;
                continue;
            }
            let read = {
                let window = self.shared.window.lock();
                window.read(self.position, CHUNK_BYTES)
            };
            match read {
                Next::Events(events, position) => {
                    self.ready.extend(events.into_iter().map(WatcherUpdate::Event));
                    self.position = position;
                }
                Next::Lost => self.take_picture().await?,
                Next::Wait => {
                    // The event may be older than the picture, or than this server.
                    if self.at_exit == AtExit::Ends
                        && !self.exited
                        && let Some((code, signal)) = self.shared.facts().exit
                    {
                        let exit = WatchEvent::Exit { code, signal };
                        self.ready.push_back(WatcherUpdate::Event(exit));
                        continue;
                    }
                    let position = self.position;
                    self.head.wait_for(|head| *head > position).await.map_err(|_| WatcherGone)?;
                }
            }
        }
    }

    /// Returns the queue of the terminal's owner, for requests of this client.
    pub fn owner(&self) -> mpsc::Sender<Box<OwnerRequest>> {
        self.requests.clone()
    }

    async fn take_picture(&mut self) -> Result<(), WatcherGone> {
        let (answer, picture) = oneshot::channel();
        let request = OwnerRequest::Picture { format: Format::Ansi, scrollback: None, answer };
        self.requests.send(request.into()).await.map_err(|_| WatcherGone)?;
        let picture = picture.await.map_err(|_| WatcherGone)?;
        self.position = picture.position;
        self.offset = picture.offset;
        self.ready.push_back(WatcherUpdate::Picture(picture));
        Ok(())
    }

    fn bounds(&self) -> (u64, u64) {
        self.shared.window.lock().bounds()
    }

    /// Reads one chunk of the log towards the window, or takes a picture if the log has a gap.
    async fn catch_up(&mut self) -> Result<(), WatcherGone> {
        let Some(Behind { directory, position }) = &mut self.behind else { return Ok(()) };
        let (held, end) = {
            let window = self.shared.window.lock();
            (window.since(*position), window.bounds().1)
        };
        if let Some((events, position)) = held {
            self.position = position;
            self.ready.extend(events.into_iter().map(WatcherUpdate::Event));
            self.behind = None;
            return Ok(());
        }
        match history::events(directory, *position, end).await {
            Ok(Some(events)) => {
                for event in &events {
                    if let WatchEvent::Output { offset, bytes } = event {
                        *position = offset + bytes.len() as u64;
                    }
                }
                self.ready.extend(events.into_iter().map(WatcherUpdate::Event));
                Ok(())
            }
            Ok(None) | Err(_) => {
                self.behind = None;
                self.take_picture().await
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let (requests, client) = (self.requests.clone(), self.client);
        if let Err(mpsc::error::TrySendError::Full(request)) =
            requests.try_send(OwnerRequest::Leave(client).into())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = requests.send(request).await;
            });
        }
    }
}
