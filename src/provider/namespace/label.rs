//! What a sandbox was made for, as it stands in its directory.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::model::{InstanceId, LeaseId};

/// What a sandbox was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::provider) struct Label {
    pub(in crate::provider) lease_id: LeaseId,
    pub(in crate::provider) generation: u64,
    pub(in crate::provider) instance_id: InstanceId,
    /// The name of its cgroup, and what the runtime calls it.
    pub(in crate::provider) name: String,
}

impl Label {
    pub(in crate::provider) fn write(&self, dir: &Path) -> io::Result<()> {
        let beside = dir.join("label.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        // Not synced: what it labels does not outlive the machine either.
        fs::rename(&beside, dir.join("label"))
    }

    pub(in crate::provider) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join("label")).ok()?).ok()
    }
}
