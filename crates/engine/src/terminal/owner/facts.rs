//! The state of a terminal that is read without a request to its owner.

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::terminal::drive::ClientId;
use crate::terminal::window::{WatchEvent, Window};

/// What can be read without a request to the owner.
#[derive(Debug, Clone)]
pub struct TerminalFacts {
    pub cols: u16,
    pub rows: u16,
    /// The window title the program set.
    pub title: String,
    /// When there was last input or output.
    pub last_activity_at: Timestamp,
    /// Exit code and signal, if the program ended.
    pub exit: Option<(Option<i32>, Option<i32>)>,
    /// Connected clients, guests included.
    pub clients: usize,
    /// Connected clients that keep the terminal in use; guests do not.
    pub attending: usize,
    /// The name of the client that may type.
    pub driver: Option<String>,
    /// The client that may type.
    pub driving: Option<ClientId>,
    /// The offset after the last byte.
    pub offset: u64,
    /// Whether its program is running.
    pub live: bool,
}

/// State that the owner shares with watchers.
pub struct SharedTerminal {
    /// Recent output.
    pub window: Mutex<Window>,
    /// The position after the last event in the window.
    pub head: watch::Sender<u64>,
    pub facts: Mutex<TerminalFacts>,
}

impl SharedTerminal {
    pub fn facts(&self) -> TerminalFacts {
        self.facts.lock().clone()
    }

    pub fn note(&self, change: impl FnOnce(&mut TerminalFacts)) {
        change(&mut self.facts.lock());
    }

    pub(super) fn push(&self, event: WatchEvent) {
        self.window.lock().push(event);
    }
}
