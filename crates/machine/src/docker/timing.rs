//! How long the provider `docker` waits.

use std::time::Duration;

/// How long a container has to start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks of a condition that nothing signals.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
