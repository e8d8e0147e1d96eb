//! Starting a shell, and giving it back what the one before had.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dialect::Launch;
use super::driver::{Driver, Phase};
use super::queue::Waiting;
use super::state::State;
use super::{At, Effect, Happened};

/// A shell that is not at its prompt after this will never be ours to drive.
pub(super) const START: Duration = Duration::from_secs(30);

impl Driver {
    pub(super) fn restored_status(&self) -> i32 {
        std::str::from_utf8(self.state.get("status"))
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// Whether the next shell starts with nothing at all: with the person's own files, or with what is
    /// kept, it did not come to its prompt.
    pub(super) fn is_bare(&self) -> bool {
        self.failures >= 3 || self.failures > 0 && self.state.is_empty()
    }

    /// Writes the rc file of the next shell. After failures less and less is restored, so that a
    /// state that breaks the shell cannot break it for ever.
    pub(super) fn launch(&mut self, after_death: bool) -> io::Result<Launch> {
        self.generation += 1;
        self.keep_place()?;
        self.forget_dump();
        self.heed_pieces(true);
        let ready = format!("r{}", self.generation);
        let restoring = !self.state.is_empty() && self.failures < 3;
        let cwd =
            if restoring { nearest(&self.state, &self.setup.cwd) } else { self.setup.cwd.clone() };
        let restore = restoring.then(|| {
            let mut state = self.state.clone();
            if self.failures > 0 {
                for section in ["traps", "set", "complete", "enable"] {
                    state.set(section, Vec::new());
                }
            }
            if self.failures > 1 {
                for section in ["functions", "shopt", "aliases"] {
                    state.set(section, Vec::new());
                }
            }
            self.setup.kind.restore(&state, &cwd, after_death)
        });
        let restore = restore.or_else(|| self.is_bare().then(|| self.setup.kind.nothing()));
        self.paths.write("rc", &self.setup.kind.rc(&self.paths, restore.as_deref(), &ready))?;
        for (name, bytes) in self.setup.kind.dot_files(&self.paths) {
            private_dir(&self.paths.run.join("zdot"))?;
            self.paths.write(&format!("zdot/{name}"), &bytes)?;
        }
        let mut env = if restoring && self.state.has("env") {
            self.restored_env()
        } else {
            self.setup.env.clone()
        };
        if let Some((name, value)) = self.setup.kind.env(&self.paths) {
            env.retain(|(known, _)| *known != name);
            env.push((name, value));
        }
        Ok(Launch { argv: self.setup.kind.argv(&self.setup.program, &self.paths), env, cwd })
    }

    /// What was exported, and what no shell can have in a variable but passes on.
    pub(super) fn restored_env(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let kept = self
            .setup
            .env
            .iter()
            .filter(|(name, _)| !super::quote::is_name(name) || name == b"SHLVL")
            .cloned();
        let exported = self.state.env().map(|(name, value)| (name.to_vec(), value.to_vec()));
        kept.chain(exported).collect()
    }

    pub(super) fn give_up(&mut self, effects: &mut Vec<Effect>) {
        self.end(None, None, effects);
    }

    /// Makes the terminal end when its shell exits. A shell that the driver replaces by itself is
    /// started again as before.
    pub fn end_with_program(&mut self) {
        self.ends_with_program = true;
    }

    /// Ends for good, with the exit code or the signal of the last shell.
    pub(super) fn end(
        &mut self,
        code: Option<i32>,
        signal: Option<i32>,
        effects: &mut Vec<Effect>,
    ) {
        self.phase = Phase::Over;
        for waiting in std::mem::take(&mut self.queue) {
            self.never_started(waiting, effects);
        }
        for id in self.commands.done() {
            self.close_streams(&id, effects);
        }
        effects.push(Effect::Emit(Happened::Ended { code, signal }));
    }

    /// The rc file is through and its dump is read: the shell is on its way to the prompt.
    pub(super) fn started(&mut self, at: At, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Starting { ready: true, .. }) || !self.dumped {
            return;
        }
        let first = self.state.is_empty();
        let changes = self.take_dump();
        if first || !changes.0.is_empty() {
            effects.push(Effect::Emit(Happened::StateChanged { changes }));
        }
        self.failures = 0;
        for waiting in &mut self.queue {
            if let Waiting::Command { spec, until } = waiting {
                *until = spec.timeout.map(|timeout| at.now + timeout);
            }
        }
        self.phase = Phase::Idle;
        self.at_prompt = false;
        self.poll.step = Duration::from_micros(100);
        self.poll.at = Some(at.now + self.poll.step);
        self.advance(at, effects);
    }

    /// No shell could be started where [`Effect::Respawn`] asked for one.
    pub fn abandon(&mut self, effects: &mut Vec<Effect>) {
        self.give_up(effects);
    }
}

/// Makes a directory that is nobody else's.
pub(super) fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The directory to go back to: the one the state names, or the nearest above it that still exists.
fn nearest(state: &State, otherwise: &Path) -> PathBuf {
    let cwd = state.get("cwd");
    if cwd.is_empty() {
        return otherwise.to_owned();
    }
    let cwd = PathBuf::from(std::ffi::OsStr::from_bytes(cwd));
    cwd.ancestors().find(|path| path.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}
