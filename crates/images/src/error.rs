//! Why an image cannot be pulled.

use std::io;

use base::outbound::TimedOut;

/// Why an image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("{what} does not exist in registry {registry}; check its name and tag")]
    NotFound { registry: String, what: String },
    /// The registry wants credentials, and there are none. Some registries answer so for what does not exist.
    #[error(
        "registry {registry} denied access to {repository}: it does not exist, or needs credentials; \
         check its name, or add credentials to the file that the setting image.credentials names"
    )]
    Denied { registry: String, repository: String },
    /// The registry does not accept the credentials that the operator configured.
    #[error(
        "registry {registry} denied access to {repository} with the configured credentials; \
         check those for {registry} in the file that the setting image.credentials names"
    )]
    WrongCredentials { registry: String, repository: String },
    /// The registry does not answer, or answers that it cannot at the moment. Another attempt may succeed.
    #[error("registry {registry} is not available: {reason}")]
    Unavailable { registry: String, reason: String },
    /// The content of the registry is malformed, hostile, or not for this machine.
    #[error("image {image} is refused: {reason}")]
    Invalid { image: String, reason: String },
    /// The images that sandboxes use leave no room for it.
    #[error(
        "the store has no room for {image}: sandboxes use the images in it; \
         delete some, or raise the setting image.max_total ({max_bytes} bytes)"
    )]
    Full { image: String, max_bytes: u64 },
    /// Images that were built here are not removed for others, so they are bounded when they are made.
    #[error(
        "the store has no room for another built image; remove some with `stead image rm`, \
         or raise the setting image.max_total ({max_bytes} bytes)"
    )]
    FullOfBuilt { max_bytes: u64 },
    #[error("cannot {doing}")]
    Storage {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{0}; another process is using the images")]
    Locked(TimedOut),
}

impl PullError {
    pub(crate) fn storage(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Storage { doing, source }
    }

    /// Whether the image itself, and not the circumstances, is the reason.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::Denied { .. }
            | Self::WrongCredentials { .. }
            | Self::Invalid { .. } => true,
            Self::Unavailable { .. }
            | Self::Full { .. }
            | Self::FullOfBuilt { .. }
            | Self::Storage { .. }
            | Self::Locked(_) => false,
        }
    }
}
