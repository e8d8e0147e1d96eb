//! What is known of a file or a memory without reading it.

use serde::Serialize;

use model::Timestamp;

/// What something at a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

/// What is known of something at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its path below the root it was asked of.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes of its content; 0 for what has none.
    pub size: u64,
    /// When its content last changed, where that is known.
    pub modified_at: Option<Timestamp>,
    /// Permission bits, where there are such.
    pub mode: Option<u32>,
    /// The numbers of the user and the group it belongs to, where there are such.
    pub owner: Option<(u32, u32)>,
    /// Where a link points.
    pub target: Option<String>,
    /// What the content's version is known by, where there is one.
    pub version: Option<u64>,
}
