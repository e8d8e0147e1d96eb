//! Timeouts of the provider `namespace`.

use std::time::Duration;

/// How long a sandbox may take to start, to pause, and to end.
pub(super) const SANDBOX_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval between two checks of a condition without a notification.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
