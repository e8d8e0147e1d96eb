//! What differs between shells, in one place: each function asks the shell's own module.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::harmless::Calm;
use super::pipes::write_fresh;
use super::quote::{self, single};
use super::start::private_dir;
use super::state::State;
use super::{Kind, Setup, bash, pipes, place, sh, zsh};

/// Where the files of a sandbox's terminals are.
const SANDBOX_RUN: &str = "/run/stead";

/// The files through which a shell is driven, all in one directory.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The directory.
    pub run: PathBuf,
    /// Where files go for which there is no memory.
    disk: Option<PathBuf>,
}

impl Paths {
    /// New files for a terminal's shell, in a directory that none had before: a shell whose host was
    /// killed may live a while longer and write where it was told to. What it left is taken away.
    pub fn fresh(setup: &Setup) -> io::Result<Self> {
        let all = Self::all(setup)?;
        for old in fs::read_dir(&all)?.flatten() {
            pipes::release(&old.path());
            let _ = fs::remove_dir_all(old.path());
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = since.as_nanos() as u64;
        for name in first.. {
            let run = all.join(format!("{name:x}"));
            match fs::DirBuilder::new().mode(0o700).create(&run) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self::at_run(run, setup)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The files in a directory that is there.
    pub fn at_run(run: PathBuf, setup: &Setup) -> Self {
        let in_memory = !crate::sys::is_first_process() && !run.starts_with(&setup.dir);
        Self { run, disk: in_memory.then(|| setup.dir.join("spill")) }
    }

    /// Where the directories of a terminal are. In a sandbox the shell cannot see the terminal's own,
    /// which is the host's alone; they are in the sandbox's RAM disk instead.
    fn all(setup: &Setup) -> io::Result<PathBuf> {
        if !crate::sys::is_first_process() {
            return place::of(&setup.dir);
        }
        let all = Path::new(SANDBOX_RUN).join(&setup.terminal);
        private_dir(&all).map(|()| all)
    }

    /// Whether nobody has removed the directory.
    pub fn are_there(&self) -> bool {
        self.ctl_dir().is_dir()
    }

    /// Writes a file anew. Where the memory is full it is a link to one on disk.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let path = self.run.join(name);
        match (write_fresh(&path, bytes), &self.disk) {
            (Err(error), Some(disk)) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                private_dir(disk)?;
                let spilled = disk.join(name.replace('/', "-"));
                write_fresh(&spilled, bytes)?;
                self.remove(name);
                symlink(spilled, path)
            }
            (written, _) => written,
        }
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.run.join(name));
    }

    /// A file in it.
    pub fn at(&self, name: &str) -> Vec<u8> {
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
    /// Tells that the drive file has begun. Nobody is woken by it: it is looked for when that matters.
    pub fn begun(&self) -> Vec<u8> {
        self.at("begun")
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
    /// The command leaves the shell alone: the state is not told behind it.
    pub harmless: bool,
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

/// How a shell without bash's ways is spoken to: `call` before what must be no function of the
/// person's, `to` before a file that may be there already.
pub struct Manner {
    /// A word and a blank.
    pub call: &'static [u8],
    /// A redirection.
    pub to: &'static [u8],
    /// Goes elsewhere, and tells nobody.
    pub cd: &'static [u8],
}

impl Manner {
    /// Makes a file whose name is all it says.
    pub fn mark(&self, text: &mut Vec<u8>, path: &[u8], status: &[u8]) {
        put(text, &[self.call, b": ", self.to, &single(path), status, b"\n"]);
    }

    /// Empties the drive file, so that a key typed twice runs it once.
    pub fn once(&self, text: &mut Vec<u8>, drive: &Drive) {
        if drive.once {
            self.mark(text, &drive.paths.drive(), b"");
        }
    }

    /// Records the status of what ran before.
    pub fn record(&self, text: &mut Vec<u8>, drive: &Drive) {
        self.mark(text, &drive.paths.ctl(&format!("{}.", drive.number)), b"\"$?\"");
    }

    /// Runs the command's text with its streams.
    pub fn source(&self, text: &mut Vec<u8>, drive: &Drive) {
        let (stdin, stdout) = (single(&drive.stdin), single(&drive.stdout));
        put(text, &[self.call, b". ", &single(&drive.paths.command()), b" <", &stdin]);
        put(text, &[b" ", self.to, &stdout, b" 2", self.to, &single(&drive.stderr), b"\n"]);
    }

    /// Sets the variables that hold for the command alone.
    pub fn lend(&self, text: &mut Vec<u8>, drive: &Drive) {
        for (name, value) in drive.env {
            put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
    }

    /// Makes those what they were; `own` tells a line of the state that sets a variable.
    pub fn take_back(&self, text: &mut Vec<u8>, drive: &Drive, own: impl Fn(&[u8], &[u8]) -> bool) {
        for (name, _) in drive.env {
            if let Some((_, value)) = drive.state.env().find(|(known, _)| known == name) {
                put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
                continue;
            }
            put(text, &[b"unset ", name, b"\n"]);
            for line in quote::lines(drive.state.get("vars")).filter(|line| own(line, name)) {
                text.extend_from_slice(line);
            }
        }
    }

    /// Goes back to where the shell was before a command that had its own directory.
    pub fn go_back(&self, text: &mut Vec<u8>, drive: &Drive) {
        if drive.cwd.is_some() {
            put(text, &[self.cd, &single(drive.state.get("cwd")), b"\n"]);
            put(text, &[b"OLDPWD=", &single(drive.state.get("oldpwd")), b"\n"]);
        }
    }
}

/// What a dump told.
#[derive(Debug, Default)]
pub struct Dump {
    /// The sections it told about.
    pub state: State,
    /// The last entry of the shell's history, with its number.
    pub history: Option<Vec<u8>>,
    /// How many commands were typed into this shell, where it counts them.
    pub typed: Option<u64>,
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

    /// The variables that make the program read our rc file.
    pub(super) fn env(self, paths: &Paths) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Bash => None,
            Self::Zsh => Some((b"ZDOTDIR".to_vec(), paths.at("zdot"))),
            Self::Sh => Some((b"ENV".to_vec(), paths.at("rc"))),
        }
    }

    /// Files beside the rc file that the program reads first, in a directory of their own.
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

    pub(super) fn restore(self, state: &State, cwd: &Path, after_death: bool) -> Vec<u8> {
        let cwd = cwd.as_os_str().as_bytes();
        match self {
            Self::Bash => bash::restore(state, cwd, after_death),
            Self::Zsh => zsh::restore(state, cwd, after_death),
            Self::Sh => sh::restore(state, cwd, after_death),
        }
    }

    /// Takes out of a state what would make the next shell leave its prompt by itself, too.
    pub(super) fn left(self, state: &mut State) {
        match self {
            Self::Bash => bash::forget_tmout(state),
            Self::Zsh | Self::Sh => {}
        }
    }

    /// What restores nothing, for a shell that starts without files of the person's.
    pub(super) fn nothing(self) -> Vec<u8> {
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

    /// What the command's text is to be preceded by, on its first line.
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

    /// How many keys there are to try.
    pub(super) fn keys(self) -> usize {
        match self {
            Self::Bash => bash::KEYS,
            Self::Zsh | Self::Sh => 1,
        }
    }

    /// What may run in a shell of this state without changing it.
    pub(super) fn calm(self, state: &State) -> Option<Calm> {
        match self {
            Self::Bash => Calm::of(state),
            Self::Zsh | Self::Sh => None,
        }
    }

    /// What to type for a command.
    pub(super) fn key_for(self, drive: &Drive) -> Vec<u8> {
        match self {
            Self::Bash => bash::key_for(drive),
            Self::Zsh | Self::Sh => self.key(drive.key, drive.paths),
        }
    }

    /// What to type.
    pub(super) fn key(self, which: usize, paths: &Paths) -> Vec<u8> {
        match self {
            Self::Bash => bash::key(which),
            Self::Zsh => zsh::KEY.to_vec(),
            Self::Sh => sh::key(paths),
        }
    }

    /// Whether it reads its commands with a line editor, which a key of ours can interrupt.
    pub(super) fn edits_lines(self) -> bool {
        match self {
            Self::Bash | Self::Zsh => true,
            Self::Sh => false,
        }
    }
}

/// Appends all parts.
pub fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_shell_that_dies_slowly_is_in_nobodys_way() {
        let dir = std::env::temp_dir().join(format!("stead-paths-{}", std::process::id()));
        let setup = Setup {
            terminal: "t".into(),
            kind: Kind::Bash,
            program: Vec::new(),
            env: Vec::new(),
            cwd: "/".into(),
            dir: dir.clone(),
            cgroup: None,
        };
        let old = Paths::fresh(&setup).unwrap();
        private_dir(&old.ctl_dir()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let records = (0..).take_while(|_| !over.load(Ordering::Relaxed));
                records
                    .for_each(|number| drop(fs::write(old.ctl_dir().join(number.to_string()), "")));
            });
            for _ in 0..200 {
                let new = Paths::fresh(&setup).unwrap();
                assert_ne!(new.run, old.run);
                private_dir(&old.ctl_dir()).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        Paths::fresh(&setup).unwrap();
        assert_eq!(
            fs::read_dir(dir.join("run")).unwrap().count(),
            1,
            "what was left is taken away"
        );
        place::remove(&dir).unwrap();
    }
}
