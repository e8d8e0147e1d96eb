//! Saves terminals to disk, so that the next server process continues with them.

use std::fs;
use std::io;
use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::{Decoder, Event, Request};

use base::durable::replace_volatile;

/// A saved terminal. Requests and events are saved in the encoding of the wire protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedTerminal {
    /// The request that opens the terminal with its current size and state.
    pub(super) open: WireMessage,
    pub(super) opened_ms: u64,
    /// Whether its initial state has been read.
    pub(super) ready: bool,
    /// The number of its last command.
    pub(super) last: u64,
    /// Numbers of commands whose files inside can be removed.
    pub(super) done: Vec<u64>,
    /// The exit code of its program.
    pub(super) exit: Option<i32>,
    pub(super) commands: Vec<SavedCommand>,
}

/// A saved command that has started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedCommand {
    /// The request that started it.
    pub(super) exec: WireMessage,
    pub(super) kind: CommandKind,
    pub(super) number: u64,
    pub(super) mark: String,
    pub(super) started_ms: u64,
    /// How much of each stream has been shown.
    pub(super) shown: [u64; 2],
    /// The ids of the PTYs it was started on.
    #[serde(default)]
    pub(super) ptys: Vec<String>,
    /// The event of its end.
    pub(super) done: Option<WireMessage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CommandKind {
    /// Reads the initial state of a terminal.
    First,
    /// Requested by a client.
    Exec,
    /// Typed on the keyboard.
    Typed,
    /// An internal change of the state, which is not shown.
    Quiet,
    /// The program of a terminal without a shell.
    Program,
}

/// An encoded message of the wire protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireMessage(Vec<u8>);

impl WireMessage {
    pub(super) fn request(request: &Request) -> Self {
        let mut bytes = Vec::new();
        // Everything saved was decoded from a frame, so it fits into one.
        let _ = request.encode(&mut bytes);
        Self(bytes)
    }

    pub(super) fn event(event: &Event) -> Self {
        let mut bytes = Vec::new();
        let _ = event.encode(&mut bytes);
        Self(bytes)
    }

    pub(super) fn as_request(&self) -> Option<Request> {
        let mut decoder = Decoder::default();
        decoder.feed(&self.0);
        let frame = decoder.next_frame().ok().flatten()?;
        Request::decode(&frame).ok().flatten()
    }

    pub(super) fn as_event(&self) -> Option<Event> {
        let mut decoder = Decoder::default();
        decoder.feed(&self.0);
        let frame = decoder.next_frame().ok().flatten()?;
        Event::decode(&frame).ok().flatten()
    }
}

impl Serialize for WireMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for WireMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl SavedTerminal {
    /// Writes the file atomically. It need not survive a power failure: the store has all that matters.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        replace_volatile(path, &bytes)
    }

    /// Reads all terminals saved in a directory.
    pub(super) fn all(dir: &Path) -> Vec<Self> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let whole = entries.map(|entry| entry.path()).filter(|path| path.extension().is_none());
        let read = whole.filter_map(|path| {
            let bytes = fs::read(&path).ok()?;
            let saved = serde_json::from_slice(&bytes);
            saved
                .inspect_err(|error| {
                    tracing::error!(path = %path.display(), %error, "cannot restore a terminal");
                })
                .ok()
        });
        read.collect()
    }
}
