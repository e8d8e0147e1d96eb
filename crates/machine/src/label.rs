//! The label of a sandbox or container: the lease and instance in its directory.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use model::{InstanceId, LeaseId};
use provider::{Intent, read_label, write_label};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceLabel {
    pub(crate) lease_id: LeaseId,
    pub(crate) generation: u64,
    pub(crate) instance_id: InstanceId,
    /// The name of its cgroup, or of its container. A warm instance keeps the name it was started with.
    pub(crate) name: String,
}

impl InstanceLabel {
    pub(crate) fn new(intent: &Intent, name: String) -> Self {
        Self {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: intent.instance_id.clone(),
            name,
        }
    }

    /// The lease and generation, which the host reports.
    pub(crate) fn purpose(&self) -> String {
        format!("{}:{}", self.lease_id, self.generation)
    }

    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        write_label(dir, self)
    }

    pub(crate) fn read(dir: &Path) -> Option<Self> {
        read_label(dir)
    }

    /// Whether the directory has the name of the instance in its label. A warm instance has no label, and
    /// a server that was killed while it gave one away leaves a label of another name.
    pub(crate) fn names(dir: &Path) -> bool {
        let label = Self::read(dir);
        label.is_some_and(|label| dir.file_name() == Some(label.instance_id.as_str().as_ref()))
    }

    /// The labels of all instances with a directory below this one. Blocking.
    pub(crate) fn all(instances: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(instances) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let labels = entries.flatten().filter_map(|entry| {
            let label = Self::read(&entry.path())?;
            // A renamed directory does not belong to the instance in its label.
            (entry.file_name() == label.instance_id.as_str()).then_some(label)
        });
        Ok(labels.collect())
    }
}
