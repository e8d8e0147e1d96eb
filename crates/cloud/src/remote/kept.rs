//! What is kept of a terminal on disk, so that a server that was killed goes on with it.

use std::fs;
use std::io;
use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use host::wire::{Decoder, Event, Request};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use base::durable::replace_volatile;

/// A terminal. What the wire protocol has a message for is kept as that.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// How it would be opened now: with its size and its state.
    pub(super) open: Message,
    pub(super) opened_ms: u64,
    /// Whether its first state was told.
    pub(super) ready: bool,
    /// The number of its last command.
    pub(super) last: u64,
    /// Commands whose files inside can go.
    pub(super) done: Vec<u64>,
    /// How its program ended, if it is one that ended.
    pub(super) exit: Option<i32>,
    pub(super) commands: Vec<KeptCommand>,
}

/// A command that began.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptCommand {
    /// How it was asked for.
    pub(super) exec: Message,
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) mark: String,
    pub(super) started_ms: u64,
    /// How much of each stream was shown on the screen.
    pub(super) shown: [u64; 2],
    /// The PTYs it was started on.
    #[serde(default)]
    pub(super) ptys: Vec<String>,
    /// How it ended, as that is told.
    pub(super) done: Option<Message>,
}

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Finds out with which state a terminal begins.
    First,
    /// Somebody asked for it.
    Exec,
    /// A person typed it.
    Typed,
    /// It changes the state, and nobody sees it.
    Quiet,
    /// It is the program of a terminal that has no shell.
    Program,
}

/// A message of the wire protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn request(request: &Request) -> Self {
        let mut bytes = Vec::new();
        // One that does not fit a frame never came out of one.
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

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Kept {
    /// Writes it down, whole or not at all. What a kill of the machine loses of it the store has too.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        replace_volatile(path, &bytes)
    }

    /// Everything that is kept in a directory.
    pub(super) fn all(dir: &Path) -> Vec<Self> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let whole = entries.map(|entry| entry.path()).filter(|path| path.extension().is_none());
        let read = whole.filter_map(|path| {
            let bytes = fs::read(&path).ok()?;
            let kept = serde_json::from_slice(&bytes);
            kept.inspect_err(|error| {
                tracing::error!(path = %path.display(), %error, "a terminal cannot be taken up");
            })
            .ok()
        });
        read.collect()
    }
}
