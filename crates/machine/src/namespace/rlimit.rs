//! Per-process limits, which all processes in a sandbox inherit from its launcher.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::layout::{MAX_OPEN_FILES, MAX_PENDING_SIGNALS};

/// Lowers the limits of this process, and so of all processes in the sandbox. The runtime cannot do that:
/// it would need a capability over processes of another user.
pub(super) fn limit(disk: u64) -> io::Result<()> {
    for (resource, max) in [
        // With a limit of 0, the kernel would still pipe core dumps to a program.
        (Resource::Core, 1),
        (Resource::Memlock, 64 << 10),
        (Resource::Msgqueue, 819_200),
        (Resource::Nofile, MAX_OPEN_FILES),
        (Resource::Sigpending, MAX_PENDING_SIGNALS),
        // A workspace is not on the sandbox's disk: at least no single file grows beyond its limit.
        (Resource::Fsize, disk),
    ] {
        lower(resource, max)?;
    }
    Ok(())
}

/// Lowers one limit, unless it is already lower.
pub(super) fn lower(resource: Resource, max: u64) -> io::Result<()> {
    let max = getrlimit(resource).maximum.map_or(max, |own| own.min(max));
    Ok(setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })?)
}
