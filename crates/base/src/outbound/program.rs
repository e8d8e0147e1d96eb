//! Programs of this machine that work for us for a while, such as `tar`.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::runtime;

use super::{TimedOut, bounded};

/// How much of a program's error message is repeated in ours.
const MAX_MESSAGE_BYTES: u64 = 2048;

/// The search path of these programs, and all that their environment contains.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program, and what it is called with.
#[derive(Debug)]
pub struct ProgramCall {
    /// The label of the call in the metrics.
    pub call: &'static str,
    pub limit: Duration,
    pub program: &'static str,
    pub arguments: Vec<OsString>,
    /// A locked file. The program keeps the lock until it ends, even if this process is killed before.
    pub lock: Option<OwnedFd>,
}

/// Why a program did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot run {program}")]
    Run {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{program} ended with {status}: {message}")]
    Failed { program: &'static str, status: ExitStatus, message: String },
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
}

impl ProgramCall {
    /// Runs the program to its end. It is killed at its deadline, or when the caller stops waiting.
    ///
    /// # Errors
    /// If the program cannot be started, does not succeed, or does not end in time.
    pub async fn run(self) -> Result<(), ProgramError> {
        let Self { call, limit, program, arguments, lock } = self;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", SEARCH_PATH).kill_on_drop(true);
        let stdin = lock.map_or_else(Stdio::null, Stdio::from);
        command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped());
        let ended = async {
            let mut child = command.spawn()?;
            let message = match child.stderr.take() {
                Some(stderr) => message(stderr).await?,
                None => String::new(),
            };
            Ok((child.wait().await?, message))
        };
        let ended: io::Result<_> = bounded(call, limit, ended).await?;
        let (status, message) = ended.map_err(|source| ProgramError::Run { program, source })?;
        if !status.success() {
            return Err(ProgramError::Failed { program, status, message });
        }
        Ok(())
    }

    /// Like [`run`](Self::run), but blocks the calling thread.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_blocking(self) -> Result<(), ProgramError> {
        let program = self.program;
        let failed = move |source| ProgramError::Run { program, source };
        let run = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(failed)?.block_on(self.run())
        };
        // A runtime cannot be entered on a thread that is in another one.
        let running = thread::Builder::new().spawn(run).map_err(failed)?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Reads all that a program reports, and returns the beginning.
async fn message(mut stderr: ChildStderr) -> io::Result<String> {
    let mut bytes = Vec::new();
    (&mut stderr).take(MAX_MESSAGE_BYTES).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(program: &'static str, arguments: &[&str], limit: Duration) -> ProgramCall {
        ProgramCall {
            call: "test.program",
            limit,
            program,
            arguments: arguments.iter().map(OsString::from).collect(),
            lock: None,
        }
    }

    #[tokio::test]
    async fn a_program_succeeds_or_its_message_is_repeated() {
        let long = Duration::from_secs(60);
        call("true", &[], long).run().await.unwrap();
        let failed = call("sh", &["-c", "echo it broke >&2; exit 3"], long).run().await;
        assert_eq!(failed.unwrap_err().to_string(), "sh ended with exit status: 3: it broke");
        let absent = call("no-such-program-here", &[], long).run().await;
        assert_eq!(absent.unwrap_err().to_string(), "cannot run no-such-program-here");
    }

    #[tokio::test]
    async fn a_program_is_killed_at_its_deadline() {
        for blocks in [false, true] {
            let (mut reader, writer) = io::pipe().unwrap();
            let sleep = call("sleep", &["600"], Duration::from_millis(20));
            let sleep = ProgramCall { lock: Some(writer.into()), ..sleep };
            // A thread of the runtime may be blocked, too.
            let ended = if blocks { sleep.run_blocking() } else { sleep.run().await };
            assert!(matches!(ended, Err(ProgramError::TimedOut(_))), "{ended:?}");
            // The pipe ends with the last process that holds it.
            assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn a_thread_may_wait_for_a_program_without_a_runtime() {
        let long = Duration::from_secs(60);
        call("true", &[], long).run_blocking().unwrap();
        let failed = call("sh", &["-c", "echo $PATH >&2; env | wc -l >&2; exit 3"], long);
        let message = failed.run_blocking().unwrap_err().to_string();
        assert!(message.contains(SEARCH_PATH), "{message}");
    }
}
