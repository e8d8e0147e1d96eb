//! How long the provider `namespace` waits.

use std::time::Duration;

/// How long a sandbox has to start, to pause, and to end.
pub(super) const SANDBOX_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval between two checks of a condition that nothing signals.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
