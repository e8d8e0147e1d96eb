//! The clients that are attached to each project. Kept in memory only: a restarted server assumes that every
//! client has left.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use model::ProjectId;

/// The default policy for when the last client leaves a project, and when a client returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttendancePolicy {
    /// Whether the instances of the project are stopped.
    pub stop_on_disconnect: bool,
    /// Whether stopped instances are created again for a client that returns.
    pub recreate_on_reconnect: bool,
    /// How long after the last client left the instances are stopped.
    pub grace: Duration,
}

impl Default for AttendancePolicy {
    fn default() -> Self {
        let grace = Duration::from_secs(10);
        Self { stop_on_disconnect: false, recreate_on_reconnect: true, grace }
    }
}

/// The connected clients and running requests of each project.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    pub(super) activity: Mutex<HashMap<ProjectId, ProjectActivity>>,
    pub(super) changed: watch::Sender<()>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProjectActivity {
    pub(super) clients: u64,
    pub(super) requests: u64,
    /// The last client left, and `Projects::take_left` has not returned the project yet.
    pub(super) left: bool,
    /// The instances are being stopped.
    pub(super) stopping: bool,
}
