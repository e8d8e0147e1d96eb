//! How a provider fails, by what the caller can do about it.

use std::{sync::Arc, time::Duration};

use model::InstanceId;

/// Why a provider did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProviderError {
    #[error("there is no provider {provider}")]
    Unknown { provider: String },
    /// The provider lacks the ability; a retry does not help.
    #[error("provider {provider} cannot {what}")]
    Unsupported { provider: String, what: &'static str },
    #[error("instance {instance} is gone")]
    Gone { instance: InstanceId },
    /// The provider has too many requests; nothing was done.
    #[error("the provider asks to wait: {reason}")]
    Busy { retry_after: Option<Duration>, reason: String },
    /// The provider refused, and would refuse again.
    #[error("the provider refused to {doing}: {reason}")]
    Refused { doing: &'static str, reason: String },
    /// The answer did not come in time: the call may or may not have taken effect.
    #[error("{call} got no answer within {limit:?}")]
    TimedOut { call: &'static str, limit: Duration },
    /// The call failed, or its answer was lost: it may or may not have taken effect.
    #[error("cannot {doing}")]
    Failed {
        doing: &'static str,
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl ProviderError {
    pub fn failed(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { doing, source: Arc::from(source.into()) }
    }

    #[must_use]
    pub fn unsupported(provider: &str, what: &'static str) -> Self {
        Self::Unsupported { provider: provider.to_owned(), what }
    }

    /// A failure to connect to a host. A stopped host accepts no connections, and once its queue is full
    /// the kernel reports `WouldBlock`: the host exists and does not answer.
    pub fn connect_failed(doing: &'static str, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::WouldBlock => {
                Self::TimedOut { call: "host.connect", limit: Duration::ZERO }
            }
            _ => Self::failed(doing, source),
        }
    }

    /// Whether a retry may succeed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            // A caller waits for one deadline only; the lease's worker retries.
            Self::Unknown { .. }
            | Self::Unsupported { .. }
            | Self::Refused { .. }
            | Self::TimedOut { .. } => false,
            Self::Gone { .. } | Self::Busy { .. } | Self::Failed { .. } => true,
        }
    }
}
