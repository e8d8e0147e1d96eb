//! Reads the egress log of a sandbox.

use std::io;
use std::path::Path;
use std::process::Command;

use super::connect::SandboxNetwork;
use super::egress_log;
use crate::sys;
use crate::tools::{PATH, run_for_sandbox};
use provider::{EgressLog, ProviderError};

/// Reads the log of the sandbox of a process, in a launcher process. The caller sets the deadline.
pub(crate) async fn egress_log(executable: &Path, pid: i32) -> Result<EgressLog, ProviderError> {
    let failed = |source| ProviderError::failed("read the egress log of a sandbox", source);
    let printed = run_for_sandbox(executable, "egress-log", pid, &[]).await.map_err(failed)?;
    egress_log::parse(&printed).map_err(|error| failed(error.into()))
}

/// Prints the rules and sets in the network namespace of a process as JSON. Needs a
/// process of one thread.
pub(crate) fn print_ruleset(pid: i32) -> io::Result<()> {
    SandboxNetwork::of(pid)?.enter()?;
    let status = sys::end_in_time(&mut Command::new("nft"))
        .args(["-j", "list", "ruleset"])
        .env_clear()
        .env("PATH", PATH)
        .status()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run nft: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("nft: {status}")))
}
