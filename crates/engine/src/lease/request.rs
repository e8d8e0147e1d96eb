//! The requests to a lease worker, and its replies.

use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::error::LeaseError;
use model::{Instance, InstanceId, Lease, LeaseId};
use provider::CopyTo;

/// The instance of a lease that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningInstance {
    pub lease_id: LeaseId,
    pub provider: String,
    pub instance: Instance,
    /// Whether the request that got this created it because the previous instance was lost.
    pub recreated: bool,
}

/// What to do with a paused lease that should be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPaused {
    Resume,
    /// Fail with [`LeaseError::Paused`].
    Refuse,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, LeaseError>>;

#[derive(Debug)]
pub(super) enum LeaseRequest {
    Run { if_paused: IfPaused, reply: Reply<RunningInstance> },
    Reach { goal: Goal, reply: Reply<Lease> },
    Copy { to: CopyTo, reply: Reply<Lease> },
    Resize { settings: Map<String, Value>, reply: Reply<Lease> },
    SetEgress { spec: Value, reply: Reply<Lease> },
}

/// A state a lease can be brought to, other than running.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// In line with what the provider reports and what was last requested.
    Consistent {
        /// Do nothing unless this is the instance of the lease.
        suspect: Option<InstanceId>,
    },
    Paused,
    Stopped,
    Destroyed,
}
