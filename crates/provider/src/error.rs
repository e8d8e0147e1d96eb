//! What can go wrong with a provider, by what the caller can do about it.

use std::{sync::Arc, time::Duration};

use model::InstanceId;

/// Why a provider did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProviderError {
    /// There is no such provider here.
    #[error("there is no provider {provider}")]
    Unknown {
        /// The name that was asked for.
        provider: String,
    },
    /// It is not able to; asking again does not help.
    #[error("provider {provider} cannot {what}")]
    Unsupported {
        /// Which.
        provider: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The instance is not there.
    #[error("instance {instance} is gone")]
    Gone {
        /// Which.
        instance: InstanceId,
    },
    /// Too much is asked of it; nothing was done.
    #[error("the provider asks to wait: {reason}")]
    Busy {
        /// How long, if it said so.
        retry_after: Option<Duration>,
        /// What it said.
        reason: String,
    },
    /// It said no, and would say so again.
    #[error("the provider refused to {doing}: {reason}")]
    Refused {
        /// What it was asked to do.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// It did not answer in time: it may or may not have been done.
    #[error("{call} got no answer within {limit:?}")]
    TimedOut {
        /// The name of the call.
        call: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// It failed, or its answer did not come: it may or may not have been done.
    #[error("cannot {doing}")]
    Failed {
        /// What it was asked to do.
        doing: &'static str,
        /// Why.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl ProviderError {
    /// A failure with this cause.
    pub fn failed(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { doing, source: Arc::from(source.into()) }
    }

    /// A failure to connect to a host. One that is stopped accepts nobody, and once its queue is full the
    /// kernel says so: the host is there and does not answer.
    pub fn connect_failed(doing: &'static str, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::WouldBlock => {
                Self::TimedOut { call: "host.connect", limit: Duration::ZERO }
            }
            _ => Self::failed(doing, source),
        }
    }

    /// Says whether asking again may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            // One deadline is enough for a caller; the lease's worker comes back to it.
            Self::Unknown { .. }
            | Self::Unsupported { .. }
            | Self::Refused { .. }
            | Self::TimedOut { .. } => false,
            Self::Gone { .. } | Self::Busy { .. } | Self::Failed { .. } => true,
        }
    }
}
