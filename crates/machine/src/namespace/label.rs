//! What a sandbox was made for, as it stands in its directory.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use base::durable::replace_volatile;
use model::{InstanceId, LeaseId};

/// What a sandbox was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) lease_id: LeaseId,
    pub(crate) generation: u64,
    pub(crate) instance_id: InstanceId,
    /// The name of its cgroup, and what the runtime calls it.
    pub(crate) name: String,
}

impl Label {
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        // What it labels does not outlive the machine either.
        replace_volatile(&dir.join("label"), &serde_json::to_vec(self)?)
    }

    pub(crate) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join("label")).ok()?).ok()
    }

    /// The labels of all instances that have a directory in this one. A directory that was renamed is not
    /// the instance its label names. Blocking.
    pub(crate) fn all(instances: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(instances) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let labels = entries.flatten().filter_map(|entry| {
            let label = Self::read(&entry.path())?;
            (entry.file_name() == label.instance_id.as_str()).then_some(label)
        });
        Ok(labels.collect())
    }
}
