//! The files of a run: the command's text, and the drive file that sources it.

use std::io;
use std::os::unix::ffi::OsStrExt;

use super::commands::CommandState;
use super::drive::Drive;
use super::kind::Kind;
use super::machine::{Job, Run};
use super::paths::Paths;
use super::pipes::Pipe;
use super::snapshot::ShellSnapshot;
use wire::StdinMode;

/// Everything that the files of a run depend on.
pub struct RunFiles<'a> {
    pub kind: Kind,
    pub paths: &'a Paths,
    pub snapshot: &'a ShellSnapshot,
    /// The command of the run, if it has one.
    pub command: Option<&'a CommandState>,
    /// The FIFOs for the output of a script, which is discarded.
    pub discarded: Option<&'a [Pipe; 2]>,
}

/// How a drive file runs its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The state is dumped afterwards.
    Full,
    /// The command leaves the state unchanged, and nothing is dumped.
    Harmless,
    /// As `Full`, but the file empties itself first, because two keys may have been typed for it.
    Once,
}

impl RunFiles<'_> {
    /// Writes the files. Returns the bytes to type for them.
    pub fn write(&self, run: &Run, key: usize, mode: Mode) -> io::Result<Vec<u8>> {
        let null = b"/dev/null".to_vec();
        let path = |pipe: &Pipe| pipe.path.as_os_str().as_bytes().to_vec();
        let mut drive = Drive {
            paths: self.paths,
            number: run.number,
            key,
            once: mode == Mode::Once,
            harmless: mode == Mode::Harmless,
            interrupted: matches!(run.job, Job::Reread { .. }),
            state: &self.snapshot.state,
            text: &[],
            status: self.snapshot.status,
            env: &[],
            cwd: None,
            stdin: null.clone(),
            stdout: null.clone(),
            stderr: null,
        };
        let mut typed = self.kind.key(key, self.paths);
        let text = match &run.job {
            Job::Command { spec, .. } => {
                drive.env = &spec.env;
                drive.text = &spec.text;
                drive.cwd = spec.cwd.as_deref();
                if let Some(command) = self.command {
                    if let [Some(out), Some(err)] = &command.pipes {
                        drive.stdout = path(out);
                        drive.stderr = path(err);
                    }
                    if let Some(stdin) = &command.stdin {
                        drive.stdin = stdin.path.as_os_str().as_bytes().to_vec();
                    } else if spec.stdin == StdinMode::Given {
                        drive.stdin = self.paths.at("stdin");
                    }
                }
                typed = self.kind.key_for(&drive);
                if mode != Mode::Harmless {
                    let mut text = self.kind.preamble(&drive);
                    text.extend_from_slice(&spec.text);
                    self.paths.write("command", &text)?;
                }
                self.kind.drive(&drive)
            }
            Job::Script { .. } => {
                if let Some([out, err]) = self.discarded {
                    drive.stdout = path(out);
                    drive.stderr = path(err);
                }
                self.kind.drive(&drive)
            }
            Job::Capture | Job::Reread { .. } => self.kind.capture(&drive),
        };
        if self.snapshot.status > 1 {
            let status = format!("return {}\n", self.snapshot.status);
            self.paths.write("status", status.as_bytes())?;
        }
        self.paths.write("drive", &text)?;
        Ok(typed)
    }
}
