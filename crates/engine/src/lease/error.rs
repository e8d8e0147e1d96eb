//! What can go wrong with a lease, by what the caller can do about it.

use std::time::Duration;

use model::{LeaseId, Refused};
use provider::ProviderError;
use store::StoreError;

/// Why a lease is not as it was asked to be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    /// There is no such lease.
    #[error("lease {lease} does not exist")]
    Missing {
        /// Which.
        lease: LeaseId,
    },
    /// It is over, or about to be.
    #[error("lease {lease} is destroyed")]
    Destroyed {
        /// Which.
        lease: LeaseId,
    },
    /// It is paused, and resuming it was ruled out.
    #[error("lease {lease} is paused")]
    Paused {
        /// Which.
        lease: LeaseId,
    },
    /// Nothing runs under it.
    #[error("lease {lease} has no instance")]
    NoInstance {
        /// Which.
        lease: LeaseId,
    },
    /// Too many instances were made in too short a time.
    #[error("lease {lease} lost its instance too often; it may be tried again in {retry_after:?}")]
    Exhausted {
        /// Which.
        lease: LeaseId,
        /// When it may be tried again.
        retry_after: Duration,
    },
    /// The provider did not do it.
    #[error("cannot {doing} the instance of lease {lease}")]
    Provider {
        /// Which.
        lease: LeaseId,
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        #[source]
        source: ProviderError,
    },
    /// The lease's state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It could not be recorded, and was therefore not done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

impl LeaseError {
    pub(super) fn provider(lease: &LeaseId, doing: &'static str, source: ProviderError) -> Self {
        Self::Provider { lease: lease.clone(), doing, source }
    }
}
