//! Who is attached to which project. Known to this process alone: a restarted server assumes that every
//! client has left.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use model::ProjectId;

/// What is done when the last one leaves a project that does not say, and when one comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttendancePolicy {
    /// Whether its instances are stopped.
    pub stop_on_disconnect: bool,
    /// Whether they are made again for one who comes back.
    pub recreate_on_reconnect: bool,
    /// How long the last one may be away before anything is stopped.
    pub grace: Duration,
}

impl Default for AttendancePolicy {
    fn default() -> Self {
        let grace = Duration::from_secs(10);
        Self { stop_on_disconnect: false, recreate_on_reconnect: true, grace }
    }
}

/// Who is there.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    pub(super) seats: Mutex<HashMap<ProjectId, Seats>>,
    pub(super) changed: watch::Sender<()>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seats {
    pub(super) people: u64,
    pub(super) at_work: u64,
    /// The last one left, and nobody has looked at what that means.
    pub(super) left: bool,
    /// Its instances are being stopped.
    pub(super) stopping: bool,
}
