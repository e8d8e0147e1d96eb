//! Why an operation on a sandbox failed.

use crate::{lease::LeaseError, terminal::TerminalError};
use model::Refused;
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the limit of {limit} sandboxes is reached; delete one first")]
    TooMany { limit: u64 },
    #[error("the provider {provider} took longer than {seconds} seconds")]
    TimedOut { provider: String, seconds: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    #[error(transparent)]
    Refused(#[from] Refused),
}
