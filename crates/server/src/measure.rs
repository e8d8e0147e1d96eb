//! Reports the resource usage of instances while a client watches one of their terminals and listens to events.

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

/// Time between two measurements of an instance.
const MEASURE_INTERVAL: Duration = Duration::from_secs(2);
/// Instances measured per interval; others follow in the next one.
const MAX_INSTANCES_PER_INTERVAL: usize = 32;

/// Measures until `stop` is cancelled.
pub fn run(
    engine: &Engine,
    store: Store,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let (events, leases) = (engine.events.clone(), engine.leases.clone());
    let terminals = engine.terminals.clone();
    async move {
        let mut ticks = interval(MEASURE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut reported, mut last) = (HashMap::new(), None);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            if !events.has_measurement_subscribers() {
                reported.clear();
                continue;
            }
            let mut watched = BTreeSet::new();
            for terminal in terminals.watched() {
                if let Ok(Some(row)) = store.terminal(&terminal).await {
                    watched.insert(row.lease_id);
                }
            }
            reported.retain(|lease, _| watched.contains(lease));
            for lease in next_leases(&watched, last.as_ref()) {
                if let Some(measured) = measure(&leases, &store, &lease).await
                    && reported.insert(lease.clone(), measured.clone()).as_ref() != Some(&measured)
                {
                    events.publish_measurement(measured);
                }
                last = Some(lease);
            }
        }
    }
}

/// Returns the next instances in round-robin order, after `last`.
fn next_leases(watched: &BTreeSet<LeaseId>, last: Option<&LeaseId>) -> Vec<LeaseId> {
    let after = watched.iter().filter(|lease| last.is_none_or(|last| *lease > last));
    let before = watched.iter().filter(|lease| last.is_some_and(|last| *lease <= last));
    after.chain(before).take(MAX_INSTANCES_PER_INTERVAL).cloned().collect()
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
    fn every_instance_is_measured_in_turn() {
        let all: BTreeSet<LeaseId> =
            (0..MAX_INSTANCES_PER_INTERVAL + 5).map(|_| LeaseId::fresh()).collect();
        let first = next_leases(&all, None);
        assert_eq!(first.len(), MAX_INSTANCES_PER_INTERVAL);
        let second = next_leases(&all, first.last());
        let seen: BTreeSet<LeaseId> = first.into_iter().chain(second).collect();
        assert_eq!(seen, all);
    }
}
