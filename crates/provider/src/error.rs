//! Errors of providers, by what the caller can do about them.

use std::{sync::Arc, time::Duration};

use base::lock::StillLocked;
use model::InstanceId;

/// Why a call of a provider failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProviderError {
    #[error("there is no provider {provider}")]
    Unknown { provider: String },
    /// The provider lacks the ability; a retry does not help.
    #[error("provider {provider} cannot {what}")]
    Unsupported { provider: String, what: &'static str },
    #[error("instance {instance} does not exist any more")]
    Gone { instance: InstanceId },
    /// The provider has too many requests; nothing was done.
    #[error("the provider is rate limiting requests: {reason}")]
    Busy { retry_after: Option<Duration>, reason: String },
    /// The provider refused, and would refuse again.
    #[error("the provider refused to {doing}: {reason}")]
    Refused { doing: &'static str, reason: String },
    /// The image that the settings name cannot be used. A retry does not help; another image, or the operator
    /// of the registry, does.
    #[error("{reason}")]
    BadImage { reason: String },
    /// The reply did not arrive in time: the call may or may not have taken effect.
    #[error("{call} got no reply within {limit:?}")]
    TimedOut { call: &'static str, limit: Duration },
    /// The call failed, or its reply was lost: it may or may not have taken effect.
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

    /// Converts a failure to connect to a host. A stopped host accepts no connections, and once its queue
    /// is
    /// full the kernel reports `WouldBlock`: the host exists but does not respond.
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
            | Self::BadImage { .. }
            | Self::TimedOut { .. } => false,
            Self::Gone { .. } | Self::Busy { .. } | Self::Failed { .. } => true,
        }
    }
}

impl From<StillLocked> for ProviderError {
    fn from(locked: StillLocked) -> Self {
        Self::Busy { retry_after: Some(locked.limit), reason: locked.to_string() }
    }
}
