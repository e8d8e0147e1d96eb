//! Requests to the owner of a terminal.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::terminal::drive::{ClientId, ClientMode};
use crate::terminal::link::HostLink;

/// A picture of the screen and the position at which it was taken.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The picture in the requested format.
    pub data: Bytes,
    /// The offset of the output after the picture.
    pub offset: u64,
    /// The position in the window at which to continue.
    pub position: u64,
    pub cols: u16,
    pub rows: u16,
    /// Cursor column and row, counted from 0, and whether it is visible.
    pub cursor: (u16, u16, bool),
    pub title: String,
    /// Whether the alternate screen is shown.
    pub alt_screen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Ansi,
    Text,
    Html,
}

/// A terminal's connection to its running program.
pub struct Runtime {
    /// The host it is on.
    pub link: HostLink,
    /// The output from `offset` on.
    pub output: mpsc::Receiver<Box<wire::Event>>,
    pub offset: u64,
    pub cols: u16,
    pub rows: u16,
}

pub enum OwnerRequest {
    Picture {
        format: Format,
        scrollback: Option<usize>,
        answer: oneshot::Sender<Picture>,
    },
    Enter {
        client: ClientId,
        name: String,
        mode: ClientMode,
    },
    Leave(ClientId),
    /// The client becomes the driver.
    TakeOver(ClientId),
    /// The client stops driving.
    HandBack(ClientId),
    /// The size of the client's window changed.
    Resize(ClientId, (u16, u16)),
    /// The program was started or found again.
    Runtime(Runtime),
    /// The program is lost, for this reason.
    Lost(String),
    /// Write the checkpoint and stop.
    Stop(oneshot::Sender<()>),
}
