//! The program of a terminal: how it is started, and its driver if it is a shell.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use shell::{Driver, Kind, Setup, State};
use wire::{Sections, Shell};

/// The longest id of a terminal or command; they are used as file names.
const MAX_ID_BYTES: usize = 128;

/// A program to run on a terminal.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramLaunch {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Returns the driver if the program is a shell, and how to start the program.
pub(super) fn driver(
    terminal: &str,
    shell: Shell,
    launch: ProgramLaunch,
    dir: &Path,
    state: Sections,
    cgroup: Option<PathBuf>,
) -> io::Result<(Option<Box<Driver>>, ProgramLaunch)> {
    let kind = match shell {
        Shell::Bash => Kind::Bash,
        Shell::Zsh => Kind::Zsh,
        Shell::Sh => Kind::Sh,
        Shell::Plain | Shell::Other(_) => return Ok((None, launch)),
    };
    let Some(first) = launch.argv.first() else { return Ok((None, launch)) };
    let words = if first.ends_with(b"busybox") { 2 } else { 1 };
    let program = launch.argv.iter().take(words).cloned().collect();
    let setup = Setup {
        terminal: terminal.to_owned(),
        kind,
        program,
        env: launch.env,
        cwd: PathBuf::from(std::ffi::OsStr::from_bytes(&launch.cwd)),
        dir: dir.to_owned(),
        cgroup,
    };
    let (driver, launch) = Driver::new(setup, State::from_sections(state))?;
    Ok((Some(Box::new(driver)), convert(launch)))
}

/// Converts a driver's launch into that of the loop.
pub(super) fn convert(launch: shell::Launch) -> ProgramLaunch {
    let cwd = launch.cwd.into_os_string().into_encoded_bytes();
    ProgramLaunch { argv: launch.argv, cwd, env: launch.env }
}

/// Returns whether an id can be used as a file name.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_must_be_valid_file_names() {
        for good in ["term_0", "a", "A-b.c"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", ".", "..", ".a", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
