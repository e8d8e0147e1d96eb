//! Copies of a sandbox's files: another sandbox that begins with them, or a name for later ones.

use std::collections::BTreeMap;

use super::sandbox::{NewSandbox, Sandbox};
use crate::Compat;
use api::error::{Code, Problem};
use machine::is_image_name;
use model::Timestamp;

/// What a sandbox remembers of its snapshots begins with.
const OF_SANDBOX: &str = "snapshot.";

impl Sandbox {
    /// Whether a snapshot is one of this sandbox.
    pub fn has_snapshot(&self, name: &str) -> bool {
        self.more.contains_key(&format!("{OF_SANDBOX}{name}"))
    }
}

impl Compat {
    /// Makes a sandbox that begins with the files of another. Its processes stay where they are.
    pub async fn fork_sandbox(&self, of: &Sandbox, new: NewSandbox) -> Result<Sandbox, Problem> {
        let fork = self.leases.fork(&of.thread.lease_id).await?;
        let lease = fork.lease.lease_id.clone();
        // Wanted gone until the sandbox's thread stands on it: nothing is left if we are killed here.
        let made = self.make_sandbox(NewSandbox { fork: Some(lease.clone()), ..new }).await;
        if made.is_err() {
            // Gone with the sandbox, unless that was never there.
            let _ = self.leases.destroy(&lease).await;
        }
        drop(fork);
        made
    }

    /// Keeps the files of a sandbox as they are, under a name.
    pub async fn snapshot_sandbox(&self, sandbox: &Sandbox, name: &str) -> Result<(), Problem> {
        if !is_image_name(name) || self.leases.providers().named(name).is_ok() {
            let detail =
                "a name has 1 to 64 letters, digits, '.', '_' or '-' and is nothing else's";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        // Noted first: what is noted and not there means nothing, a snapshot of nobody's is a riddle.
        let note = format!("{OF_SANDBOX}{name}");
        let (noted, at) = (note.clone(), Timestamp::now().to_string());
        self.change_sandbox(sandbox.id(), |facts| drop(facts.more.insert(noted, at))).await?;
        let made = self.leases.snapshot(&sandbox.thread.lease_id, name).await;
        if made.is_err() && !sandbox.more.contains_key(&note) {
            self.change_sandbox(sandbox.id(), |facts| drop(facts.more.remove(&note))).await?;
        }
        made?;
        Ok(())
    }

    /// Every snapshot, by name, and when it was made.
    pub async fn snapshots(&self) -> Result<BTreeMap<String, Timestamp>, Problem> {
        let found = self.leases.providers().snapshots().await;
        let found = found.map_err(|error| Problem::internal("list the snapshots", &error))?;
        Ok(found.into_iter().map(|(_, snapshot)| (snapshot.name, snapshot.at)).collect())
    }

    /// Removes a snapshot; `false` if there is none. What began with it keeps its files.
    pub async fn remove_snapshot(&self, name: &str) -> Result<bool, Problem> {
        let removed = self.leases.providers().remove_snapshot(name).await;
        removed.map_err(|error| Problem::internal("remove a snapshot", &error))
    }
}
