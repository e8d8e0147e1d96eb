//! What differs between shells, in one place: each function asks the shell's own module.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::state::State;
use super::{Kind, Setup, bash};

/// Where the files of a sandbox's terminals are.
const SANDBOX_RUN: &str = "/run/stead";

/// The files through which a shell is driven, all in one directory.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The directory.
    pub run: PathBuf,
}

impl Paths {
    /// The files of a terminal. In a sandbox the shell cannot see the terminal's directory, which is
    /// the host's alone; they are in the sandbox's own RAM disk instead.
    pub fn of(setup: &Setup) -> Self {
        let run = if crate::sys::is_first_process() {
            Path::new(SANDBOX_RUN).join(&setup.terminal)
        } else {
            setup.dir.join("run")
        };
        Self { run }
    }
    fn at(&self, name: &str) -> Vec<u8> {
        self.run.join(name).into_os_string().into_encoded_bytes()
    }
    /// What the key sources.
    pub fn drive(&self) -> Vec<u8> {
        self.at("drive")
    }
    /// The command's own text.
    pub fn command(&self) -> Vec<u8> {
        self.at("command")
    }
    /// A file that returns the last exit code.
    pub fn status(&self) -> Vec<u8> {
        self.at("status")
    }
    /// The FIFO the state is printed into.
    pub fn state(&self) -> Vec<u8> {
        self.at("state")
    }
    /// The file the shell reads when it starts.
    pub fn rc(&self) -> PathBuf {
        self.run.join("rc")
    }
    /// A record: its name is what it says.
    pub fn ctl(&self, name: &str) -> Vec<u8> {
        self.run.join("ctl").join(name).as_os_str().as_bytes().to_vec()
    }
    /// Where the records are.
    pub fn ctl_dir(&self) -> PathBuf {
        self.run.join("ctl")
    }
}

/// Everything a drive file is made of.
pub struct Drive<'a> {
    /// Where the files are.
    pub paths: &'a Paths,
    /// Names the records of this run.
    pub number: u64,
    /// Which of the keys will be typed.
    pub key: usize,
    /// The file makes itself empty first, so that a key typed twice runs it once.
    pub once: bool,
    /// What ran before was interrupted, and left things as they were for it.
    pub interrupted: bool,
    /// The state before.
    pub state: &'a State,
    /// The command's text.
    pub text: &'a [u8],
    /// The exit code of what ran before.
    pub status: i32,
    /// Variables for this command alone.
    pub env: &'a [(Vec<u8>, Vec<u8>)],
    /// Directory for this command alone.
    pub cwd: Option<&'a [u8]>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// Where its standard output goes.
    pub stdout: Vec<u8>,
    /// Where its standard error goes.
    pub stderr: Vec<u8>,
}

/// What a dump told.
#[derive(Debug, Default)]
pub struct Dump {
    /// The sections it told about.
    pub state: State,
    /// The last entry of the shell's history, with its number.
    pub history: Option<Vec<u8>>,
}

/// How to start a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Its whole environment, but for what the host adds to every terminal's.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it starts.
    pub cwd: PathBuf,
}

impl Kind {
    /// The arguments that make the program read our rc file.
    pub(super) fn argv(self, program: &[u8], paths: &Paths) -> Vec<Vec<u8>> {
        let rc = paths.rc().into_os_string().into_encoded_bytes();
        match self {
            Self::Bash => vec![program.to_vec(), b"--rcfile".to_vec(), rc, b"-i".to_vec()],
            Self::Zsh | Self::Sh => vec![program.to_vec()],
        }
    }
    pub(super) fn rc(self, paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::rc(paths, restore, ready),
        }
    }
    pub(super) fn restore(self, state: &State, cwd: &Path, after_death: bool) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => {
                bash::restore(state, cwd.as_os_str().as_bytes(), after_death)
            }
        }
    }
    pub(super) fn drive(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::drive(drive),
        }
    }
    pub(super) fn capture(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::capture(drive),
        }
    }
    pub(super) fn parse(self, raw: &[u8]) -> Dump {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::parse(raw),
        }
    }
    pub(super) fn keys(self) -> usize {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::KEYS,
        }
    }
    pub(super) fn key_for(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::key_for(drive),
        }
    }
    pub(super) fn key(self, which: usize) -> Vec<u8> {
        match self {
            Self::Bash | Self::Zsh | Self::Sh => bash::key(which),
        }
    }
}

/// Appends all parts.
pub fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
}
