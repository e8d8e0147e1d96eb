//! Why an operation on a hand-off failed.

use crate::terminal::TerminalError;
use base::lock::StillLocked;
use model::{BadAnswer, HandoffId};
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    #[error("there is no hand-off {0}")]
    Missing(HandoffId),
    #[error("this terminal has {limit} open hand-offs; settle one first")]
    TerminalFull { limit: u64 },
    #[error("the server has {limit} open hand-offs; settle one first")]
    Full { limit: u64 },
    #[error(transparent)]
    BadAnswer(#[from] BadAnswer),
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
}

impl HandoffError {
    /// Names the hand-off if its row is missing.
    pub(super) fn of(id: &HandoffId) -> impl Fn(StoreError) -> HandoffError + '_ {
        move |error| match error {
            StoreError::Missing { .. } => HandoffError::Missing(id.clone()),
            error => HandoffError::Store(error),
        }
    }
}

impl From<StoreError> for HandoffError {
    fn from(error: StoreError) -> Self {
        HandoffError::Store(error)
    }
}

impl From<StillLocked> for HandoffError {
    fn from(locked: StillLocked) -> Self {
        HandoffError::Terminal(locked.into())
    }
}
