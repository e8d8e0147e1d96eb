//! The check of an executable before it replaces that of the host.

use std::path::PathBuf;

use rustix::process::Pid;

use super::slots::Key;

/// An executable that is being checked, or has passed its check.
#[derive(Debug)]
pub(super) struct ExecutableCheck {
    pub(super) path: PathBuf,
    pub(super) pid: Pid,
    /// The connection and the sequence number of the request to answer.
    pub(super) request: (Key, u32),
    pub(super) passed: bool,
}
