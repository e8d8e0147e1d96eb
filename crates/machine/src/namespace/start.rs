//! Starts a sandbox: runs its launcher and waits for its host.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::time::{Instant, sleep, timeout};

use super::timing::{POLL_INTERVAL, SANDBOX_TIMEOUT};
use crate::layout::{ERRORS, launch_failure};
use crate::network::connect;
use provider::HostSocket;

/// Runs the launcher of a directory, and waits until the host listens and the network is connected.
pub(super) async fn launch(executable: &Path, dir: &Path) -> io::Result<()> {
    let deadline = Instant::now() + SANDBOX_TIMEOUT;
    let failure = |how: &str| io::Error::other(launch_failure(dir, how));
    run_launcher(executable, "launch", dir).await?;
    while HostSocket::connect(dir).await?.is_none() {
        if Instant::now() > deadline {
            return Err(failure("the host does not listen"));
        }
        sleep(POLL_INTERVAL).await;
    }
    loop {
        match connect::result(dir) {
            Some(connected) => return connected.map_err(io::Error::other),
            None if Instant::now() > deadline => {
                return Err(failure("the network was not connected in time"));
            }
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Runs `stead namespace VERB DIR` to its end.
pub(super) async fn run_launcher(executable: &Path, verb: &str, dir: &Path) -> io::Result<()> {
    let errors =
        fs::OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(ERRORS))?;
    let mut child = tokio::process::Command::new(executable)
        .args(["namespace", verb])
        .arg(dir)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(errors.try_clone()?)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()?;
    let status: ExitStatus = match timeout(SANDBOX_TIMEOUT, child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            let _ = child.start_kill();
            return Err(io::Error::other("the launcher did not exit in time"));
        }
    };
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(launch_failure(dir, &status.to_string())))
}
