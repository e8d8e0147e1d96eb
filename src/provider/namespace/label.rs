//! What a sandbox was made for, as it stands in its directory.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::model::{InstanceId, LeaseId};

/// What a sandbox was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) lease_id: LeaseId,
    pub(super) generation: u64,
    pub(super) instance_id: InstanceId,
    /// The name of its cgroup, and what the runtime calls it.
    pub(super) name: String,
}

impl Label {
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let beside = dir.join("label.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        // Not synced: what it labels does not outlive the machine either.
        fs::rename(&beside, dir.join("label"))
    }

    pub(super) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join("label")).ok()?).ok()
    }
}
