//! Metadata of files and memories.

use serde::Serialize;

use model::Timestamp;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The path relative to the root of the query.
    pub path: String,
    pub kind: FileKind,
    /// The size of its content in bytes; 0 if it has none.
    pub size: u64,
    pub modified_at: Option<Timestamp>,
    /// Permission bits, if the backend has them.
    pub mode: Option<u32>,
    /// User and group, if the backend has them.
    pub owner: Option<(u32, u32)>,
    /// The target of a link.
    pub target: Option<String>,
    /// The version of the content, if it has one.
    pub version: Option<u64>,
}
