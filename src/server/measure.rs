//! Tells what instances use, while somebody looks at a terminal on them and listens to events.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use api::Engine;
use base::event::InstanceMeasurement;
use engine::lease::Leases;
use model::{InstanceState, LeaseId};
use store::Store;

/// Time between two looks at the same instance.
const EVERY: Duration = Duration::from_secs(2);
/// Instances measured at each look; more wait for the next.
const AT_ONCE: usize = 32;

/// Measures until told to stop.
pub fn run(
    engine: &Engine,
    store: Store,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let (events, leases) = (engine.events.clone(), engine.leases.clone());
    let terminals = engine.terminals.clone();
    async move {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut last) = (HashMap::new(), None);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            if !events.has_measurement_subscribers() {
                told.clear();
                continue;
            }
            let mut watched = BTreeSet::new();
            for terminal in terminals.watched() {
                if let Ok(Some(row)) = store.terminal(&terminal).await {
                    watched.insert(row.lease_id);
                }
            }
            told.retain(|lease, _| watched.contains(lease));
            for lease in turn(&watched, last.as_ref()) {
                if let Some(measured) = measure(&leases, &store, &lease).await
                    && told.insert(lease.clone(), measured.clone()).as_ref() != Some(&measured)
                {
                    events.publish_measurement(measured);
                }
                last = Some(lease);
            }
        }
    }
}

/// Whose turn it is: those after the last one, round and round.
fn turn(watched: &BTreeSet<LeaseId>, last: Option<&LeaseId>) -> Vec<LeaseId> {
    let after = watched.iter().filter(|lease| last.is_none_or(|last| *lease > last));
    let before = watched.iter().filter(|lease| last.is_some_and(|last| *lease <= last));
    after.chain(before).take(AT_ONCE).cloned().collect()
}

async fn measure(leases: &Leases, store: &Store, id: &LeaseId) -> Option<InstanceMeasurement> {
    let lease = store.lease(id).await.ok()??;
    let (instance, state) = lease.instance()?;
    if state != InstanceState::Running {
        return None;
    }
    let metrics = leases.metrics(&lease).await.ok()??;
    Some(InstanceMeasurement {
        lease_id: id.clone(),
        instance_id: instance.instance_id.clone(),
        cpu_us: metrics.cpu_us,
        memory_bytes: metrics.memory_bytes,
        processes: metrics.processes,
        disk_bytes: metrics.disk_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_a_turn() {
        let all: BTreeSet<LeaseId> = (0..AT_ONCE + 5).map(|_| LeaseId::fresh()).collect();
        let first = turn(&all, None);
        assert_eq!(first.len(), AT_ONCE);
        let second = turn(&all, first.last());
        let seen: BTreeSet<LeaseId> = first.into_iter().chain(second).collect();
        assert_eq!(seen, all);
    }
}
