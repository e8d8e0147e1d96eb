//! The interface of the in-process host to an instance: commands, files, and PTYs if the vendor has them.

use std::fmt;
use std::time::Duration;

use provider::Reply;
use tokio::sync::mpsc;

/// The deadline of one call. Our scripts wait for less than a third of it.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// An instance that can only run commands. Every call may be repeated.
pub(crate) trait CommandRunner: Send + Sync + fmt::Debug {
    /// Runs a script by `sh -c` to its end and returns its standard output.
    fn run<'a>(&'a self, script: String) -> Reply<'a, Vec<u8>>;

    /// Writes a file whose directory exists.
    fn put<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Reply<'a, ()>;

    /// Opens a PTY; `None` if the instance has none, or if that PTY no longer exists.
    fn open_pty<'a>(&'a self, request: &'a PtyRequest) -> Reply<'a, Option<RemotePty>> {
        let _ = request;
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Which PTY to open.
#[derive(Debug, Clone)]
pub(crate) enum PtyRequest {
    /// A new PTY of this many columns and rows, with a shell in this environment. A repeated request may
    /// create a second one.
    New { size: (u16, u16), env: Vec<(String, String)> },
    /// The PTY of this id.
    Existing(String),
}

/// A connection to a PTY. If `events` ends without an exit, the connection was lost; the PTY may still exist.
#[derive(Debug)]
pub(crate) struct RemotePty {
    pub(crate) id: String,
    pub(crate) input: mpsc::Sender<PtyInput>,
    pub(crate) events: mpsc::Receiver<PtyEvent>,
}

#[derive(Debug)]
pub(crate) enum PtyInput {
    Data(Vec<u8>),
    /// Columns and rows of the screen.
    Resize(u16, u16),
}

#[derive(Debug)]
pub(crate) enum PtyEvent {
    Output(Vec<u8>),
    /// The program of the PTY ended with this code.
    Exit(i32),
}
