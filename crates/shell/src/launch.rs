//! Preparing a shell that starts with the state of the previous one.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::effect::Launch;
use super::files::private_dir;
use super::options::Errexit;
use super::paths::Paths;
use super::quote;
use super::spec::Setup;
use super::state::State;

/// After this many failures the shell starts without state and start-up files.
const MAX_RESTORED_FAILURES: u32 = 3;

/// Why and how a shell is started.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// How many shells in a row did not reach their prompt.
    pub failures: u32,
    pub errexit: Errexit,
    /// The number of the shell, which is part of the name of its first record.
    pub generation: u32,
}

/// Returns whether the next shell starts without state and start-up files, because with them it did not
/// reach its prompt.
pub fn is_bare(state: &State, failures: u32) -> bool {
    failures >= MAX_RESTORED_FAILURES || failures > 0 && state.is_empty()
}

/// Writes the rc file of the next shell. After each failure less of the state is restored, so that a state
/// that breaks the shell does not break every further shell.
pub fn prepare(
    setup: &Setup,
    paths: &Paths,
    state: &State,
    attempt: Attempt,
) -> io::Result<Launch> {
    let Attempt { failures, errexit, generation } = attempt;
    let restoring = !state.is_empty() && failures < MAX_RESTORED_FAILURES;
    let cwd = if restoring { nearest(state, &setup.cwd) } else { setup.cwd.clone() };
    let restore = restoring.then(|| {
        let mut state = state.clone();
        if failures > 0 {
            for section in ["traps", "set", "complete", "enable"] {
                state.set(section, Vec::new());
            }
        }
        if failures > 1 {
            for section in ["functions", "shopt", "aliases"] {
                state.set(section, Vec::new());
            }
        }
        setup.kind.restore(&state, &cwd, errexit)
    });
    let restore =
        restore.or_else(|| is_bare(state, failures).then(|| setup.kind.restore_nothing()));
    let ready = format!("r{generation}");
    paths.write("rc", &setup.kind.rc(paths, restore.as_deref(), &ready))?;
    for (name, bytes) in setup.kind.dot_files(paths) {
        private_dir(&paths.run.join("zdot"))?;
        paths.write(&format!("zdot/{name}"), &bytes)?;
    }
    let mut env =
        if restoring && state.has("env") { restored_env(setup, state) } else { setup.env.clone() };
    if let Some((name, value)) = setup.kind.env(paths) {
        env.retain(|(known, _)| *known != name);
        env.push((name, value));
    }
    Ok(Launch { argv: setup.kind.argv(&setup.program, paths), env, cwd })
}

/// Returns the exported variables, and the environment entries that no shell can hold in a variable but
/// passes on to its children.
fn restored_env(setup: &Setup, state: &State) -> Vec<(Vec<u8>, Vec<u8>)> {
    let kept =
        setup.env.iter().filter(|(name, _)| !quote::is_name(name) || name == b"SHLVL").cloned();
    let exported = state.env().map(|(name, value)| (name.to_vec(), value.to_vec()));
    kept.chain(exported).collect()
}

/// Returns the directory to start in: the one in the state, or its nearest parent that still exists.
fn nearest(state: &State, default: &Path) -> PathBuf {
    let cwd = state.get("cwd");
    if cwd.is_empty() {
        return default.to_owned();
    }
    let cwd = PathBuf::from(std::ffi::OsStr::from_bytes(cwd));
    cwd.ancestors().find(|path| path.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}
