//! What a drive file is made of, and what a dump consists of.

use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;

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

/// Appends all parts.
pub fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
}
