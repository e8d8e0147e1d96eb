//! Programs of this machine that sandboxes are set up with, such as `nft` and `mkfs.ext4`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::outbound::program::{ProgramCall, ProgramError};

/// The search path for the machine's tools, and for programs inside a sandbox.
pub(crate) use base::outbound::program::SEARCH_PATH as PATH;

/// How long an empty file system may take to be created; the files that it begins with are few.
const MKFS_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs `mkfs.ext4`, and kills it at its deadline. Blocking.
pub(crate) fn make_ext4(arguments: Vec<OsString>) -> io::Result<()> {
    let options = ["-q", "-F", "-m", "0", "-J", "size=8", "-E"].map(OsString::from);
    let features = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0".into();
    let arguments = options.into_iter().chain([features]).chain(arguments).collect();
    run_tool("disk.mkfs", MKFS_TIMEOUT, "mkfs.ext4", arguments, None).map_err(io::Error::other)
}

/// Runs `stead namespace VERB PID …` to its end, and returns what it printed. It is killed when the caller, who sets the
/// deadline, stops waiting.
pub(crate) async fn run_for_sandbox(
    executable: &Path,
    verb: &str,
    pid: i32,
    arguments: &[&OsStr],
) -> io::Result<Vec<u8>> {
    let mut command = tokio::process::Command::new(executable);
    command.args(["namespace", verb, &pid.to_string()]).args(arguments);
    let output = command.env_clear().kill_on_drop(true).output().await?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Runs a tool of the machine to its end, and kills it at `limit`. The tool keeps the lock until it ends. Blocking.
pub(crate) fn run_tool(
    call: &'static str,
    limit: Duration,
    program: &'static str,
    arguments: Vec<OsString>,
    lock: Option<&File>,
) -> Result<(), ProgramError> {
    let lock = lock.map(File::try_clone).transpose();
    let lock = lock.map_err(|source| ProgramError::Run { program, source })?.map(Into::into);
    ProgramCall { call, limit, program, arguments, lock }.run_blocking()
}

/// Finds a program by its path, or by its name in [`PATH`].
pub(crate) fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    PATH.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}
