//! Copies of a sandbox's files: a fork of the sandbox, or a named snapshot.

use std::collections::BTreeMap;

use super::new_sandbox::NewSandbox;
use crate::Adapter;
use api::error::{Code, Problem};
use machine::is_image_name;
use model::Timestamp;
use store::SandboxRecord;

/// The prefix under which a sandbox records its snapshots.
const SNAPSHOT_PREFIX: &str = "snapshot.";

/// Whether a snapshot was taken of this sandbox.
pub fn has_snapshot(sandbox: &SandboxRecord, name: &str) -> bool {
    sandbox.row.extra.contains_key(&format!("{SNAPSHOT_PREFIX}{name}"))
}

impl Adapter {
    /// Creates a sandbox that starts with the files of another. Processes are not copied.
    pub async fn fork_sandbox(
        &self,
        of: &SandboxRecord,
        new: NewSandbox,
    ) -> Result<SandboxRecord, Problem> {
        let fork = self.leases.fork(&of.thread.lease_id).await?;
        let lease = fork.lease.lease_id.clone();
        // The lease is to be destroyed unless a thread uses it, so a crash here leaves no orphan.
        let created = self.create_sandbox(NewSandbox { fork: Some(lease.clone()), ..new }).await;
        if created.is_err() {
            // Deleting the sandbox has destroyed the lease, unless the sandbox was never created.
            let _ = self.leases.destroy(&lease).await;
        }
        drop(fork);
        created
    }

    /// Takes a named snapshot of a sandbox's files.
    pub async fn snapshot_sandbox(
        &self,
        sandbox: &SandboxRecord,
        name: &str,
    ) -> Result<(), Problem> {
        if !is_image_name(name) || self.leases.providers().named(name).is_ok() {
            let detail = "a snapshot name has 1 to 64 letters, digits, '.', '_' or '-' and is not a provider's name";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        // Recorded first: a record without a snapshot is harmless, a snapshot without a record has no owner.
        let (key, at) = (format!("{SNAPSHOT_PREFIX}{name}"), Timestamp::now().to_string());
        let record = |row: &mut model::Sandbox| drop(row.extra.insert(key.clone(), at.clone()));
        self.sandboxes.change(sandbox.id(), record).await?;
        let taken = self.leases.snapshot(&sandbox.thread.lease_id, name).await;
        if taken.is_err() && !sandbox.row.extra.contains_key(&key) {
            self.sandboxes.change(sandbox.id(), |row| drop(row.extra.remove(&key))).await?;
        }
        taken?;
        Ok(())
    }

    /// All snapshots by name, with their creation times.
    pub async fn snapshots(&self) -> Result<BTreeMap<String, Timestamp>, Problem> {
        let found = self.leases.providers().snapshots().await;
        let found = found.map_err(|error| Problem::internal("list the snapshots", &error))?;
        Ok(found.into_iter().map(|(_, snapshot)| (snapshot.name, snapshot.at)).collect())
    }

    /// Removes a snapshot; `false` if it does not exist. Sandboxes created from it keep their files.
    pub async fn remove_snapshot(&self, name: &str) -> Result<bool, Problem> {
        let removed = self.leases.providers().remove_snapshot(name).await;
        removed.map_err(|error| Problem::internal("remove a snapshot", &error))
    }
}
