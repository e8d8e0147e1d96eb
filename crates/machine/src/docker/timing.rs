//! Timeouts of the provider `docker`.

use std::time::Duration;

/// How long a container may take to start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks of a condition without a notification.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
