//! Errors of leases, by what the caller can do about them.

use std::time::Duration;

use model::{LeaseId, Refused};
use provider::ProviderError;
use store::StoreError;

/// Why a lease is not in the requested state.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    #[error("lease {lease} does not exist")]
    Missing { lease: LeaseId },
    /// The lease is destroyed, or is being destroyed.
    #[error("lease {lease} is destroyed")]
    Destroyed { lease: LeaseId },
    /// The lease is paused, and the caller chose not to resume it.
    #[error("lease {lease} is paused")]
    Paused { lease: LeaseId },
    #[error("lease {lease} has no instance")]
    NoInstance { lease: LeaseId },
    /// Too many instances were created in too short a time.
    #[error("lease {lease} lost its instance too often; it may be tried again in {retry_after:?}")]
    Exhausted { lease: LeaseId, retry_after: Duration },
    /// The provider failed. `doing` is a verb, such as "create".
    #[error("cannot {doing} the instance of lease {lease}")]
    Provider {
        lease: LeaseId,
        doing: &'static str,
        #[source]
        source: ProviderError,
    },
    /// The state of the lease does not allow it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The change could not be recorded, and was therefore not made.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is stopping")]
    Stopping,
}

impl LeaseError {
    pub(super) fn provider(lease: &LeaseId, doing: &'static str, source: ProviderError) -> Self {
        Self::Provider { lease: lease.clone(), doing, source }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
