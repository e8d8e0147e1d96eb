//! A closed terminal whose processes may still exist.

use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Pid;

use super::processes::Processes;
use super::slots::Key;
use crate::cgroup;

/// A closed terminal whose processes are being ended.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) terminal: String,
    pub(super) dir: PathBuf,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) sessions: Vec<Pid>,
    /// The connection and the sequence number of the request to answer.
    pub(super) request: Option<(Key, u32)>,
    pub(super) until: Instant,
}

impl Closing {
    /// Returns whether the closed terminal has this id.
    pub(super) fn has_id(&self, terminal: &str) -> bool {
        self.terminal == terminal
    }

    /// Kills the terminal's processes. Returns whether there were none. Terminals that are closed at
    /// the same time share one list of processes.
    pub(super) fn kill(&self, processes: &mut Option<Processes>) -> bool {
        if let Some(path) = &self.cgroup {
            if cgroup::is_populated(path) {
                let _ = cgroup::kill(path);
                return false;
            }
            return cgroup::remove(path).is_ok() || !path.exists();
        }
        processes.get_or_insert_with(Processes::read).kill(&self.terminal, &self.sessions) == 0
    }
}
