//! The state of a connection, shared by its handles and its tasks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use wire::{Event, Request};

use super::silence::SilenceLimits;
use model::LeaseId;

/// The channels from the link to a terminal.
#[derive(Debug)]
pub struct TerminalChannels {
    /// Output and the events ordered with it; may be dropped and requested again.
    pub output: mpsc::Sender<Box<Event>>,
    /// Ends of commands and changes of state; when it is full, `resync` is set instead.
    pub records: mpsc::Sender<Box<Event>>,
    /// Set when a record was dropped.
    pub resync: watch::Sender<bool>,
}

pub(super) struct Listener {
    pub(super) channels: TerminalChannels,
    /// Output was dropped: no output is forwarded until the terminal is attached again.
    pub(super) behind: bool,
}

/// The progress of a command on its host; callers wait on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of standard output so far.
    pub stdout: u64,
    /// Bytes of standard error so far.
    pub stderr: u64,
    pub started: bool,
    /// The command waits for input.
    pub waiting: bool,
    /// All writers of its output streams have closed them.
    pub sealed: bool,
}

pub(super) struct TrackedCommand {
    pub(super) terminal: String,
    pub(super) progress: watch::Sender<Progress>,
}

pub(super) struct LinkShared {
    pub(super) number: u64,
    pub(super) outgoing: mpsc::Sender<Vec<u8>>,
    pub(super) seq: AtomicU32,
    pub(super) calls: Mutex<HashMap<u32, oneshot::Sender<Event>>>,
    pub(super) terminals: Mutex<HashMap<String, Listener>>,
    pub(super) commands: Mutex<HashMap<String, TrackedCommand>>,
    pub(super) closed: CancellationToken,
    pub(super) boot_id: String,
    /// The host's process on this machine, if it runs here.
    pub(super) pid: Option<i32>,
    pub(super) lease: LeaseId,
    pub(super) silence: SilenceLimits,
    pub(super) connected_at: Instant,
    /// Milliseconds from `connected_at` to the last byte from the host.
    pub(super) last_received: AtomicU64,
    pub(super) reachable: watch::Sender<bool>,
    /// Calls without a reply and commands without an end.
    pub(super) awaited: watch::Sender<usize>,
}

impl LinkShared {
    pub(super) fn note_received(&self) {
        let since = u64::try_from(self.connected_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_received.store(since, Ordering::Relaxed);
        self.reachable.send_if_modified(|reachable| !std::mem::replace(reachable, true));
    }

    pub(super) fn last_received(&self) -> Instant {
        self.connected_at + Duration::from_millis(self.last_received.load(Ordering::Relaxed))
    }

    pub(super) fn recount(&self) {
        let count = self.calls.lock().len() + self.commands.lock().len();
        self.awaited.send_if_modified(|awaited| std::mem::replace(awaited, count) != count);
    }

    /// Sends a request without waiting for a reply. It is dropped if the queue is full.
    pub(super) fn post(&self, make: impl FnOnce(u32) -> Request) {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        if make(seq).encode(&mut frame).is_ok() && self.outgoing.try_send(frame).is_err() {
            tracing::warn!("dropped a request to a host whose queue is full");
        }
    }
}
