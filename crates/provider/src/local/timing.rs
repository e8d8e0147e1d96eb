//! Timeouts of the provider `local`.

use std::time::Duration;

/// How long a host may take to start, and to exit on request.
pub(super) const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a host that a concurrent call starts may take until it listens.
pub(super) const CONCURRENT_START_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between two checks of a condition without a notification.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
