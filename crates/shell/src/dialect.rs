//! The differences between shells: each function calls the module of its kind of shell.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::drive::{Drive, Dump};
use super::harmless::HarmlessFilter;
use super::kind::Kind;
use super::machine::ShellCapabilities;
use super::options::Errexit;
use super::paths::Paths;
use super::state::State;
use super::{bash, sh, zsh};

impl Kind {
    /// Returns how a shell of this kind can be driven.
    pub(super) fn capabilities(self) -> ShellCapabilities {
        ShellCapabilities {
            edits_lines: self.edits_lines(),
            keys: self.keys(),
            redraws: self == Self::Bash,
        }
    }

    /// Returns the arguments that make the program read our rc file.
    pub(super) fn argv(self, program: &[Vec<u8>], paths: &Paths) -> Vec<Vec<u8>> {
        let mut argv = program.to_vec();
        match self {
            Self::Bash => argv
                .extend([b"--rcfile".to_vec(), paths.rc().into_os_string().into_encoded_bytes()]),
            Self::Zsh | Self::Sh => {}
        }
        argv.push(b"-i".to_vec());
        argv
    }

    /// Returns the variable that makes the program read our rc file.
    pub(super) fn env(self, paths: &Paths) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Bash => None,
            Self::Zsh => Some((b"ZDOTDIR".to_vec(), paths.at("zdot"))),
            Self::Sh => Some((b"ENV".to_vec(), paths.at("rc"))),
        }
    }

    /// Returns the files that the program reads before the rc file, in a directory of their own.
    pub(super) fn dot_files(self, paths: &Paths) -> Vec<(&'static str, Vec<u8>)> {
        match self {
            Self::Zsh => zsh::dot_files(paths).to_vec(),
            Self::Bash | Self::Sh => Vec::new(),
        }
    }

    pub(super) fn rc(self, paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
        match self {
            Self::Bash => bash::rc(paths, restore, ready),
            Self::Zsh => zsh::rc(paths, restore, ready),
            Self::Sh => sh::rc(paths, restore, ready),
        }
    }

    pub(super) fn restore(self, state: &State, cwd: &Path, errexit: Errexit) -> Vec<u8> {
        let cwd = cwd.as_os_str().as_bytes();
        match self {
            Self::Bash => bash::restore(state, cwd, errexit),
            Self::Zsh => zsh::restore(state, cwd, errexit),
            Self::Sh => sh::restore(state, cwd, errexit),
        }
    }

    /// Removes the setting that made the shell exit at an idle prompt.
    pub(super) fn forget_auto_exit(self, state: &mut State) {
        match self {
            Self::Bash => bash::forget_tmout(state),
            Self::Zsh | Self::Sh => {}
        }
    }

    /// Returns the script that restores no state, for a shell without the person's start-up files.
    pub(super) fn restore_nothing(self) -> Vec<u8> {
        match self {
            Self::Bash => bash::NOTHING.to_vec(),
            Self::Zsh | Self::Sh => Vec::new(),
        }
    }

    pub(super) fn drive(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash => bash::drive(drive),
            Self::Zsh => zsh::drive(drive),
            Self::Sh => sh::drive(drive),
        }
    }

    /// Returns the text before the command's own, on its first line.
    pub(super) fn preamble(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash => bash::preamble(drive),
            Self::Zsh | Self::Sh => Vec::new(),
        }
    }

    pub(super) fn capture(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash => bash::capture(drive),
            Self::Zsh => zsh::capture(drive),
            Self::Sh => sh::capture(drive),
        }
    }

    pub(super) fn parse(self, raw: &[u8], paths: &Paths) -> Dump {
        match self {
            Self::Bash => bash::parse(raw),
            Self::Zsh => zsh::parse(raw, paths),
            Self::Sh => sh::parse(raw),
        }
    }

    /// Returns the number of keys that are bound to the drive file.
    pub(super) fn keys(self) -> usize {
        match self {
            Self::Bash => bash::KEYS,
            Self::Zsh | Self::Sh => 1,
        }
    }

    /// Returns the filter for commands that leave a shell with this state unchanged.
    pub(super) fn harmless_filter(self, state: &State) -> Option<HarmlessFilter> {
        match self {
            Self::Bash => HarmlessFilter::of(state),
            Self::Zsh | Self::Sh => None,
        }
    }

    /// Returns the bytes to type for a command.
    pub(super) fn key_for(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash => bash::key_for(drive),
            Self::Zsh | Self::Sh => self.key(drive.key, drive.paths),
        }
    }

    /// Returns the bytes to type for a key.
    pub(super) fn key(self, which: usize, paths: &Paths) -> Vec<u8> {
        match self {
            Self::Bash => bash::key(which),
            Self::Zsh => zsh::KEY.to_vec(),
            Self::Sh => sh::key(paths),
        }
    }

    /// Returns whether the shell has a line editor in which a key can be bound.
    pub(super) fn edits_lines(self) -> bool {
        match self {
            Self::Bash | Self::Zsh => true,
            Self::Sh => false,
        }
    }
}
