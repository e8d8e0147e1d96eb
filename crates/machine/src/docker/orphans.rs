//! Orphans: containers of ours without a directory.
//!
//! An engine completes requests of a server that was killed meanwhile, so a container may appear after the
//! next server has listed them. Orphans are therefore checked often after a start and after an outage of
//! the engine, and rarely afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::engine::{EngineLink, ListedContainers, failed};
use super::labels;
use crate::instances::Instances;
use provider::ProviderError;

/// The interval of the first [`FREQUENT_CHECKS`] checks, and of the later ones.
const FREQUENT_INTERVAL: Duration = Duration::from_secs(1);
const FREQUENT_CHECKS: u32 = 180;
const LATER_INTERVAL: Duration = Duration::from_secs(30);

/// Removes orphans until `stop` is cancelled.
pub(super) async fn watch(
    engine: &EngineLink,
    home: &str,
    instances: &Instances,
    stop: CancellationToken,
) {
    let mut checks = 0;
    let mut before = BTreeSet::new();
    loop {
        let frequent = checks < FREQUENT_CHECKS;
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(if frequent { FREQUENT_INTERVAL } else { LATER_INTERVAL }) => {}
        }
        // The engine is not contacted before the first container.
        if !instances.root.exists() {
            continue;
        }
        match remove_orphans(engine, home, instances, &before).await {
            Ok(seen) => {
                before = seen;
                checks = (checks + 1).min(FREQUENT_CHECKS);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot list orphaned containers");
                checks = 0;
            }
        }
    }
}

/// Removes the orphans that an earlier check found, and returns the new ones.
async fn remove_orphans(
    engine: &EngineLink,
    home: &str,
    instances: &Instances,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>, ProviderError> {
    let engine = engine.get().await?;
    let listed = engine.labelled(home).await.map_err(failed("list the containers"))?;
    let mut orphans: BTreeSet<String> = without_directory(instances, listed).into_keys().collect();
    for name in orphans.clone().intersection(before) {
        engine.remove(name).await.map_err(failed("remove a container"))?;
        tracing::info!(container = name, "removed an orphaned container");
        orphans.remove(name);
    }
    Ok(orphans)
}

/// The listed containers without an instance directory. A directory exists from before its container is
/// created until after it is removed.
pub(super) fn without_directory(
    instances: &Instances,
    mut listed: ListedContainers,
) -> ListedContainers {
    let _no_renames = instances.pool.forbid_renames();
    for entry in fs::read_dir(&instances.root).into_iter().flatten().flatten() {
        let own = || labels::container(&entry.file_name().to_string_lossy());
        listed.remove(&Instances::labelled_name(&entry.path()).unwrap_or_else(own));
    }
    listed
}
