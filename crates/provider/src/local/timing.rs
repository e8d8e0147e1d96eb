//! How long the provider `local` waits.

use std::time::Duration;

/// How long a host has to start, and to end by itself.
pub(super) const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a host that a concurrent call starts may take until it listens.
pub(super) const CONCURRENT_START_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between two checks of a condition that nothing signals.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);
