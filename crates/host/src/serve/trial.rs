//! An executable that may become this host's.

use std::path::PathBuf;

use rustix::process::Pid;

use super::slots::Key;

/// An executable that is being checked, or has passed its check.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) path: PathBuf,
    pub(super) pid: Pid,
    pub(super) asked: (Key, u32),
    pub(super) passed: bool,
}
