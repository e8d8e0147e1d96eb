//! A sandbox: a thread's compute with settings and a lifetime that a client manages.
//!
//! ```text
//!            paused               suspended
//!   Active ─────────▶ Paused ─────────────────▶ Suspended
//!    │ ▲ ▲                │   suspended             ▲ │
//!    │ │ └─── resumed ────┴──────────────────────── │─┘
//!    │ │                                            │
//!    │ └── resumed ── Archived ◀── archived ── (stopped)
//!    └───────────────────── suspended ──────────────┘
//! ```
//! The row has the state that the client requested; the lease has the state of the compute.
//! [`Sandbox::status`] combines both, and [`Sandbox::expiry`] returns the action that is due. Neither depends
//! on the API that the sandbox was created through.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BuildId, Desired, Lease, LeaseState, ProjectId, Refused, ThreadId};

/// A sandbox as it is stored. Its id is that of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub thread_id: ThreadId,
    pub project_id: ProjectId,
    /// Unique among the sandboxes of one project and origin.
    pub name: Option<String>,
    /// The API that the sandbox was created through.
    pub origin: String,
    /// The image, template or snapshot that the sandbox was created from.
    pub template: String,
    /// The template build whose steps run in it. Clients do not see such a sandbox in their lists.
    pub build_id: Option<BuildId>,
    /// The user that its programs run as.
    pub user: String,
    pub home: String,
    pub state: SandboxState,
    pub started_at: Timestamp,
    /// How long it lives after a use resumed it, unless a client asks for another time; `None` keeps its end.
    pub lifetime: Option<Duration>,
    /// The end of its lifetime; `None` means it never expires.
    pub expires_at: Option<Timestamp>,
    pub on_expiry: ExpiryAction,
    /// Whether its lifetime also ends while it is paused or suspended.
    pub expires_while_paused: bool,
    /// The time from the stop of its compute to its deletion; `None` means it is never deleted.
    pub delete_after_stop: Option<Duration>,
    /// Whether a request to one of its programs or files resumes it.
    pub auto_resume: bool,
    pub port_access: PortAccess,
    /// Metadata that clients set.
    pub labels: BTreeMap<String, String>,
    /// Data that only the API of its origin interprets.
    pub extra: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The number of changes to the row.
    pub revision: u64,
}

/// The state of a sandbox that the client requested last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// Runs, or starts on its next use.
    Active,
    /// Paused together with its programs.
    Paused,
    /// Its programs have ended, its files are kept, and only a resume starts it.
    Suspended,
    /// Stopped for a long time.
    Archived,
}

/// The state of a sandbox together with its compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxStatus {
    /// Runs, or starts on its next use.
    Running,
    Paused,
    Suspended,
    Stopped,
    Archived,
}

/// What happens at the end of a sandbox's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpiryAction {
    Delete,
    /// Pause it with its programs.
    Pause,
    /// End its programs and keep its files.
    Suspend,
}

/// Who may connect to the ports that programs in a sandbox listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortAccess {
    /// Any client that knows the sandbox's id.
    Public,
    /// Clients that hold its traffic token.
    Token,
}

/// A change of a sandbox's state or lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxEvent {
    /// Sets the end of its lifetime, earlier or later than before.
    ExpirySet(Option<Timestamp>),
    /// Extends its lifetime to this time, unless it already ends later.
    Extended(Timestamp),
    Paused,
    Suspended,
    Stopped,
    Archived,
    Resumed,
}

/// The action that the lifetime of a sandbox requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The action is due now.
    Due(ExpiryAction),
    /// Nothing is due before then.
    At(Timestamp),
    /// Nothing is due until the sandbox changes.
    Never,
}

impl Sandbox {
    /// Returns the sandbox after an event.
    pub fn apply(&self, event: SandboxEvent) -> Result<Self, Refused> {
        use SandboxState::{Active, Archived, Paused, Suspended};
        let mut next = self.clone();
        match event {
            SandboxEvent::ExpirySet(at) => next.expires_at = at,
            SandboxEvent::Extended(at) => {
                next.expires_at = self.expires_at.map(|before| before.max(at));
            }
            SandboxEvent::Paused => {
                next.state = match self.state {
                    Active | Paused | Archived => Paused,
                    Suspended => return Err(self.refused("be paused")),
                }
            }
            SandboxEvent::Suspended => next.state = Suspended,
            SandboxEvent::Stopped => {
                next.state = match self.state {
                    Active | Paused => Active,
                    // Already stopped, which is still the requested state.
                    Suspended => Suspended,
                    Archived => Archived,
                }
            }
            SandboxEvent::Archived => {
                next.state = match self.state {
                    Active | Archived => Archived,
                    Paused | Suspended => return Err(self.refused("be archived")),
                }
            }
            SandboxEvent::Resumed => next.state = Active,
        }
        Ok(next)
    }

    /// Returns the status of the sandbox with the state of its compute.
    #[must_use]
    pub fn status(&self, lease: &Lease) -> SandboxStatus {
        if self.state == SandboxState::Suspended {
            return SandboxStatus::Suspended;
        }
        match (&lease.state, lease.desired) {
            (LeaseState::Paused(_), _) => SandboxStatus::Paused,
            (_, Desired::Stopped) if self.state == SandboxState::Archived => {
                SandboxStatus::Archived
            }
            (_, Desired::Stopped) => SandboxStatus::Stopped,
            (_, Desired::Running | Desired::Paused | Desired::Destroyed) => SandboxStatus::Running,
        }
    }

    /// Returns the action that the lifetime of the sandbox requires now. It changes when the compute stops.
    #[must_use]
    pub fn expiry(&self, lease: &Lease, now: Timestamp) -> Expiry {
        let status = self.status(lease);
        // A sandbox that a client paused counts as paused until a client resumes it, even if a person
        // who opens its terminal starts its compute.
        let is_paused = matches!(self.state, SandboxState::Paused | SandboxState::Suspended)
            || status == SandboxStatus::Paused;
        let is_stopped = matches!(status, SandboxStatus::Stopped | SandboxStatus::Archived);
        let deletes_at = self
            .delete_after_stop
            .filter(|_| is_stopped)
            .map(|after| lease.updated_at.checked_add(after).unwrap_or(Timestamp::MAX));
        if deletes_at.is_some_and(|at| at <= now) {
            return Expiry::Due(ExpiryAction::Delete);
        }
        let lifetime = match (self.expires_at, self.on_expiry) {
            (None, _) => Expiry::Never,
            (Some(at), _) if at > now => Expiry::At(at),
            (Some(_), ExpiryAction::Delete) if is_paused && !self.expires_while_paused => {
                Expiry::Never
            }
            (Some(_), ExpiryAction::Delete) => Expiry::Due(ExpiryAction::Delete),
            (Some(_), ExpiryAction::Pause | ExpiryAction::Suspend) if is_paused => Expiry::Never,
            (Some(_), action) => Expiry::Due(action),
        };
        match (lifetime, deletes_at) {
            (Expiry::At(at), Some(deletes_at)) => Expiry::At(at.min(deletes_at)),
            (Expiry::Never, Some(deletes_at)) => Expiry::At(deletes_at),
            (lifetime, _) => lifetime,
        }
    }

    fn refused(&self, event: &'static str) -> Refused {
        Refused { noun: format!("sandbox {}", self.thread_id), state: self.state.word(), event }
    }
}

impl SandboxState {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Archived => "archived",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Instance, InstanceId, LeaseId};

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn sandbox() -> Sandbox {
        Sandbox {
            thread_id: "s".parse().unwrap(),
            project_id: ProjectId::default_project(),
            name: None,
            origin: "native".into(),
            template: "base".into(),
            build_id: None,
            user: "user".into(),
            home: "/home/user".into(),
            state: SandboxState::Active,
            started_at: second(0),
            lifetime: None,
            expires_at: Some(second(100)),
            on_expiry: ExpiryAction::Delete,
            expires_while_paused: false,
            delete_after_stop: None,
            auto_resume: false,
            port_access: PortAccess::Token,
            labels: BTreeMap::new(),
            extra: BTreeMap::new(),
            created_at: second(0),
            updated_at: second(0),
            revision: 0,
        }
    }

    fn lease(desired: Desired, paused: bool) -> Lease {
        let mut lease = Lease::new(LeaseId::fresh(), "local".into(), second(50));
        lease.desired = desired;
        if paused {
            lease.state = LeaseState::Paused(Instance {
                instance_id: InstanceId::fresh(),
                generation: 1,
                reference: String::new(),
                started_at: second(0),
            });
        }
        lease
    }

    #[test]
    fn the_action_is_due_at_the_end_of_the_lifetime() {
        let (running, paused) = (lease(Desired::Running, false), lease(Desired::Paused, true));
        let check = |change: fn(&mut Sandbox), lease: &Lease, now: i64, expected: Expiry| {
            let mut sandbox = sandbox();
            change(&mut sandbox);
            assert_eq!(sandbox.expiry(lease, second(now)), expected, "{sandbox:?} at {now}");
        };
        check(|_| {}, &running, 99, Expiry::At(second(100)));
        check(|_| {}, &running, 100, Expiry::Due(ExpiryAction::Delete));
        check(|it| it.expires_at = None, &running, 100, Expiry::Never);
        check(|_| {}, &paused, 100, Expiry::Never);
        check(|it| it.expires_while_paused = true, &paused, 100, Expiry::Due(ExpiryAction::Delete));
        let suspends = |it: &mut Sandbox| it.on_expiry = ExpiryAction::Suspend;
        check(suspends, &running, 100, Expiry::Due(ExpiryAction::Suspend));
        check(suspends, &paused, 100, Expiry::Never);
    }

    #[test]
    fn only_a_stopped_sandbox_is_deleted_after_its_time() {
        let (running, stopped) = (lease(Desired::Running, false), lease(Desired::Stopped, false));
        let mut sandbox = sandbox();
        sandbox.expires_at = None;
        sandbox.delete_after_stop = Some(Duration::from_secs(30));
        assert_eq!(sandbox.expiry(&running, second(500)), Expiry::Never);
        assert_eq!(sandbox.expiry(&stopped, second(79)), Expiry::At(second(80)));
        assert_eq!(sandbox.expiry(&stopped, second(80)), Expiry::Due(ExpiryAction::Delete));
    }

    fn any_event() -> impl Strategy<Value = SandboxEvent> {
        prop_oneof![
            prop::option::of(0..1000_i64).prop_map(|at| SandboxEvent::ExpirySet(at.map(second))),
            (0..1000_i64).prop_map(|at| SandboxEvent::Extended(second(at))),
            Just(SandboxEvent::Paused),
            Just(SandboxEvent::Suspended),
            Just(SandboxEvent::Stopped),
            Just(SandboxEvent::Archived),
            Just(SandboxEvent::Resumed),
        ]
    }

    proptest! {
        #[test]
        fn a_sandbox_matches_the_reference_model(events in prop::collection::vec(any_event(), 0..40)) {
            let mut now = sandbox();
            for event in events {
                let Ok(next) = now.apply(event) else {
                    // Only the two states that a resume leaves refuse an event.
                    prop_assert!(matches!(now.state, SandboxState::Paused | SandboxState::Suspended));
                    continue;
                };
                match event {
                    SandboxEvent::ExpirySet(at) => prop_assert_eq!(next.expires_at, at),
                    SandboxEvent::Extended(at) => {
                        prop_assert!(next.expires_at.is_none_or(|end| end >= at));
                        prop_assert!(next.expires_at.unwrap_or(Timestamp::MAX)
                            >= now.expires_at.unwrap_or(Timestamp::MAX));
                    }
                    SandboxEvent::Paused => prop_assert_eq!(next.state, SandboxState::Paused),
                    SandboxEvent::Suspended => prop_assert_eq!(next.state, SandboxState::Suspended),
                    SandboxEvent::Stopped => prop_assert_ne!(next.state, SandboxState::Paused),
                    SandboxEvent::Archived => prop_assert_eq!(next.state, SandboxState::Archived),
                    SandboxEvent::Resumed => prop_assert_eq!(next.state, SandboxState::Active),
                }
                let expected = Sandbox { state: next.state, expires_at: next.expires_at, ..now };
                prop_assert_eq!(&next, &expected);
                now = next;
            }
        }

        #[test]
        fn nothing_is_due_before_its_time(
            expires in prop::option::of(0..200_i64),
            after in prop::option::of(0..200_u64),
            desired in prop_oneof![Just(Desired::Running), Just(Desired::Stopped), Just(Desired::Paused)],
            paused: bool,
            now in 0..200_i64,
        ) {
            let mut sandbox = sandbox();
            sandbox.expires_at = expires.map(second);
            sandbox.delete_after_stop = after.map(Duration::from_secs);
            let lease = lease(desired, paused);
            match sandbox.expiry(&lease, second(now)) {
                Expiry::Due(_) => {
                    let expired = expires.is_some_and(|at| at <= now);
                    let stopped = desired == Desired::Stopped && !paused
                        && after.is_some_and(|after| 50 + after.cast_signed() <= now);
                    prop_assert!(expired || stopped);
                }
                Expiry::At(at) => {
                    prop_assert!(at > second(now));
                    // The next check is at a time when an action is due.
                    prop_assert!(!matches!(sandbox.expiry(&lease, at), Expiry::At(_)));
                }
                Expiry::Never => prop_assert!(expires.is_none_or(|at| at <= now && paused)),
            }
        }
    }
}
