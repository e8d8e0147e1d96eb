//! A lease: a durable claim on compute, and its current instance.
//!
//! ```text
//!           intend           created            paused
//!   Idle ───────────▶ Creating ───────▶ Running ⇄ Paused
//!    ▲                   │                 │        │
//!    │ ended by us       │ failed          │  lost  │
//!    ├───────────────────┤                 ▼        ▼
//!    │                   └──────────────▶  Dead ◀───┘ ── intend (generation + 1) ──▶ Creating
//!    └─ any state, desired Destroyed: ended by us ──▶ Destroyed ── needed again ──▶ Idle
//! ```
//! `desired` is the requested state and is recorded first; `state` is the observed one. The id of an instance
//! is chosen with the intent, so that a crash between recording and creating leaves an id to search for.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{InstanceId, LeaseId, Refused};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub lease_id: LeaseId,
    pub provider: String,
    pub desired: Desired,
    /// The number of instances intended so far.
    pub generation: u64,
    pub state: LeaseState,
    /// The provider's own settings (an image, a template, limits).
    pub spec: serde_json::Value,
    /// Total running time of the instances until `counted_from`.
    pub ran: Duration,
    /// The time from which the running instance is not yet counted in `ran`.
    pub counted_from: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub revision: u64,
}

/// The requested state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Desired {
    /// An instance runs when it is needed.
    Running,
    /// The instance is paused.
    Paused,
    /// No instance until one is needed.
    Stopped,
    Destroyed,
}

/// The observed state of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum LeaseState {
    Idle,
    /// An instance is intended and may exist.
    Creating {
        instance_id: InstanceId,
        since: Timestamp,
    },
    Running(Instance),
    Paused(Instance),
    /// The last instance died or could not be created.
    Dead {
        instance: Instance,
        /// When this was noticed.
        at: Timestamp,
        reason: String,
    },
    Destroyed,
}

/// One instance of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub instance_id: InstanceId,
    pub generation: u64,
    /// The provider's name for it; empty if that is our id.
    #[serde(default)]
    pub reference: String,
    pub started_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    Running,
    Paused,
    Dead,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEvent {
    /// A state was requested.
    Wanted(Desired),
    /// An instance is about to be created with this id.
    Intended(InstanceId, Timestamp),
    Created {
        reference: String,
        at: Timestamp,
    },
    /// The intended instance certainly does not exist.
    Failed {
        /// When this was noticed.
        at: Timestamp,
        reason: String,
    },
    Paused(InstanceId),
    Resumed(InstanceId),
    /// The instance disappeared without a request of ours.
    Lost {
        instance_id: InstanceId,
        /// When this was noticed.
        at: Timestamp,
        reason: String,
    },
    /// We ended the instance, if there was one.
    Ended,
    /// A destroyed lease is needed again.
    Revived,
    /// A fork is complete and is not deleted.
    Kept,
}

impl Lease {
    /// Returns a lease without an instance.
    #[must_use]
    pub fn new(lease_id: LeaseId, provider: String, at: Timestamp) -> Self {
        Self {
            lease_id,
            provider,
            desired: Desired::Running,
            generation: 0,
            state: LeaseState::Idle,
            spec: serde_json::Value::Null,
            ran: Duration::ZERO,
            counted_from: None,
            created_at: at,
            updated_at: at,
            revision: 0,
        }
    }

    /// Returns the total running time of the instances until `at`.
    #[must_use]
    pub fn ran_at(&self, at: Timestamp) -> Duration {
        let since = self.counted_from.map(|from| at.duration_since(from));
        // A clock that was set back does not reduce the time.
        let since = since.and_then(|since| Duration::try_from(since).ok());
        self.ran + since.unwrap_or_default()
    }

    /// Adds the time until `at` to `ran`.
    pub fn count(&mut self, at: Timestamp) {
        self.ran = self.ran_at(at);
        self.counted_from = matches!(self.state, LeaseState::Running(_)).then_some(at);
    }

    /// Returns a lease for a copy of its files. It is marked for deletion until it is
    /// [kept](LeaseEvent::Kept), so that the next start removes it after a crash.
    #[must_use]
    pub fn fork(&self, lease_id: LeaseId, at: Timestamp) -> Self {
        let mut fork = Self::new(lease_id, self.provider.clone(), at);
        fork.spec = self.spec.clone();
        fork.desired = Desired::Destroyed;
        fork
    }

    /// Returns the last instance and its state.
    #[must_use]
    pub fn instance(&self) -> Option<(&Instance, InstanceState)> {
        match &self.state {
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Destroyed => None,
            LeaseState::Running(instance) => Some((instance, InstanceState::Running)),
            LeaseState::Paused(instance) => Some((instance, InstanceState::Paused)),
            LeaseState::Dead { instance, .. } => Some((instance, InstanceState::Dead)),
        }
    }

    /// Returns the lease after an event.
    pub fn apply(&self, event: LeaseEvent) -> Result<Self, Refused> {
        let mut next = self.clone();
        next.state = match (&self.state, event) {
            (LeaseState::Destroyed, LeaseEvent::Revived) => {
                next.desired = Desired::Running;
                LeaseState::Idle
            }
            (LeaseState::Destroyed, event) => return Err(self.refused(&event)),
            (LeaseState::Idle, LeaseEvent::Kept) if self.desired == Desired::Destroyed => {
                next.desired = Desired::Running;
                LeaseState::Idle
            }
            (state, LeaseEvent::Wanted(desired)) => {
                if self.desired == Desired::Destroyed && desired != Desired::Destroyed {
                    return Err(self.refused(&LeaseEvent::Wanted(desired)));
                }
                next.desired = desired;
                state.clone()
            }
            (
                LeaseState::Idle | LeaseState::Dead { .. },
                LeaseEvent::Intended(instance_id, since),
            ) if self.desired == Desired::Running => {
                next.generation += 1;
                LeaseState::Creating { instance_id, since }
            }
            (LeaseState::Creating { instance_id, .. }, LeaseEvent::Created { reference, at }) => {
                LeaseState::Running(Instance {
                    instance_id: instance_id.clone(),
                    generation: self.generation,
                    reference,
                    started_at: at,
                })
            }
            (LeaseState::Creating { instance_id, since }, LeaseEvent::Failed { at, reason }) => {
                LeaseState::Dead {
                    instance: Instance {
                        instance_id: instance_id.clone(),
                        generation: self.generation,
                        reference: String::new(),
                        started_at: *since,
                    },
                    at,
                    reason,
                }
            }
            (
                LeaseState::Running(instance) | LeaseState::Paused(instance),
                LeaseEvent::Paused(id),
            ) if id == instance.instance_id => LeaseState::Paused(instance.clone()),
            (
                LeaseState::Running(instance) | LeaseState::Paused(instance),
                LeaseEvent::Resumed(id),
            ) if id == instance.instance_id => LeaseState::Running(instance.clone()),
            (
                LeaseState::Running(instance) | LeaseState::Paused(instance),
                LeaseEvent::Lost { instance_id, at, reason },
            ) if instance_id == instance.instance_id => {
                LeaseState::Dead { instance: instance.clone(), at, reason }
            }
            (_, LeaseEvent::Ended) => match self.desired {
                Desired::Destroyed => LeaseState::Destroyed,
                Desired::Running | Desired::Paused | Desired::Stopped => LeaseState::Idle,
            },
            (_, event) => return Err(self.refused(&event)),
        };
        Ok(next)
    }

    fn refused(&self, event: &LeaseEvent) -> Refused {
        Refused {
            noun: format!("lease {}", self.lease_id),
            state: self.state.word(),
            event: match event {
                LeaseEvent::Wanted(_) => "change its requested state",
                LeaseEvent::Intended(..) => "intend an instance",
                LeaseEvent::Created { .. } => "have its instance created",
                LeaseEvent::Failed { .. } => "fail to have its instance created",
                LeaseEvent::Paused(_) => "be paused",
                LeaseEvent::Resumed(_) => "be resumed",
                LeaseEvent::Lost { .. } => "lose its instance",
                LeaseEvent::Ended => "be ended",
                LeaseEvent::Revived => "be revived",
                LeaseEvent::Kept => "be kept",
            },
        }
    }
}

impl LeaseState {
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Creating { .. } => "creating",
            Self::Running(_) => "running",
            Self::Paused(_) => "paused",
            Self::Dead { .. } => "dead",
            Self::Destroyed => "destroyed",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    fn lease() -> Lease {
        Lease::new(LeaseId::fresh(), "local".into(), AT)
    }

    #[test]
    fn a_dead_instance_is_followed_by_the_next_generation() {
        let first = InstanceId::fresh();
        let lost = lease()
            .apply(LeaseEvent::Intended(first.clone(), AT))
            .and_then(|l| l.apply(LeaseEvent::Created { reference: String::new(), at: AT }))
            .and_then(|l| l.apply(LeaseEvent::Paused(first.clone())))
            .and_then(|l| l.apply(LeaseEvent::Resumed(first.clone())))
            .and_then(|l| {
                l.apply(LeaseEvent::Lost { instance_id: first, at: AT, reason: "killed".into() })
            })
            .unwrap();
        assert_eq!(lost.generation, 1);
        let next = lost.apply(LeaseEvent::Intended(InstanceId::fresh(), AT)).unwrap();
        assert_eq!(next.generation, 2);
    }

    #[test]
    fn an_event_of_another_instance_is_refused() {
        let running = lease()
            .apply(LeaseEvent::Intended(InstanceId::fresh(), AT))
            .and_then(|l| l.apply(LeaseEvent::Created { reference: String::new(), at: AT }))
            .unwrap();
        let other = InstanceId::fresh();
        assert!(running.apply(LeaseEvent::Paused(other.clone())).is_err());
        let late = LeaseEvent::Lost { instance_id: other, at: AT, reason: String::new() };
        assert!(running.apply(late).is_err());
    }

    #[test]
    fn the_state_is_read_from_a_row_that_lacks_later_fields() {
        let id = InstanceId::fresh();
        let row = format!(
            r#"{{"state":"running","instance_id":"{id}","generation":3,
                "started_at":"2024-01-01T00:00:00Z"}}"#
        );
        let LeaseState::Running(instance) = serde_json::from_str(&row).unwrap() else {
            panic!("not running")
        };
        assert_eq!((instance.generation, instance.reference.as_str()), (3, ""));
    }

    /// The reference model: at most one instance in use, numbered in order, none after the end.
    #[derive(Debug, Default)]
    struct Reference {
        generation: u64,
        intended: bool,
        exists: bool,
        over: bool,
        wanted_destroyed: bool,
        wanted_running: bool,
        idle: bool,
    }

    proptest! {
        #[test]
        fn there_is_never_more_than_one_instance(
            events in prop::collection::vec(0u8..13, 0..60),
        ) {
            let mut real = lease();
            let mut reference = Reference { wanted_running: true, idle: true, ..Reference::default() };
            let r = &mut reference;
            let mut name = InstanceId::fresh();
            for event in events {
                let current = name.clone();
                let (event, allowed) = match event {
                    0 => (LeaseEvent::Intended(InstanceId::fresh(), AT),
                          !r.over && !r.intended && !r.exists && r.wanted_running),
                    1 => (LeaseEvent::Created { reference: String::new(), at: AT },
                          !r.over && r.intended),
                    2 => (LeaseEvent::Failed { at: AT, reason: String::new() },
                          !r.over && r.intended),
                    3 => (LeaseEvent::Paused(current), !r.over && r.exists),
                    4 => (LeaseEvent::Resumed(current), !r.over && r.exists),
                    5 => (LeaseEvent::Lost {
                            instance_id: current, at: AT, reason: String::new() },
                          !r.over && r.exists),
                    6 => (LeaseEvent::Ended, !r.over),
                    7 => (LeaseEvent::Wanted(Desired::Destroyed), !r.over),
                    10 => (LeaseEvent::Revived, r.over),
                    11 => (LeaseEvent::Kept, !r.over && r.wanted_destroyed && r.idle),
                    8 => (LeaseEvent::Wanted(Desired::Stopped), !r.over && !r.wanted_destroyed),
                    _ => (LeaseEvent::Wanted(Desired::Running), !r.over && !r.wanted_destroyed),
                };
                let result = real.apply(event.clone());
                prop_assert_eq!(result.is_ok(), allowed, "{:?} in {:?}", event, real.state);
                let Ok(next) = result else { continue };
                prop_assert!(next.generation == real.generation
                    || next.generation == real.generation + 1);
                real = next;
                match event {
                    LeaseEvent::Intended(id, _) => {
                        name = id;
                        (r.intended, r.idle) = (true, false);
                        r.generation += 1;
                    }
                    LeaseEvent::Created { .. } => { r.intended = false; r.exists = true; }
                    LeaseEvent::Failed { .. } => r.intended = false,
                    LeaseEvent::Paused(_) | LeaseEvent::Resumed(_) => {}
                    LeaseEvent::Revived => {
                        (r.over, r.wanted_destroyed, r.wanted_running) = (false, false, true);
                        r.idle = true;
                    }
                    LeaseEvent::Kept => (r.wanted_destroyed, r.wanted_running) = (false, true),
                    LeaseEvent::Lost { .. } => r.exists = false,
                    LeaseEvent::Ended => {
                        (r.intended, r.exists, r.idle) = (false, false, !r.wanted_destroyed);
                        r.over = r.wanted_destroyed;
                    }
                    LeaseEvent::Wanted(desired) => {
                        r.wanted_destroyed = desired == Desired::Destroyed;
                        r.wanted_running = desired == Desired::Running;
                    }
                }
                prop_assert_eq!(real.generation, r.generation);
                let in_use = matches!(real.state, LeaseState::Running(_) | LeaseState::Paused(_));
                prop_assert_eq!(in_use, r.exists);
            }
        }
    }
}
