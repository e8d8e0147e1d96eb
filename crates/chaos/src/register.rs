//! Decides whether a history of reads and writes of one key is linearizable.
//!
//! Every write has a unique value, so each read identifies its write and the question has an exact answer in
//! `O(n log n)` (Gibbons and Korach, "Testing shared memories", 1997). A write and its reads form a cluster; its *zone*
//! lies between the earliest return and the latest invocation in the cluster. The zone is *forward* if the earliest
//! return comes first: the register must hold the value during the whole zone. Otherwise it is *backward*: the
//! operations overlap, and any one instant inside the zone is enough. The history is linearizable if and only if
//! no read returned before its write was invoked, no two forward zones overlap, and no backward zone lies inside a
//! forward zone.
//!
//! Unknown outcomes do not make the search harder. A write with an unknown outcome that was never read may be left
//! out, because it may not have happened. One that was read did happen, before the first of its reads returned.

use std::collections::BTreeMap;

/// A value of a register; each write has its own.
pub type Value = u64;

/// The value that a register has before any write.
pub const INITIAL: Value = 0;

/// What an operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAction {
    /// Reads with an unknown outcome are not recorded.
    Read(Value),
    /// Writes the value with an outcome.
    Write(Value, WriteOutcome),
}

/// What the client knows about its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The server acknowledged it.
    Done,
    /// The server refused it or never received it: it must not be seen.
    Refused,
    /// The connection broke, or the server reported an unknown outcome.
    Unknown,
}

/// One operation on one key, with unique instants of one logical clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterOperation {
    /// The client that sent the request.
    pub client: usize,
    /// When the request was sent.
    pub invoked: u64,
    /// When the answer arrived, or the client gave up.
    pub returned: u64,
    pub action: RegisterAction,
    /// The kind of request, for a report.
    pub how: &'static str,
}

/// Why a history is not linearizable, with the operations that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What is wrong.
    pub reason: String,
    /// The values of the writes involved.
    pub values: Vec<Value>,
}

/// A write and its reads.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    value: Value,
    write_invoked: u64,
    first_return: u64,
    last_invocation: u64,
}

/// Checks a history.
///
/// # Errors
/// Returns the first anomaly found.
pub fn check(history: &[RegisterOperation]) -> Result<(), Anomaly> {
    let mut clusters = clusters(history)?;
    clusters.sort_by_key(|cluster| cluster.first_return.min(cluster.last_invocation));
    let mut forward: Vec<Cluster> = Vec::new();
    for cluster in clusters.iter().filter(|c| c.first_return < c.last_invocation) {
        if let Some(before) = forward.last()
            && cluster.first_return < before.last_invocation
        {
            let reason = "each of these values was current while the other was";
            return Err(anomaly(reason, &[before.value, cluster.value]));
        }
        forward.push(*cluster);
    }
    for cluster in clusters.iter().filter(|c| c.first_return > c.last_invocation) {
        // Forward zones are disjoint and sorted: only the last that begins before this one can contain it.
        let after = forward.partition_point(|zone| zone.first_return < cluster.last_invocation);
        if let Some(zone) = after.checked_sub(1).map(|index| forward[index])
            && cluster.first_return < zone.last_invocation
        {
            let reason = "the second value was written and read while the first was current";
            return Err(anomaly(reason, &[zone.value, cluster.value]));
        }
    }
    Ok(())
}

fn clusters(history: &[RegisterOperation]) -> Result<Vec<Cluster>, Anomaly> {
    let mut writes: BTreeMap<Value, (&RegisterOperation, WriteOutcome)> = BTreeMap::new();
    for operation in history {
        if let RegisterAction::Write(value, outcome) = operation.action {
            let before = writes.insert(value, (operation, outcome));
            assert!(before.is_none() && value != INITIAL, "value {value} was written twice");
        }
    }
    let mut clusters: BTreeMap<Value, Cluster> = BTreeMap::new();
    for (value, (write, outcome)) in &writes {
        if *outcome == WriteOutcome::Done {
            clusters.insert(*value, cluster(*value, write.invoked, write.returned));
        }
    }
    for operation in history {
        let RegisterAction::Read(value) = operation.action else { continue };
        let write_invoked = match writes.get(&value) {
            Some((_, WriteOutcome::Refused)) => {
                return Err(anomaly("a refused write was read", &[value]));
            }
            Some((write, WriteOutcome::Done | WriteOutcome::Unknown)) => write.invoked,
            None if value == INITIAL => 0,
            None => return Err(anomaly("a value was read that was never written", &[value])),
        };
        // The initial value counts as a write that returned at 0.
        let first = if value == INITIAL { 0 } else { operation.returned };
        let entry = clusters.entry(value).or_insert_with(|| cluster(value, write_invoked, first));
        entry.first_return = entry.first_return.min(operation.returned);
        entry.last_invocation = entry.last_invocation.max(operation.invoked);
        if operation.returned < write_invoked {
            return Err(anomaly("a value was read before it was written", &[value]));
        }
    }
    Ok(clusters.into_values().collect())
}

fn cluster(value: Value, invoked: u64, returned: u64) -> Cluster {
    Cluster { value, write_invoked: invoked, first_return: returned, last_invocation: invoked }
        .checked()
}

impl Cluster {
    fn checked(self) -> Cluster {
        debug_assert!(self.write_invoked <= self.last_invocation);
        self
    }
}

fn anomaly(reason: &str, values: &[Value]) -> Anomaly {
    Anomaly { reason: reason.to_owned(), values: values.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn read(invoked: u64, returned: u64, value: Value) -> RegisterOperation {
        RegisterOperation {
            client: 0,
            invoked,
            returned,
            action: RegisterAction::Read(value),
            how: "",
        }
    }

    fn write(
        invoked: u64,
        returned: u64,
        value: Value,
        outcome: WriteOutcome,
    ) -> RegisterOperation {
        let action = RegisterAction::Write(value, outcome);
        RegisterOperation { client: 0, invoked, returned, action, how: "" }
    }

    /// Tries every order that respects the instants, which is the definition of linearizability.
    fn search(history: &[RegisterOperation], value: Value, left: u32) -> bool {
        let pending = |index: usize| left & (1 << index) != 0;
        let must = |operation: &RegisterOperation| {
            !matches!(
                operation.action,
                RegisterAction::Write(_, WriteOutcome::Unknown | WriteOutcome::Refused)
            )
        };
        if (0..history.len()).all(|index| !pending(index) || !must(&history[index])) {
            return true;
        }
        (0..history.len()).filter(|index| pending(*index)).any(|index| {
            let next = history[index];
            let late = (0..history.len()).any(|other| {
                // An operation whose outcome is unknown never returned: it precedes nothing.
                pending(other) && must(&history[other]) && history[other].returned < next.invoked
            });
            let rest = left & !(1 << index);
            !late
                && match next.action {
                    RegisterAction::Read(seen) => seen == value && search(history, value, rest),
                    RegisterAction::Write(_, WriteOutcome::Refused) => false,
                    RegisterAction::Write(written, WriteOutcome::Done | WriteOutcome::Unknown) => {
                        search(history, written, rest)
                    }
                }
        })
    }

    fn random_history(rng: &mut Rng) -> Vec<RegisterOperation> {
        let count = rng.between(2, 7);
        let mut instants: Vec<u64> = (1..=2 * count).collect();
        for index in (1..instants.len()).rev() {
            instants.swap(index, rng.below(index as u64 + 1) as usize);
        }
        let writes = rng.between(1, count);
        (0..count)
            .map(|index| {
                let (one, two) = (instants[2 * index as usize], instants[2 * index as usize + 1]);
                let (invoked, returned) = (one.min(two), one.max(two));
                if index < writes {
                    let outcomes = [
                        WriteOutcome::Done,
                        WriteOutcome::Done,
                        WriteOutcome::Unknown,
                        WriteOutcome::Refused,
                    ];
                    write(invoked, returned, index + 1, *rng.pick(&outcomes))
                } else {
                    read(invoked, returned, rng.below(writes + 1))
                }
            })
            .collect()
    }

    #[test]
    fn the_check_agrees_with_an_exhaustive_search_on_small_histories() {
        let (mut linearizable, mut not) = (0, 0);
        for seed in 0..60_000 {
            let history = random_history(&mut Rng::new(seed, &[]));
            let expected = search(&history, INITIAL, (1 << history.len()) - 1);
            let found = check(&history);
            assert_eq!(found.is_ok(), expected, "seed {seed}: {found:?} for {history:#?}");
            if expected { linearizable += 1 } else { not += 1 }
        }
        assert!(linearizable > 5_000 && not > 5_000, "{linearizable} and {not}");
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [write(1, 2, 7, WriteOutcome::Done), read(3, 4, INITIAL)];
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_write_with_an_unknown_outcome_may_take_effect_later() {
        let unknown = write(1, 2, 7, WriteOutcome::Unknown);
        assert_eq!(check(&[unknown, read(3, 4, INITIAL), read(5, 6, 7)]), Ok(()));
        assert!(check(&[unknown, read(3, 4, 7), read(5, 6, INITIAL)]).is_err());
    }

    #[test]
    fn a_lost_acknowledged_write_is_found() {
        let history =
            [write(1, 2, 7, WriteOutcome::Done), write(3, 4, 8, WriteOutcome::Done), read(5, 6, 7)];
        assert!(check(&history).is_err());
    }
}
