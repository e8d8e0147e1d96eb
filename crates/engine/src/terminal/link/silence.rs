//! How long a host may be silent before it counts as unreachable.

use std::time::Duration;

/// How long a host may be silent while a reply is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceLimits {
    pub ping_after: Duration,
    /// When a stopped process counts as unreachable.
    pub limit: Duration,
    /// When any other process counts as unreachable: a slow disk may block it for seconds.
    pub busy_limit: Duration,
}

impl SilenceLimits {
    /// A host on this machine.
    pub const LOCAL: SilenceLimits = SilenceLimits {
        ping_after: Duration::from_millis(700),
        limit: Duration::from_secs(2),
        busy_limit: Duration::from_secs(20),
    };
    /// A host behind a vendor's network.
    pub const REMOTE: SilenceLimits = SilenceLimits {
        ping_after: Duration::from_secs(10),
        limit: Duration::from_secs(30),
        busy_limit: Duration::from_secs(30),
    };
}
